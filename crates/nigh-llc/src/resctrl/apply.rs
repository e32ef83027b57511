//! A layout change as a transaction: planned from the live state under the mount's lock, executed step by step,
//! checked, and undone step by step after a failure.
//!
//! Users of the lock never see a half-made change. Users without it (an administrator's `rmdir`) appear as failures of
//! single commands, or in the check at the end.

use std::collections::BTreeMap;
use std::io;

use rustix::io::Errno;

use super::command::{self, Command, CommandError};
use super::driver::UnavailableReason;
use super::fs::ResctrlFs;
use super::groups::{GroupName, LiveState};
use super::layout_change::{self, Refusal, Step, WantedLayout};
use super::probe::Probe;
use super::schemata::Schemata;
use super::task_view::is_gone;

/// The result of a change.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AppliedChange {
    /// Groups made.
    pub made: Vec<GroupName>,
    /// Groups removed.
    pub removed: Vec<GroupName>,
    /// Groups written, the new ones included.
    pub written: Vec<GroupName>,
}

impl AppliedChange {
    /// Whether nothing had to change.
    pub fn is_unchanged(&self) -> bool {
        *self == Self::default()
    }
}

/// The result of undoing a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rollback {
    /// All is as before.
    Complete,
    /// These steps could not be undone.
    Incomplete(Vec<String>),
}

impl std::fmt::Display for Rollback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Complete => f.write_str("all was put back"),
            Self::Incomplete(left) => write!(f, "not all was put back: {}", left.join("; ")),
        }
    }
}

/// Why a layout was not applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// resctrl is not mounted (any more). The kernel has reset everything itself.
    #[error("the layout was not applied: {0}")]
    Unavailable(#[from] UnavailableReason),
    /// The layout is not possible.
    #[error("the layout was not applied: {0}")]
    Refused(#[from] Refusal),
    /// The mount could not be read.
    #[error("the layout was not applied: reading resctrl: {0}")]
    Read(#[from] io::Error),
    /// A command failed.
    #[error("the layout was not applied: {source}; {rollback}")]
    Command {
        /// The command, errno and status.
        source: Box<CommandError>,
        /// The result of undoing the steps before.
        rollback: Rollback,
    },
    /// After all writes the kernel shows another value: somebody else wrote at the same time.
    #[error("the layout was not applied: {group} shows {shown:?} instead of {wanted:?}; {rollback}")]
    Differs {
        /// The group.
        group: GroupName,
        /// The value that it should show.
        wanted: String,
        /// The value that it shows.
        shown: String,
        /// The result of undoing the steps.
        rollback: Rollback,
    },
}

/// A step's opposite.
enum Undo {
    Unmake(GroupName),
    Restore(GroupName, Schemata),
    Remake(Box<RemovedGroup>),
}

/// The state of a group at its removal.
struct RemovedGroup {
    name: GroupName,
    schemata: Schemata,
    cpus: String,
    tasks: Vec<String>,
    monitors: Vec<(String, Vec<String>)>,
}

/// Applies `wanted`. The caller holds the lock.
pub(super) fn apply(fs: &dyn ResctrlFs, wanted: &WantedLayout) -> Result<AppliedChange, ApplyError> {
    let live = LiveState::read(fs).or_else(|error| unmounted(fs, error))?;
    let probe = Probe::read(fs, &live).or_else(|error| unmounted(fs, error))?.ok_or(UnavailableReason::NotMounted)?;
    let steps = layout_change::plan(&probe, &live, wanted)?;
    let mut change = Change { fs, values: BTreeMap::new(), undo: Vec::new(), applied: AppliedChange::default() };
    change.values.extend(live.groups.iter().filter_map(|group| Some((group.owned()?, group.schemata.clone()))));
    for step in steps {
        if let Err(source) = change.carry_out(step) {
            let rollback = change.roll_back();
            // Unmounted under us, the kernel has dropped the groups and put back the masks.
            if matches!(fs.mount_options(), Ok(None)) {
                return Err(UnavailableReason::NotMounted.into());
            }
            return Err(ApplyError::Command { source: Box::new(source), rollback });
        }
    }
    if !change.applied.is_unchanged() {
        check(fs, &probe, wanted, &mut change)?;
    }
    Ok(change.applied)
}

/// A failed read is an unmount, if that is what happened.
fn unmounted<T>(fs: &dyn ResctrlFs, error: io::Error) -> Result<T, ApplyError> {
    match fs.mount_options() {
        Ok(None) => Err(UnavailableReason::NotMounted.into()),
        _ => Err(error.into()),
    }
}

/// Compares the kernel's values with the wanted ones.
fn check(fs: &dyn ResctrlFs, probe: &Probe, wanted: &WantedLayout, change: &mut Change<'_>) -> Result<(), ApplyError> {
    let live = LiveState::read(fs).or_else(|error| unmounted(fs, error))?;
    let l3 = probe.l3.as_ref().ok_or(Refusal::NoCache)?;
    for group in &wanted.groups {
        let target = layout_change::target(probe, l3, &live, group)?;
        let shown = live.owned(&group.name).map(|group| group.schemata.clone()).unwrap_or_default();
        if !target.holds_in(&shown) {
            return Err(ApplyError::Differs {
                group: group.name.clone(),
                wanted: target.to_command(),
                shown: shown.restricted_to(&target).to_command(),
                rollback: change.roll_back(),
            });
        }
    }
    Ok(())
}

struct Change<'a> {
    fs: &'a dyn ResctrlFs,
    /// The values of every group as of the last step.
    values: BTreeMap<GroupName, Schemata>,
    undo: Vec<Undo>,
    applied: AppliedChange,
}

impl Change<'_> {
    fn carry_out(&mut self, step: Step) -> Result<(), CommandError> {
        match step {
            Step::Make(name) => {
                command::run(self.fs, Command::Make(name.to_string()))?;
                self.undo.push(Undo::Unmake(name.clone()));
                self.applied.made.push(name);
            }
            Step::Write(name, values) => {
                command::write(self.fs, name.file("schemata"), values.to_command())?;
                let now = self.values.entry(name.clone()).or_default();
                let before = now.restricted_to(&values);
                values.iter().for_each(|(of, domain, value)| now.set(of.clone(), domain, value.clone()));
                // A group made by this change has nothing to restore: undoing removes it.
                if !before.is_empty() {
                    self.undo.push(Undo::Restore(name.clone(), before));
                }
                if !self.applied.written.contains(&name) {
                    self.applied.written.push(name);
                }
            }
            Step::Remove(name) => {
                let command = Command::Remove(name.to_string());
                let remains = self.remains(&name).map_err(|error| command::failed(self.fs, command.clone(), error))?;
                command::run(self.fs, command)?;
                self.undo.push(Undo::Remake(Box::new(remains)));
                self.applied.removed.push(name);
            }
        }
        Ok(())
    }

    /// The state of a group. A group that cannot be read could not be restored, so it is not removed.
    fn remains(&self, name: &GroupName) -> io::Result<RemovedGroup> {
        let lines =
            |path: String| -> io::Result<Vec<String>> { Ok(self.fs.read(&path)?.lines().map(str::to_owned).collect()) };
        let directory = name.file("mon_groups");
        let monitors = match self.fs.list(&directory) {
            Err(error) if is_gone(&error) => Vec::new(),
            other => other?,
        };
        let monitors = monitors.iter().filter_map(|monitor| monitor.strip_suffix('/')).map(|monitor| {
            let path = format!("{directory}/{monitor}");
            Ok((path.clone(), lines(format!("{path}/tasks"))?))
        });
        Ok(RemovedGroup {
            name: name.clone(),
            schemata: self.values.get(name).cloned().unwrap_or_default(),
            cpus: self.fs.read(&name.file("cpus_list"))?,
            tasks: lines(name.file("tasks"))?,
            monitors: monitors.collect::<io::Result<_>>()?,
        })
    }

    /// Undoes all steps, the last first. A failure is reported and does not stop the others.
    fn roll_back(&mut self) -> Rollback {
        let mut left = Vec::new();
        while let Some(undo) = self.undo.pop() {
            let undone = match undo {
                Undo::Unmake(name) => command::run(self.fs, Command::Remove(name.to_string())),
                Undo::Restore(name, values) => command::write(self.fs, name.file("schemata"), values.to_command()),
                Undo::Remake(remains) => self.remake(&remains),
            };
            if let Err(error) = undone {
                left.push(error.to_string());
            }
        }
        if left.is_empty() { Rollback::Complete } else { Rollback::Incomplete(left) }
    }

    fn remake(&self, remains: &RemovedGroup) -> Result<(), CommandError> {
        command::run(self.fs, Command::Make(remains.name.to_string()))?;
        let values = remains.schemata.to_command();
        if !values.is_empty() {
            command::write(self.fs, remains.name.file("schemata"), values)?;
        }
        if !remains.cpus.trim().is_empty() {
            command::write(self.fs, remains.name.file("cpus_list"), remains.cpus.clone())?;
        }
        for task in &remains.tasks {
            move_if_there(self.fs, remains.name.file("tasks"), task)?;
        }
        for (path, tasks) in &remains.monitors {
            command::run(self.fs, Command::Make(path.clone()))?;
            for task in tasks {
                move_if_there(self.fs, format!("{path}/tasks"), task)?;
            }
        }
        Ok(())
    }
}

/// Writes a task's id. A task that has ended meanwhile is no failure.
fn move_if_there(fs: &dyn ResctrlFs, path: String, task: &str) -> Result<(), CommandError> {
    match command::write(fs, path, task.to_owned()) {
        Err(error) if error.errno() == Some(Errno::SRCH) => Ok(()),
        other => other,
    }
}
