//! Store and training job in two resctrl groups of their own, for one configuration of the run on this machine.
//!
//! The root group and other people's groups are left as they are: whoever runs in them may still use every way. Both groups
//! are removed when the partition is dropped. Source: Documentation/filesystems/resctrl.rst.

use std::io;

use nigh_llc::resctrl::ResctrlFs;
use nigh_llc::{CacheShape, GuardMasks, GuardSettings, Objective, Percentile};
use nigh_terms::{WayMask, Ways};

use crate::LabError;

const SERVICE_GROUP: &str = "nigh-lab-service";
const BATCH_GROUP: &str = "nigh-lab-batch";

/// A resctrl mount that can partition the L3.
pub(super) struct LiveCache<'f> {
    fs: &'f dyn ResctrlFs,
    settings: GuardSettings,
    domains: Vec<u32>,
}

/// Two groups; gone when dropped.
pub(super) struct LivePartition<'f> {
    fs: &'f dyn ResctrlFs,
    made: Vec<&'static str>,
}

fn failed(fs: &dyn ResctrlFs, what: &str, error: &io::Error) -> LabError {
    let status = fs.read("info/last_cmd_status").unwrap_or_default();
    LabError::Request {
        what: format!("resctrl: {what}"),
        reason: format!("{error}; the kernel says: {}", status.trim()),
    }
}

fn hexadecimal(text: &str) -> Option<u32> {
    u32::from_str_radix(text.trim(), 16).ok()
}

impl<'f> LiveCache<'f> {
    /// The L3 of a mount; none if it has no masks there.
    pub(super) fn probe(fs: &'f dyn ResctrlFs) -> Option<Self> {
        let number = |file: &str| hexadecimal(&fs.read(&format!("info/L3/{file}")).ok()?);
        let ways = WayMask::from_bits(number("cbm_mask")?).count();
        let min_ways = fs.read("info/L3/min_cbm_bits").ok()?.trim().parse().ok()?;
        let shareable = WayMask::from_bits(number("shareable_bits").unwrap_or(0));
        let classes = fs.read("info/L3/num_closids").ok()?.trim().parse::<u32>().ok()?.min(255) as u8;
        let shape = CacheShape { ways, classes, min_ways: Ways(min_ways), shareable };
        // Only the masks of a size are used; the objective is the paper's.
        let limit = std::time::Duration::from_micros(70);
        let objective = Objective { percentile: Percentile::try_from(99.9).ok()?, limit };
        let schemata = fs.read("schemata").ok()?;
        let line = schemata.lines().find_map(|line| line.trim().strip_prefix("L3:"))?;
        let domains = line.split(';').filter_map(|entry| entry.split_once('=')?.0.trim().parse().ok()).collect();
        Some(Self { fs, settings: GuardSettings::of(objective, shape), domains })
    }

    /// The sizes a service may have.
    pub(super) fn sizes(&self) -> impl Iterator<Item = Ways> + use<> {
        (self.settings.shape.min_ways.0.max(1)..=self.settings.most().0).map(Ways)
    }

    /// Gives the service's threads so many ways and the batch side's the others.
    pub(super) fn partition(&self, ways: Ways, service: &[u32], batch: &[u32]) -> Result<LivePartition<'f>, LabError> {
        let fs = self.fs;
        let GuardMasks { service: service_mask, batch: batch_mask } = self.settings.masks(ways);
        let mut partition = LivePartition { fs, made: Vec::with_capacity(2) };
        // Taken after the partition is declared, so that a failure releases it first: dropping the partition takes it again.
        let lock = fs.lock().map_err(|error| failed(fs, "lock", &error))?;
        for (group, mask, tids) in [(SERVICE_GROUP, service_mask, service), (BATCH_GROUP, batch_mask, batch)] {
            fs.make_group(group).map_err(|error| failed(fs, &format!("make {group}"), &error))?;
            partition.made.push(group);
            let entries: Vec<String> = self.domains.iter().map(|domain| format!("{domain}={mask}")).collect();
            fs.write(&format!("{group}/schemata"), &format!("L3:{}\n", entries.join(";")))
                .map_err(|error| failed(fs, &format!("mask {mask} of {group}"), &error))?;
            for tid in tids {
                fs.write(&format!("{group}/tasks"), &format!("{tid}\n"))
                    .map_err(|error| failed(fs, &format!("task {tid} into {group}"), &error))?;
            }
        }
        drop(lock);
        Ok(partition)
    }
}

impl Drop for LivePartition<'_> {
    fn drop(&mut self) {
        // Without the lock, at worst another application sees one group fewer; a group that is gone is what is wanted.
        let _lock = self.fs.lock();
        for group in &self.made {
            let _ = self.fs.remove_group(group);
        }
    }
}

#[cfg(test)]
mod tests {
    use nigh_llc::resctrl::emulator::{Dialect, Emulator, MachineConfig};

    use super::*;

    #[test]
    fn a_partition_has_both_masks_and_tasks_and_leaves_nothing_behind() {
        let emulator = Emulator::new(MachineConfig::silver_4210r(Dialect::Linux7));
        let root = emulator.read("schemata").unwrap();
        let cache = LiveCache::probe(&emulator).unwrap();
        assert_eq!(cache.sizes().collect::<Vec<_>>(), (1..=9).map(Ways).collect::<Vec<_>>());
        {
            let _partition = cache.partition(Ways(3), &[1], &[]).unwrap();
            let mask = |group: &str| emulator.read(&format!("{group}/schemata")).unwrap();
            assert!(mask(SERVICE_GROUP).contains("L3:0=7"), "{}", mask(SERVICE_GROUP));
            assert!(mask(BATCH_GROUP).contains("L3:0=7f8"), "{}", mask(BATCH_GROUP));
            assert_eq!(emulator.read(&format!("{SERVICE_GROUP}/tasks")).unwrap().trim(), "1");
            let taken = cache.partition(Ways(3), &[], &[]).err().unwrap().to_string();
            assert!(taken.contains("make nigh-lab-service"), "{taken}");
        }
        assert!(!emulator.list("").unwrap().iter().any(|name| name.starts_with("nigh")));
        assert_eq!(emulator.read("schemata").unwrap(), root);
    }

    #[test]
    fn a_task_that_is_gone_undoes_the_partition() {
        let emulator = Emulator::new(MachineConfig::silver_4210r(Dialect::Linux7));
        let cache = LiveCache::probe(&emulator).unwrap();
        assert!(cache.partition(Ways(2), &[4_000_000], &[]).is_err());
        assert!(!emulator.list("").unwrap().iter().any(|name| name.starts_with("nigh")));
    }
}
