//! What is measured: the requests, the rates of each side, and when requests are due. Pure.

use std::time::Duration;

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};

use crate::load::arrivals::exponential;

/// Shares of what a side sustains.
pub(super) const SHARES: [f64; 6] = [0.1, 0.3, 0.5, 0.7, 0.8, 0.9];
/// Of the short form.
pub(super) const QUICK_SHARES: [f64; 2] = [0.1, 0.9];
/// Every run has the same times.
const SEED: u64 = 1;

/// One kind of request, which Nigh and its peers answer in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) name: &'static str,
    pub(super) kind: RequestKind,
    /// Of each side: so many that more would not answer faster on two processors.
    pub(super) connections: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    /// A GET of an object that is in Nigh's memory, signed in its headers as boto3 does, of so many bytes.
    Get(usize),
    /// A durable PUT, likewise; each connection writes an object of its own.
    Put(usize),
    /// A read over the fast path.
    FastGet(usize),
    /// An invocation of a warm function that returns its event.
    Invoke,
}

pub(super) const REQUESTS: [Request; 5] = [
    Request { name: "get-1kib", kind: RequestKind::Get(1 << 10), connections: 16 },
    Request { name: "get-128kib", kind: RequestKind::Get(128 << 10), connections: 16 },
    Request { name: "put-1kib", kind: RequestKind::Put(1 << 10), connections: 32 },
    Request { name: "fast-get-1kib", kind: RequestKind::FastGet(1 << 10), connections: 16 },
    Request { name: "invoke", kind: RequestKind::Invoke, connections: 8 },
];

/// Whose sustained rate a rate is a share of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RateOf {
    Nigh,
    Own,
}

/// One side at one rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cell {
    /// Its place among the sides; Nigh is the first.
    pub(super) side: usize,
    pub(super) of: RateOf,
    pub(super) share: f64,
    pub(super) rate_per_s: f64,
}

/// The cells of one share: each side at the share of what Nigh sustains, and each peer also at the share of what it sustains
/// itself. `sustained` has requests a second by side.
pub(super) fn cells(sustained: &[f64], share: f64) -> Vec<Cell> {
    let nigh = sustained.first().copied().unwrap_or_default();
    let mut cells = Vec::new();
    for (side, own) in sustained.iter().enumerate() {
        cells.push(Cell { side, of: RateOf::Nigh, share, rate_per_s: share * nigh });
        if side > 0 {
            cells.push(Cell { side, of: RateOf::Own, share, rate_per_s: share * own });
        }
    }
    cells
}

/// The order of `count` turns in a round: each is first equally often.
pub(super) fn order(count: usize, round: u16) -> impl Iterator<Item = usize> {
    (0..count).map(move |at| (at + usize::from(round)) % count)
}

/// When requests are due in one round of `length`: a Poisson process, of which every side at this rate gets the same times.
pub(super) fn due_times(rate_per_s: f64, length: Duration, round: u16) -> Vec<Duration> {
    let mut random = StdRng::seed_from_u64(SEED.wrapping_add(u64::from(round)));
    let times = exponential(1.0 / rate_per_s, length.as_secs_f64(), &mut random);
    times.into_iter().map(Duration::from_secs_f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Duration = Duration::from_secs(10);

    #[test]
    fn requests_come_at_their_rate_in_order_and_at_the_same_times_for_every_side() {
        let due = due_times(1000.0, LENGTH, 0);
        assert!((9_600..10_400).contains(&due.len()), "{}", due.len());
        assert!(due.is_sorted() && due.iter().all(|due| *due < LENGTH));
        assert_eq!(due, due_times(1000.0, LENGTH, 0));
        assert_ne!(due, due_times(1000.0, LENGTH, 1));
        assert!(due_times(0.0, LENGTH, 0).is_empty());
    }

    #[test]
    fn requests_of_a_poisson_process_are_as_far_apart_as_the_exponential_law_says() {
        let due = due_times(1000.0, LENGTH, 0);
        let gaps = due.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64() * 1000.0);
        // The share of gaps longer than the mean: e^-1.
        let longer = gaps.filter(|gap| *gap > 1.0).count() as f64 / due.len() as f64;
        assert!((0.35..0.39).contains(&longer), "{longer}");
    }

    #[test]
    fn each_side_has_the_rate_of_nigh_and_each_peer_its_own_too() {
        let cell = |side, of, rate_per_s| Cell { side, of, share: 0.5, rate_per_s };
        let expected = [cell(0, RateOf::Nigh, 500.0), cell(1, RateOf::Nigh, 500.0), cell(1, RateOf::Own, 100.0)];
        assert_eq!(cells(&[1000.0, 200.0], 0.5), expected);
        assert!(cells(&[], 0.5).is_empty());
    }

    #[test]
    fn all_take_turns_in_a_round_and_another_is_first_in_the_next() {
        assert_eq!([0, 1, 4].map(|round| order(3, round).collect::<Vec<_>>()), [[0, 1, 2], [1, 2, 0], [1, 2, 0]]);
    }

    #[test]
    fn requests_have_names_of_their_own() {
        let mut names = REQUESTS.map(|request| request.name).to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), REQUESTS.len());
    }
}
