//! Divides the machine's ways between the guarded service and the batch work, in groups of the guard's own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use nigh_llc::resctrl::{GroupName, Members, ProcTasks, Resctrl, TaskTarget, Tid, WantedGroup, WantedLayout};
use nigh_llc::{CacheShape, GuardMasks};
use nigh_node::llc::LlcStatus;
use nigh_terms::{CacheDomain, WayMask};

use crate::context::Globals;
use crate::error::CliError;

const SERVICE: &str = "nigh-guard-service";
const BATCH: &str = "nigh-guard-batch";

/// The guarded service and the batch work.
pub(super) struct Sides<'a> {
    pub(super) pid: Option<u32>,
    pub(super) cgroup: Option<&'a Path>,
    pub(super) batch_pids: &'a [u32],
    pub(super) batch_cgroups: &'a [PathBuf],
}

/// The machine's partition of service and batch.
pub(super) struct Partition {
    resctrl: Resctrl,
    domains: Vec<CacheDomain>,
    service: Members,
    batch: Vec<Members>,
}

/// The cache of a report: the machine's, or the one that the running node assumes.
pub(super) async fn reported_shape(globals: &Globals) -> Result<CacheShape, CliError> {
    let machine = Resctrl::open_kernel().map_err(|error| error.to_string());
    let machine = machine.and_then(|resctrl| resctrl.probe().map_err(|error| error.to_string()));
    let why_not = match machine.map(|probe| nigh_node::llc::cache_shape(&probe)) {
        Ok(Some(shape)) => return Ok(shape),
        Ok(None) => "no L3".to_owned(),
        Err(reason) => reason,
    };
    let node = match globals.admin() {
        Ok(admin) => admin.get::<LlcStatus>("/llc").await.ok(),
        Err(_) => None,
    };
    node.and_then(|status| status.shape).ok_or_else(|| {
        CliError::Failed(format!("the cache of this machine is unknown: {why_not}; and no running node assumes one"))
    })
}

/// Rejects `--act` while a node has classes: each would undo the changes of the other.
fn alone<'a>(owned: impl Iterator<Item = &'a str>) -> Result<(), CliError> {
    let others: Vec<_> = owned.filter(|name| ![SERVICE, BATCH].contains(name)).collect();
    if others.is_empty() {
        return Ok(());
    }
    Err(CliError::Failed(format!(
        "a node of Nigh's has its classes here ({}): end it, or set its llc.policy to off, or leave out --act",
        others.join(", ")
    )))
}

impl Partition {
    /// The machine's cache, and the sides as they are now.
    pub(super) fn open(sides: &Sides<'_>) -> Result<(Self, CacheShape), CliError> {
        let unavailable =
            |reason: String| CliError::Failed(format!("this machine cannot allocate cache ways: {reason}"));
        let resctrl = Resctrl::open_kernel().map_err(|error| unavailable(error.to_string()))?;
        let probe = resctrl.probe().map_err(|error| unavailable(error.to_string()))?;
        alone(probe.closids.owned.iter().map(GroupName::as_str))?;
        let shape = nigh_node::llc::cache_shape(&probe).ok_or_else(|| unavailable("no L3".to_owned()))?;
        let service = match (sides.pid, sides.cgroup) {
            (Some(pid), _) => process(pid)?,
            (None, Some(folder)) => cgroup(folder)?,
            (None, None) => {
                return Err(CliError::Usage("--act needs the service's processes: --pid or --cgroup".to_owned()));
            }
        };
        let batch = sides
            .batch_pids
            .iter()
            .map(|pid| process(*pid))
            .chain(sides.batch_cgroups.iter().map(|folder| cgroup(folder)))
            .collect::<Result<_, _>>()?;
        let domains = probe.l3.map_or_else(Vec::new, |l3| l3.domains);
        Ok((Self { resctrl, domains, service, batch }, shape))
    }

    /// Gives both sides their ways, and puts what they started meanwhile in its place.
    pub(super) fn set(&self, masks: GuardMasks) -> Result<(), CliError> {
        let failed = |error: String| CliError::Failed(format!("the partition cannot be set: {error}"));
        let group = |name: &str, mask: WayMask| {
            let name = GroupName::new(name).map_err(|error| failed(error.to_string()))?;
            let masks: BTreeMap<_, _> = self.domains.iter().map(|domain| (*domain, mask)).collect();
            Ok::<_, CliError>(WantedGroup { name, masks, bandwidth: BTreeMap::new() })
        };
        let groups = vec![group(SERVICE, masks.service)?, group(BATCH, masks.batch)?];
        self.resctrl.apply(&WantedLayout { groups }).map_err(|error| failed(error.to_string()))?;
        let members = std::iter::once((SERVICE, &self.service)).chain(self.batch.iter().map(|batch| (BATCH, batch)));
        for (name, members) in members {
            let group = GroupName::new(name).map_err(|error| failed(error.to_string()))?;
            let target = TaskTarget { group: Some(group), monitor: None };
            self.resctrl.bind_tasks(members, &target).map_err(|error| failed(error.to_string()))?;
        }
        Ok(())
    }

    /// Removes the guard's groups.
    pub(super) fn release(&self) -> Result<(), CliError> {
        let released = self.resctrl.apply(&WantedLayout { groups: Vec::new() });
        released.map(drop).map_err(|error| CliError::Failed(format!("the guard's groups cannot be removed: {error}")))
    }
}

fn process(pid: u32) -> Result<Members, CliError> {
    let found = ProcTasks::default().process(Tid(pid));
    found.map(Members::Tree).map_err(CliError::local(format!("process {pid}")))
}

fn cgroup(folder: &Path) -> Result<Members, CliError> {
    if !folder.is_dir() {
        return Err(CliError::Usage(format!("{} is not the folder of a cgroup", folder.display())));
    }
    Ok(Members::Cgroup(folder.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_acts_where_no_node_has_classes_and_takes_its_own_groups_over() {
        assert!(alone([SERVICE, BATCH].into_iter()).is_ok());
        let refused = alone([SERVICE, "nigh-1", "nigh-2"].into_iter()).unwrap_err().to_string();
        assert!(refused.contains("(nigh-1, nigh-2)") && refused.contains("llc.policy"), "{refused}");
    }
}
