//! Layout changes on the emulated kernel: what is promised whatever the state before, and what happens when something
//! goes wrong half-way.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nigh_llc::resctrl::emulator::{Dialect, Emulator, Fault, MachineConfig};
use nigh_llc::resctrl::{
    ApplyError, BandwidthLimit, FsLock, GroupName, MountOptions, Resctrl, ResctrlFs, Resource, Rollback,
    UnavailableReason, WantedGroup, WantedLayout,
};
use nigh_terms::{CacheDomain, WayMask, Ways};
use proptest::prelude::*;

/// Looks at the mount after every command: no group of Nigh's may ever be without ways, nor a foreign one changed.
struct Watched {
    emulator: Emulator,
    foreign: String,
    commands: AtomicUsize,
}

fn foreign_state(emulator: &Emulator) -> String {
    let names = emulator.list("").unwrap_or_default();
    let foreign = names.iter().filter(|name| name.ends_with('/') && name.starts_with("theirs"));
    let read = |path: &str| emulator.read(path).unwrap_or_default();
    let all = foreign.map(|name| format!("{name}{}{}", read(&format!("{name}schemata")), read(&format!("{name}mode"))));
    all.collect::<String>() + &read("schemata") + &read("mode")
}

impl Watched {
    fn new(emulator: &Emulator) -> Arc<Self> {
        let foreign = foreign_state(emulator);
        Arc::new(Self { emulator: emulator.clone(), foreign, commands: AtomicUsize::new(0) })
    }

    fn check(&self, answer: io::Result<()>) -> io::Result<()> {
        self.commands.fetch_add(1, Ordering::Relaxed);
        assert_eq!(foreign_state(&self.emulator), self.foreign);
        for name in self.emulator.list("")?.iter().filter(|name| name.starts_with("nigh-")) {
            let schemata = self.emulator.read(&format!("{name}schemata"))?;
            let masks = schemata.lines().filter(|line| line.trim_start().starts_with('L'));
            let mut masks = masks.flat_map(|line| line.split_once(':').map_or("", |(_, masks)| masks).split(';'));
            assert!(masks.all(|mask| !mask.ends_with("=0")), "{name} has no way: {schemata}");
        }
        answer
    }
}

impl ResctrlFs for Watched {
    fn mount_options(&self) -> io::Result<Option<MountOptions>> {
        self.emulator.mount_options()
    }
    fn read(&self, path: &str) -> io::Result<String> {
        self.emulator.read(path)
    }
    fn write(&self, path: &str, text: &str) -> io::Result<()> {
        self.check(self.emulator.write(path, text))
    }
    fn make_group(&self, path: &str) -> io::Result<()> {
        self.check(self.emulator.make_group(path))
    }
    fn remove_group(&self, path: &str) -> io::Result<()> {
        self.check(self.emulator.remove_group(path))
    }
    fn rename_group(&self, from: &str, to: &str) -> io::Result<()> {
        self.check(self.emulator.rename_group(from, to))
    }
    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        self.emulator.list(path)
    }
    fn lock(&self) -> io::Result<Box<dyn FsLock + '_>> {
        self.emulator.lock()
    }
}

fn name(name: impl Into<String>) -> GroupName {
    GroupName::new(name).unwrap()
}

fn group(title: &str, masks: &[(u32, u8, u8)]) -> WantedGroup {
    let masks =
        masks.iter().map(|&(domain, first, count)| (CacheDomain(domain), WayMask::contiguous(first, Ways(count))));
    WantedGroup { name: name(title), masks: masks.collect(), bandwidth: BTreeMap::new() }
}

fn layout(groups: &[(&str, u8, u8)]) -> WantedLayout {
    WantedLayout { groups: groups.iter().map(|&(title, first, count)| group(title, &[(0, first, count)])).collect() }
}

fn open(emulator: &Emulator) -> Resctrl {
    Resctrl::open(Arc::new(emulator.clone()), Arc::new(emulator.clone())).unwrap()
}

/// Everything a rollback must put back.
fn everything(emulator: &Emulator) -> String {
    let mut all = String::new();
    let names = emulator.list("").unwrap();
    let groups = names
        .iter()
        .filter(|name| name.ends_with('/') && !["info/", "mon_data/", "mon_groups/"].contains(&name.as_str()));
    for group in [""].into_iter().chain(groups.map(String::as_str)) {
        for file in ["schemata", "mode", "cpus_list", "tasks"] {
            all += &format!("{group}{file}: {}\n", emulator.read(&format!("{group}{file}")).unwrap());
        }
    }
    all
}

const DOMAINS: u32 = 2;

/// (group number, per domain: first way and length, bandwidth percent)
type Row = (u8, Vec<(u8, u8)>, u8);

fn rows(most: usize) -> impl Strategy<Value = Vec<Row>> {
    let masks = proptest::collection::vec((0u8..11, 1u8..12), DOMAINS as usize);
    proptest::collection::vec((0u8..9, masks, 10u8..=100), 0..most)
}

fn machine(kind: u8, dialect: Dialect) -> (MachineConfig, MountOptions) {
    let options = MountOptions::default();
    match kind {
        0 => (MachineConfig::cat_only(dialect, 11, 8, DOMAINS, 2), options),
        1 => (MachineConfig::epyc(dialect), options),
        _ => {
            let cpus = MachineConfig::cpus(DOMAINS, 2);
            (MachineConfig { cpus, ..MachineConfig::silver_4210r(dialect) }, MountOptions { cdp: true, ..options })
        }
    }
}

fn wanted(rows: &[Row], bandwidth: bool) -> WantedLayout {
    let groups = rows.iter().map(|(number, masks, percent)| {
        let masks: Vec<_> =
            masks.iter().zip(0..).map(|(&(first, count), domain)| (domain, first, count.min(11 - first))).collect();
        let mut group = group(&format!("nigh-{number}"), &masks);
        if bandwidth {
            group.bandwidth =
                (0..DOMAINS).map(|domain| (CacheDomain(domain), BandwidthLimit::Percent(*percent))).collect();
        }
        group
    });
    WantedLayout { groups: groups.collect() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn a_layout_is_applied_whole_or_not_at_all_and_foreign_groups_stay(
        kind in 0u8..3,
        old_kernel in any::<bool>(),
        before in rows(6),
        after in rows(8),
        foreign in 0u8..4,
        exclusive in any::<bool>(),
        failure in proptest::option::of(0usize..12),
    ) {
        let dialect = if old_kernel { Dialect::Linux6_1 } else { Dialect::Linux7 };
        let (config, options) = machine(kind, dialect);
        let emulator = Emulator::unmounted(config);
        emulator.mount(options).unwrap();
        for number in 0..foreign {
            emulator.make_group(&format!("theirs{number}")).unwrap();
        }
        for (number, masks, _) in &before {
            let path = format!("nigh-{number}");
            if emulator.make_group(&path).is_ok() {
                let text = masks.iter().zip(0..).map(|(&(first, count), domain): (_, u32)| {
                    format!("{domain}={:x}", WayMask::contiguous(first, Ways(count.min(11 - first))))
                });
                let text = text.collect::<Vec<_>>().join(";");
                let written = if options.cdp { format!("L3CODE:{text}\nL3DATA:{text}\n") } else { format!("L3:{text}\n") };
                emulator.write(&format!("{path}/schemata"), &written).unwrap();
            }
        }
        if exclusive && foreign > 0 {
            // Usually refused, as the root has all ways; then the group just stays shareable.
            _ = emulator.write("theirs0/mode", "exclusive\n");
        }
        let before = everything(&emulator);
        let wanted = wanted(&after, kind == 2);
        if let Some(after) = failure {
            emulator.schedule(after, Fault::Fail(rustix::io::Errno::INVAL.raw_os_error()));
        }
        let watched = Watched::new(&emulator);
        let resctrl = Resctrl::open(watched.clone(), Arc::new(emulator.clone())).unwrap();
        match resctrl.apply(&wanted) {
            Ok(applied) => {
                let live = resctrl.live().unwrap();
                let mut names: Vec<_> = wanted.groups.iter().map(|group| group.name.clone()).collect();
                names.sort();
                prop_assert_eq!(live.owned_names(), names);
                let resources = if options.cdp { vec![Resource::L3Code, Resource::L3Data] } else { vec![Resource::L3] };
                for group in &wanted.groups {
                    let live = live.owned(&group.name).unwrap();
                    for (&domain, &mask) in &group.masks {
                        for resource in &resources {
                            prop_assert_eq!(live.schemata.mask(resource, domain), Some(mask));
                        }
                    }
                }
                let commands = watched.commands.load(Ordering::Relaxed);
                prop_assert_eq!(applied.is_unchanged(), commands == 0);
                if failure.is_none() {
                    prop_assert!(resctrl.apply(&wanted).unwrap().is_unchanged());
                }
            }
            Err(ApplyError::Refused(_)) => prop_assert_eq!(everything(&emulator), before),
            Err(ApplyError::Command { rollback: Rollback::Complete, .. }) => {
                prop_assert!(failure.is_some());
                prop_assert_eq!(everything(&emulator), before);
            }
            Err(other) => prop_assert!(false, "{}", other),
        }
    }
}

#[test]
fn a_removed_group_is_put_back_with_its_tasks_and_cpus_when_a_later_step_fails() {
    let emulator = Emulator::new(MachineConfig { monitoring: None, ..MachineConfig::silver_4210r(Dialect::Linux7) });
    let resctrl = open(&emulator);
    let seven: Vec<String> = (0..7).map(|number| format!("nigh-{number}")).collect();
    let full: Vec<_> = seven.iter().map(|title| (title.as_str(), 0, 2)).collect();
    resctrl.apply(&layout(&full)).unwrap();
    for pid in [100, 101] {
        emulator.inject(Fault::Spawn { pid, uid: 0 });
        emulator.write("nigh-0/tasks", &pid.to_string()).unwrap();
    }
    emulator.write("nigh-0/cpus_list", "3,5\n").unwrap();
    let before = everything(&emulator);
    // Classes are used up: nigh-0 goes first, nigh-new is made, and then its masks are refused.
    emulator.schedule(2, Fault::Fail(rustix::io::Errno::INVAL.raw_os_error()));
    let mut next = full.clone();
    next[0] = ("nigh-new", 4, 1);
    let error = resctrl.apply(&layout(&next)).unwrap_err();
    assert!(matches!(error, ApplyError::Command { rollback: Rollback::Complete, .. }), "{error}");
    assert_eq!(everything(&emulator), before);
}

#[test]
fn a_failed_command_tells_errno_status_and_what_was_asked() {
    let emulator = Emulator::new(MachineConfig::silver_4210r(Dialect::Linux7));
    let resctrl = open(&emulator);
    resctrl.apply(&layout(&[("nigh-a", 1, 2)])).unwrap();
    emulator.make_group("theirs").unwrap();
    emulator.write("schemata", "L3:0=7fe\n").unwrap();
    emulator.write("theirs/schemata", "L3:0=1\n").unwrap();
    // Somebody takes the way for himself after the plan was made.
    emulator.schedule(0, Fault::ForeignWrite { path: "theirs/mode".to_owned(), text: "exclusive\n".to_owned() });
    let error = resctrl.apply(&layout(&[("nigh-a", 0, 3)])).unwrap_err().to_string();
    for part in
        ["write \"L3:0=7\" to nigh-a/schemata", "os error 22", "Overlaps with exclusive group", "all was put back"]
    {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(emulator.read("nigh-a/schemata").unwrap().contains("0=6"));
}

#[test]
fn an_unmount_half_way_is_said_and_leaves_nothing() {
    let emulator = Emulator::new(MachineConfig::silver_4210r(Dialect::Linux7));
    let resctrl = open(&emulator);
    for after in 0..4 {
        emulator.schedule(after, Fault::Unmount);
        let error = resctrl.apply(&layout(&[("nigh-a", 0, 2), ("nigh-b", 2, 2)])).unwrap_err();
        assert!(matches!(error, ApplyError::Unavailable(UnavailableReason::NotMounted)), "{error}");
        assert_eq!(resctrl.probe().unwrap_err(), UnavailableReason::NotMounted);
        emulator.mount(MountOptions::default()).unwrap();
        assert!(resctrl.live().unwrap().owned_names().is_empty());
    }
}

#[test]
fn a_remount_with_cdp_is_met_as_it_is() {
    let emulator = Emulator::new(MachineConfig::silver_4210r(Dialect::Linux7));
    let resctrl = open(&emulator);
    resctrl.apply(&layout(&[("nigh-a", 0, 2)])).unwrap();
    emulator.inject(Fault::Remount(MountOptions { cdp: true, ..MountOptions::default() }));
    resctrl.apply(&layout(&[("nigh-a", 0, 2)])).unwrap();
    let text = emulator.read("nigh-a/schemata").unwrap();
    assert!(text.contains("L3CODE:0=3\n") && text.contains("L3DATA:0=3\n"), "{text}");
    // Between two steps of one change: the rest is refused, and nothing is left.
    emulator.inject(Fault::Remount(MountOptions::default()));
    emulator.schedule(1, Fault::Remount(MountOptions { cdp: true, ..MountOptions::default() }));
    let error = resctrl.apply(&layout(&[("nigh-a", 0, 2)])).unwrap_err();
    assert!(matches!(error, ApplyError::Command { .. }), "{error}");
    assert!(resctrl.live().unwrap().owned_names().is_empty());
}

#[test]
fn classes_taken_by_others_are_named() {
    let emulator = Emulator::new(MachineConfig::silver_4210r(Dialect::Linux7));
    let resctrl = open(&emulator);
    for number in 0..6 {
        emulator.make_group(&format!("theirs{number}")).unwrap();
    }
    let two = layout(&[("nigh-a", 0, 2), ("nigh-b", 2, 2)]);
    let error = resctrl.apply(&two).unwrap_err().to_string();
    assert!(error.contains("1 are available") && error.contains("theirs5"), "{error}");
    // One more comes between plan and step.
    emulator.schedule(0, Fault::ForeignMake("theirs6".to_owned()));
    let error = resctrl.apply(&layout(&[("nigh-a", 0, 2)])).unwrap_err().to_string();
    assert!(error.contains("Out of CLOSIDs") && error.contains("all was put back"), "{error}");
    let taken = Resctrl::open(Arc::new(emulator.clone()), Arc::new(emulator.clone())).err().unwrap();
    assert!(taken.to_string().contains("taken by others: theirs0"), "{taken}");
}

#[test]
fn an_offline_domain_is_refused_by_name_and_back_on_line_is_written() {
    let emulator = Emulator::new(MachineConfig::cat_only(Dialect::Linux7, 11, 8, 2, 1));
    let resctrl = open(&emulator);
    let both = WantedLayout { groups: vec![group("nigh-a", &[(0, 0, 2), (1, 4, 2)])] };
    resctrl.apply(&both).unwrap();
    emulator.inject(Fault::CpuOffline(1));
    let error = resctrl.apply(&both).unwrap_err().to_string();
    assert!(error.contains("L3 cache domain 1 is not online"), "{error}");
    // The kernel gives a domain that comes back its default masks.
    emulator.inject(Fault::CpuOnline(1));
    assert_eq!(resctrl.apply(&both).unwrap().written, [name("nigh-a")]);
    // Off line between plan and step.
    emulator.schedule(0, Fault::CpuOffline(1));
    let moved = WantedLayout { groups: vec![group("nigh-a", &[(0, 2, 2), (1, 6, 2)])] };
    let error = resctrl.apply(&moved).unwrap_err();
    assert!(matches!(error, ApplyError::Command { rollback: Rollback::Complete, .. }), "{error}");
}

#[test]
fn a_group_removed_by_hand_half_way_is_said_and_the_rest_put_back() {
    let emulator = Emulator::new(MachineConfig::cat_only(Dialect::Linux7, 11, 8, 1, 2));
    let resctrl = open(&emulator);
    resctrl.apply(&layout(&[("nigh-a", 0, 4), ("nigh-b", 4, 4)])).unwrap();
    emulator.schedule(1, Fault::ForeignRemove("nigh-b".to_owned()));
    let error = resctrl.apply(&layout(&[("nigh-a", 0, 2), ("nigh-b", 2, 6)])).unwrap_err().to_string();
    assert!(error.contains("nigh-b/schemata") && error.contains("removed by somebody else"), "{error}");
    assert!(emulator.read("nigh-a/schemata").unwrap().contains("0=f"));
    // The next change finds things as they are and makes it again.
    assert_eq!(resctrl.apply(&layout(&[("nigh-a", 0, 2), ("nigh-b", 2, 6)])).unwrap().made, [name("nigh-b")]);
}

#[test]
fn groups_are_found_again_after_a_crash_and_removed_on_exit() {
    let emulator = Emulator::new(MachineConfig::silver_4210r(Dialect::Linux7));
    open(&emulator).apply(&layout(&[("nigh-a", 0, 2), ("nigh-b", 2, 2)])).unwrap();
    emulator.make_group("theirs").unwrap();
    emulator.make_group("mon_groups/nigh-watch").unwrap();
    let root = emulator.read("schemata").unwrap();
    let again = open(&emulator);
    assert_eq!(again.live().unwrap().owned_names(), [name("nigh-a"), name("nigh-b")]);
    assert_eq!(again.remove_all().unwrap(), [name("nigh-a"), name("nigh-b"), name("nigh-watch")]);
    assert_eq!(again.live().unwrap().foreign_names(), ["theirs"]);
    assert_eq!(emulator.read("schemata").unwrap(), root);
    assert!(again.remove_all().unwrap().is_empty());
}

#[test]
fn seven_classes_fit_beside_the_default_one_and_an_eighth_is_refused() {
    let emulator = Emulator::new(MachineConfig::silver_4210r(Dialect::Linux6_1));
    let resctrl = open(&emulator);
    let titles: Vec<String> = (0..8).map(|number| format!("nigh-{number}")).collect();
    let all: Vec<_> = titles.iter().zip(0..).map(|(title, way)| (title.as_str(), way, 2)).collect();
    assert_eq!(resctrl.apply(&layout(&all[..7])).unwrap().made.len(), 7);
    let error = resctrl.apply(&layout(&all)).unwrap_err();
    assert!(matches!(error, ApplyError::Refused(_)), "{error}");
    assert!(emulator.read("schemata").unwrap().contains("0=7ff"), "the default class stays as it was");
}

#[test]
fn a_machine_without_cache_allocation_says_so_in_one_line() {
    let mut machine = MachineConfig::silver_4210r(Dialect::Linux7);
    machine.l3 = None;
    let emulator = Emulator::new(machine.clone());
    let shared: Arc<Emulator> = Arc::new(emulator);
    assert_eq!(Resctrl::open(shared.clone(), shared).err(), Some(UnavailableReason::NoCache));
    let unmounted = Arc::new(Emulator::unmounted(machine));
    assert_eq!(Resctrl::open(unmounted.clone(), unmounted).err(), Some(UnavailableReason::NotMounted));
    assert!(!UnavailableReason::NotMounted.to_string().contains('\n'));
}
