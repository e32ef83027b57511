//! The smallest partition of the cache with which a latency-critical service keeps its objective beside batch work.
//!
//! Based on this finding: a small partition protects the tail latency of a networked service, and a larger one can
//! raise it again, because the batch side, with less cache, loads the memory (the CMU poster; technical report
//! CMU-CS-17-125). So the guard starts with a fixed size and evaluates window by window. It moves only if the objective
//! was missed, or met with room to spare, for several windows in a row. It assumes no order among the sizes: it
//! remembers the result of each, with its load. After a miss it tries one way more, then the middle of the longest
//! range of untried sizes: the tails of neighbouring sizes differ by chance too, and would mislead a stepwise search.
//! The ways that devices write to stay with the batch side. The guard itself changes nothing; without the mode to act,
//! its decisions are reports.

use std::collections::BTreeMap;
use std::time::Duration;

use nigh_terms::Ways;
use serde::Serialize;

use crate::guard_settings::{GuardMode, GuardRefusal, GuardSettings};
use crate::latency_histogram::LatencyHistogram;

/// The most windows collected for one judgement. If they still have too few requests, they are discarded.
const GATHERED_MAX: u32 = 64;

/// The measurements of one window.
#[derive(Debug, Clone)]
pub struct GuardWindow {
    /// The service's ways in it, as applied.
    pub applied: Ways,
    /// Its latencies.
    pub latency: LatencyHistogram,
    /// Requests a second.
    pub load: f64,
    /// The batch side's work per second, if known.
    pub batch_progress: Option<f64>,
}

/// The result of a size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SizeMemory {
    /// The tail.
    pub tail: Duration,
    /// At this load.
    pub load: f64,
    /// With this much batch work.
    pub batch_progress: Option<f64>,
    /// At this judgement.
    judgement: u64,
}

/// The decision after a window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "decision")]
pub enum GuardDecision {
    /// Leave it.
    Keep {
        /// Why.
        because: KeepReason,
    },
    /// Give the service another number of ways.
    Resize {
        /// Now.
        from: Ways,
        /// Better.
        to: Ways,
        /// Why.
        because: ResizeReason,
        /// Whether to apply it; false in report mode.
        act: bool,
    },
}

/// Why a size stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
pub enum KeepReason {
    /// The cache fills after a change.
    Settling,
    /// Too few requests to judge.
    TooFewSamples {
        /// Counted so far.
        have: u64,
        /// The percentile takes.
        need: u64,
    },
    /// The objective is met, without enough room for fewer ways or not for long enough.
    Met,
    /// The objective is met, and no smaller size is known or left to try that would.
    Smallest,
    /// The objective is missed, not for long enough.
    MissedBriefly,
    /// The objective is missed with every size; this one misses it least.
    Unreachable,
}

/// Why a size changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ResizeReason {
    /// Missed, and this is the smallest size that met it before.
    KnownToMeet,
    /// Missed, and this size was not tried.
    Untried,
    /// Missed with every size, and this one misses it least.
    MissesLeast,
    /// Room to spare: a smaller size gives the batch side more.
    Slack,
}

/// The guard of one service.
#[derive(Debug, Clone)]
pub struct TailGuard {
    settings: GuardSettings,
    applied: Ways,
    settling: u32,
    gathered: LatencyHistogram,
    gathered_windows: u32,
    memory: BTreeMap<Ways, SizeMemory>,
    judgement: u64,
    missed: u32,
    spare: u32,
}

impl TailGuard {
    /// A guard that starts with the settings' size.
    pub fn new(settings: GuardSettings) -> Result<Self, GuardRefusal> {
        settings.check()?;
        Ok(Self {
            settings,
            applied: settings.start,
            settling: settings.settle_windows,
            gathered: LatencyHistogram::default(),
            gathered_windows: 0,
            memory: BTreeMap::new(),
            judgement: 0,
            missed: 0,
            spare: 0,
        })
    }

    /// The settings.
    #[must_use]
    pub const fn settings(&self) -> &GuardSettings {
        &self.settings
    }

    /// The last result of each size.
    pub fn memory(&self) -> impl Iterator<Item = (Ways, &SizeMemory)> {
        self.memory.iter().map(|(ways, memory)| (*ways, memory))
    }

    /// Takes a window.
    pub fn observe(&mut self, window: &GuardWindow) -> GuardDecision {
        let keep = |because| GuardDecision::Keep { because };
        if window.applied != self.applied {
            self.applied = window.applied;
            self.settling = self.settings.settle_windows;
            (self.missed, self.spare) = (0, 0);
            self.forget_gathered();
        }
        if self.settling > 0 {
            self.settling -= 1;
            return keep(KeepReason::Settling);
        }
        self.gathered.merge(&window.latency);
        self.gathered_windows += 1;
        let (have, need) = (self.gathered.total(), self.settings.objective.percentile.samples_needed());
        let tail = self.gathered.quantile(self.settings.objective.percentile).filter(|_| have >= need);
        let Some(tail) = tail else {
            if self.gathered_windows >= GATHERED_MAX {
                self.forget_gathered();
            }
            return keep(KeepReason::TooFewSamples { have, need });
        };
        self.forget_gathered();
        self.judge(tail, window)
    }

    fn forget_gathered(&mut self) {
        self.gathered = LatencyHistogram::default();
        self.gathered_windows = 0;
    }

    fn judge(&mut self, tail: Duration, window: &GuardWindow) -> GuardDecision {
        self.judgement += 1;
        let (judgement, rules) = (self.judgement, self.settings);
        self.memory.retain(|_, known| {
            let apart = (known.load - window.load).abs();
            judgement - known.judgement <= rules.memory_windows
                && apart <= rules.load_change * known.load.max(window.load)
        });
        let memory = SizeMemory { tail, load: window.load, batch_progress: window.batch_progress, judgement };
        self.memory.insert(self.applied, memory);

        let met = tail <= rules.objective.limit;
        let spare = tail <= rules.objective.limit.mul_f64(rules.slack);
        self.missed = if met { 0 } else { self.missed.saturating_add(1) };
        self.spare = if spare { self.spare.saturating_add(1) } else { 0 };
        if !met {
            if self.missed < rules.violation_windows {
                return GuardDecision::Keep { because: KeepReason::MissedBriefly };
            }
            return self.resize(self.after_misses(), KeepReason::Unreachable);
        }
        if self.spare < rules.slack_windows {
            return GuardDecision::Keep { because: KeepReason::Met };
        }
        self.resize(self.smaller().map(|ways| (ways, ResizeReason::Slack)), KeepReason::Smallest)
    }

    fn resize(&mut self, to: Option<(Ways, ResizeReason)>, otherwise: KeepReason) -> GuardDecision {
        match to {
            Some((to, because)) if to != self.applied => {
                let act = self.settings.mode == GuardMode::Act;
                GuardDecision::Resize { from: self.applied, to, because, act }
            }
            _ => GuardDecision::Keep { because: otherwise },
        }
    }

    fn sizes(&self) -> impl DoubleEndedIterator<Item = Ways> {
        (self.settings.shape.min_ways.0.max(1)..=self.settings.most().0).map(Ways)
    }

    fn meets(&self, ways: Ways) -> Option<bool> {
        self.memory.get(&ways).map(|known| known.tail <= self.settings.objective.limit)
    }

    /// The next size after a miss.
    fn after_misses(&self) -> Option<(Ways, ResizeReason)> {
        if let Some(known) = self.sizes().find(|&ways| self.meets(ways) == Some(true)) {
            return Some((known, ResizeReason::KnownToMeet));
        }
        if let Some(untried) = self.untried() {
            return Some((untried, ResizeReason::Untried));
        }
        let best = self.memory.iter().min_by_key(|(ways, known)| (known.tail, **ways));
        best.map(|(ways, _)| (*ways, ResizeReason::MissesLeast))
    }

    /// One way more if only the present size is known: what most services lack is cache. Else the middle of the longest
    /// stretch that was not tried, of two as long the one that leaves the batch side more.
    fn untried(&self) -> Option<Ways> {
        let larger = Ways(self.applied.0 + 1);
        if self.memory.len() == 1 && larger <= self.settings.most() {
            return Some(larger);
        }
        let sizes: Vec<Ways> = self.sizes().collect();
        let stretches = sizes.split(|ways| self.memory.contains_key(ways));
        let longest = stretches.rev().max_by_key(|stretch| stretch.len())?;
        longest.get(longest.len().saturating_sub(1) / 2).copied()
    }

    /// A smaller size than the present one that may do: the smallest known to, else the next that was not tried, past
    /// one that failed at most.
    fn smaller(&self) -> Option<Ways> {
        let below = || self.sizes().filter(|&ways| ways < self.applied);
        let known = below().find(|&ways| self.meets(ways) == Some(true));
        known.or_else(|| below().rev().take(2).find(|&ways| self.meets(ways).is_none()))
    }
}

#[cfg(test)]
mod tests {
    use nigh_terms::WayMask;

    use super::*;
    use crate::guard_settings::Objective;
    use crate::latency_histogram::Percentile;
    use crate::occupancy::tests::SHAPE;

    fn settings() -> GuardSettings {
        let percentile = Percentile::try_from(99.9).unwrap();
        let objective = Objective { percentile, limit: Duration::from_micros(70) };
        GuardSettings { mode: GuardMode::Act, ..GuardSettings::of(objective, SHAPE) }
    }

    fn window(applied: Ways, micros: u64, load: f64) -> GuardWindow {
        let mut latency = LatencyHistogram::default();
        latency.record_many(Duration::from_micros(micros), 20_000);
        GuardWindow { applied, latency, load, batch_progress: Some(1.0) }
    }

    /// Runs the guard for some windows on a machine whose tail (us) is known by size; the sizes it went through.
    fn run(guard: &mut TailGuard, windows: usize, tail: impl Fn(Ways) -> u64) -> Vec<u8> {
        let mut sizes = vec![guard.applied.0];
        let mut ways = guard.applied;
        for _ in 0..windows {
            if let GuardDecision::Resize { to, act: true, .. } = guard.observe(&window(ways, tail(ways), 2e6)) {
                ways = to;
                sizes.push(to.0);
            }
        }
        sizes
    }

    #[test]
    fn the_smallest_partition_that_meets_the_objective_is_found() {
        let mut guard = TailGuard::new(settings()).unwrap();
        // Three ways and more give 40 us, fewer do not.
        let sizes = run(&mut guard, 200, |ways| if ways.0 >= 3 { 40 } else { 300 });
        assert_eq!(*sizes.last().unwrap(), 3, "{sizes:?}");
        assert!(sizes.len() < 12, "it comes to rest: {sizes:?}");
    }

    #[test]
    fn a_larger_partition_that_is_worse_is_left_again() {
        let mut guard = TailGuard::new(settings()).unwrap();
        // Only two and three ways meet it; from four on the batch side's misses load the memory.
        let sizes = run(&mut guard, 300, |ways| match ways.0 {
            1 => 200,
            2 | 3 => 60,
            larger => 80 + 20 * u64::from(larger),
        });
        assert_eq!(sizes[..3], [5, 6, 2], "larger first, then far from both: {sizes:?}");
        assert!([2, 3].contains(sizes.last().unwrap()), "{sizes:?}");
    }

    #[test]
    fn a_small_partition_is_found_though_ever_larger_ones_miss_by_a_little_less() {
        let mut guard = TailGuard::new(settings()).unwrap();
        let sizes = run(&mut guard, 300, |ways| if ways.0 <= 3 { 40 } else { 100 - u64::from(ways.0) });
        assert_eq!(*sizes.last().unwrap(), 1, "{sizes:?}");
    }

    #[test]
    fn nothing_changes_without_a_reason_that_lasts() {
        let mut guard = TailGuard::new(settings()).unwrap();
        guard.observe(&window(Ways(5), 60, 2e6));
        for round in 0..50 {
            // One miss, then a window within the objective without room to spare.
            let tail = if round % 2 == 0 { 90 } else { 60 };
            let decision = guard.observe(&window(Ways(5), tail, 2e6));
            assert!(matches!(decision, GuardDecision::Keep { .. }), "{decision:?}");
        }
    }

    #[test]
    fn an_objective_out_of_reach_ends_at_the_size_that_misses_least() {
        let mut guard = TailGuard::new(settings()).unwrap();
        let sizes = run(&mut guard, 100, |ways| 100 + u64::from(ways.0.abs_diff(7)) * 10);
        assert_eq!(*sizes.last().unwrap(), 7, "{sizes:?}");
        let decision = guard.observe(&window(Ways(7), 100, 2e6));
        assert_eq!(decision, GuardDecision::Keep { because: KeepReason::Unreachable });
        assert_eq!(guard.memory().count(), 9);
    }

    #[test]
    fn report_only_says_what_it_would_do() {
        let mut guard = TailGuard::new(GuardSettings { mode: GuardMode::ReportOnly, ..settings() }).unwrap();
        let decisions: Vec<_> = (0..5).map(|_| guard.observe(&window(Ways(5), 300, 2e6))).collect();
        let would = GuardDecision::Resize { from: Ways(5), to: Ways(6), because: ResizeReason::Untried, act: false };
        assert_eq!(decisions[4], would);
    }

    #[test]
    fn too_few_requests_are_gathered_over_windows() {
        let mut guard = TailGuard::new(settings()).unwrap();
        let mut few = window(Ways(5), 60, 1e3);
        few.latency = LatencyHistogram::default();
        few.latency.record_many(Duration::from_micros(60), 4_000);
        let decisions: Vec<_> = (0..4).map(|_| guard.observe(&few)).collect();
        let short = |have| GuardDecision::Keep { because: KeepReason::TooFewSamples { have, need: 10_000 } };
        let met = GuardDecision::Keep { because: KeepReason::Met };
        assert_eq!(decisions[1..], [short(4_000), short(8_000), met]);
    }

    #[test]
    fn what_a_size_gave_at_another_load_is_forgotten() {
        let mut guard = TailGuard::new(settings()).unwrap();
        run(&mut guard, 60, |ways| if ways.0 >= 4 { 40 } else { 300 });
        assert!(guard.memory().count() > 1);
        let ways = guard.applied;
        guard.observe(&window(ways, 40, 4e6));
        assert_eq!(guard.memory().map(|(ways, _)| ways).collect::<Vec<_>>(), [ways]);
    }

    #[test]
    fn what_cannot_be_guarded_is_refused() {
        let refuse = |change: fn(&mut GuardSettings)| {
            let mut settings = settings();
            change(&mut settings);
            TailGuard::new(settings).unwrap_err()
        };
        assert!(matches!(refuse(|s| s.shape.shareable = WayMask::from_bits(0x7ff)), GuardRefusal::NoRoom { .. }));
        assert!(matches!(refuse(|s| s.batch_least = Ways(11)), GuardRefusal::NoRoom { .. }));
        assert!(matches!(refuse(|s| s.start = Ways(10)), GuardRefusal::WrongStart { .. }));
        assert_eq!(refuse(|s| s.objective.limit = Duration::ZERO), GuardRefusal::WrongNumbers);
        assert_eq!(refuse(|s| s.slack = f64::NAN), GuardRefusal::WrongNumbers);
    }
}
