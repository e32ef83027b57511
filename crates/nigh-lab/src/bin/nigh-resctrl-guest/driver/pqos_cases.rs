//! Intel's own tool as a second reader and a second user: `pqos --iface=os`.
//!
//! It knows groups by the names COS1, COS2, ... alone, and makes one for every class it can get. So groups of Nigh's
//! names mean nothing to it; what can be compared is what each side reads of a group COSn that the other wrote, and
//! that each leaves the other's alone.

use std::collections::BTreeMap;
use std::process::Command;

use nigh_llc::resctrl::conformance::Stop;
use nigh_llc::resctrl::{ProcTasks, Resctrl, Resource, TaskView};
use nigh_terms::{CacheDomain, WayMask};

use super::restless::still;
use super::{Case, DOMAINS, Stage, expect, expect_said, failed};

const PQOS: &str = "pqos";

/// The L3 masks by cache domain and class.
type Masks = BTreeMap<(u32, u32), u32>;

/// Runs the tool; what it says.
fn pqos(arguments: &[&str]) -> Result<String, Stop> {
    let output = Command::new(PQOS).arg("--iface=os").args(arguments).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    if output.status.success() {
        return Ok(said.into_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(failed(format!("{PQOS} {arguments:?}: {}: {said} {complaint}", output.status)))
}

/// Reads `L3CA COS1 => MASK 0xf` lines, each below the headline of its socket.
fn read(said: &str) -> Masks {
    let mut masks = Masks::new();
    let mut domain = None;
    for line in said.lines().map(str::trim) {
        if let Some((_, place)) = line.split_once("definitions for ") {
            domain = place.trim_end_matches(':').rsplit(' ').next().and_then(|id| id.parse().ok());
        } else if let (Some(domain), Some(rest)) = (domain, line.strip_prefix("L3CA COS"))
            && let Some((class, mask)) = rest.split_once(" => MASK 0x")
            && let (Ok(class), Ok(mask)) = (class.parse(), u32::from_str_radix(mask, 16))
        {
            masks.insert((domain, class), mask);
        }
    }
    masks
}

/// What the tool shows of these classes.
fn seen_by_pqos(classes: &Masks) -> Result<Masks, Stop> {
    let mut seen = read(&pqos(&["-s"])?);
    seen.retain(|place, _| classes.contains_key(place));
    Ok(seen)
}

/// What the driver shows of these classes.
fn seen_by(driver: &Resctrl, classes: &Masks) -> Result<Masks, Stop> {
    let live = driver.live()?;
    let mask = |&(domain, class): &(u32, u32)| {
        let title = format!("COS{class}");
        let group = live.groups.iter().find(|group| group.name == title);
        let mask = group.and_then(|group| group.schemata.mask(&Resource::L3, CacheDomain(domain)));
        Some(((domain, class), mask?.bits()))
    };
    Ok(classes.keys().filter_map(mask).collect())
}

/// Three classes with other ways in each domain.
fn three_classes() -> Masks {
    Masks::from([((0, 1), 0x3), ((1, 1), 0x3c), ((0, 2), 0x7f), ((1, 2), 0x1), ((0, 3), 0x60), ((1, 3), 0xff)])
}

fn it_reads_what_was_written(stage: &Stage<'_>) -> Result<(), Stop> {
    let made = three_classes();
    for class in [1, 2, 3] {
        let group = format!("COS{class}");
        stage.fs().make_group(&group)?;
        stage.fs().write(
            &format!("{group}/schemata"),
            &format!("L3:0={:x};1={:x}\n", made[&(0, class)], made[&(1, class)]),
        )?;
    }
    expect("masks as pqos reads them, by domain and class", &seen_by_pqos(&made)?, &made)
}

fn what_it_writes_is_read(stage: &Stage<'_>) -> Result<(), Stop> {
    let made = three_classes();
    // Opened before: where the tool has been there is no class for it.
    let driver = stage.driver()?;
    let texts: Vec<String> =
        made.iter().map(|((domain, class), mask)| format!("llc@{domain}:{class}=0x{mask:x}")).collect();
    pqos(&["-e", &texts.join(";")])?;
    expect("masks as the driver reads them", &seen_by(&driver, &made)?, &made)?;
    expect("masks as pqos reads them", &seen_by_pqos(&made)?, &made)?;
    // The second CPU, and a task.
    pqos(&["-a", "core:2=1"])?;
    expect("CPUs of COS2", &stage.fs().read("COS2/cpus_list")?, &"1\n".to_owned())?;
    let process = still()?;
    pqos(&["-a", &format!("pid:3={}", process.pid())])?;
    expect("the task's groups", &ProcTasks::default().groups(process.pid())?, &"res:COS3\nmon:\n".to_owned())?;
    pqos(&["-a", "core:0=1"])?;
    expect("CPUs of COS2", &stage.fs().read("COS2/cpus_list")?, &"\n".to_owned())
}

fn each_leaves_the_other_alone(stage: &Stage<'_>) -> Result<(), Stop> {
    let theirs = Masks::from([((0, 1), 0x3), ((1, 1), 0x3c)]);
    pqos(&["-e", "llc@0:1=0x3;llc@1:1=0x3c"])?;
    // It has made a group for every class; the driver says whose they are.
    let said = stage.driver().err().map(|stop| stop.to_string()).unwrap_or_default();
    expect_said(&said, &["every class of service is taken by others: COS1, COS2"])?;
    for class in [2, 3] {
        stage.fs().remove_group(&format!("COS{class}"))?;
    }
    let wanted = [("nigh-a", 2, 2), ("nigh-b", 0, 3)];
    let driver = stage.apply(&wanted)?;
    expect("its class after a layout of the driver's", &seen_by(&driver, &theirs)?, &theirs)?;
    let masks = DOMAINS.map(|_| WayMask::from_bits(0xc)).to_vec();
    // Where every class is held, whatever it says of that, it changes none of them.
    let told = pqos(&["-s"]);
    expect("a class of the driver's after it looked", &stage.shown(&driver, "nigh-a")?, &masks)?;
    stage.holds(&driver, &wanted)?;
    if let Ok(said) = told {
        let mut seen = read(&said);
        seen.retain(|place, _| theirs.contains_key(place));
        expect("its class as it reads it", &seen, &theirs)?;
    }
    driver.remove_all().map_err(failed)?;
    expect("its class at the end", &seen_by_pqos(&theirs)?, &theirs)
}

pub(super) const CASES: &[Case] = &[
    Case { name: "pqos reads the masks that were written", run: it_reads_what_was_written },
    Case { name: "the driver reads what pqos wrote", run: what_it_writes_is_read },
    Case { name: "the driver and pqos leave each other's classes alone", run: each_leaves_the_other_alone },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_read_by_domain_and_class() {
        let said = "NOTE:  Mixed use\nL3CA/MBA COS definitions for Socket 0:\n    L3CA COS0 => MASK 0x7ff\n    \
                    L3CA COS1 => MASK 0xf\n    MBA COS0 => 100% available\nL3CA/MBA COS definitions for Socket 1:\n    \
                    L3CA COS1 => MASK 0x1f\nCore information for socket 0:\n    Core 0, L2ID 0, L3ID 0 => COS0\n";
        assert_eq!(read(said), Masks::from([((0, 0), 0x7ff), ((0, 1), 0xf), ((1, 1), 0x1f)]));
    }
}
