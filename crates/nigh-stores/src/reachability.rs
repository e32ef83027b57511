//! Whether a store answers, by its newest requests: nothing is sent to find out.

use std::time::Instant;

use parking_lot::Mutex;

/// So many requests in a row must have failed: a single one may have met a restart or a busy moment.
const FAILURES_MIN: u64 = 2;

/// The outcomes of the newest requests.
#[derive(Debug, Default)]
pub(crate) struct Reachability(Mutex<Option<Outage>>);

/// Requests that failed in a row.
#[derive(Debug)]
struct Outage {
    since: Instant,
    requests: u64,
    /// Why the last one failed.
    why: String,
}

impl Reachability {
    /// A request was answered.
    pub(crate) fn answered(&self) {
        let mut outage = self.0.lock();
        if outage.is_some() {
            *outage = None;
        }
    }

    /// A request had no answer, or one that says that the store does not work.
    pub(crate) fn failed(&self, why: String) {
        let mut outage = self.0.lock();
        let outage = outage.get_or_insert_with(|| Outage { since: Instant::now(), requests: 0, why: String::new() });
        outage.requests += 1;
        outage.why = why;
    }

    /// What is wrong with the store; None if it answers.
    pub(crate) fn trouble(&self) -> Option<String> {
        let outage = self.0.lock();
        let Outage { since, requests, why } = outage.as_ref().filter(|outage| outage.requests >= FAILURES_MIN)?;
        Some(format!("the last {requests} requests to the store failed, since {} s: {why}", since.elapsed().as_secs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_fails_again_and_again_is_in_trouble_until_it_answers() {
        let store = Reachability::default();
        store.failed("no answer".to_owned());
        assert_eq!(store.trouble(), None, "one failure may be chance");
        store.failed("refused".to_owned());
        let told = store.trouble().unwrap();
        assert!(told.starts_with("the last 2 requests") && told.ends_with(" s: refused"), "{told}");
        store.answered();
        assert_eq!(store.trouble(), None);
    }
}
