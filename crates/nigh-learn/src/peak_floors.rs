//! After an under-prediction, the next invocation with equal features gets at least the needed memory, even before a
//! new fit.
//!
//! A floor holds only for exactly equal features. The number is bounded; the oldest floor is removed first.

use std::collections::{HashMap, VecDeque};

use nigh_terms::ByteSize;
use serde::{Deserialize, Serialize};

use crate::feature::FeatureRow;

/// Floors of a function at most.
pub const FLOORS_MAX: usize = 256;

/// The peaks of invocations that were predicted too low.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(u64, ByteSize)>", into = "Vec<(u64, ByteSize)>")]
pub struct PeakFloors {
    by_features: HashMap<u64, ByteSize>,
    /// Oldest first.
    order: VecDeque<u64>,
}

impl PeakFloors {
    /// An invocation with these features was given too little and needed `peak`.
    pub fn missed(&mut self, features: &FeatureRow, peak: ByteSize) {
        self.set(features.fingerprint(), peak);
    }

    fn set(&mut self, fingerprint: u64, peak: ByteSize) {
        if let Some(floor) = self.by_features.get_mut(&fingerprint) {
            *floor = peak.max(*floor);
            return;
        }
        if self.order.len() == FLOORS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_features.remove(&oldest);
        }
        self.order.push_back(fingerprint);
        self.by_features.insert(fingerprint, peak);
    }

    /// The prediction, or the peak that was seen with equal features if that is more.
    #[must_use]
    pub fn at_least(&self, features: &FeatureRow, predicted: ByteSize) -> ByteSize {
        if self.order.is_empty() {
            return predicted;
        }
        self.by_features.get(&features.fingerprint()).map_or(predicted, |floor| predicted.max(*floor))
    }
}

impl PeakFloors {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// True if there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

impl From<Vec<(u64, ByteSize)>> for PeakFloors {
    fn from(stored: Vec<(u64, ByteSize)>) -> Self {
        let mut floors = Self::default();
        for (fingerprint, peak) in stored {
            floors.set(fingerprint, peak);
        }
        floors
    }
}

impl From<PeakFloors> for Vec<(u64, ByteSize)> {
    fn from(floors: PeakFloors) -> Self {
        floors.order.iter().filter_map(|at| Some((*at, *floors.by_features.get(at)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features(at: u64) -> FeatureRow {
        let mut row = FeatureRow::default();
        row.set_number("in_width", at as f64).unwrap();
        row
    }

    #[test]
    fn after_a_miss_equal_features_get_at_least_the_peak_and_others_what_is_predicted() {
        let mut floors = PeakFloors::default();
        floors.missed(&features(1), ByteSize(500));
        floors.missed(&features(1), ByteSize(400));
        assert_eq!(floors.at_least(&features(1), ByteSize(100)), ByteSize(500));
        assert_eq!(floors.at_least(&features(1), ByteSize(600)), ByteSize(600));
        assert_eq!(floors.at_least(&features(2), ByteSize(100)), ByteSize(100));
    }

    #[test]
    fn floors_are_bounded_and_are_stored() {
        let mut floors = PeakFloors::default();
        for at in 0..=FLOORS_MAX as u64 {
            floors.missed(&features(at), ByteSize(500));
        }
        assert_eq!(floors.at_least(&features(0), ByteSize(1)), ByteSize(1), "the oldest went");
        assert_eq!(floors.at_least(&features(1), ByteSize(1)), ByteSize(500));
        let stored = serde_json::to_string(&floors).unwrap();
        assert_eq!(serde_json::from_str::<PeakFloors>(&stored).unwrap(), floors);
    }
}
