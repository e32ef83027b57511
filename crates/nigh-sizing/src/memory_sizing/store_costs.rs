//! The time that an invocation would have spent on data if the store had served everything (OFC section 5.2). Pure.
//!
//! A read from the store counts with its measured time. A read from memory counts with the store's time for the same
//! bytes, learned from reads of the store. A write, which the journal acknowledges, counts in the same way, but at
//! least with its measured time. While the store's time is unknown there is no result. Stores differ by namespace, so
//! times are learned by namespace.

use std::collections::HashMap;

use nigh_learn::{PhaseTimes, StoreLine, StoreTimes};
use nigh_schedule::activation::{Activation, DataCallRecord};
use nigh_terms::Namespace;

/// Namespaces whose store is known; of further ones nothing is learned.
const NAMESPACES_MAX: usize = 1024;
/// The responses after which the regression line is computed again.
const DRAWN_EVERY: u32 = 16;

#[derive(Default)]
struct OfStore {
    times: StoreTimes,
    line: Option<StoreLine>,
    since: u32,
}

/// The stores' times.
#[derive(Default)]
pub(super) struct StoreCosts(HashMap<Namespace, OfStore>);

impl StoreCosts {
    /// Learns from measured times of the store.
    pub(super) fn learn(&mut self, namespace: &Namespace, calls: &[DataCallRecord]) {
        let mut asked = calls.iter().filter(|call| went_to_store(call)).peekable();
        if asked.peek().is_none() || (self.0.len() >= NAMESPACES_MAX && !self.0.contains_key(namespace)) {
            return;
        }
        let store = self.0.entry(namespace.clone()).or_default();
        for call in asked {
            store.times.answered(call.bytes, call.took_us as f64);
            store.since += 1;
        }
        if store.line.is_none() || store.since >= DRAWN_EVERY {
            (store.line, store.since) = (store.times.line(), 0);
        }
    }

    /// The time that `activation` would have spent with the store alone; none if the store's time is unknown.
    pub(super) fn times(&self, activation: &Activation) -> Option<PhaseTimes> {
        let line = self.0.get(&activation.namespace).and_then(|store| store.line);
        let (mut read, mut wrote) = (PhaseCost::default(), PhaseCost::default());
        for call in &activation.data_calls {
            let took = call.took_us as f64;
            match call.served.as_str() {
                "miss" | "past" => read.add(took, took),
                "hit" => read.add(took, line?.of(call.bytes)),
                // A deletion is a request without bytes.
                "write" => wrote.add(took, line?.of(call.bytes).max(took)),
                "delete" => wrote.add(took, line?.of(0).max(took)),
                _ => read.add(took, took),
            }
        }
        let phases = &activation.phases;
        Some(PhaseTimes {
            extract_us: read.of_phase(phases.extract_us),
            transform_us: phases.transform_us as f64,
            load_us: wrote.of_phase(phases.load_us),
        })
    }
}

fn went_to_store(call: &DataCallRecord) -> bool {
    call.is_read() && call.served != "hit"
}

/// Calls of one phase: what they took, and what they would have.
#[derive(Default)]
struct PhaseCost {
    took_us: f64,
    would_us: f64,
}

impl PhaseCost {
    fn add(&mut self, took_us: f64, would_us: f64) {
        self.took_us += took_us;
        self.would_us += would_us;
    }

    /// The duration of the phase. Calls that overlapped or are not listed count as in `phase_us`.
    fn of_phase(&self, phase_us: u64) -> f64 {
        if self.took_us > 0.0 { phase_us as f64 * self.would_us / self.took_us } else { self.would_us }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_sizing::tests::activation;
    use nigh_schedule::activation::Phases;

    fn call(served: &str, bytes: u64, took_us: u64) -> DataCallRecord {
        DataCallRecord {
            served: served.to_owned(),
            bucket: "b".to_owned(),
            key: None,
            bytes,
            began_us: 0,
            took_us,
            under_way: None,
        }
    }

    fn costs() -> (StoreCosts, Namespace) {
        let (mut costs, namespace) = (StoreCosts::default(), activation().namespace);
        let misses: Vec<_> = (1..20).map(|at| call("miss", at * 1000, 5000 + at * 10)).collect();
        costs.learn(&namespace, &misses);
        (costs, namespace)
    }

    fn spent(calls: &[DataCallRecord], phases: Phases) -> Activation {
        Activation { data_calls: calls.to_vec(), phases, ..activation() }
    }

    #[test]
    fn a_read_from_memory_counts_as_the_store_s_time_for_as_many_bytes() {
        let (costs, _) = costs();
        let phases = Phases { extract_us: 50, transform_us: 3000, load_us: 40 };
        let served = spent(&[call("hit", 10_000, 50), call("write", 10_000, 40)], phases);
        let times = costs.times(&served).unwrap();
        assert!((times.extract_us - 5100.0).abs() < 20.0 && (times.load_us - 5100.0).abs() < 20.0, "{times:?}");
        assert!(times.benefits(), "though by its hits it looks as if it had no need of the cache");
    }

    #[test]
    fn a_read_from_the_store_counts_as_it_was_and_overlap_once() {
        let phases = Phases { extract_us: 6000, transform_us: 1000, load_us: 0 };
        let missed = spent(&[call("miss", 1, 6000), call("past", 1, 6000)], phases);
        let times = StoreCosts::default().times(&missed).unwrap();
        assert_eq!((times.extract_us, times.load_us), (6000.0, 0.0));
    }

    #[test]
    fn where_the_store_is_not_known_nothing_is_said() {
        let phases = Phases { extract_us: 50, transform_us: 10, load_us: 0 };
        assert_eq!(StoreCosts::default().times(&spent(&[call("hit", 1, 50)], phases)), None);
        let (mut costs, _) = costs();
        for at in 0..2 * NAMESPACES_MAX {
            costs.learn(&Namespace::new(&format!("n{at}")).unwrap(), &[call("miss", 1, 1)]);
        }
        assert_eq!(costs.0.len(), NAMESPACES_MAX);
    }
}
