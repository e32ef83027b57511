//! Cases about layouts: what is applied, in which order, and what is put back when the kernel or others say no.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nigh_llc::resctrl::conformance::Stop;
use nigh_llc::resctrl::{ApplyError, BandwidthLimit, BandwidthUnit, Resource, Rollback, UnavailableReason, Value};
use nigh_terms::{WayMask, Ways};

use super::meddler::Interference;
use super::{Case, DOMAINS, Stage, THEIRS, exhaust, expect, expect_said, failed, layout, name, need, refused, relieve};
use crate::sides::umount;

/// Changes applied beside somebody who makes and removes groups all the time.
const RACED_CHANGES: usize = 24;
/// How long somebody holds every class.
const RACED_PAUSE: Duration = Duration::from_millis(2);
/// Times that somebody takes every class meanwhile: each leaves as many monitoring ids in limbo for a second.
const RACED_TIMES: usize = 40;
/// What stands for a percent where bandwidth is given in MiB/s.
const MEBIBYTES_A_PERCENT: u32 = 100;
/// More steps than a change of these cases has.
const STEPS_MAX: usize = 16;

/// The rollback an error tells of.
fn rollback(error: &ApplyError) -> Option<&Rollback> {
    match error {
        ApplyError::Command { rollback, .. } | ApplyError::Differs { rollback, .. } => Some(rollback),
        _ => None,
    }
}

fn probe_is_true(stage: &Stage<'_>) -> Result<(), Stop> {
    stage.fs().make_group(THEIRS)?;
    let probe = stage.driver()?.probe().map_err(failed)?;
    let config = stage.l3()?;
    let l3 = probe.l3.ok_or_else(|| failed("no L3 is seen"))?;
    expect("ways", &l3.full, &WayMask::contiguous(0, Ways(config.ways)))?;
    expect("ways that devices use", &l3.shareable.bits(), &config.shareable)?;
    expect("CDP", &l3.cdp, &stage.options.cdp)?;
    expect("domains", &l3.domains, &DOMAINS.to_vec())?;
    // An older kernel does not say.
    expect("sparse masks", &l3.sparse.unwrap_or(config.sparse), &config.sparse)?;
    expect("classes", &probe.closids.available(), &(stage.classes()? - 1))?;
    expect("others", &probe.closids.foreign, &vec![THEIRS.to_owned()])?;
    expect("an L2", &probe.l2.is_some(), &stage.machine.l2.is_some())?;
    let rmids = stage.machine.monitoring.as_ref().map(|monitoring| monitoring.rmids);
    expect("monitoring ids", &probe.monitoring.map(|monitoring| monitoring.rmids), &rmids)?;
    let unit = if stage.options.mba_mbps { BandwidthUnit::MebibytesPerSecond } else { BandwidthUnit::Percent };
    expect("unit of bandwidth", &probe.mb.map(|mb| mb.unit), &stage.machine.mb.as_ref().map(|_| unit))
}

fn applied_changed_and_removed(stage: &Stage<'_>) -> Result<(), Stop> {
    stage.fs().make_group(THEIRS)?;
    stage.fs().write(&format!("{THEIRS}/schemata"), &stage.line(0x3))?;
    let (root, theirs) = (stage.root()?, stage.of_others()?);
    let driver = stage.driver()?;
    let first = [("nigh-a", 0, 4), ("nigh-b", 4, 3)];
    expect("made", &driver.apply(&layout(&first)?).map_err(failed)?.made.len(), &2)?;
    stage.holds(&driver, &first)?;
    expect("unchanged", &driver.apply(&layout(&first)?).map_err(failed)?.is_unchanged(), &true)?;
    // One moves, one grows into what it leaves, one goes.
    let second = [("nigh-c", 0, 2), ("nigh-b", 2, 5)];
    let applied = driver.apply(&layout(&second)?).map_err(failed)?;
    expect("removed", &applied.removed, &vec![name("nigh-a")?])?;
    stage.holds(&driver, &second)?;
    expect("the default group", &stage.root()?, &root)?;
    expect("removed at the end", &driver.remove_all().map_err(failed)?.len(), &2)?;
    expect("removed once more", &driver.remove_all().map_err(failed)?.len(), &0)?;
    expect("others' group", &stage.of_others()?, &theirs)
}

/// The kernel itself judges the order: a class that is exclusive refuses whoever grows into it.
fn shrinks_before_it_grows(stage: &Stage<'_>) -> Result<(), Stop> {
    need(stage.machine.l2.is_none(), "every group has the whole L2, so none can be exclusive")?;
    let ways = stage.l3()?.ways;
    let before = stage.fs().read("schemata")?;
    stage.fs().write("schemata", &stage.line(1))?;
    let driver = stage.apply(&[("nigh-a", 1, ways - 6), ("nigh-b", ways - 5, 2)])?;
    stage.fs().write("nigh-a/mode", "exclusive\n")?;
    // b is named first, and grows into what a gives up.
    let second = [("nigh-b", 3, ways - 6), ("nigh-a", 1, 2)];
    driver.apply(&layout(&second)?).map_err(failed)?;
    stage.holds(&driver, &second)?;
    driver.remove_all().map_err(failed)?;
    Ok(stage.fs().write("schemata", &before)?)
}

fn every_refused_step_is_undone(stage: &Stage<'_>) -> Result<(), Stop> {
    need(stage.classes()? >= 4, "too few classes: others could keep the one that must come back")?;
    let first = [("nigh-a", 0, 6), ("nigh-b", 6, 2), ("nigh-old", 0, 1)];
    // Shrinks a, makes c, grows b, removes old.
    let second = [("nigh-a", 0, 2), ("nigh-b", 2, 6), ("nigh-c", 7, 1)];
    let mut refused = 0;
    for step in 0..STEPS_MAX {
        stage.driver()?.remove_all().map_err(failed)?;
        stage.apply(&first)?;
        let before = stage.everything()?;
        let (driver, meddler) = stage.driver_beside(step, Interference::Refuse)?;
        match driver.apply(&layout(&second)?) {
            Ok(_) if meddler.commands() <= step => {
                stage.holds(&driver, &second)?;
                return expect("steps that were refused", &(refused >= 4), &true);
            }
            // An rmdir, which nothing refuses.
            Ok(_) => stage.holds(&driver, &second)?,
            Err(error) => {
                refused += 1;
                relieve(stage.fs())?;
                expect(&error.to_string(), &rollback(&error), &Some(&Rollback::Complete))?;
                let words = ["Out of ", "Unknown or unsupported resource name 'NOTHING'"];
                let said = words.iter().any(|word| error.to_string().contains(word));
                expect(&format!("the kernel's words in {error}"), &said, &true)?;
                expect(&format!("all after step {step}"), &stage.everything()?, &before)?;
            }
        }
    }
    Err(failed(format!("a change of more than {STEPS_MAX} steps")))
}

fn the_last_class_taken_half_way(stage: &Stage<'_>) -> Result<(), Stop> {
    stage.apply(&[("nigh-a", 0, 6)])?;
    let before = stage.everything()?;
    let meddling = Interference::act(|kernel| exhaust(kernel).map(drop));
    // Its first command shrinks a, its second makes b.
    let (driver, _) = stage.driver_beside(1, meddling)?;
    let second = [("nigh-a", 0, 2), ("nigh-b", 2, 2)];
    let error = refused(&driver, &second)?;
    expect_said(&error.to_string(), &["mkdir nigh-b", "os error 28", "Out of ", "all was put back"])?;
    // Now they are seen before anything is done.
    let error = refused(&driver, &second)?;
    expect("refused", &matches!(error, ApplyError::Refused(_)), &true)?;
    expect_said(&error.to_string(), &["the layout needs 2 classes, and 1 are available", "theirs-0"])?;
    relieve(stage.fs())?;
    expect("all", &stage.everything()?, &before)?;
    driver.apply(&layout(&second)?).map_err(failed)?;
    stage.holds(&driver, &second)
}

fn no_class_at_all(stage: &Stage<'_>) -> Result<(), Stop> {
    let taken = exhaust(stage.fs())?;
    expect("classes beside the default one", &taken, &stage.classes()?)?;
    let said = stage.driver().err().map(|stop| stop.to_string()).unwrap_or_default();
    expect_said(&said, &["every class of service is taken by others: theirs-0, theirs-1"])?;
    relieve(stage.fs())?;
    stage.driver().map(drop)
}

/// Somebody makes and removes groups without the lock while layouts change: each change is whole or nothing.
fn raced_by_others(stage: &Stage<'_>) -> Result<(), Stop> {
    let (kernel, stop) = (stage.kernel.handle(), Arc::new(AtomicBool::new(false)));
    let ended = stop.clone();
    let others = thread::spawn(move || {
        for _ in 0..RACED_TIMES {
            if ended.load(Ordering::Relaxed) {
                break;
            }
            exhaust(&kernel)?;
            thread::sleep(RACED_PAUSE);
            relieve(&kernel)?;
        }
        Ok::<_, io::Error>(())
    });
    let ran = raced_changes(stage);
    stop.store(true, Ordering::Relaxed);
    let others = others.join().map_err(|_| failed("the other user's thread panicked"))?;
    ran?;
    others?;
    relieve(stage.fs())?;
    let last = [("nigh-b", 0, 2)];
    stage.holds(&stage.apply(&last)?, &last)
}

fn raced_changes(stage: &Stage<'_>) -> Result<(), Stop> {
    let layouts = [vec![("nigh-a", 0, 4)], vec![("nigh-a", 0, 2), ("nigh-b", 2, 3)]];
    let mut now = Vec::new();
    for change in 0..RACED_CHANGES {
        // While they hold every class there is no driver to open; that is said and tried again.
        let driver = match stage.driver() {
            Ok(driver) => driver,
            Err(stop) if stop.to_string().contains("taken by others") => continue,
            Err(stop) => return Err(stop),
        };
        let next = &layouts[change % 2];
        match driver.apply(&layout(next)?) {
            Ok(_) => now.clone_from(next),
            Err(ApplyError::Refused(_)) => {}
            Err(error) => expect(&error.to_string(), &rollback(&error), &Some(&Rollback::Complete))?,
        }
        stage.holds(&driver, &now)?;
    }
    Ok(())
}

fn bandwidth_is_limited(stage: &Stage<'_>) -> Result<(), Stop> {
    need(stage.machine.mb.is_some(), "no bandwidth can be limited")?;
    let limit = |percent: u8| match stage.options.mba_mbps {
        true => BandwidthLimit::MebibytesPerSecond(u32::from(percent) * MEBIBYTES_A_PERCENT),
        false => BandwidthLimit::Percent(percent),
    };
    let driver = stage.driver()?;
    let mut wanted = layout(&[("nigh-a", 0, 2)])?;
    for value in [30, 50] {
        wanted.groups[0].bandwidth = DOMAINS.map(|domain| (domain, limit(value))).into();
        driver.apply(&wanted).map_err(failed)?;
        let live = driver.live()?;
        let shown =
            live.owned(&name("nigh-a")?).and_then(|group| group.schemata.get(&Resource::Mb, DOMAINS[1]).cloned());
        let value = u32::from(value) * if stage.options.mba_mbps { MEBIBYTES_A_PERCENT } else { 1 };
        expect("bandwidth", &shown, &Some(Value::Bandwidth(value)))?;
    }
    Ok(())
}

fn not_mounted_is_said(stage: &Stage<'_>) -> Result<(), Stop> {
    let driver = stage.driver()?;
    umount()?;
    expect("probe", &driver.probe().err(), &Some(UnavailableReason::NotMounted))?;
    let opened = nigh_llc::resctrl::Resctrl::open_kernel().err();
    expect("opened", &opened, &Some(UnavailableReason::NotMounted))?;
    let error = refused(&driver, &[("nigh-a", 0, 2)])?;
    expect_said(&error.to_string(), &["resctrl is not mounted (hint: mount -t resctrl"])
}

pub(super) const CASES: &[Case] = &[
    Case { name: "the probe tells ways, classes, and who holds them", run: probe_is_true },
    Case { name: "a layout is applied, changed and removed, and nothing else moves", run: applied_changed_and_removed },
    Case { name: "what shrinks is written before what grows", run: shrinks_before_it_grows },
    Case { name: "a change is undone whole whichever step the kernel refuses", run: every_refused_step_is_undone },
    Case { name: "the last class taken by others half-way puts all back", run: the_last_class_taken_half_way },
    Case { name: "when others hold every class they are named", run: no_class_at_all },
    Case { name: "beside others who use no lock a change is whole or nothing", run: raced_by_others },
    Case { name: "bandwidth is limited by the class", run: bandwidth_is_limited },
    Case { name: "a mount that is not there is said", run: not_mounted_is_said },
];
