//! Binding by cores, as CASY does (section IV). A running invocation has its own core: the sandbox's cpuset confines
//! it, and the core is in the invocation's class. Forked tasks are covered, and no thread is moved.
//!
//! If no core is free, the invocation is bound by its tasks and runs on all cores. The core is free again after the
//! run. An idle sandbox stays confined to its last core: if that core is free at the next run, nothing needs to be
//! written. The class of a task overrides the class of its core (resctrl.rst), so tasks with their own core are in the
//! default class.

use std::collections::HashMap;

use nigh_llc::resctrl::{AppliedChange, CpuList, Members};
use nigh_sandbox::cgroup::cpuset::SandboxCpus;
use nigh_terms::{ClosId, InvocationId};
use parking_lot::Mutex;

use super::class_groups::{ClassGroups, group, is_removed};
use super::core_allocation::{Core, Cores};

/// Sandboxes known at a time. Invocations of further sandboxes are bound by their tasks.
const KNOWN_MAX: usize = 4096;

/// Binds by cores.
pub(super) struct CoreBinding {
    cpus: SandboxCpus,
    books: Mutex<Books>,
}

struct Books {
    cores: Cores,
    sandboxes: HashMap<Members, BoundSandbox>,
    running: HashMap<InvocationId, Members>,
}

/// A sandbox and where it is bound.
struct BoundSandbox {
    /// The class that the sandbox belongs to.
    clos: ClosId,
    /// The class of its tasks; none after a move that failed.
    tasks_in: Option<ClosId>,
    /// The core that the sandbox is confined to; none if it may use all cores.
    confined: Option<Core>,
    now: RunBinding,
}

#[derive(Clone, Copy, PartialEq)]
enum RunBinding {
    Idle,
    OnCore(Core),
    ByTasks,
}

/// The state of a new sandbox.
const NEWBORN: BoundSandbox =
    BoundSandbox { clos: ClosId::DEFAULT, tasks_in: Some(ClosId::DEFAULT), confined: None, now: RunBinding::Idle };

/// The entry of a sandbox, added if it is new; none at the limit.
fn known<'a>(sandboxes: &'a mut HashMap<Members, BoundSandbox>, tasks: &Members) -> Option<&'a mut BoundSandbox> {
    if sandboxes.len() >= KNOWN_MAX && !sandboxes.contains_key(tasks) {
        return None;
    }
    Some(sandboxes.entry(tasks.clone()).or_insert(NEWBORN))
}

impl CoreBinding {
    /// Binds to cores among `cpus`.
    pub(super) fn new(cpus: SandboxCpus) -> Self {
        let books = Books { cores: Cores::new(cpus.all()), sandboxes: HashMap::new(), running: HashMap::new() };
        Self { cpus, books: Mutex::new(books) }
    }

    /// Runs `change`, which changes the classes. No invocation begins meanwhile. Cores and sandboxes of removed classes
    /// are in the default class afterwards.
    pub(super) fn change(
        &self,
        change: impl FnOnce() -> Result<AppliedChange, String>,
    ) -> Result<AppliedChange, String> {
        let mut books = self.books.lock();
        let applied = change()?;
        let is_gone = |clos| is_removed(clos, &applied);
        books.cores.changed(is_gone);
        for sandbox in books.sandboxes.values_mut() {
            if is_gone(sandbox.clos) {
                sandbox.clos = ClosId::DEFAULT;
            }
            if sandbox.tasks_in.is_some_and(is_gone) {
                sandbox.tasks_in = Some(ClosId::DEFAULT);
            }
        }
        Ok(applied)
    }

    /// Whether any sandbox is known.
    pub(super) fn has_sandboxes(&self) -> bool {
        !self.books.lock().sandboxes.is_empty()
    }

    /// Forgets sandboxes that have ended.
    pub(super) fn forget_ended(&self, has_ended: impl Fn(&Members) -> bool) {
        // `has_ended` makes system calls, and invocations wait for the lock.
        let known: Vec<Members> = self.books.lock().sandboxes.keys().cloned().collect();
        let ended: Vec<Members> = known.into_iter().filter(has_ended).collect();
        let mut books = self.books.lock();
        for tasks in ended {
            // A sandbox with a run keeps its entry until the end of the run frees its core.
            if books.sandboxes.get(&tasks).is_some_and(|sandbox| sandbox.now == RunBinding::Idle) {
                books.sandboxes.remove(&tasks);
            }
        }
    }

    /// Puts a sandbox into a class: at once if an invocation runs in it, else when the next one begins.
    pub(super) fn bind(&self, groups: &ClassGroups, tasks: &Members, clos: ClosId) -> Result<(), String> {
        let mut books = self.books.lock();
        let Books { cores, sandboxes, .. } = &mut *books;
        let Some(sandbox) = known(sandboxes, tasks) else { return groups.move_tasks(tasks, clos) };
        sandbox.clos = clos;
        match sandbox.now {
            RunBinding::Idle => Ok(()),
            RunBinding::ByTasks => sandbox.move_tasks(groups, tasks, clos),
            RunBinding::OnCore(core) => move_core(groups, cores, core, clos),
        }
    }

    /// An invocation begins. Gives it a core in its sandbox's class, or binds it by its tasks if no core is free.
    /// Returns what was done, in words.
    pub(super) fn begin(&self, groups: &ClassGroups, invocation: InvocationId, tasks: &Members) -> String {
        let mut books = self.books.lock();
        let Books { cores, sandboxes, running } = &mut *books;
        let Some(sandbox) = known(sandboxes, tasks) else {
            return "on all cores, by tasks: too many sandboxes are known".to_owned();
        };
        running.insert(invocation, tasks.clone());
        let why_not = loop {
            let Some(core) = cores.take(sandbox.clos, sandbox.confined) else { break "no core is free".to_owned() };
            if let Err(reason) = move_core(groups, cores, core, sandbox.clos) {
                cores.refuse(core);
                tracing::warn!(core = core.0, reason, "a core cannot be put into a class; it is not used for binding");
                continue;
            }
            match self.onto_core(groups, sandbox, tasks, core) {
                Ok(()) => {
                    sandbox.now = RunBinding::OnCore(core);
                    return format!("core {} is its own", core.0);
                }
                Err(reason) => {
                    cores.give_back(core);
                    tracing::warn!(reason, %tasks, "an invocation did not get its own core");
                    break reason;
                }
            }
        };
        metrics::counter!("nigh_llc_runs_without_core_total").increment(1);
        sandbox.now = RunBinding::ByTasks;
        match self.onto_all_cores(groups, sandbox, tasks) {
            Ok(()) => format!("on all cores, by tasks: {why_not}"),
            Err(reason) => format!("{why_not}; not bound: {reason}"),
        }
    }

    fn onto_core(
        &self,
        groups: &ClassGroups,
        sandbox: &mut BoundSandbox,
        tasks: &Members,
        core: Core,
    ) -> Result<(), String> {
        sandbox.move_tasks(groups, tasks, ClosId::DEFAULT)?;
        if sandbox.confined != Some(core) {
            self.cpus.confine(tasks, &only(core)).map_err(|error| error.to_string())?;
            sandbox.confined = Some(core);
        }
        Ok(())
    }

    fn onto_all_cores(&self, groups: &ClassGroups, sandbox: &mut BoundSandbox, tasks: &Members) -> Result<(), String> {
        if sandbox.confined.is_some() {
            self.cpus.confine(tasks, self.cpus.all()).map_err(|error| error.to_string())?;
            sandbox.confined = None;
        }
        let clos = sandbox.clos;
        sandbox.move_tasks(groups, tasks, clos)
    }

    pub(super) fn end(&self, invocation: InvocationId) {
        let mut books = self.books.lock();
        let Books { cores, sandboxes, running } = &mut *books;
        let Some(sandbox) = running.remove(&invocation).and_then(|tasks| sandboxes.get_mut(&tasks)) else { return };
        if let RunBinding::OnCore(core) = std::mem::replace(&mut sandbox.now, RunBinding::Idle) {
            cores.give_back(core);
        }
    }
}

impl BoundSandbox {
    fn move_tasks(&mut self, groups: &ClassGroups, tasks: &Members, clos: ClosId) -> Result<(), String> {
        if self.tasks_in == Some(clos) {
            return Ok(());
        }
        self.tasks_in = None;
        groups.move_tasks(tasks, clos)?;
        self.tasks_in = Some(clos);
        Ok(())
    }
}

/// Puts a core into a class.
fn move_core(groups: &ClassGroups, cores: &mut Cores, core: Core, clos: ClosId) -> Result<(), String> {
    let before = cores.clos(core);
    if before == clos {
        return Ok(());
    }
    let written = match (group(clos), group(before)) {
        (Some(into), _) => groups.resctrl.bind_cpus(&into, &only(core)),
        (None, Some(from)) => groups.resctrl.release_cpus(&from, &only(core)),
        (None, None) => Ok(false),
    };
    written.map_err(|error| error.to_string())?;
    cores.put(core, clos);
    Ok(())
}

fn only(core: Core) -> CpuList {
    CpuList([core.0].into())
}

#[cfg(test)]
mod tests {
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
}
