//! Predicts whether caching pays for an invocation (OFC section 5.2), by the time that the *store* would have taken.
//!
//! Caching pays if reading and writing take more than half of the time. Measured on real runs, that label would unlearn
//! itself: once the cache serves a function, its reads are short, and caching seems useless. So the times of reads and
//! writes are the store's: measured if the store was asked, else estimated for the same bytes ([`StoreTimes`]). A small
//! share of the invocations that are not cached is cached anyway, to notice functions that change.

use nigh_terms::ByteSize;
use serde::{Deserialize, Serialize};

use crate::feature::hash_bytes;
use crate::lin_tree::LinTree;
use crate::sample::Sample;
use crate::schema::{EncodedRow, Schema};

/// Above this share of the time caching pays.
pub const BENEFIT_SHARE: f64 = 0.5;
/// One in this many invocations is cached to explore.
const EXPLORED_ONE_IN: u64 = 50;
/// Requests to a store that are remembered.
pub const STORE_TIMES_MAX: usize = 256;
/// The fewest requests for an estimate of the store's time.
const STORE_TIMES_MIN: usize = 3;

/// The time of an invocation if the store had served all its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseTimes {
    /// Reading from the store, in microseconds.
    pub extract_us: f64,
    /// The function's own work.
    pub transform_us: f64,
    /// Writing to the store.
    pub load_us: f64,
}

impl PhaseTimes {
    /// The share of reading and writing; 0 where nothing took time.
    #[must_use]
    pub fn data_share(self) -> f64 {
        let data = self.extract_us + self.load_us;
        let all = data + self.transform_us;
        if all > 0.0 { data / all } else { 0.0 }
    }

    /// True if caching pays.
    #[must_use]
    pub fn benefits(self) -> bool {
        self.data_share() > BENEFIT_SHARE
    }
}

/// A store's time for a request, by its bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StoreLine {
    fixed_us: f64,
    us_a_byte: f64,
}

impl StoreLine {
    /// Microseconds of a request of `bytes`.
    #[must_use]
    pub fn of(self, bytes: u64) -> f64 {
        self.fixed_us + self.us_a_byte * bytes as f64
    }
}

/// Estimates a store's time by size from its responses: a line that is robust against a few slow responses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StoreTimes {
    /// Bytes and microseconds, oldest first.
    seen: Vec<(u64, f64)>,
    /// The index that the next one replaces at the limit.
    next: usize,
}

impl StoreTimes {
    /// A request that the store answered; a time that is no time is left out.
    pub fn answered(&mut self, bytes: u64, took_us: f64) {
        if !took_us.is_finite() || took_us < 0.0 {
            return;
        }
        if self.seen.len() < STORE_TIMES_MAX {
            self.seen.push((bytes, took_us));
        } else {
            self.seen[self.next % STORE_TIMES_MAX] = (bytes, took_us);
            self.next = (self.next + 1) % STORE_TIMES_MAX;
        }
    }

    /// The time of a request of `bytes`; none with too few requests.
    #[must_use]
    pub fn estimate_us(&self, bytes: u64) -> Option<f64> {
        self.line().map(|line| line.of(bytes))
    }

    /// Tukey's resistant line: the slope between the medians of the smallest and the largest third, through the median
    /// of the rest. None before there are enough requests.
    #[must_use]
    pub fn line(&self) -> Option<StoreLine> {
        if self.seen.len() < STORE_TIMES_MIN {
            return None;
        }
        let mut by_size = self.seen.clone();
        by_size.sort_by(|one, other| one.0.cmp(&other.0).then(one.1.total_cmp(&other.1)));
        let third = by_size.len() / 3;
        let (small, large) = (&by_size[..third], &by_size[by_size.len() - third..]);
        let middle = |part: &[(u64, f64)]| {
            (
                median(part.iter().map(|(bytes, _)| *bytes as f64).collect()),
                median(part.iter().map(|(_, us)| *us).collect()),
            )
        };
        let ((few, short), (many, long)) = (middle(small), middle(large));
        let slope = if many > few { ((long - short) / (many - few)).max(0.0) } else { 0.0 };
        let fixed = median(by_size.iter().map(|(bytes, us)| us - slope * *bytes as f64).collect()).max(0.0);
        Some(StoreLine { fixed_us: fixed, us_a_byte: slope })
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// The bytes that stand for one microsecond in a [`LinTree`]: its unit of error is then 2 ms.
const BYTES_A_US: f64 = 1000.0;

/// Predicts from the features whether caching pays for an invocation.
///
/// The paper learns the answer, by C4.5's tree of two classes. Here both sides of it are learned as amounts, what the
/// data takes and what the work does: each grows with the input, and where they cross is found without a row near it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Benefit {
    data: LinTree,
    work: LinTree,
}

impl Benefit {
    /// Fits to samples with their times; without samples it predicts that caching does not pay.
    #[must_use]
    pub fn fit(schema: &Schema, samples: &[Sample], times: &[PhaseTimes]) -> Self {
        let amounts = |of: fn(&PhaseTimes) -> f64| {
            let sample = |(sample, times): (&Sample, &PhaseTimes)| Sample {
                peak: ByteSize((of(times) * BYTES_A_US) as u64),
                bound: false,
                weight: 1.0,
                ..*sample
            };
            let samples: Vec<Sample> = samples.iter().zip(times).map(sample).collect();
            LinTree::fit(schema, &samples).lean()
        };
        Self { data: amounts(|times| times.extract_us + times.load_us), work: amounts(|times| times.transform_us) }
    }

    /// True if caching pays.
    #[must_use]
    pub fn predict(&self, features: &EncodedRow) -> bool {
        self.data.predict_point(features) > self.work.predict_point(features)
    }

    /// True if what was read from a store can be worked with.
    pub(crate) fn is_sound(&self, columns: usize) -> bool {
        self.data.is_sound(columns) && self.work.is_sound(columns)
    }

    /// True if the invocation of this number is cached to find out whether caching has come to pay.
    #[must_use]
    pub fn explores(invocation: u64) -> bool {
        hash_bytes(&invocation.to_le_bytes()).is_multiple_of(EXPLORED_ONE_IN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feature::FeatureRow;

    #[test]
    fn caching_pays_above_half_of_the_time() {
        let share = |extract_us, transform_us, load_us| PhaseTimes { extract_us, transform_us, load_us };
        assert!(share(30.0, 50.0, 30.0).benefits());
        assert!(!share(25.0, 50.0, 25.0).benefits());
        assert!(!share(0.0, 0.0, 0.0).benefits());
    }

    #[test]
    fn the_store_s_time_by_size_is_found_though_some_answers_are_slow() {
        let mut store = StoreTimes::default();
        assert_eq!(store.estimate_us(1), None);
        for at in 0..300_u64 {
            let bytes = at * 10_000;
            let slow = if at % 10 == 0 { 1e6 } else { 0.0 };
            store.answered(bytes, 5_000.0 + 0.01 * bytes as f64 + slow);
        }
        store.answered(5, f64::NAN);
        let estimate = store.estimate_us(1_000_000).unwrap();
        assert!((estimate - 15_000.0).abs() < 1_500.0, "{estimate}");
        assert_eq!(store.seen.len(), STORE_TIMES_MAX);
    }

    #[test]
    fn a_function_that_profits_is_not_unlearned_by_its_hits() {
        let mut store = StoreTimes::default();
        for size in [1_000, 100_000, 1_000_000] {
            store.answered(size, 8_000.0 + 0.01 * size as f64);
        }
        // Served from the cache it read in 100 us and wrote in 200: by that, work is what takes the time.
        let hit = PhaseTimes { extract_us: 100.0, transform_us: 2_000.0, load_us: 200.0 };
        let by_store = |bytes| store.estimate_us(bytes).unwrap();
        let as_of_store = PhaseTimes { extract_us: by_store(100_000), load_us: by_store(50_000), ..hit };
        assert!(!hit.benefits() && as_of_store.benefits());
    }

    #[test]
    fn what_pays_is_told_by_size_and_a_small_share_is_explored() {
        let row = |size: u64| {
            let mut row = FeatureRow::default();
            row.set_number("input_size", size as f64).unwrap();
            row
        };
        let rows: Vec<_> = (1..100_u64).map(|at| row(at * 1000)).collect();
        let schema = Schema::learn(rows.iter());
        let sample = |row: &FeatureRow| Sample {
            features: schema.encode(row),
            peak: ByteSize(1),
            bound: false,
            weight: 1.0,
            group: 0,
        };
        let samples: Vec<_> = rows.iter().map(sample).collect();
        let times = |at: u64| PhaseTimes { extract_us: 5_000.0, transform_us: at as f64 * 200.0, load_us: 5_000.0 };
        let times: Vec<_> = (1..100).map(times).collect();
        let benefit = Benefit::fit(&schema, &samples, &times);
        assert!(benefit.predict(&schema.encode(&row(10_000))));
        assert!(!benefit.predict(&schema.encode(&row(90_000))));
        let explored = (0..10_000).filter(|at| Benefit::explores(*at)).count();
        assert!((100..400).contains(&explored), "{explored} of 10000");
    }
}
