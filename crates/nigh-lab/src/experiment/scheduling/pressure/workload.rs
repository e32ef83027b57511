//! The recorded day on one node: what is invoked when, and how much memory and how many processors there are for it.
//!
//! Recorded are how often each function was invoked in each minute, how long it ran and what memory it had
//! (data/azure-functions-2019). What a new sandbox costs and what an idle one keeps is not recorded: the constants below
//! say how it is made up.

use nigh_terms::ByteSize;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde::Serialize;

use super::policy::IdleTakes;
use crate::experiment::scheduling::recorded_runs::RecordedRun;
use crate::experiment::scheduling::workload::{BUSIEST_MINUTE, RUN_MAX_MS, TENANTS};

pub(super) const PROCESSORS: u16 = 4;
/// Processor time that a new sandbox takes until it can run, in milliseconds: drawn once for each function, evenly in the
/// logarithm. From a small interpreter to a program that loads a model.
pub(super) const START_MS: (f64, f64) = (100.0, 1500.0);
/// The part of its booking that an idle, frozen sandbox still uses, and the least.
pub(super) const HELD_PERCENT: u64 = 30;
pub(super) const HELD_MIN: ByteSize = ByteSize::mib(30);

#[derive(Clone, Copy, Debug)]
pub(super) struct NodeFunction {
    pub(super) tenant: usize,
    pub(super) booked: ByteSize,
    /// What an idle sandbox of it uses.
    pub(super) held: ByteSize,
    /// Microseconds of processor time that a new sandbox takes.
    pub(super) start_us: u64,
}

impl NodeFunction {
    pub(super) const fn idle_takes(&self, rule: IdleTakes) -> ByteSize {
        match rule {
            IdleTakes::Booked => self.booked,
            IdleTakes::Held => self.held,
        }
    }

    /// What an idle sandbox takes more when it runs.
    pub(super) const fn growth(&self, rule: IdleTakes) -> ByteSize {
        self.booked.saturating_sub(self.idle_takes(rule))
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct NodeArrival {
    pub(super) at_us: u64,
    pub(super) function: usize,
    /// Microseconds of processor time; the time that the run takes alone.
    pub(super) run_us: u64,
}

/// How full the node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Setting {
    /// What one idle sandbox of each invoked function holds, and what runs on average, over the node's memory. Above 100
    /// not all functions can stay warm.
    pub(super) memory_percent: u32,
    /// The work of the runs, over that of the node's processors; starts come on top.
    pub(super) processors_percent: u32,
}

#[derive(Debug)]
pub(super) struct NodeWorkload {
    pub(super) functions: Vec<NodeFunction>,
    pub(super) arrivals: Vec<NodeArrival>,
    pub(super) memory: ByteSize,
    pub(super) processors: u16,
}

/// Some minutes of the recorded day, at the pace at which they were recorded.
#[derive(Debug)]
pub(super) struct RecordedMinutes {
    functions: Vec<NodeFunction>,
    arrivals: Vec<NodeArrival>,
    length_us: f64,
}

impl RecordedMinutes {
    /// So many minutes from the busiest on.
    pub(super) fn new(minutes: &[Vec<u32>], runs: &[RecordedRun], length_min: usize) -> Self {
        let mut random = StdRng::seed_from_u64(3);
        let (mut functions, mut arrivals) = (Vec::new(), Vec::new());
        for (line, (counts, run)) in minutes.iter().zip(runs).enumerate() {
            let booked = ByteSize::mib(run.memory_mib);
            let (least, most) = START_MS;
            functions.push(NodeFunction {
                tenant: line % TENANTS,
                booked,
                held: ByteSize(booked.bytes() * HELD_PERCENT / 100).max(HELD_MIN).min(booked),
                start_us: (least * (most / least).powf(random.random_range(0.0..1.0)) * 1000.0) as u64,
            });
            for minute in 0..length_min {
                let recorded = counts.get((BUSIEST_MINUTE + minute) % 1440).copied().unwrap_or_default();
                for _ in 0..recorded {
                    let run_us = (run.draw(&mut random).clamp(1.0, RUN_MAX_MS) * 1000.0) as u64;
                    let at_us = minute as u64 * 60_000_000 + random.random_range(0..60_000_000);
                    arrivals.push(NodeArrival { at_us, function: line, run_us });
                }
            }
        }
        arrivals.sort_by_key(|arrival| arrival.at_us);
        Self { functions, arrivals, length_us: length_min as f64 * 60e6 }
    }

    /// The same invocations, faster or slower, on a node that they fill so far.
    pub(super) fn on_node(&self, setting: Setting) -> NodeWorkload {
        let work_us: f64 = self.arrivals.iter().map(|arrival| arrival.run_us as f64).sum();
        let length_us = work_us / (f64::from(setting.processors_percent) / 100.0 * f64::from(PROCESSORS));
        let pace = length_us / self.length_us;
        let squeeze = |arrival: &NodeArrival| NodeArrival { at_us: (arrival.at_us as f64 * pace) as u64, ..*arrival };
        let mut invoked = vec![false; self.functions.len()];
        let mut running_byte_us = 0.0;
        for arrival in &self.arrivals {
            invoked[arrival.function] = true;
            running_byte_us += self.functions[arrival.function].booked.bytes() as f64 * arrival.run_us as f64;
        }
        let warm: ByteSize =
            self.functions.iter().zip(invoked).filter(|(_, invoked)| *invoked).map(|(one, _)| one.held).sum();
        let needed = warm.bytes() as f64 + running_byte_us / length_us;
        NodeWorkload {
            functions: self.functions.clone(),
            arrivals: self.arrivals.iter().map(squeeze).collect(),
            memory: ByteSize((needed * 100.0 / f64::from(setting.memory_percent)) as u64),
            processors: PROCESSORS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_as_full_as_was_asked_for() {
        let minutes = vec![vec![30; 1440]; 20];
        let quartiles_ms = [50.0, 100.0, 150.0, 400.0];
        let runs = vec![RecordedRun { quartiles_ms, median_ms: 100.0, memory_mib: 200 }; 20];
        let recorded = RecordedMinutes::new(&minutes, &runs, 5);
        let node = recorded.on_node(Setting { memory_percent: 50, processors_percent: 80 });
        let work: u64 = node.arrivals.iter().map(|arrival| arrival.run_us).sum();
        let length_us = node.arrivals.last().unwrap().at_us as f64;
        assert!((work as f64 / length_us / f64::from(PROCESSORS) - 0.8).abs() < 0.02);
        // 20 functions hold 60 MiB each; 0.8 of 4 processors run with 200 MiB each.
        let needed_mib = 20.0 * 60.0 + 0.8 * 4.0 * 200.0;
        assert!((node.memory.bytes() as f64 / (needed_mib * 2.0 * 1_048_576.0) - 1.0).abs() < 0.02);
        assert!(node.functions.iter().all(|one| (100_000..=1_500_000).contains(&one.start_us)));
    }
}
