//! The machine's own classes of service: one group of resctrl's a class, named by its number.
//!
//! The default class is resctrl's root group, which is nobody's to change. Sandboxes are bound by their tasks. Groups
//! found of an earlier life are taken over by the next layout, and all are removed when the node ends.

use std::collections::BTreeMap;

use nigh_llc::resctrl::{GroupName, Members, MemoryTraffic, Probe, Resctrl, TaskTarget, WantedGroup, WantedLayout};
use nigh_llc::{CacheShape, Clos, ClosLayout};
use nigh_terms::{CacheDomain, ClosId, WayMask, Ways};
use parking_lot::Mutex;

use super::cache_use::{CountedSandboxes, counted_max};
use super::{ClosBinder, WayAllocation};

/// resctrl as the binder of classes.
pub struct ResctrlClasses {
    pub(super) resctrl: Resctrl,
    domains: Vec<CacheDomain>,
    /// Held while tasks are moved, so that the books say where they are.
    pub(super) counted: Mutex<CountedSandboxes>,
}

/// What a layout may use of a machine's cache, by its probe; nothing, if there is no L3 to allocate.
#[must_use]
pub fn cache_shape(probe: &Probe) -> Option<CacheShape> {
    let l3 = probe.l3.as_ref()?;
    Some(CacheShape {
        ways: l3.full.count(),
        // The root group, and what others leave; classes of more are never of use.
        classes: u8::try_from(probe.closids.available() + 1).unwrap_or(u8::MAX).min(nigh_llc::CLASSES_MAX),
        min_ways: l3.min_ways,
        shareable: l3.shareable,
    })
}

/// The group of a class; none for the default class.
pub(super) fn group(clos: ClosId) -> Option<GroupName> {
    (clos != ClosId::DEFAULT).then(|| GroupName::new(format!("nigh-clos-{clos}")).ok()).flatten()
}

impl ResctrlClasses {
    /// The classes of a machine that `probe` was read of.
    #[must_use]
    pub fn new(resctrl: Resctrl, probe: &Probe) -> Self {
        let domains = probe.l3.as_ref().map_or_else(Vec::new, |l3| l3.domains.clone());
        Self { resctrl, domains, counted: Mutex::new(CountedSandboxes::new(counted_max(probe))) }
    }

    /// Removes every group of Nigh's: at the node's end.
    ///
    /// # Errors
    /// The system's reason, and what stayed.
    pub fn remove_all(&self) -> Result<usize, String> {
        self.resctrl.remove_all().map(|removed| removed.len()).map_err(|error| error.to_string())
    }

    /// Makes the groups those of `layout`. Who was in one that is gone is in the default class.
    fn apply(&self, layout: &WantedLayout) -> Result<(), String> {
        let mut counted = self.counted.lock();
        let applied = self.resctrl.apply(layout).map_err(|error| error.to_string())?;
        counted.removed(|clos| group(clos).is_some_and(|group| applied.removed.contains(&group)));
        Ok(())
    }

    fn wanted(&self, class: &Clos) -> Option<WantedGroup> {
        let masks: BTreeMap<_, _> = self.domains.iter().map(|domain| (*domain, class.mask)).collect();
        Some(WantedGroup { name: group(class.id)?, masks, bandwidth: BTreeMap::new() })
    }
}

/// The group of a profile, alone while it lasts: the classes come back with the next layout.
const PROFILE_GROUP: &str = "nigh-profile";

/// Where a profile's sandboxes are.
fn profile_target() -> Result<TaskTarget, String> {
    let group = GroupName::new(PROFILE_GROUP).map_err(|error| error.to_string())?;
    Ok(TaskTarget { group: Some(group), monitor: None })
}

impl WayAllocation for ResctrlClasses {
    fn allocate(&self, ways: Ways) -> Result<(), String> {
        let name = GroupName::new(PROFILE_GROUP).map_err(|error| error.to_string())?;
        let mask = WayMask::contiguous(0, ways);
        let masks = self.domains.iter().map(|domain| (*domain, mask)).collect();
        let groups = vec![WantedGroup { name, masks, bandwidth: BTreeMap::new() }];
        self.apply(&WantedLayout { groups })
    }

    fn bind(&self, tasks: &Members) -> Result<(), String> {
        self.resctrl.bind_tasks(tasks, &profile_target()?).map(drop).map_err(|error| error.to_string())
    }

    fn traffic(&self) -> MemoryTraffic {
        let read = |target| self.resctrl.traffic(&target).map_err(|error| error.to_string());
        profile_target().and_then(read).unwrap_or_else(|error| {
            tracing::debug!(%error, "the memory traffic of a profile is not counted");
            MemoryTraffic::default()
        })
    }
}

impl ClosBinder for ResctrlClasses {
    fn lay_out(&self, layout: &ClosLayout) -> Result<(), String> {
        let groups = layout.classes().iter().filter_map(|class| self.wanted(class)).collect();
        self.apply(&WantedLayout { groups })
    }

    fn bind(&self, tasks: &Members, clos: ClosId) -> Result<(), String> {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use nigh_llc::CasyRequest;
    use nigh_llc::resctrl::emulator::{Dialect, Emulator, Fault, MachineConfig};
    use nigh_llc::resctrl::{ProcessRef, ResctrlFs, TaskView, Tid};

    #[test]
    fn a_layout_becomes_groups_and_a_sandbox_moves_between_them_and_the_default() {
        let emulator = Emulator::new(MachineConfig::silver_4210r(Dialect::Linux6_1));
        let resctrl = Resctrl::open(Arc::new(emulator.clone()), Arc::new(emulator.clone())).unwrap();
        let probe = resctrl.probe().unwrap();
        let shape = cache_shape(&probe).unwrap();
        assert_eq!((shape.ways, shape.classes, shape.shareable.bits()), (Ways(11), 8, 0x600));
        let classes = ResctrlClasses::new(resctrl, &probe);
        let layout = ClosLayout::casy(&CasyRequest::of(shape, Ways(3))).unwrap();
        classes.lay_out(&layout).unwrap();
        let root_before = emulator.read("schemata").unwrap();
        for class in layout.classes().iter().skip(1) {
            let schemata = emulator.read(&format!("nigh-clos-{}/schemata", class.id)).unwrap();
            assert!(schemata.contains(&format!("L3:0={:03x}", class.mask)), "{schemata}");
        }
        assert_eq!(emulator.read("schemata").unwrap(), root_before);

        emulator.inject(Fault::Spawn { pid: 100, uid: 7 });
        let sandbox = Members::Tree(ProcessRef { pid: Tid(100), started: emulator.started(Tid(100)).unwrap() });
        ClosBinder::bind(&classes, &sandbox, ClosId(5)).unwrap();
        assert_eq!(emulator.cpu_resctrl_groups(100).unwrap(), "res:nigh-clos-5\nmon:\n");
        ClosBinder::bind(&classes, &sandbox, ClosId::DEFAULT).unwrap();
        assert_eq!(emulator.cpu_resctrl_groups(100).unwrap(), "res:/\nmon:\n");
        // A profile has the machine's classes to itself, with as many ways as it asks for.
        classes.allocate(Ways(4)).unwrap();
        WayAllocation::bind(&classes, &sandbox).unwrap();
        assert_eq!(emulator.cpu_resctrl_groups(100).unwrap(), "res:nigh-profile\nmon:\n");
        assert!(emulator.read("nigh-profile/schemata").unwrap().contains("L3:0=00f"));
        classes.lay_out(&layout).unwrap();
        assert_eq!(classes.remove_all().unwrap(), 7);
        assert!(!emulator.list("").unwrap().iter().any(|name| name.starts_with("nigh-")));
    }
}
