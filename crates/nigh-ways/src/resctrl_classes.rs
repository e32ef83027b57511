//! The machine's classes of service: one resctrl group for each class, named by the class's number.
//!
//! The default class is resctrl's root group, which Nigh never changes. Sandboxes are bound by their tasks, or by their
//! own core (`core_binding`). Classes of insensitive functions can be limited in memory bandwidth: a function that
//! streams through memory gains nothing from the cache and takes bandwidth from the others. The next layout takes over
//! groups that an earlier process left, and the node removes all its groups at its end.

use std::sync::Arc;

use nigh_invoke::hooks::{InvocationHook, Run};
use nigh_llc::resctrl::{
    BandwidthLimit, BandwidthRefusal, GroupName, Members, MemoryTraffic, Probe, Resctrl, TaskTarget, WantedGroup,
    WantedLayout,
};
use nigh_llc::{CacheShape, Clos, ClosKind, ClosLayout};
use nigh_sandbox::cgroup::cpuset::SandboxCpus;
use nigh_schedule::activation::Activation;
use nigh_terms::{CacheDomain, ClosId, InvocationId, WayMask, Ways};
use parking_lot::Mutex;

use super::cache_use::{CountedSandboxes, counted_max};
use super::class_groups::{ClassGroups, group, is_removed};
use super::core_binding::CoreBinding;
use super::{ClosBinder, WayAllocation};

/// Binds sandboxes to classes by resctrl.
pub struct ResctrlClasses {
    pub(super) groups: ClassGroups,
    domains: Vec<CacheDomain>,
    /// None if sandboxes are bound by their tasks.
    pub(super) by_core: Option<CoreBinding>,
    /// Domains whose memory bandwidth can be limited.
    bandwidth_domains: Vec<CacheDomain>,
    insensitive_bandwidth: BandwidthLimit,
}

/// The part of the probed machine's cache that a layout may use; none if its L3 cannot be allocated.
#[must_use]
pub fn cache_shape(probe: &Probe) -> Option<CacheShape> {
    let l3 = probe.l3.as_ref()?;
    Some(CacheShape {
        ways: l3.full.count(),
        // The root group and the free class ids; more than CLASSES_MAX are never useful.
        classes: u8::try_from(probe.closids.available() + 1).unwrap_or(u8::MAX).min(nigh_llc::CLASSES_MAX),
        min_ways: l3.min_ways,
        shareable: l3.shareable,
    })
}

impl ResctrlClasses {
    /// The classes of the machine that was probed.
    #[must_use]
    pub fn new(resctrl: Resctrl, probe: &Probe) -> Self {
        let domains = probe.l3.as_ref().map_or_else(Vec::new, |l3| l3.domains.clone());
        // A limit that an earlier process left in a group is removed, if this machine can set limits.
        let limited = probe.mb.as_ref().filter(|mb| BandwidthLimit::Unlimited.value(Some(mb)).is_ok());
        Self {
            groups: ClassGroups { resctrl, counted: Mutex::new(CountedSandboxes::new(counted_max(probe))) },
            domains,
            by_core: None,
            bandwidth_domains: limited.map_or_else(Vec::new, |mb| mb.domains.clone()),
            insensitive_bandwidth: BandwidthLimit::Unlimited,
        }
    }

    /// Binds each running invocation by its own core, one of `cpus`.
    #[must_use]
    pub fn by_cores(self, cpus: SandboxCpus) -> Self {
        Self { by_core: Some(CoreBinding::new(cpus)), ..self }
    }

    /// Limits the memory bandwidth of the classes of insensitive functions, in the machine's own unit.
    ///
    /// # Errors
    /// If this machine cannot limit bandwidth, or not to this value.
    pub fn with_insensitive_bandwidth(self, value: u32, probe: &Probe) -> Result<Self, BandwidthRefusal> {
        let limit = BandwidthLimit::InOwnUnit(value);
        limit.value(probe.mb.as_ref())?;
        Ok(Self { insensitive_bandwidth: limit, ..self })
    }

    /// Removes all groups that Nigh made.
    ///
    /// # Errors
    /// The system's reason, with the groups that are left.
    pub fn remove_all(&self) -> Result<usize, String> {
        self.groups.resctrl.remove_all().map(|removed| removed.len()).map_err(|error| error.to_string())
    }

    /// Changes the groups to those of `layout`. Sandboxes of removed groups are in the default class.
    fn apply(&self, layout: &WantedLayout) -> Result<(), String> {
        let change = || {
            let mut counted = self.groups.counted.lock();
            let applied = self.groups.resctrl.apply(layout).map_err(|error| error.to_string())?;
            counted.removed(|clos| is_removed(clos, &applied));
            Ok(applied)
        };
        match &self.by_core {
            Some(by_core) => by_core.change(change).map(drop),
            None => change().map(drop),
        }
    }

    fn wanted(&self, class: &Clos) -> Option<WantedGroup> {
        let limit = match class.kind {
            ClosKind::Insensitive => self.insensitive_bandwidth,
            // A cluster holds functions of every class (`nigh_llc::fit_layout`).
            ClosKind::Default | ClosKind::Sensitive | ClosKind::Cluster => BandwidthLimit::Unlimited,
        };
        Some(self.group_of(group(class.id)?, class.mask, limit))
    }

    fn group_of(&self, name: GroupName, mask: WayMask, limit: BandwidthLimit) -> WantedGroup {
        WantedGroup {
            name,
            masks: self.domains.iter().map(|domain| (*domain, mask)).collect(),
            bandwidth: self.bandwidth_domains.iter().map(|domain| (*domain, limit)).collect(),
        }
    }
}

/// The only group during a profile. The next layout brings the classes back.
const PROFILE_GROUP: &str = "nigh-profile";

/// The group of a profile's sandboxes.
fn profile_target() -> Result<TaskTarget, String> {
    let group = GroupName::new(PROFILE_GROUP).map_err(|error| error.to_string())?;
    Ok(TaskTarget { group: Some(group), monitor: None })
}

impl WayAllocation for ResctrlClasses {
    fn allocate(&self, ways: Ways) -> Result<(), String> {
        let name = GroupName::new(PROFILE_GROUP).map_err(|error| error.to_string())?;
        let profile = self.group_of(name, WayMask::contiguous(0, ways), BandwidthLimit::Unlimited);
        self.apply(&WantedLayout { groups: vec![profile] })
    }

    fn bind(&self, tasks: &Members) -> Result<(), String> {
        self.groups.resctrl.bind_tasks(tasks, &profile_target()?).map(drop).map_err(|error| error.to_string())
    }

    fn traffic(&self) -> MemoryTraffic {
        let read = |target| self.groups.resctrl.traffic(&target).map_err(|error| error.to_string());
        profile_target().and_then(read).unwrap_or_else(|error| {
            tracing::debug!(%error, "the memory traffic of a profile cannot be counted");
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
        match &self.by_core {
            Some(by_core) => by_core.bind(&self.groups, tasks, clos),
            None => self.groups.move_tasks(tasks, clos),
        }
    }
}

/// Gives each invocation its core. It comes after [`crate::CacheWays`], which chooses the class.
pub struct CoreHook(pub Arc<ResctrlClasses>);

impl InvocationHook for CoreHook {
    fn name(&self) -> &'static str {
        "cache core"
    }

    fn before_run(&self, run: &mut Run<'_>) -> Option<String> {
        let (Some(by_core), Some(tasks)) = (&self.0.by_core, &run.tasks) else { return None };
        Some(by_core.begin(&self.0.groups, run.invocation, tasks))
    }

    fn after_run(&self, activation: &Activation) {
        self.not_run(activation.id);
    }

    fn not_run(&self, invocation: InvocationId) {
        if let Some(by_core) = &self.0.by_core {
            by_core.end(invocation);
        }
    }
}

#[cfg(test)]
mod tests {
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

    /// The bandwidth that each group shows, the default group's first.
    fn bandwidth(emulator: &Emulator, layout: &ClosLayout) -> Vec<u32> {
        let of = |path: String| {
            let shown = emulator.read(&path).unwrap();
            let line = shown.lines().find_map(|line| line.trim().strip_prefix("MB:0=")).unwrap();
            line.split(';').next().unwrap().trim().parse().unwrap()
        };
        let groups = layout.classes().iter().map(|class| match group(class.id) {
            Some(group) => of(group.file("schemata")),
            None => of("schemata".to_owned()),
        });
        groups.collect()
    }

    #[test]
    fn insensitive_classes_alone_have_less_bandwidth_and_have_it_back_in_a_life_without_the_setting() {
        for (config, value, all) in [
            (MachineConfig::silver_4210r(Dialect::Linux6_1), 30, 100),
            (MachineConfig::epyc(Dialect::Linux7), 16, 2048),
        ] {
            let emulator = Emulator::new(config);
            let open = || Resctrl::open(Arc::new(emulator.clone()), Arc::new(emulator.clone())).unwrap();
            let probe = open().probe().unwrap();
            let layout = ClosLayout::casy(&CasyRequest::of(cache_shape(&probe).unwrap(), Ways(3))).unwrap();
            let classes = ResctrlClasses::new(open(), &probe).with_insensitive_bandwidth(value, &probe).unwrap();
            classes.lay_out(&layout).unwrap();
            let expected: Vec<u32> = layout
                .classes()
                .iter()
                .map(|class| if class.kind == ClosKind::Insensitive { value } else { all })
                .collect();
            assert!(expected.contains(&value));
            assert_eq!(bandwidth(&emulator, &layout), expected);
            // A crash, and a start without the setting.
            ResctrlClasses::new(open(), &probe).lay_out(&layout).unwrap();
            assert_eq!(bandwidth(&emulator, &layout), vec![all; layout.classes().len()]);
        }
    }

    #[test]
    fn a_bandwidth_that_the_machine_cannot_give_is_refused() {
        let refused = |config, value| {
            let emulator = Emulator::new(config);
            let resctrl = Resctrl::open(Arc::new(emulator.clone()), Arc::new(emulator)).unwrap();
            let probe = resctrl.probe().unwrap();
            let refused = ResctrlClasses::new(resctrl, &probe).with_insensitive_bandwidth(value, &probe);
            refused.err().unwrap().to_string()
        };
        let percent = MachineConfig::silver_4210r(Dialect::Linux7);
        assert!(refused(percent.clone(), 5).contains("outside 10 to 100 percent"));
        assert!(refused(percent, 35).contains("steps of 10 percent"));
        assert!(refused(MachineConfig::cat_only(Dialect::Linux7, 11, 8, 1, 2), 50).contains("cannot limit"));
    }
}
