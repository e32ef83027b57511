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
mod tests;
