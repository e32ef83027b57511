//! The resctrl groups of the classes of service, and moves of a sandbox's tasks between them.

use nigh_llc::resctrl::{AppliedChange, GroupName, Members, Resctrl, TaskTarget};
use nigh_terms::ClosId;
use parking_lot::Mutex;

use super::cache_use::CountedSandboxes;

/// The group of a class; none for the default class, which is resctrl's root group.
pub(super) fn group(clos: ClosId) -> Option<GroupName> {
    (clos != ClosId::DEFAULT).then(|| GroupName::new(format!("nigh-clos-{clos}")).ok()).flatten()
}

/// Whether a change has removed a class's group.
pub(super) fn is_removed(clos: ClosId, applied: &AppliedChange) -> bool {
    group(clos).is_some_and(|group| applied.removed.contains(&group))
}

/// The driver, and which sandboxes have a monitoring group.
pub(super) struct ClassGroups {
    pub(super) resctrl: Resctrl,
    /// Locked during each move of tasks, so that it always has the class of each sandbox.
    pub(super) counted: Mutex<CountedSandboxes>,
}

impl ClassGroups {
    /// Moves every task of a sandbox into a class. The sandbox's monitoring group moves too.
    pub(super) fn move_tasks(&self, tasks: &Members, clos: ClosId) -> Result<(), String> {
        let mut counted = self.counted.lock();
        let target = TaskTarget { group: group(clos), monitor: counted.monitor_of(tasks) };
        match self.resctrl.bind_tasks(tasks, &target) {
            Ok(bound) => {
                counted.moved(tasks, clos, &bound);
                Ok(())
            }
            Err(error) => {
                counted.astray(tasks);
                Err(error.to_string())
            }
        }
    }
}
