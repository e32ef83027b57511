//! What this machine has for Nigh, for `nigh doctor`: each part is tried as a start tries it. What was made for a trial is
//! removed. Nothing is judged here.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use nigh_data::large_folios_are_offered;
use nigh_llc::resctrl::{Resctrl, UnavailableReason};
use nigh_sandbox::cgroup::Controls;
use nigh_sandbox::sandbox::SandboxEngine as _;
use nigh_sandbox::sandbox::local::{EngineSettings, LocalEngine};
use nigh_sizing::object_features::parser_process::ParserProgram;
use nigh_terms::ByteSize;
use nigh_ways::cache_shape;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::config::{Settings, Switch};
use crate::http_adapter;
use crate::machine::Machine;
use crate::node::{engine_settings, few_files};
use crate::node_js;
use crate::python;

/// A machine, and what Nigh finds there.
#[derive(Clone, Debug)]
pub struct Inventory {
    /// The kernel's release.
    pub kernel: String,
    /// True if this is root.
    pub is_root: bool,
    /// The memory that Nigh may use, and that of the settings `functions.memory` and `cache.bytes` together.
    pub memory: (ByteSize, ByteSize),
    /// The isolation of sandboxes; the error is why none works.
    pub isolation: Result<IsolationFound, String>,
    /// The Pythons of functions, the default first; the error has the command that mends it.
    pub python: Result<String, String>,
    /// The Node.js of functions; the error is why there is none.
    pub node_js: Result<String, String>,
    /// The ways and classes of the last-level cache; the error is why none can be given, and the command that mends it.
    pub cache_ways: Result<String, CacheWaysLack>,
    /// True if the kernel gives memory of objects in larger pieces than a page.
    pub has_large_folios: bool,
    /// The disk of the state folder; the error is why nothing is known of it.
    pub disk: Result<DiskFound, String>,
    /// The hard limit of open files, and what a node lacks with it.
    pub open_files: (u64, Option<String>),
    /// The helper programs that are not installed beside `nigh`.
    pub missing_programs: Vec<&'static str>,
    /// The settings of addresses at which a node could not listen, and why.
    pub taken: Vec<TakenAddress>,
}

/// The isolation that a trial found.
#[derive(Clone, Debug)]
pub struct IsolationFound {
    /// `runc` or `process`.
    pub kind: String,
    /// True if each sandbox is isolated from the others and from this machine's files.
    pub has_namespaces: bool,
    /// Stronger isolation that does not work here, with the reasons.
    pub refused: Vec<String>,
    /// `cgroup v1` or `cgroup v2`.
    pub cgroups: String,
    /// What cgroups do not control here, and why.
    pub uncontrolled: Vec<(String, String)>,
}

/// Why sandboxes get no cache ways of their own.
#[derive(Clone, Debug)]
pub struct CacheWaysLack {
    /// The reason.
    pub why: String,
    /// The command that mends it; none if nothing does.
    pub mend: Option<String>,
}

/// The disk of the state folder.
#[derive(Clone, Copy, Debug)]
pub struct DiskFound {
    /// The bytes that may be written.
    pub free: ByteSize,
    /// True if its files are gone after a restart of the machine.
    pub is_memory: bool,
}

/// An address that somebody else has.
#[derive(Clone, Debug)]
pub struct TakenAddress {
    /// The setting.
    pub setting: String,
    /// The address.
    pub address: SocketAddr,
    /// The system's reason.
    pub why: String,
}

/// Looks at this machine. `is_running` says that a node with these settings runs, which has the addresses itself.
pub async fn take(settings: &Settings, is_running: bool) -> Inventory {
    let machine = Machine::probe();
    let functions = &settings.functions;
    let pythons = python::find_all(&functions.python, &functions.runtime_folders.0).await;
    let nodes = node_js::find(&functions.node).await;
    let limit = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    Inventory {
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        is_root: rustix::process::geteuid().is_root(),
        memory: (machine.memory, functions.memory + settings.cache.bytes),
        isolation: isolation(settings).await,
        python: pythons
            .map(|found| found.all().map(ToString::to_string).collect::<Vec<_>>().join("; "))
            .map_err(|error| error.to_string()),
        node_js: nodes.map(|found| {
            let named = found.iter().map(|node| format!("nodejs{} at {}", node.major, node.program.display()));
            named.collect::<Vec<_>>().join("; ")
        }),
        cache_ways: cache_ways(),
        has_large_folios: large_folios_are_offered(),
        disk: disk(&settings.state),
        open_files: (limit, few_files(settings, limit)),
        missing_programs: missing_programs(settings),
        taken: if is_running { Vec::new() } else { taken(settings) },
    }
}

/// Tries the isolation under a name of its own, beside a node that may run.
async fn isolation(settings: &Settings) -> Result<IsolationFound, String> {
    let instance = format!("doctor{}", std::process::id());
    let engine_settings = EngineSettings { blanks: 0, ..engine_settings(settings, &instance) };
    let opened = LocalEngine::open(engine_settings).await;
    let found = match &opened {
        Ok(engine) => {
            let isolation = engine.probe();
            let Controls { version, memory, processes, freezer, cpu } = &isolation.controls;
            let uncontrolled =
                [("memory", memory), ("processes", processes), ("freezing", freezer), ("processor", cpu)];
            let filter = isolation.filter.as_ref().err().map(|why| format!("filter of system calls: {why}"));
            Ok(IsolationFound {
                kind: engine.kind().to_owned(),
                has_namespaces: isolation.level.has_namespaces(),
                refused: isolation.refused.iter().cloned().chain(filter).collect(),
                cgroups: (*version).to_owned(),
                uncontrolled: uncontrolled
                    .into_iter()
                    .filter_map(|(what, state)| Some((what.to_owned(), state.as_ref().err()?.clone())))
                    .collect(),
            })
        }
        Err(error) => Err(error.to_string()),
    };
    if let Ok(engine) = opened {
        // It removes what it made: groups, and the folder of runc's trial.
        engine.close().await;
    }
    found
}

fn cache_ways() -> Result<String, CacheWaysLack> {
    let lack = |reason: UnavailableReason| {
        let mend = match reason {
            UnavailableReason::NotMounted => Some("mount -t resctrl resctrl /sys/fs/resctrl"),
            UnavailableReason::NotPermitted => Some("sudo nigh up"),
            _ => None,
        };
        CacheWaysLack { why: reason.to_string(), mend: mend.map(str::to_owned) }
    };
    let probe = Resctrl::open_kernel().and_then(|resctrl| resctrl.probe()).map_err(lack)?;
    match cache_shape(&probe) {
        Some(shape) => Ok(format!("{} ways, {} classes", shape.ways, shape.classes)),
        None => Err(lack(UnavailableReason::NoCache)),
    }
}

/// The disk of `state`, or of the folder in which it will be made.
fn disk(state: &Path) -> Result<DiskFound, String> {
    let there = state.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("/"));
    let unknown = |error: Errno| format!("{}: {error}", there.display());
    let room = rustix::fs::statvfs(there).map_err(unknown)?;
    // The magic number of tmpfs (statfs(2)).
    let is_memory = rustix::fs::statfs(there).map_err(unknown)?.f_type == 0x0102_1994;
    Ok(DiskFound { free: ByteSize(room.f_bavail.saturating_mul(room.f_frsize)), is_memory })
}

fn missing_programs(settings: &Settings) -> Vec<&'static str> {
    let features = match &settings.memory.features_program {
        Some(program) => program.is_file().then(|| program.clone()),
        None => ParserProgram::installed(),
    };
    let needs_features = settings.memory.features == Switch::On;
    let mut missing = Vec::new();
    if needs_features && features.is_none() {
        missing.push("nigh-features");
    }
    if http_adapter::find().is_err() {
        missing.push(http_adapter::NAME);
    }
    missing
}

fn taken(settings: &Settings) -> Vec<TakenAddress> {
    let doors = [
        ("s3.listen", settings.s3.listen),
        ("lambda.listen", settings.lambda.listen),
        ("admin.listen", settings.admin_listen()),
        ("health.listen", settings.health_listen()),
    ];
    let refused = |(setting, address): (&str, SocketAddr)| {
        let why = TcpListener::bind(address).err()?.to_string();
        Some(TakenAddress { setting: setting.to_owned(), address, why })
    };
    doors.into_iter().filter_map(refused).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_address_is_found_and_the_disk_of_a_folder_to_be_made_is_its_parents() {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine { hostname: "here".to_owned(), memory: ByteSize::gib(1), cpus: 1 };
        let mut settings = Settings::defaults(&folder.path().join("a/b"), &machine);
        let holder = TcpListener::bind("127.0.0.1:0").unwrap();
        settings.s3.listen = holder.local_addr().unwrap();
        settings.lambda.listen = SocketAddr::from(([127, 0, 0, 1], 0));
        settings.health.listen = Some(settings.lambda.listen);
        settings.admin.listen = Some(settings.lambda.listen);
        let taken = taken(&settings);
        assert_eq!(taken.iter().map(|one| one.setting.as_str()).collect::<Vec<_>>(), ["s3.listen"]);
        assert!(disk(&settings.state).unwrap().free > ByteSize::ZERO);
        assert!(!settings.state.exists(), "nothing is made to look");
    }
}
