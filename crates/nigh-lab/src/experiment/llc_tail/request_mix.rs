//! What clients ask the store for: half gets, half puts, keys by Zipf's law.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Zipf};

use super::kv_store::{Entries, KvStore};
use super::touch::Touch;
use crate::LabError;
use crate::instrument::made_up::failed;

pub(super) const ZIPF: f64 = 0.99;
/// Gets among all requests.
pub(super) const GETS: f64 = 0.5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KvRequest {
    Get(u64),
    Put(u64, u64),
}

impl KvRequest {
    pub(super) fn serve(self, store: &mut KvStore, touch: &mut impl Touch) {
        match self {
            Self::Get(key) => drop(store.get(key, touch)),
            Self::Put(key, value) => store.put(key, value, touch),
        }
    }
}

/// An endless stream of requests.
pub(super) struct RequestMix {
    random: StdRng,
    rank: Zipf<f64>,
    entries: u64,
}

impl RequestMix {
    /// The stream of `seed` over the keys of a full store.
    pub(super) fn new(entries: Entries, seed: u64) -> Result<Self, LabError> {
        let entries = u64::from(entries.get());
        let what = format!("keys by Zipf's law over {entries} keys");
        let rank = Zipf::new(entries as f64, ZIPF).map_err(|error| failed(&what, &error))?;
        Ok(Self { random: StdRng::seed_from_u64(seed), rank, entries })
    }

    pub(super) fn next(&mut self) -> KvRequest {
        let rank = self.rank.sample(&mut self.random) as u64 - 1;
        // Popular keys lie anywhere: an odd factor is one to one on a power of two.
        let key = rank.wrapping_mul(0x9e37_79b1) & (self.entries - 1);
        if self.random.random_bool(GETS) { KvRequest::Get(key) } else { KvRequest::Put(key, self.random.random()) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn half_are_gets_and_the_first_key_has_its_share_of_zipfs_law() {
        let mut mix = RequestMix::new(Entries::new(1024).unwrap(), 1).unwrap();
        let mut counts: HashMap<u64, u32> = HashMap::new();
        let mut gets = 0;
        for _ in 0..40_000 {
            let key = match mix.next() {
                KvRequest::Get(key) => {
                    gets += 1;
                    key
                }
                KvRequest::Put(key, _) => key,
            };
            assert!(key < 1024);
            *counts.entry(key).or_default() += 1;
        }
        assert!((19_500..20_500).contains(&gets), "{gets}");
        let first = 1.0 / (1..=1024).map(|rank| f64::from(rank).powf(-ZIPF)).sum::<f64>();
        let measured = f64::from(counts[&0]) / 40_000.0;
        assert!((measured / first - 1.0).abs() < 0.05, "{measured} of {first}");
        assert!(counts.len() > 900);
    }
}
