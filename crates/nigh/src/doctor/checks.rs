//! What an inventory means: each part's verdict, what a lack costs, and the command that mends it. Pure.

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use nigh_node::endpoints::Endpoints;
use nigh_node::inventory::{CacheWaysLack, DiskFound, Inventory, IsolationFound};
use nigh_terms::ByteSize;

/// Less room than this on the disk is told: the journal and new code need it.
const DISK_LITTLE: ByteSize = ByteSize::gib(1);
/// With less room than this a node soon rejects writes.
const DISK_NONE: ByteSize = ByteSize::mib(64);
/// The first kernel whose memory of objects can come in larger pieces.
const LARGE_FOLIOS_SINCE: (u32, u32) = (6, 11);

/// What is thought of one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// All that it can be.
    Ok,
    /// It works, at a cost.
    Less,
    /// A node, or its functions, cannot run.
    Broken,
}

impl Verdict {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Less => "less",
            Self::Broken => "broken",
        }
    }
}

/// One part of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) verdict: Verdict,
    pub(super) found: String,
    /// What the lack costs.
    pub(super) cost: Option<String>,
    /// The command or setting that mends it; none if nothing on this machine does.
    pub(super) mend: Option<String>,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Ok, found: found.into(), cost: None, mend: None }
    }

    fn less(name: &'static str, found: impl Into<String>, cost: &str, mend: Option<String>) -> Self {
        Self { name, verdict: Verdict::Less, found: found.into(), cost: Some(cost.to_owned()), mend }
    }

    fn broken(name: &'static str, found: impl Into<String>, cost: &str, mend: impl Into<String>) -> Self {
        let (cost, mend) = (Some(cost.to_owned()), Some(mend.into()));
        Self { name, verdict: Verdict::Broken, found: found.into(), cost, mend }
    }

    /// The settings, which have `faults` faults.
    pub(super) fn of_settings(file: &Option<PathBuf>, faults: usize) -> Self {
        let name = "settings";
        match (faults, file) {
            (0, Some(file)) => Self::ok(name, format!("read from {}", file.display())),
            (0, None) => Self::ok(name, "the defaults; no file"),
            (1, _) => Self::broken(name, "1 fault", "no command that reads them works", "nigh config check"),
            (more, _) => {
                Self::broken(name, format!("{more} faults"), "no command that reads them works", "nigh config check")
            }
        }
    }

    /// Whether a node runs with this state folder. That none does is no fault.
    pub(super) fn of_node(node: Option<&Endpoints>, state: &Path) -> Self {
        let state = state.display();
        match node {
            Some(Endpoints { pid, s3, lambda, .. }) => {
                Self::ok("node", format!("runs, process {pid}, s3 {s3}, lambda {lambda}; state {state}"))
            }
            None => Self::ok("node", format!("none runs with the state {state}; `nigh up` starts one")),
        }
    }
}

/// The checks of a machine.
pub(super) fn checks(found: &Inventory) -> Vec<Check> {
    let mut checks = vec![isolation(found), cgroups(found), python(found), node_js(found), cache_ways(found)];
    checks.extend([kernel(found), disk(found), memory(found), open_files(found), programs(found), addresses(found)]);
    checks
}

fn isolation(found: &Inventory) -> Check {
    let name = "isolation";
    match &found.isolation {
        Err(why) => Check::broken(
            name,
            why,
            "no function runs",
            "sudo nigh up; or nigh up --trust-functions, if you trust every function with your files",
        ),
        Ok(IsolationFound { has_namespaces: false, refused, .. }) => Check::less(
            name,
            format!("weak: {}", refused.join("; ")),
            "a function sees the files, processes and network of its user on this machine",
            Some("sudo nigh up; or allow user namespaces: sysctl -w kernel.unprivileged_userns_clone=1".to_owned()),
        ),
        Ok(IsolationFound { kind, refused, .. }) if refused.is_empty() => {
            Check::ok(name, format!("{kind}: each sandbox its own user, files, processes and network"))
        }
        Ok(IsolationFound { kind, refused, .. }) if kind == "runc" => Check::less(
            name,
            format!("runc, but: {}", refused.join("; ")),
            "root in a sandbox, which no function is, would be root here",
            None,
        ),
        Ok(IsolationFound { refused, .. }) if found.is_root => Check::less(
            name,
            format!("Nigh's own, since {}", refused.join("; ")),
            "one wall less: no user namespace around a sandbox",
            Some("apt-get install runc".to_owned()),
        ),
        Ok(_) => Check::less(
            name,
            "Nigh's own, in a user namespace; not root",
            "all sandboxes are one user of this machine; none is pre-warmed, so cold starts take longer",
            Some("run `nigh up` as root".to_owned()),
        ),
    }
}

fn cgroups(found: &Inventory) -> Check {
    let name = "cgroups";
    let Ok(IsolationFound { cgroups, uncontrolled, .. }) = &found.isolation else {
        return Check::less(name, "not tried, because isolation is broken", "limits are not known", None);
    };
    let Some((_, why)) = uncontrolled.first() else {
        return Check::ok(name, format!("{cgroups}: memory, processes, freezing, processor"));
    };
    let parts: Vec<&str> = uncontrolled.iter().map(|(part, _)| part.as_str()).collect();
    let has_memory = !parts.contains(&"memory");
    Check::less(
        name,
        format!("{cgroups} controls no {} here: {why}", parts.join(", ")),
        if has_memory {
            "functions share what is not limited"
        } else {
            "no memory limit and no peak: a function can take more than it booked, and no model learns its need"
        },
        Some(if found.is_root {
            "mount -t cgroup2 none /sys/fs/cgroup; in a container, start it with its own cgroup namespace".to_owned()
        } else {
            "systemd-run --user --scope -p Delegate=yes nigh up; or run `nigh up` as root".to_owned()
        }),
    )
}

fn python(found: &Inventory) -> Check {
    match &found.python {
        Ok(python) => Check::ok("python", python.as_str()),
        Err(why) => {
            // The reason has the command in it, behind `run`.
            let mend = why.split('`').nth(1).unwrap_or("nigh up --python PROGRAM");
            let why = why.split("; ").next().unwrap_or_default();
            Check::less("python", why, "no Python function runs", Some(mend.to_owned()))
        }
    }
}

fn node_js(found: &Inventory) -> Check {
    match &found.node_js {
        Ok(node) => Check::ok("node.js", node.as_str()),
        Err(why) => Check::less(
            "node.js",
            why,
            "no Node.js function runs",
            Some("apt-get install nodejs; or set functions.node to one".to_owned()),
        ),
    }
}

fn cache_ways(found: &Inventory) -> Check {
    match &found.cache_ways {
        Ok(ways) => Check::ok("cache ways", ways.as_str()),
        Err(CacheWaysLack { why, mend }) => Check::less(
            "cache ways",
            why,
            "functions share the last-level cache: one that fills it slows those that need it",
            mend.clone(),
        ),
    }
}

fn kernel(found: &Inventory) -> Check {
    let (name, kernel) = ("kernel", &found.kernel);
    if found.has_large_folios {
        return Check::ok(name, format!("Linux {kernel}; objects in large pieces of memory"));
    }
    let mend = if release(kernel) >= LARGE_FOLIOS_SINCE {
        "echo advise > /sys/kernel/mm/transparent_hugepage/hugepages-64kB/shmem_enabled (as root, at each boot)"
    } else {
        "Linux 6.11 or newer"
    };
    Check::less(
        name,
        format!("Linux {kernel}; objects in pieces of 4 KiB"),
        "the first read of a large object takes more processor time",
        Some(mend.to_owned()),
    )
}

/// The first two numbers of a kernel's release.
fn release(text: &str) -> (u32, u32) {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn disk(found: &Inventory) -> Check {
    let name = "disk";
    let elsewhere = "nigh up --state FOLDER, with a folder on a disk";
    match &found.disk {
        Err(why) => Check::less(name, why, "its room is not known", None),
        Ok(DiskFound { free, .. }) if *free < DISK_NONE => Check::broken(
            name,
            format!("full: {free} free"),
            "writes are rejected until there is room",
            format!("remove files there; or {elsewhere}"),
        ),
        Ok(DiskFound { is_memory: true, free }) => Check::less(
            name,
            format!("memory (tmpfs), {free} free"),
            "what is acknowledged is lost when the machine restarts",
            Some(elsewhere.to_owned()),
        ),
        Ok(DiskFound { free, .. }) if *free < DISK_LITTLE => Check::less(
            name,
            format!("{free} free"),
            "writes are rejected when it is full",
            Some(format!("remove files there; or {elsewhere}")),
        ),
        Ok(DiskFound { free, .. }) => Check::ok(name, format!("{free} free")),
    }
}

fn memory(found: &Inventory) -> Check {
    let (machine, settings) = found.memory;
    if settings <= machine {
        return Check::ok("memory", format!("{machine}, of which functions and cached objects may have {settings}"));
    }
    Check::less(
        "memory",
        format!("{machine}, but functions.memory and cache.bytes are {settings} together"),
        "the kernel kills processes when they use it",
        Some("nigh up --cache SIZE, or less functions.memory".to_owned()),
    )
}

fn open_files(found: &Inventory) -> Check {
    match &found.open_files {
        (limit, None) => Check::ok("open files", format!("{limit} at a time")),
        (limit, Some(why)) => Check::less(
            "open files",
            format!("{limit} at a time"),
            why,
            Some("ulimit -n 65536, before nigh up; with systemd, LimitNOFILE=65536".to_owned()),
        ),
    }
}

fn programs(found: &Inventory) -> Check {
    let missing = &found.missing_programs;
    if missing.is_empty() {
        return Check::ok("programs", "all are beside nigh");
    }
    Check::less(
        "programs",
        format!("{} is not beside nigh", missing.join(" and ")),
        "without nigh-features only sizes of objects are known to models, without nigh-http-adapter there is no provided.http",
        Some("make install, in Nigh's sources; or copy it beside nigh".to_owned()),
    )
}

fn addresses(found: &Inventory) -> Check {
    let Some(first) = found.taken.first() else { return Check::ok("addresses", "free for a node, or its own") };
    let flag = first.setting.replace('.', "-");
    Check::broken(
        "addresses",
        format!("{} {}: {}", first.setting, first.address, first.why),
        "a node does not start",
        format!("nigh up --{flag} 127.0.0.1:0, which takes a free one"),
    )
}
