//! Putting sandboxes into classes on the emulated kernel: by CPUs and by tasks, with forks, ends and reused ids in the
//! middle.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::sync::Arc;

use nigh_llc::resctrl::emulator::{Dialect, Emulator, Event, Fault, MachineConfig, MonitoringConfig, Reading};
use nigh_llc::resctrl::{
    BindError, BindResult, CpuList, GroupName, Members, PASSES_MAX, ProcessRef, Resctrl, ResctrlFs, TaskTarget,
    TaskView, Tid, WantedGroup, WantedLayout,
};
use nigh_terms::{ByteSize, CacheDomain};

/// The sandbox's first process.
const BOX: u32 = 100;

fn name(name: &str) -> GroupName {
    GroupName::new(name).unwrap()
}

fn target(group: &str, monitor: Option<&str>) -> TaskTarget {
    TaskTarget { group: Some(name(group)), monitor: monitor.map(name) }
}

/// A machine with two classes and a sandbox of two threads and a child.
fn machine(config: MachineConfig) -> (Emulator, Resctrl, Members) {
    let emulator = Emulator::new(config);
    let resctrl = Resctrl::open(Arc::new(emulator.clone()), Arc::new(emulator.clone())).unwrap();
    let groups = ["nigh-a", "nigh-b"].map(|title| WantedGroup {
        name: name(title),
        masks: BTreeMap::new(),
        bandwidth: BTreeMap::new(),
    });
    resctrl.apply(&WantedLayout { groups: groups.to_vec() }).unwrap();
    emulator.inject(Fault::Spawn { pid: BOX, uid: 7 });
    emulator.inject(Fault::Thread { of: BOX, tid: 101 });
    emulator.inject(Fault::Fork { of: BOX, pid: 102 });
    let started = emulator.started(Tid(BOX)).unwrap();
    (emulator, resctrl, Members::Tree(ProcessRef { pid: Tid(BOX), started }))
}

fn both_kernels() -> [MachineConfig; 2] {
    [Dialect::Linux6_1, Dialect::Linux7].map(MachineConfig::silver_4210r)
}

#[test]
fn every_thread_and_child_is_moved_and_nothing_is_written_twice() {
    for config in both_kernels() {
        let (emulator, resctrl, members) = machine(config);
        let target = target("nigh-a", None);
        let bound = resctrl.bind_tasks(&members, &target).unwrap();
        assert_eq!(bound, BindResult { moved: 3, passes: 3, ..BindResult::default() });
        let verified = resctrl.verify(&members, &target).unwrap();
        assert_eq!((verified.checked, verified.astray), (3, vec![]));
        // In place already: a write would fail.
        emulator.schedule(0, Fault::Fail(rustix::io::Errno::IO.raw_os_error()));
        assert_eq!(resctrl.bind_tasks(&members, &target).unwrap().moved, 0);
        assert_eq!(emulator.cpu_resctrl_groups(1).unwrap(), "res:/\nmon:\n");
    }
}

#[test]
fn a_sandbox_goes_back_to_the_default_group_with_its_counters() {
    for config in both_kernels() {
        let (_, resctrl, members) = machine(config);
        resctrl.bind_tasks(&members, &target("nigh-a", Some("nigh-box"))).unwrap();
        let back = TaskTarget { group: None, monitor: Some(name("nigh-box")) };
        let bound = resctrl.bind_tasks(&members, &back).unwrap();
        assert!(bound.monitored);
        let verified = resctrl.verify(&members, &back).unwrap();
        assert_eq!((verified.checked, verified.astray), (3, vec![]));
        resctrl.bind_tasks(&members, &TaskTarget { group: None, monitor: None }).unwrap();
    }
}

#[test]
fn threads_forked_while_being_moved_are_moved_too() {
    for config in both_kernels() {
        let (emulator, resctrl, members) = machine(config);
        // The child, still in the old class, forks after the list was made; so does a thread later.
        emulator.schedule(1, Fault::Fork { of: 102, pid: 103 });
        emulator.schedule(3, Fault::Thread { of: 103, tid: 104 });
        let target = target("nigh-a", None);
        let bound = resctrl.bind_tasks(&members, &target).unwrap();
        assert_eq!((bound.moved, bound.passes), (5, 5));
        assert_eq!(resctrl.verify(&members, &target).unwrap().astray, []);
    }
}

#[test]
fn threads_that_end_while_being_moved_are_no_failure() {
    let (emulator, resctrl, members) = machine(MachineConfig::silver_4210r(Dialect::Linux7));
    emulator.schedule(1, Fault::Exit { tid: 101 });
    let bound = resctrl.bind_tasks(&members, &target("nigh-a", None)).unwrap();
    assert_eq!(bound.moved, 2);
}

#[test]
fn a_sandbox_that_forks_without_end_is_given_up_and_said() {
    let (emulator, resctrl, members) = machine(MachineConfig::silver_4210r(Dialect::Linux7));
    // Somebody puts a thread back before each move.
    for command in 0..200 {
        let text = BOX.to_string();
        emulator.schedule(command, Fault::ForeignWrite { path: "tasks".to_owned(), text: text.clone() });
        emulator.schedule(command, Fault::ForeignWrite { path: "tasks".to_owned(), text: "101".to_owned() });
    }
    let error = resctrl.bind_tasks(&members, &target("nigh-a", None)).unwrap_err().to_string();
    assert!(error.contains(&format!("after {PASSES_MAX} passes")), "{error}");
}

#[test]
fn an_ended_or_reused_process_is_not_moved() {
    let (emulator, resctrl, members) = machine(MachineConfig::silver_4210r(Dialect::Linux7));
    emulator.inject(Fault::Spawn { pid: BOX, uid: 8 });
    let error = resctrl.bind_tasks(&members, &target("nigh-a", None)).unwrap_err();
    assert!(matches!(error, BindError::Ended(_)), "{error}");
    assert_eq!(emulator.cpu_resctrl_groups(BOX).unwrap(), "res:/\nmon:\n");
    emulator.inject(Fault::Exit { tid: BOX });
    assert!(matches!(resctrl.bind_tasks(&members, &target("nigh-a", None)), Err(BindError::Ended(_))));
}

#[test]
fn a_stranger_moved_through_a_reused_id_is_put_back_where_its_parent_is() {
    let (emulator, resctrl, members) = machine(MachineConfig::silver_4210r(Dialect::Linux7));
    emulator.make_group("theirs").unwrap();
    emulator.inject(Fault::Spawn { pid: 500, uid: 9 });
    emulator.write("theirs/tasks", "500").unwrap();
    // Just before 101 is written it ends, and a child of 500 gets its id.
    emulator.schedule(1, Fault::Exit { tid: 101 });
    emulator.schedule(1, Fault::Fork { of: 500, pid: 101 });
    let bound = resctrl.bind_tasks(&members, &target("nigh-a", None)).unwrap();
    assert_eq!((bound.moved, bound.put_back), (2, 1));
    assert_eq!(emulator.cpu_resctrl_groups(101).unwrap(), "res:theirs\nmon:\n");
}

#[test]
fn one_rename_moves_a_watched_sandbox_and_stragglers_follow() {
    let (emulator, resctrl, members) = machine(MachineConfig::silver_4210r(Dialect::Linux7));
    let (first, second) = (target("nigh-a", Some("nigh-box")), target("nigh-b", Some("nigh-box")));
    let bound = resctrl.bind_tasks(&members, &first).unwrap();
    assert!(bound.monitored && !bound.renamed);
    emulator.set_counter("nigh-a/mon_groups/nigh-box", 0, Event::Occupancy, Reading::Value(4096)).unwrap();
    let bound = resctrl.bind_tasks(&members, &second).unwrap();
    assert_eq!(bound, BindResult { passes: 2, renamed: true, monitored: true, ..BindResult::default() });
    assert_eq!(resctrl.verify(&members, &second).unwrap().astray, []);
    let counters = resctrl.counters(&second).unwrap();
    let occupancy = counters[&CacheDomain(0)].occupancy.and_then(|counter| counter.bytes());
    assert_eq!(occupancy, Some(ByteSize(4096).bytes()), "the count goes along");
    // A fork in flight kept the old class.
    emulator.schedule(1, Fault::Fork { of: BOX, pid: 110 });
    emulator.schedule(1, Fault::ForeignWrite { path: "tasks".to_owned(), text: "110".to_owned() });
    emulator.inject(Fault::ForeignWrite { path: "tasks".to_owned(), text: "101".to_owned() });
    let bound = resctrl.bind_tasks(&members, &first).unwrap();
    assert!(bound.renamed && bound.moved == 2, "{bound:?}");
    assert_eq!(resctrl.verify(&members, &first).unwrap().astray, []);
}

#[test]
fn an_older_kernel_moves_a_watched_sandbox_in_passes() {
    let (_, resctrl, members) = machine(MachineConfig::silver_4210r(Dialect::Linux6_1));
    resctrl.bind_tasks(&members, &target("nigh-a", Some("nigh-box"))).unwrap();
    let second = target("nigh-b", Some("nigh-box"));
    let bound = resctrl.bind_tasks(&members, &second).unwrap();
    assert_eq!((bound.renamed, bound.monitored, bound.moved), (false, true, 3));
    assert_eq!(resctrl.verify(&members, &second).unwrap().astray, []);
}

#[test]
fn an_ended_sandboxs_monitoring_group_is_removed_wherever_it_stands() {
    for config in both_kernels() {
        let (emulator, resctrl, members) = machine(config);
        resctrl.bind_tasks(&members, &target("nigh-b", Some("nigh-box"))).unwrap();
        assert!(!resctrl.has_ended(&members).unwrap());
        for tid in [101, 102, BOX] {
            emulator.inject(Fault::Exit { tid });
        }
        assert!(resctrl.has_ended(&members).unwrap());
        assert!(resctrl.remove_monitor(&name("nigh-box")).unwrap());
        assert!(!resctrl.remove_monitor(&name("nigh-box")).unwrap(), "it is gone");
        // Another process with the same id is not the sandbox.
        emulator.inject(Fault::Spawn { pid: BOX, uid: 8 });
        assert!(resctrl.has_ended(&members).unwrap());
    }
    let cgroup = tempfile::tempdir().unwrap();
    let (_, resctrl, _) = machine(MachineConfig::silver_4210r(Dialect::Linux7));
    let group = Members::Cgroup(cgroup.path().to_owned());
    assert!(!resctrl.has_ended(&group).unwrap());
    drop(cgroup);
    assert!(resctrl.has_ended(&group).unwrap());
}

#[test]
fn without_monitoring_ids_the_class_is_kept_and_the_count_given_up() {
    let mut config = MachineConfig::silver_4210r(Dialect::Linux7);
    config.monitoring = Some(MonitoringConfig::all_events(3));
    let (_, resctrl, members) = machine(config);
    let bound = resctrl.bind_tasks(&members, &target("nigh-a", Some("nigh-box"))).unwrap();
    assert_eq!((bound.monitored, bound.moved), (false, 3));
    assert_eq!(resctrl.verify(&members, &target("nigh-a", None)).unwrap().astray, []);
}

#[test]
fn cpus_are_bound_with_one_write_and_never_taken_from_others() {
    for config in both_kernels() {
        let (emulator, resctrl, _) = machine(config);
        let cpus = |text: &str| text.parse::<CpuList>().unwrap();
        let a = name("nigh-a");
        assert!(resctrl.bind_cpus(&a, &cpus("2-3")).unwrap());
        assert!(resctrl.bind_cpus(&a, &cpus("5")).unwrap());
        assert_eq!(emulator.read("nigh-a/cpus_list").unwrap(), "2-3,5\n");
        assert!(!resctrl.bind_cpus(&a, &cpus("3,5")).unwrap());
        // From one class of Nigh's to another: one write too.
        assert!(resctrl.bind_cpus(&name("nigh-b"), &cpus("3")).unwrap());
        assert_eq!(emulator.read("nigh-a/cpus_list").unwrap(), "2,5\n");
        emulator.make_group("theirs").unwrap();
        emulator.write("theirs/cpus_list", "8-9\n").unwrap();
        let error = resctrl.bind_cpus(&a, &cpus("7-8")).unwrap_err().to_string();
        assert!(error.contains("the CPUs 8 belong to the group theirs"), "{error}");
        assert!(resctrl.release_cpus(&a, &cpus("2,5")).unwrap());
        assert!(!resctrl.release_cpus(&a, &cpus("2,5")).unwrap());
        assert_eq!(emulator.read("nigh-a/cpus_list").unwrap(), "\n");
        let error = resctrl.bind_cpus(&a, &cpus("400")).unwrap_err().to_string();
        assert!(error.contains("Bad CPU list/mask"), "{error}");
    }
}

#[test]
fn a_task_that_may_not_be_moved_is_an_error_with_the_kernels_reason() {
    let (emulator, resctrl, members) = machine(MachineConfig::silver_4210r(Dialect::Linux7));
    emulator.set_writer(1, 1000);
    let error = resctrl.bind_tasks(&members, &target("nigh-a", None)).unwrap_err().to_string();
    assert!(error.contains("No permission to move task 100"), "{error}");
}
