//! The OCI configuration of a blank sandbox: the whole isolation that runc sets up. Pure: values in, JSON out.
//!
//! Follows the OCI runtime specification 1.0.2 (`config.md`, `config-linux.md`). The process is Nigh's own init, which
//! never has a privilege. The function's folder, its runtime and the size of its /tmp come later (`late_mount`); the
//! limits are set by the cgroup's own files.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::launch::{INSIDE, OOM_SCORE};
use super::root_tree::{DEVICES_OPTIONS, SHARED_MEMORY_OPTIONS};
use super::seccomp_profile;

/// The path of the init's program inside.
pub(super) const INIT: &str = "/nigh-sandbox";
/// Files in /proc that reveal the host or act on it.
const MASKED: [&str; 11] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/kmsg",
];
/// Files in /proc that programs may read but not write.
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// The values that differ between sandboxes and machines.
#[derive(Clone, Debug)]
pub(super) struct ContainerSpec<'a> {
    /// The folder that becomes the root.
    pub(super) root: &'a Path,
    /// Folders of the host that appear at the same path.
    pub(super) shown: &'a [PathBuf],
    /// Files that replace others: the path on the host, and the path inside.
    pub(super) files: &'a [(PathBuf, PathBuf)],
    /// The user and group of the sandbox's processes, both inside and on the host.
    pub(super) uid: u32,
    /// The user of the host that is root inside. With none, the sandbox has no user namespace.
    pub(super) root_uid: Option<u32>,
    /// The sandbox's cgroup, as runc names it.
    pub(super) cgroup: &'a str,
    /// The options of its /tmp.
    pub(super) tmp: &'a str,
}

/// The text of `config.json`.
pub(super) fn config(walled: &ContainerSpec<'_>) -> Value {
    let ContainerSpec { root, shown, files, uid, root_uid, cgroup, tmp } = walled;
    let mut mounts = vec![
        json!({ "destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"] }),
        memory("/dev", DEVICES_OPTIONS, &["noexec", "ro"]),
        memory("/dev/shm", SHARED_MEMORY_OPTIONS, &["nodev"]),
        memory("/tmp", tmp, &["nodev"]),
    ];
    let here = shown.iter().map(|path| (path, path));
    for (source, destination) in here.chain(files.iter().map(|(from, to)| (from, to))) {
        mounts.push(json!({
            "destination": destination, "type": "bind", "source": source,
            // The `r` prefixes make the options apply to all mounts below.
            "options": ["rbind", "rro", "rnosuid", "rnodev"],
        }));
    }
    let mut namespaces = vec!["pid", "mount", "network", "ipc", "uts", "cgroup"];
    let mut map = Vec::new();
    if let Some(root_uid) = root_uid {
        namespaces.push("user");
        map = vec![
            json!({ "containerID": 0, "hostID": root_uid, "size": 1 }),
            json!({ "containerID": uid, "hostID": uid, "size": 1 }),
        ];
    }
    let namespaces: Vec<Value> = namespaces.into_iter().map(|kind| json!({ "type": kind })).collect();
    let none: [&str; 0] = [];
    json!({
        "ociVersion": "1.0.2",
        "hostname": "sandbox",
        "root": { "path": root, "readonly": true },
        "mounts": mounts,
        "process": {
            "terminal": false,
            "user": { "uid": uid, "gid": uid },
            "args": [INIT, INSIDE],
            "env": [],
            "cwd": "/",
            "noNewPrivileges": true,
            "oomScoreAdj": OOM_SCORE,
            "capabilities": {
                "bounding": none, "effective": none, "inheritable": none, "permitted": none, "ambient": none,
            },
        },
        "linux": {
            "cgroupsPath": cgroup,
            "namespaces": namespaces,
            "uidMappings": map,
            "gidMappings": map,
            // runc adds the default devices itself, as the specification requires.
            "resources": { "devices": [{ "allow": false, "access": "rwm" }] },
            "maskedPaths": MASKED,
            "readonlyPaths": READ_ONLY,
            "seccomp": seccomp_profile::oci(),
        },
    })
}

fn memory(destination: &str, options: &str, more: &[&str]) -> Value {
    let options: Vec<&str> = ["nosuid"].into_iter().chain(more.iter().copied()).chain(options.split(',')).collect();
    json!({ "destination": destination, "type": "tmpfs", "source": "tmpfs", "options": options })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(root_uid: Option<u32>) -> Value {
        config(&ContainerSpec {
            root: Path::new("/run/nigh/root"),
            shown: &["/usr".into()],
            files: &[("/run/nigh/one/passwd".into(), "/etc/passwd".into())],
            uid: 2_000_000_001,
            root_uid,
            cgroup: "nigh-x/one",
            tmp: "mode=1777,size=1048576",
        })
    }

    #[test]
    fn nothing_is_privileged_and_nothing_of_the_host_can_be_written() {
        let config = with(Some(2_000_016_385));
        let process = &config["process"];
        assert_eq!(process["noNewPrivileges"], true);
        assert_ne!(process["user"]["uid"], 0);
        for (set, capabilities) in process["capabilities"].as_object().unwrap() {
            assert_eq!(capabilities, &json!([]), "{set}");
        }
        assert_eq!(config["root"]["readonly"], true);
        for mount in config["mounts"].as_array().unwrap() {
            let options = mount["options"].as_array().unwrap();
            let has = |option: &str| options.iter().any(|one| one == option);
            assert!(has("nosuid") || has("rnosuid"), "{mount}");
            assert!(mount["type"] != "bind" || has("rro"), "{mount}");
            assert!(mount["destination"] == "/dev" || has("nodev") || has("rnodev"), "{mount}");
        }
        assert_eq!(config["linux"]["resources"]["devices"], json!([{ "allow": false, "access": "rwm" }]));
    }

    #[test]
    fn a_user_namespace_knows_two_users_of_the_host_and_neither_is_its_root() {
        let config = with(Some(2_000_016_385));
        let kinds = config["linux"]["namespaces"].to_string();
        for kind in ["pid", "mount", "network", "ipc", "uts", "cgroup", "user"] {
            assert!(kinds.contains(&format!("\"{kind}\"")), "{kind}");
        }
        let map = config["linux"]["uidMappings"].as_array().unwrap();
        assert_eq!(map.len(), 2);
        assert!(map.iter().all(|line| line["hostID"].as_u64().unwrap() >= 2_000_000_000 && line["size"] == 1));
        assert_eq!(config["linux"]["gidMappings"], config["linux"]["uidMappings"]);
        let without = with(None);
        assert!(!without["linux"]["namespaces"].to_string().contains("user"));
        assert_eq!(without["linux"]["uidMappings"], json!([]));
    }
}
