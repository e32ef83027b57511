//! How long a whole layout of eight classes (the default one and seven of Nigh's) takes to apply on the emulated
//! kernel: `cargo run --release -p nigh-llc --example resctrl_apply_time`.
//!
//! Prints the median and the 99th percentile of two changes, in milliseconds: from no group at all, and from one
//! layout to another of the same groups. No figure of a real kernel.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "an example prints, and may panic")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nigh_llc::resctrl::emulator::{Dialect, Emulator, MachineConfig};
use nigh_llc::resctrl::{GroupName, Resctrl, WantedGroup, WantedLayout};
use nigh_terms::{CacheDomain, WayMask, Ways};

/// Changes of each kind that are timed.
const ROUNDS: usize = 500;

fn layout(ways: u8) -> WantedLayout {
    let groups = (0..7).map(|number| WantedGroup {
        name: GroupName::new(format!("nigh-{number}")).unwrap(),
        masks: BTreeMap::from([(CacheDomain(0), WayMask::contiguous(number, Ways(ways)))]),
        bandwidth: BTreeMap::new(),
    });
    WantedLayout { groups: groups.collect() }
}

fn timed(resctrl: &Resctrl, wanted: &WantedLayout) -> Duration {
    let start = Instant::now();
    resctrl.apply(wanted).unwrap();
    start.elapsed()
}

fn report(what: &str, times: &mut [Duration]) {
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    println!("{what}: p50 {:.3} ms, p99 {:.3} ms", at(0.5), at(0.99));
}

fn main() {
    let emulator = Arc::new(Emulator::new(MachineConfig::silver_4210r(Dialect::Linux7)));
    let resctrl = Resctrl::open(emulator.clone(), emulator).unwrap();
    let (mut made, mut changed) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        made.push(timed(&resctrl, &layout(2)));
        changed.push(timed(&resctrl, &layout(4)));
        resctrl.remove_all().unwrap();
    }
    report("seven groups made and set", &mut made);
    report("seven groups changed", &mut changed);
}
