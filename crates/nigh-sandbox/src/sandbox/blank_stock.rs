//! A small stock of blank sandboxes, filled in the background.

use std::sync::Arc;

use futures::future::{join, join_all};
use parking_lot::Mutex;
use tokio_util::task::TaskTracker;

use super::blank::BlankSandbox;
use super::step_failure::StepFailure;

/// The stock.
#[derive(Debug)]
pub(super) struct BlankStock {
    state: Mutex<StockState>,
    /// The tasks that make blank sandboxes.
    making: TaskTracker,
}

#[derive(Debug)]
struct StockState {
    ready: Vec<BlankSandbox>,
    /// Number of sandboxes being made.
    coming: usize,
    /// The most sandboxes; 0 once the stock is closed.
    max: usize,
}

impl BlankStock {
    /// An empty stock for `max` sandboxes.
    pub(super) fn new(max: usize) -> Arc<Self> {
        let state = StockState { ready: Vec::new(), coming: 0, max };
        Arc::new(Self { state: Mutex::new(state), making: TaskTracker::new() })
    }

    /// Starts a task with `make` for each missing sandbox.
    pub(super) fn fill<F>(self: &Arc<Self>, make: impl Fn() -> F)
    where
        F: Future<Output = Result<BlankSandbox, StepFailure>> + Send + 'static,
    {
        let missing = {
            let mut state = self.state.lock();
            let missing = state.max.saturating_sub(state.ready.len() + state.coming);
            state.coming += missing;
            missing
        };
        for _ in 0..missing {
            let (stock, blank) = (Arc::clone(self), make());
            self.making.spawn(async move {
                let blank = blank.await;
                if let Some(surplus) = stock.add(blank) {
                    surplus.end().await;
                }
            });
        }
    }

    /// Adds a sandbox that was being made. Returns it if the stock is closed.
    fn add(&self, blank: Result<BlankSandbox, StepFailure>) -> Option<BlankSandbox> {
        let mut state = self.state.lock();
        state.coming -= 1;
        match blank {
            Ok(blank) if state.max == 0 => Some(blank),
            Ok(blank) => {
                state.ready.push(blank);
                None
            }
            // If the cause persists, the next start reports it.
            Err(failed) => {
                tracing::warn!(step = failed.step, reason = failed.reason, "a blank sandbox was not made");
                None
            }
        }
    }

    /// Takes a sandbox that has not ended.
    pub(super) fn take(&self) -> Option<BlankSandbox> {
        loop {
            let blank = self.state.lock().ready.pop()?;
            if !blank.has_ended() {
                return Some(blank);
            }
        }
    }

    /// Ends all sandboxes of the stock, those being made too, and accepts no more.
    pub(super) async fn close(&self) {
        let ready = {
            let mut state = self.state.lock();
            state.max = 0;
            std::mem::take(&mut state.ready)
        };
        self.making.close();
        join(join_all(ready.into_iter().map(BlankSandbox::end)), self.making.wait()).await;
    }
}
