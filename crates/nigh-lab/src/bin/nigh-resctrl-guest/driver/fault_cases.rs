//! Cases about faults: kills, umounts, remounts, groups removed by hand, CPUs off line.

use std::fs;
use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nigh_llc::resctrl::conformance::Stop;
use nigh_llc::resctrl::{ApplyError, MountOptions, ProcTasks, ResctrlFs, TaskTarget, TaskView, UnavailableReason};
use nigh_terms::CacheDomain;
use rustix::io::Errno;

use super::meddler::Interference;
use super::restless::{holder, still};
use super::{Case, Stage, THEIRS, expect, expect_said, failed, layout, name, need, refused};
use crate::lockstep::Side;
use crate::sides::{has_errno, mount_resctrl, umount, umount_lazily};

/// Longer than a change of layout takes here; whoever waits for the lock is not done then.
const WHILE_HELD: Duration = Duration::from_millis(300);
/// Most that a change waits for a lock whose holder is dead.
const RELEASED_WITHIN: Duration = Duration::from_secs(20);
/// The socket that is taken off line, and its cache.
const CPU: &str = "/sys/devices/system/cpu/cpu1/online";
const CPU_DOMAIN: CacheDomain = CacheDomain(1);

fn found_again_after_a_kill(stage: &Stage<'_>) -> Result<(), Stop> {
    stage.fs().make_group(THEIRS)?;
    let theirs = stage.of_others()?;
    let mut holder = holder()?;
    let driver = stage.driver()?;
    let left = [("nigh-a", 0, 2), ("nigh-b", 2, 2)];
    stage.holds(&driver, &left)?;
    // Somebody else's change waits for the lock, and goes on when its holder is killed.
    let (done, wait) = mpsc::channel();
    let (second, wanted) = (driver.clone(), layout(&[("nigh-b", 0, 3)])?);
    let changer = thread::spawn(move || {
        let applied = second.apply(&wanted).map_err(|error| error.to_string());
        // Nobody waits any more if this case failed before.
        let _ = done.send(applied);
    });
    expect("done while the lock is held", &wait.recv_timeout(WHILE_HELD).is_ok(), &false)?;
    holder.kill()?;
    wait.recv_timeout(RELEASED_WITHIN).map_err(failed)?.map_err(failed)?;
    changer.join().map_err(|_| failed("the thread panicked"))?;
    stage.holds(&driver, &[("nigh-b", 0, 3)])?;
    stage.fs().make_group("mon_groups/nigh-left").or_else(|error| match stage.machine.monitoring {
        None => Ok(()),
        Some(_) => Err(error),
    })?;
    let monitors = usize::from(stage.machine.monitoring.is_some());
    expect("removed", &driver.remove_all().map_err(failed)?.len(), &(1 + monitors))?;
    expect("Nigh's groups", &driver.live()?.owned_names(), &Vec::new())?;
    expect("others' group", &stage.of_others()?, &theirs)
}

fn tasks_fall_to_the_default_group(stage: &Stage<'_>) -> Result<(), Stop> {
    let driver = stage.apply(&[("nigh-a", 0, 2)])?;
    let process = still()?;
    let target = TaskTarget { group: Some(name("nigh-a")?), monitor: None };
    driver.bind_tasks(&process.members()?, &target).map_err(failed)?;
    driver.remove_all().map_err(failed)?;
    expect("a task", &ProcTasks::default().groups(process.pid())?, &"res:/\nmon:\n".to_owned())
}

fn a_group_removed_by_hand(stage: &Stage<'_>) -> Result<(), Stop> {
    let first = [("nigh-a", 0, 4), ("nigh-b", 4, 4)];
    let second = [("nigh-a", 0, 2), ("nigh-b", 2, 6)];
    stage.apply(&first)?;
    // Between shrinking a and growing b.
    let (beside, _) = stage.driver_beside(1, Interference::act(|kernel| kernel.remove_group("nigh-b")))?;
    let error = refused(&beside, &second)?.to_string();
    expect_said(&error, &["nigh-b/schemata", "removed by somebody else", "all was put back"])?;
    let driver = stage.driver()?;
    stage.holds(&driver, &first[..1])?;
    // The next change finds things as they are.
    expect("made again", &driver.apply(&layout(&second)?).map_err(failed)?.made, &vec![name("nigh-b")?])?;
    stage.holds(&driver, &second)?;
    stage.fs().remove_group("nigh-a")?;
    expect("made again", &driver.apply(&layout(&second)?).map_err(failed)?.made, &vec![name("nigh-a")?])?;
    stage.holds(&driver, &second)
}

fn unmounted_half_way(stage: &Stage<'_>) -> Result<(), Stop> {
    for step in 0..3 {
        let meddling = Interference::act(|_| {
            // The change holds the mount's directory open for the lock.
            match umount() {
                Err(error) if has_errno(&error, Errno::BUSY) => umount_lazily(),
                other => Err(io::Error::other(format!("an umount under a change gave {other:?}"))),
            }
        });
        let (beside, _) = stage.driver_beside(step, meddling)?;
        is_not_mounted(&refused(&beside, &[("nigh-a", 0, 2), ("nigh-b", 2, 2)])?)?;
        stage.kernel.remount(stage.options)?;
        expect("Nigh's groups", &stage.driver()?.live()?.owned_names(), &Vec::new())?;
    }
    Ok(())
}

fn is_not_mounted(error: &ApplyError) -> Result<(), Stop> {
    let said = matches!(error, ApplyError::Unavailable(UnavailableReason::NotMounted));
    expect(&error.to_string(), &said, &true)
}

fn mounted_with_cdp(stage: &Stage<'_>) -> Result<(), Stop> {
    need(stage.l3()?.cdp && !stage.options.cdp, "no other kind of mount")?;
    let wanted = [("nigh-a", 0, 2)];
    let driver = stage.apply(&wanted)?;
    let cdp = MountOptions { cdp: true, ..stage.options };
    stage.kernel.remount(cdp)?;
    expect("Nigh's groups", &driver.live()?.owned_names(), &Vec::new())?;
    driver.apply(&layout(&wanted)?).map_err(failed)?;
    let split = Stage { options: cdp, ..*stage };
    split.holds(&driver, &wanted)?;
    expect("both halves", &split.shown(&driver, "nigh-a")?.len(), &4)?;
    // Between two commands: what was begun is not gone on with.
    stage.kernel.remount(stage.options)?;
    let meddling = Interference::act(move |_| {
        umount_lazily()?;
        // The old mount lives until the lock's descriptor is closed.
        match mount_resctrl(cdp) {
            Err(error) if has_errno(&error, Errno::BUSY) => Ok(()),
            other => Err(io::Error::other(format!("a second mount gave {other:?}"))),
        }
    });
    let (beside, _) = stage.driver_beside(1, meddling)?;
    is_not_mounted(&refused(&beside, &wanted)?)?;
    stage.kernel.remount(cdp)?;
    driver.apply(&layout(&wanted)?).map_err(failed)?;
    split.holds(&driver, &wanted)?;
    Ok(stage.kernel.remount(stage.options)?)
}

/// Takes the second socket's CPU off line, or back.
fn set_online(online: bool) -> io::Result<()> {
    fs::write(CPU, if online { "1" } else { "0" })
}

fn a_cpu_off_line(stage: &Stage<'_>) -> Result<(), Stop> {
    need(fs::metadata(CPU).is_ok(), "no CPU can be taken off line")?;
    let wanted = [("nigh-a", 0, 2)];
    let driver = stage.apply(&wanted)?;
    let (a, cpu) = (name("nigh-a")?, "1".parse().map_err(failed)?);
    driver.bind_cpus(&a, &cpu).map_err(failed)?;
    set_online(false)?;
    let gone = without_it(stage);
    set_online(true)?;
    gone?;
    // A domain that comes back has its default masks, and a CPU the default group.
    expect("written", &driver.apply(&layout(&wanted)?).map_err(failed)?.written, &vec![a.clone()])?;
    stage.holds(&driver, &wanted)?;
    expect("bound again", &driver.bind_cpus(&a, &cpu).map_err(failed)?, &true)?;
    driver.release_cpus(&a, &cpu).map_err(failed)?;
    // Off line between plan and command.
    let moved = layout(&[("nigh-a", 4, 2)])?;
    let (beside, _) = stage.driver_beside(0, Interference::act(|_| set_online(false)))?;
    let error = beside.apply(&moved).err();
    set_online(true)?;
    expect_said(&error.ok_or_else(|| failed("nothing failed"))?.to_string(), &["nigh-a/schemata", "all was put back"])?;
    driver.apply(&moved).map_err(failed)?;
    stage.holds(&driver, &[("nigh-a", 4, 2)])
}

fn without_it(stage: &Stage<'_>) -> Result<(), Stop> {
    let driver = stage.driver()?;
    let probe = driver.probe().map_err(failed)?;
    expect("domains", &probe.l3.map(|l3| l3.domains.contains(&CPU_DOMAIN)), &Some(false))?;
    let error = refused(&driver, &[("nigh-a", 0, 3)])?;
    expect_said(&error.to_string(), &["the L3 cache domain 1 is not online"])?;
    let refused = driver.bind_cpus(&name("nigh-a")?, &"1".parse().map_err(failed)?).err();
    expect_said(&refused.map(|error| error.to_string()).unwrap_or_default(), &["Can only assign online CPUs"])
}

pub(super) const CASES: &[Case] = &[
    Case { name: "groups are found again after a kill under the lock, and removed", run: found_again_after_a_kill },
    Case { name: "tasks of removed groups fall to the default group", run: tasks_fall_to_the_default_group },
    Case { name: "a group removed by hand is said and made again", run: a_group_removed_by_hand },
    Case { name: "an umount under a change is said and leaves nothing", run: unmounted_half_way },
    Case { name: "mounted again with CDP it writes both halves", run: mounted_with_cdp },
    Case { name: "a domain off line is refused by name and written when it is back", run: a_cpu_off_line },
];
