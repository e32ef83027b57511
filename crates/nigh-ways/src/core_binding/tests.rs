use std::path::Path;
use std::sync::Arc;

use nigh_llc::resctrl::emulator::{Dialect, Emulator, Fault, MachineConfig};
use nigh_llc::resctrl::{Resctrl, ResctrlFs, StartTime, TaskView, Tid};
use nigh_llc::{CasyRequest, ClosLayout};
use nigh_terms::{SandboxId, Ways};

use nigh_invoke::hooks::{InvocationHook as _, Run};

use super::*;
use crate::{ClosBinder, CoreHook, ResctrlClasses, WayAllocation, cache_shape};
use nigh_functions::test_support::function;
use nigh_sandbox::cgroup::cpuset::fake_cpusets;

/// The emulator's tasks, found by the name of a cgroup: `/sandboxes/<pid>`.
struct TasksByCgroup(Emulator);

impl TaskView for TasksByCgroup {
    fn started(&self, tid: Tid) -> std::io::Result<StartTime> {
        self.0.started(tid)
    }
    fn parent(&self, tid: Tid) -> std::io::Result<Tid> {
        self.0.parent(tid)
    }
    fn groups(&self, tid: Tid) -> std::io::Result<String> {
        self.0.groups(tid)
    }
    fn members(&self, of: &Members) -> std::io::Result<Vec<Tid>> {
        let Members::Cgroup(path) = of else { return self.0.members(of) };
        let name = path.file_name().and_then(|name| name.to_str()).unwrap();
        Ok(vec![Tid(name.parse().unwrap())])
    }
}

struct Machine {
    emulator: Emulator,
    classes: Arc<ResctrlClasses>,
    layout: ClosLayout,
    cpusets: tempfile::TempDir,
}

/// Four processors, and sandboxes 100 to 105.
fn machine() -> Machine {
    let emulator = Emulator::new(MachineConfig::silver_4210r(Dialect::Linux7));
    let resctrl = Resctrl::open(Arc::new(emulator.clone()), Arc::new(TasksByCgroup(emulator.clone()))).unwrap();
    let probe = resctrl.probe().unwrap();
    let cpusets = fake_cpusets("100");
    for pid in 100..106 {
        emulator.inject(Fault::Spawn { pid, uid: 7 });
        let folder = cpusets.path().join(pid.to_string());
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("cpuset.cpus"), "").unwrap();
    }
    let cpus = SandboxCpus::below(cpusets.path()).unwrap();
    let classes = ResctrlClasses::new(resctrl, &probe).by_cores(cpus);
    let layout = ClosLayout::casy(&CasyRequest::of(cache_shape(&probe).unwrap(), Ways(3))).unwrap();
    classes.lay_out(&layout).unwrap();
    Machine { emulator, classes: Arc::new(classes), layout, cpusets }
}

impl Machine {
    fn tasks(pid: u32) -> Members {
        Members::Cgroup(Path::new("/sandboxes").join(pid.to_string()))
    }

    /// An invocation begins as the node's stations let it: its class first, then its core.
    fn begin(&self, pid: u32, clos: ClosId) -> (InvocationId, String) {
        ClosBinder::bind(&*self.classes, &Self::tasks(pid), clos).unwrap();
        let (invocation, deployed) = (InvocationId::now(), function("f"));
        let run = Run::new(invocation, &deployed, b"{}", SandboxId::random());
        let mut run = Run { tasks: Some(Self::tasks(pid)), ..run };
        (invocation, CoreHook(Arc::clone(&self.classes)).before_run(&mut run).unwrap())
    }

    fn end(&self, invocation: InvocationId) {
        CoreHook(Arc::clone(&self.classes)).not_run(invocation);
    }

    fn confined(&self, pid: u32) -> String {
        std::fs::read_to_string(self.cpusets.path().join(pid.to_string()).join("cpuset.cpus")).unwrap()
    }

    /// The next write to a sandbox's file is seen whole.
    fn forget_confined(&self, pid: u32) {
        std::fs::write(self.cpusets.path().join(pid.to_string()).join("cpuset.cpus"), "").unwrap();
    }

    fn cpus(&self, clos: u8) -> String {
        self.emulator.read(&format!("nigh-clos-{clos}/cpus_list")).unwrap().trim().to_owned()
    }

    fn class_of_tasks(&self, pid: u32) -> String {
        self.emulator.cpu_resctrl_groups(pid).unwrap().lines().next().unwrap().replace("res:", "")
    }
}

#[test]
fn an_invocation_has_a_core_of_its_own_in_its_class_and_the_next_finds_nothing_to_write() {
    let machine = machine();
    let (first, note) = machine.begin(100, ClosId(5));
    assert_eq!(note, "core 0 is its own");
    assert_eq!((machine.confined(100).as_str(), machine.cpus(5).as_str()), ("0", "0"));
    assert_eq!(machine.class_of_tasks(100), "/", "no task was moved");
    let (_, note) = machine.begin(101, ClosId(5));
    assert_eq!((note.as_str(), machine.cpus(5).as_str()), ("core 1 is its own", "0-1"));
    machine.end(first);
    machine.forget_confined(100);
    // A write to resctrl would fail.
    machine.emulator.schedule(0, Fault::Fail(rustix::io::Errno::IO.raw_os_error()));
    let (_, note) = machine.begin(100, ClosId(5));
    assert_eq!((note.as_str(), machine.confined(100).as_str()), ("core 0 is its own", ""));
}

#[test]
fn where_no_core_is_free_tasks_are_bound_on_all_cores_and_later_the_core_again() {
    let machine = machine();
    let mut held: Vec<_> = (100..104).map(|pid| machine.begin(pid, ClosId(5)).0).collect();
    let (fifth, note) = machine.begin(104, ClosId(6));
    assert_eq!(note, "on all cores, by tasks: no core is free");
    assert_eq!(machine.class_of_tasks(104), "nigh-clos-6");
    machine.end(fifth);
    machine.end(held.remove(2));
    let (_, note) = machine.begin(104, ClosId(6));
    assert_eq!(note, "core 2 is its own");
    // Its tasks left the class, or that would come before the core's.
    assert_eq!((machine.class_of_tasks(104).as_str(), machine.cpus(6).as_str()), ("/", "2"));
    assert_eq!(machine.cpus(5), "0-1,3");
    // 102 was confined to the core that is another's now.
    machine.forget_confined(102);
    let (_, note) = machine.begin(102, ClosId(5));
    assert_eq!((note.as_str(), machine.confined(102).as_str()), ("on all cores, by tasks: no core is free", "0-3"));
}

#[test]
fn the_default_class_takes_its_core_back_and_a_running_invocation_changes_class_with_its_core() {
    let machine = machine();
    let (first, _) = machine.begin(100, ClosId(5));
    ClosBinder::bind(&*machine.classes, &Machine::tasks(100), ClosId(6)).unwrap();
    assert_eq!((machine.cpus(5).as_str(), machine.cpus(6).as_str()), ("", "0"));
    machine.end(first);
    machine.begin(100, ClosId::DEFAULT);
    // Cores of the default class are free: the sandbox moves there, and 6 keeps its own.
    assert_eq!(machine.cpus(6), "0");
    for pid in 101..104 {
        machine.begin(pid, ClosId::DEFAULT);
    }
    assert_eq!(machine.cpus(6), "", "the last core was the other class's");
}

#[test]
fn a_core_that_cannot_be_had_leaves_the_invocation_bound_by_its_tasks() {
    let machine = machine();
    std::fs::remove_dir_all(machine.cpusets.path().join("105")).unwrap();
    let (_, note) = machine.begin(105, ClosId(5));
    assert!(note.starts_with("on all cores, by tasks: cgroup ") && note.contains("105"), "{note}");
    assert_eq!(machine.class_of_tasks(105), "nigh-clos-5");
    let (_, note) = machine.begin(100, ClosId(5));
    assert_eq!(note, "core 0 is its own", "the core was given back");
}

#[test]
fn a_core_of_somebody_elses_group_is_left_out() {
    let machine = machine();
    machine.emulator.make_group("theirs").unwrap_err();
    machine.emulator.remove_group("nigh-clos-7").unwrap();
    machine.emulator.make_group("theirs").unwrap();
    machine.emulator.write("theirs/cpus_list", "0\n").unwrap();
    let notes: Vec<_> = (100..104).map(|pid| machine.begin(pid, ClosId(5)).1).collect();
    assert_eq!(notes[..3], ["core 1 is its own", "core 2 is its own", "core 3 is its own"]);
    assert_eq!(notes[3], "on all cores, by tasks: no core is free");
    assert_eq!(machine.emulator.read("theirs/cpus_list").unwrap(), "0\n");
}

#[test]
fn a_layout_that_drops_a_class_leaves_its_cores_in_the_default_class() {
    let machine = machine();
    let (first, _) = machine.begin(100, ClosId(5));
    machine.classes.allocate(Ways(4)).unwrap();
    machine.end(first);
    machine.classes.lay_out(&machine.layout).unwrap();
    assert_eq!(machine.cpus(5), "");
    machine.begin(100, ClosId(5));
    assert_eq!(machine.cpus(5), "0");
}

#[test]
fn a_sandbox_that_ended_is_forgotten_once_its_invocation_is() {
    let machine = machine();
    let (first, _) = machine.begin(100, ClosId(5));
    let by_core = machine.classes.by_core.as_ref().unwrap();
    let known = || by_core.books.lock().sandboxes.len();
    by_core.forget_ended(|_| true);
    assert_eq!(known(), 1);
    machine.end(first);
    by_core.forget_ended(|tasks| *tasks != Machine::tasks(100));
    assert_eq!(known(), 1);
    by_core.forget_ended(|_| true);
    assert_eq!(known(), 0);
}
