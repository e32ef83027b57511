//! Settings of the tail guard: the objective, the cache, and how slowly it moves. Also the masks for a partition of a
//! given size.

use std::time::Duration;

use nigh_terms::{WayMask, Ways};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::clos_layout::CacheShape;
use crate::latency_histogram::Percentile;

/// The service's objective.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Objective {
    /// This percentile of latencies ...
    pub percentile: Percentile,
    /// ... is at most this.
    pub limit: Duration,
}

/// Whether decisions are applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuardMode {
    /// Decisions are reported only.
    #[default]
    ReportOnly,
    /// Decisions are applied.
    Act,
}

/// The guard's settings.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct GuardSettings {
    /// The objective.
    pub objective: Objective,
    /// The cache.
    pub shape: CacheShape,
    /// Ways that the batch side keeps at least.
    pub batch_least: Ways,
    /// Ways to start with.
    pub start: Ways,
    /// A tail at or below this part of the limit has room to spare.
    pub slack: f64,
    /// Judgements in a row that miss the objective before the size changes.
    pub violation_windows: u32,
    /// Judgements in a row with room to spare before a smaller size is tried.
    pub slack_windows: u32,
    /// Windows after a change that are not judged: the cache fills.
    pub settle_windows: u32,
    /// Judgements after which what a size gave is forgotten.
    pub memory_windows: u64,
    /// A load that differs by more than this part makes what a size gave a thing of another day.
    pub load_change: f64,
    /// Its mode.
    pub mode: GuardMode,
}

impl GuardSettings {
    /// Two misses or six spare judgements in a row, one window to settle, 120 judgements of memory, a quarter of load,
    /// a start with half of what can be had, two ways for the batch side; report only.
    #[must_use]
    pub fn of(objective: Objective, shape: CacheShape) -> Self {
        let batch_least = Ways(shape.min_ways.0.max(2));
        let mut settings = Self {
            objective,
            shape,
            batch_least,
            start: shape.min_ways,
            slack: 0.7,
            violation_windows: 2,
            slack_windows: 6,
            settle_windows: 1,
            memory_windows: 120,
            load_change: 0.25,
            mode: GuardMode::ReportOnly,
        };
        settings.start = Ways(settings.most().0.div_ceil(2).max(shape.min_ways.0));
        settings
    }

    /// The number of ways at the end of the cache that devices write to less, and whether that is the low end.
    fn clear_end(&self) -> (u8, bool) {
        let (ways, devices) = (self.shape.ways.0, self.shape.shareable);
        let low = (0..ways).take_while(|&way| !devices.holds(way)).count() as u8;
        let high = (0..ways).rev().take_while(|&way| !devices.holds(way)).count() as u8;
        if low >= high { (low, true) } else { (high, false) }
    }

    /// The largest partition: clear of the devices' ways, with enough left for the batch side.
    #[must_use]
    pub fn most(&self) -> Ways {
        Ways(self.clear_end().0.min(self.shape.ways.0.saturating_sub(self.batch_least.0)))
    }

    pub(crate) fn check(&self) -> Result<(), GuardRefusal> {
        let (least, most, start) = (Ways(self.shape.min_ways.0.max(1)), self.most(), self.start);
        if most < least {
            return Err(GuardRefusal::NoRoom { least, most });
        }
        if start < least || start > most {
            return Err(GuardRefusal::WrongStart { start, least, most });
        }
        let part = 0.0..=1.0;
        if self.objective.limit.is_zero() || !part.contains(&self.slack) || !part.contains(&self.load_change) {
            return Err(GuardRefusal::WrongNumbers);
        }
        Ok(())
    }

    /// The masks of service and batch side for a size.
    #[must_use]
    pub fn masks(&self, service: Ways) -> GuardMasks {
        let ways = self.shape.ways;
        let service = Ways(service.0.min(ways.0));
        let first = if self.clear_end().1 { 0 } else { ways.0 - service.0 };
        let mask = WayMask::contiguous(first, service);
        GuardMasks { service: mask, batch: WayMask::contiguous(0, ways).without(mask) }
    }
}

/// The masks of the service and of all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct GuardMasks {
    /// The service's.
    pub service: WayMask,
    /// The mask of all others.
    pub batch: WayMask,
}

/// Why the settings are refused.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
pub enum GuardRefusal {
    /// No partition is possible.
    #[error(
        "no partition of at least {least} ways fits: {most} are clear of the ways that devices write to and not the \
         batch side's; lower batch_least"
    )]
    NoRoom {
        /// The fewest ways a mask takes.
        least: Ways,
        /// What is there.
        most: Ways,
    },
    /// The start is no size.
    #[error("the guard cannot start with {start} ways: expected {least} to {most}")]
    WrongStart {
        /// What was set.
        start: Ways,
        /// The smallest size.
        least: Ways,
        /// The largest.
        most: Ways,
    },
    /// The objective or a limit is no number to go by.
    #[error("the latency objective must be above zero, and slack and load_change must be between 0 and 1")]
    WrongNumbers,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::occupancy::tests::SHAPE;

    #[test]
    fn it_starts_static_and_keeps_clear_of_the_devices() {
        let percentile = Percentile::try_from(99.9).unwrap();
        let settings = GuardSettings::of(Objective { percentile, limit: Duration::from_micros(70) }, SHAPE);
        assert_eq!((settings.most(), settings.start), (Ways(9), Ways(5)));
        let masks = settings.masks(Ways(4));
        assert_eq!((masks.service.bits(), masks.batch.bits()), (0x00f, 0x7f0));
        let low = GuardSettings { shape: CacheShape { shareable: WayMask::from_bits(0x3), ..SHAPE }, ..settings };
        assert_eq!(low.masks(Ways(4)).service.bits(), 0x780);
    }
}
