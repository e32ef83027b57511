//! A disk that has no room for what it had promised: a write into the journal's segment fails, as on a broken disk.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};

use super::{READY, WRITES, check, get, health, probes, told};
use crate::platform::{Node, python, wait_for};
use crate::small_disk::SmallDisk;
use crate::store_down::object;

const DISK_MIB: usize = 40;
/// The begin of the first segment stays on the disk: the node has written less when the disk breaks its promise.
const KEPT_BYTES: u64 = 4 << 20;
/// So does its end, where the second copy of its header is.
const END_BYTES: u64 = 4096;
/// What takes the room.
const OTHER: &str = "other";

/// Gives the room of the journal's first segment, and all that is left on the disk, to another file.
fn overcommit(disk: &Path) {
    let segment = OpenOptions::new().write(true).open(disk.join("journal/segment-000001")).unwrap();
    let taken = segment.metadata().unwrap().len() - KEPT_BYTES - END_BYTES;
    fallocate(&segment, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, KEPT_BYTES, taken).unwrap();
    let mut other = File::create(disk.join(OTHER)).unwrap();
    while other.write_all(&[1; 4096]).is_ok() {}
}

/// Whether the node has taken the object.
fn put(node: &Node, key: usize) -> bool {
    let file = node.state.with_file_name("object");
    std::fs::write(&file, object(key)).unwrap();
    node.nigh(["objects", "cp", file.to_str().unwrap(), &format!("nigh://data/{key}")]).status.success()
}

fn is_there(node: &Node, key: usize) -> bool {
    node.nigh(["objects", "cp", &format!("nigh://data/{key}"), "-"]).stdout == object(key)
}

#[test]
fn a_node_whose_journal_has_failed_is_live_reads_and_takes_no_write_until_it_is_restarted() {
    let test = "a_node_whose_journal_has_failed_is_live_reads_and_takes_no_write_until_it_is_restarted";
    let Some(python) = python(test) else { return };
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(test, folder.path(), DISK_MIB) else { return };
    let journal = format!("writes.journal={}", disk.folder.join("journal").display());
    let set = ["writes.mode=lazy", "writes.journal_max=48 MiB", "cache.object_max=1 MiB", &journal];
    let flags: Vec<&str> = set.into_iter().flat_map(|one| ["--set", one]).collect();
    let mut node = Node::start_by(disk.way_in(), &python, &flags);
    node.ok(["objects", "mb", "nigh://data"]);
    let address = health(&node.state);
    assert!(put(&node, 0));
    assert_eq!(probes(&address), told([(200, "ok"); 4]));

    overcommit(&disk.outside());
    let mut taken = 1;
    while put(&node, taken) {
        taken += 1;
        assert!(taken < DISK_MIB, "the disk has room for all");
    }
    wait_for("the journal to have failed", || get(&address, WRITES).status == 503);
    let failed = || told([(200, "ok"), (503, "journal_failed"), (200, "degraded"), (503, "journal_failed")]);
    assert_eq!(probes(&address), failed());
    let why = check(&get(&address, READY).json(), "journal")["why"].as_str().unwrap().to_owned();
    assert!(why.contains("until the node is restarted: ") && why.contains("segment-000001 failed"), "{why}");
    assert_eq!(get(&address, "/health/cluster").told(), (200, "ok".to_owned()));
    assert!(is_there(&node, 0), "reads are answered");

    // The disk is well again, and what it has of the journal is not known.
    std::fs::remove_file(disk.outside().join(OTHER)).unwrap();
    assert!(!put(&node, taken));
    assert_eq!(probes(&address), failed());
    node.kill();
    node.restart();
    let address = health(&node.state);
    wait_for("the node to be well", || probes(&address) == told([(200, "ok"); 4]));
    assert!((0..taken).all(|key| is_there(&node, key)), "what was acknowledged is there");
    assert!(put(&node, taken) && is_there(&node, taken));
}
