//! Whose memory an object's is, in a real sandbox: the kernel's own account of both sides.

use std::fs;
use std::path::{Path, PathBuf};

use crate::isolation::engines;
use crate::platform::{Node, python, wait_for};
use crate::skipped::skip;

const BYTES: u64 = 8 << 20;
/// Fills memory of the node's, publishes it, and holds what it reads of it.
const HANDLER: &str = r#"
import os

held = []

def handler(event, context):
    if not os.environ.get("NIGH_FAST_PATH"):
        return "no network"
    import nigh
    client = nigh.Client()
    with client.create("data", "made", event["bytes"]) as draft:
        piece = b"7" * 65536
        for at in range(0, event["bytes"], len(piece)):
            draft.memory[at:at + len(piece)] = piece[:event["bytes"] - at]
        draft.commit()
    view = client.get("data", "made")
    held.append(view)
    memory = view.memory
    return all(memory[at] == 55 for at in range(0, len(memory), 4096))
"#;

/// The memory cgroup tree, and the file that tells what a group takes.
fn memory_tree() -> (&'static Path, &'static str) {
    let v1 = Path::new("/sys/fs/cgroup/memory");
    if v1.is_dir() { (v1, "memory.usage_in_bytes") } else { (Path::new("/sys/fs/cgroup"), "memory.current") }
}

fn bytes_of(group: &Path) -> Option<u64> {
    fs::read_to_string(group.join(memory_tree().1)).ok()?.trim().parse().ok()
}

/// A group of this test's own, removed at the end.
struct Group(PathBuf);

impl Group {
    fn make(name: &str) -> Option<Self> {
        let group = memory_tree().0.join(format!("nigh-test-{name}-{}", std::process::id()));
        fs::create_dir(&group).ok()?;
        let group = Self(group);
        bytes_of(&group.0).map(|_| group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // What was in it has ended; the kernel may need a moment to see it.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

#[test]
fn what_a_function_fills_and_reads_is_paid_by_the_node_and_not_by_its_sandbox() {
    let test = "what_a_function_fills_and_reads_is_paid_by_the_node_and_not_by_its_sandbox";
    let Some(python) = python(test) else { return };
    for engine in engines(test) {
        let Some(own) = Group::make("node") else {
            return skip(test, "memory cgroups cannot be made here");
        };
        let node = Node::start_with(&python, &["--set", engine, "--set", "functions.prewarm=off"]);
        node.ok(["objects", "mb", "nigh://data"]);
        node.deploy_code("filler", HANDLER, "256MiB");
        // What runs once is there, and the sandbox stays: what changes then is the object's.
        let first = node.json(["invoke", "filler", r#"{"bytes": 100000}"#])["payload"].clone();
        if first == "no network" {
            return skip(test, "sandboxes have no network of their own here");
        }
        assert_eq!(first, true, "{engine}");
        // From here on the node's pages are this group's; its sandboxes have their own.
        fs::write(own.0.join("cgroup.procs"), node.process_id().to_string()).unwrap();
        let sandbox = || -> Option<PathBuf> {
            let is_lived_in = |group: &PathBuf| {
                let processes = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
                group.starts_with(memory_tree().0) && !processes.trim().is_empty()
            };
            node.sandbox_groups().into_iter().find(is_lived_in)
        };
        wait_for("one sandbox", || sandbox().is_some());
        let sandbox = sandbox().unwrap();
        let before = (bytes_of(&own.0).unwrap(), bytes_of(&sandbox).unwrap());
        let filled = node.json(["invoke", "filler", &format!(r#"{{"bytes": {BYTES}}}"#)])["payload"].clone();
        assert_eq!(filled, true, "{engine}");
        let after = (bytes_of(&own.0).unwrap(), bytes_of(&sandbox).unwrap());
        let (node_paid, sandbox_paid) = (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
        println!("{engine}: the node paid {node_paid} bytes, the sandbox {sandbox_paid}, for an object of {BYTES}");
        assert!(node_paid >= BYTES, "{engine}: the node paid {node_paid}");
        assert!(sandbox_paid < BYTES / 4, "{engine}: the sandbox paid {sandbox_paid}");
    }
}
