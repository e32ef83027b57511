//! Whether the runtimes of this process still run tasks: each is given one from time to time, which must be done soon.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

/// A runtime that has not done a task in this time is stalled.
const STALLED_AFTER: Duration = Duration::from_secs(5);

/// The runtimes.
#[derive(Debug, Default)]
pub(super) struct Pulses(Vec<RuntimePulse>);

#[derive(Debug)]
struct RuntimePulse {
    name: String,
    runtime: Handle,
    /// When it was given the task that it has not been seen to have done.
    given: Option<Instant>,
    done: Arc<AtomicBool>,
}

impl Pulses {
    /// Watches a further runtime.
    pub(super) fn watch(&mut self, name: String, runtime: Handle) {
        self.0.push(RuntimePulse { name, runtime, given: None, done: Arc::default() });
    }

    /// The runtimes that are stalled at `now`.
    pub(super) fn stalled(&mut self, now: Instant) -> Vec<String> {
        self.0.iter_mut().filter_map(|pulse| pulse.is_stalled(now).then(|| pulse.name.clone())).collect()
    }
}

impl RuntimePulse {
    fn is_stalled(&mut self, now: Instant) -> bool {
        if self.done.swap(false, Ordering::AcqRel) {
            self.given = None;
        }
        let Some(given) = self.given else {
            self.given = Some(now);
            let done = Arc::clone(&self.done);
            self.runtime.spawn(async move { done.store(true, Ordering::Release) });
            return false;
        };
        now.saturating_duration_since(given) > STALLED_AFTER
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_runtime_whose_threads_are_blocked_is_stalled_until_they_go_on() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let mut pulses = Pulses::default();
        pulses.watch("main".to_owned(), runtime.handle().clone());
        let (unblock, blocked) = mpsc::channel::<()>();
        let (begun, has_begun) = mpsc::channel();
        let task = runtime.spawn(async move {
            begun.send(()).unwrap();
            let _ = blocked.recv();
        });
        has_begun.recv().unwrap();
        let start = Instant::now();
        assert!(pulses.stalled(start).is_empty(), "it is given time");
        assert!(pulses.stalled(start + STALLED_AFTER).is_empty());
        let late = start + STALLED_AFTER + Duration::from_millis(1);
        assert_eq!(pulses.stalled(late), ["main"]);
        drop(unblock);
        runtime.block_on(task).unwrap();
        let began = Instant::now();
        while !pulses.stalled(late).is_empty() {
            assert!(began.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
