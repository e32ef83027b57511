//! The driver itself on the kernel: each promise of [`Resctrl`] is a case, with real groups, processes and CPUs.
//!
//! A case finds a fresh mount, without a group, and leaves the default group as it found it, whatever it does. What
//! the case needs to go wrong is made to: by other users of the mount between two commands ([`Meddler`]), by a kill,
//! an umount, a CPU taken off line. Runs where nobody else is.

mod fault_cases;
mod layout_cases;
mod meddler;
mod pqos_cases;
mod restless;
mod task_cases;

use std::collections::BTreeMap;
use std::fmt::{Debug, Display};
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Instant;

use nigh_llc::resctrl::conformance::Stop;
use nigh_llc::resctrl::emulator::{CacheConfig, MachineConfig};
use nigh_llc::resctrl::{
    ApplyError, GroupName, MountOptions, ProcTasks, Resctrl, ResctrlFs, Resource, WantedGroup, WantedLayout,
};
use nigh_terms::{CacheDomain, WayMask, Ways};

use self::meddler::{Interference, Meddler};
pub(crate) use self::restless::{AS_ANOTHER_USER, HOLDER, RESTLESS, run_as_another_user, run_holder, run_restless};
use crate::lockstep::Side;
use crate::sides::{Kernel, has_errno};

/// The domains of a guest: one for each of its two sockets.
const DOMAINS: [CacheDomain; 2] = [CacheDomain(0), CacheDomain(1)];
/// What stands at the root beside groups.
const NO_GROUPS: [&str; 3] = ["info/", "mon_data/", "mon_groups/"];

/// One promise.
struct Case {
    name: &'static str,
    run: fn(&Stage<'_>) -> Result<(), Stop>,
}

/// Where cases play.
struct Stage<'a> {
    kernel: &'a Kernel,
    machine: &'a MachineConfig,
    options: MountOptions,
}

/// The name of a case and how it ended.
pub(crate) type CaseOutcome = (&'static str, Result<(), Stop>);

/// Plays every case on a mount with these options.
pub(crate) fn play(kernel: &Kernel, machine: &MachineConfig, options: MountOptions) -> io::Result<Vec<CaseOutcome>> {
    let stage = Stage { kernel, machine, options };
    // How tasks are bound, and what another tool sees, does not depend on the kind of mount.
    let once = options == MountOptions::default();
    let further: [&[Case]; 2] = if once { [task_cases::CASES, pqos_cases::CASES] } else { [&[], &[]] };
    let all = [layout_cases::CASES, fault_cases::CASES].into_iter().chain(further);
    let mut played = Vec::new();
    for case in all.flatten() {
        // On the console: a machine that has to be ended is told with its last words.
        let begun = Instant::now();
        kernel.remount(options)?;
        let before = stage.root()?;
        let ran = (case.run)(&stage).and_then(|()| {
            // A case may have unmounted; the masks of the default group are back then in any case.
            let mounted = kernel.fs().mount_options()?.is_some();
            if mounted { expect("the default group", &stage.root()?, &before) } else { Ok(()) }
        });
        let (name, seconds) = (case.name, begun.elapsed().as_secs_f64());
        writeln!(io::stderr(), "[{options}] {name}: {ran:?}, {seconds:.2} s")?;
        played.push((case.name, ran));
    }
    Ok(played)
}

fn failed(reason: impl Display) -> Stop {
    Stop::Failed(reason.to_string())
}

fn expect<T: PartialEq + Debug>(what: &str, got: &T, wanted: &T) -> Result<(), Stop> {
    if got == wanted { Ok(()) } else { Err(failed(format!("{what}: got {got:?}, expected {wanted:?}"))) }
}

/// `text` must hold every one of `parts`.
fn expect_said(text: &str, parts: &[&str]) -> Result<(), Stop> {
    match parts.iter().find(|part| !text.contains(**part)) {
        Some(part) => Err(failed(format!("{part:?} is not in {text:?}"))),
        None => Ok(()),
    }
}

fn need(there: bool, what: &str) -> Result<(), Stop> {
    if there { Ok(()) } else { Err(Stop::NotApplicable(what.to_owned())) }
}

fn name(name: &str) -> Result<GroupName, Stop> {
    GroupName::new(name).map_err(failed)
}

/// Groups with the same ways in both domains: name, first way, number of ways.
fn layout(groups: &[(&str, u8, u8)]) -> Result<WantedLayout, Stop> {
    let groups = groups.iter().map(|&(title, first, count)| {
        let masks = DOMAINS.map(|domain| (domain, WayMask::contiguous(first, Ways(count))));
        Ok(WantedGroup { name: name(title)?, masks: BTreeMap::from(masks), bandwidth: BTreeMap::new() })
    });
    Ok(WantedLayout { groups: groups.collect::<Result<_, Stop>>()? })
}

/// The error of a change that must fail.
fn refused(driver: &Resctrl, groups: &[(&str, u8, u8)]) -> Result<ApplyError, Stop> {
    driver.apply(&layout(groups)?).err().ok_or_else(|| failed("nothing was refused"))
}

impl Stage<'_> {
    fn fs(&self) -> &dyn ResctrlFs {
        self.kernel.fs()
    }

    /// The driver.
    fn driver(&self) -> Result<Resctrl, Stop> {
        Resctrl::open(Arc::new(self.kernel.handle()), Arc::new(ProcTasks::default())).map_err(failed)
    }

    /// The driver, with somebody who does something before one of its commands.
    fn driver_beside(&self, before: usize, meddling: Interference) -> Result<(Resctrl, Arc<Meddler>), Stop> {
        let meddler = Arc::new(Meddler::new(self.kernel.handle(), before, meddling));
        let driver = Resctrl::open(meddler.clone(), Arc::new(ProcTasks::default())).map_err(failed)?;
        Ok((driver, meddler))
    }

    /// Has the driver apply a layout.
    fn apply(&self, groups: &[(&str, u8, u8)]) -> Result<Resctrl, Stop> {
        let driver = self.driver()?;
        driver.apply(&layout(groups)?).map_err(failed)?;
        Ok(driver)
    }

    fn l3(&self) -> Result<&CacheConfig, Stop> {
        self.machine.l3.as_ref().ok_or_else(|| Stop::NotApplicable("no L3 can be allocated".to_owned()))
    }

    /// Classes beside the root's.
    fn classes(&self) -> Result<usize, Stop> {
        let halved = |cache: &CacheConfig, split: bool| cache.closids / if split { 2 } else { 1 };
        let caches = [(&self.machine.l3, self.options.cdp), (&self.machine.l2, self.options.cdpl2)];
        let caches = caches.into_iter().filter_map(|(cache, split)| Some(halved(cache.as_ref()?, split)));
        let least = caches.chain(self.machine.mb.iter().map(|mb| mb.closids)).min();
        least.map(|least| least as usize - 1).ok_or_else(|| failed("nothing can be allocated"))
    }

    /// The resources that `schemata` names for the L3.
    fn resources(&self) -> &'static [Resource] {
        if self.options.cdp { &[Resource::L3Code, Resource::L3Data] } else { &[Resource::L3] }
    }

    /// A `schemata` text that gives the L3 this mask everywhere.
    fn line(&self, mask: u32) -> String {
        let line = |resource| format!("{resource}:0={mask:x};1={mask:x}\n");
        self.resources().iter().map(line).collect()
    }

    /// What a group's `schemata` shows of the L3, as `to_command` writes it.
    fn shown(&self, driver: &Resctrl, group: &str) -> Result<Vec<WayMask>, Stop> {
        let live = driver.live()?;
        let group = live.groups.iter().find(|live| live.name == group);
        let group = group.ok_or_else(|| failed("the group is not there"))?;
        let all = self.resources().iter().flat_map(|of| DOMAINS.map(|domain| group.schemata.mask(of, domain)));
        all.collect::<Option<_>>().ok_or_else(|| failed(format!("no masks in {group:?}")))
    }

    /// Every group of the driver's must have the ways that `wanted` says, and there must be no other.
    fn holds(&self, driver: &Resctrl, wanted: &[(&str, u8, u8)]) -> Result<(), Stop> {
        let mut names = wanted.iter().map(|(title, ..)| name(title)).collect::<Result<Vec<_>, _>>()?;
        names.sort();
        expect("Nigh's groups", &driver.live()?.owned_names(), &names)?;
        for &(title, first, count) in wanted {
            let masks = vec![WayMask::contiguous(first, Ways(count)); 2 * self.resources().len()];
            expect(title, &self.shown(driver, title)?, &masks)?;
        }
        Ok(())
    }

    /// What the default group shows but for its tasks, which come and go.
    fn root(&self) -> io::Result<String> {
        ["schemata", "mode", "cpus_list"].iter().map(|file| self.fs().read(file)).collect()
    }

    /// Everything that all groups but the default one show, and that one's values.
    fn everything(&self) -> io::Result<BTreeMap<String, String>> {
        let mut all = BTreeMap::from([("the default group".to_owned(), self.root()?)]);
        for group in
            self.fs().list("")?.iter().filter(|name| name.ends_with('/') && !NO_GROUPS.contains(&name.as_str()))
        {
            for file in ["schemata", "mode", "cpus_list", "tasks"] {
                let path = format!("{group}{file}");
                let text = self.fs().read(&path)?;
                all.insert(path, text);
            }
        }
        Ok(all)
    }

    /// Everything of the group `theirs` alone.
    fn of_others(&self) -> io::Result<BTreeMap<String, String>> {
        let mut all = self.everything()?;
        all.retain(|path, _| path.starts_with(THEIRS));
        Ok(all)
    }
}

/// A group of somebody else's.
const THEIRS: &str = "theirs";

/// Makes others' groups until no class is left; how many.
fn exhaust(fs: &dyn ResctrlFs) -> io::Result<usize> {
    /// More than any processor has.
    const CLASSES_MAX: usize = 128;
    for made in 0..CLASSES_MAX {
        match fs.make_group(&format!("{THEIRS}-{made}")) {
            Err(error) if has_errno(&error, rustix::io::Errno::NOSPC) => return Ok(made),
            other => other?,
        }
    }
    Err(io::Error::other(format!("more than {CLASSES_MAX} classes")))
}

/// Removes what [`exhaust`] made.
fn relieve(fs: &dyn ResctrlFs) -> io::Result<()> {
    for group in fs.list("")?.iter().filter(|name| name.starts_with(&format!("{THEIRS}-"))) {
        fs.remove_group(group.trim_end_matches('/'))?;
    }
    Ok(())
}
