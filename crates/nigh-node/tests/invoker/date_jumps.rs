//! The machine's date jumps, by an hour forth and back: what follows it, and what does not.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use nigh_sandbox::sandbox::local::EngineChoice;
use nigh_schedule::activation::Outcome;
use nigh_terms::{Clock, Monotonic, SystemClock, Timestamp};
use serde_json::json;

use crate::node::{Node, settings};

const HOUR_MS: i64 = 3_600_000;

/// The machine's clocks, with a date that a test moves.
struct JumpingDate {
    machine: SystemClock,
    offset_ms: AtomicI64,
}

impl Clock for JumpingDate {
    fn monotonic(&self) -> Monotonic {
        self.machine.monotonic()
    }

    fn wall(&self) -> Timestamp {
        Timestamp(self.machine.wall().millis().saturating_add_signed(self.offset_ms.load(Ordering::SeqCst)))
    }
}

/// Invokes once, lets the date jump in the midst of the second invocation, and invokes again when sandboxes that are
/// idle for too long would have been ended: keep-alive is ten minutes, the time-out one.
async fn all_goes_on_over_a_jump(jump_ms: i64) {
    let clock = Arc::new(JumpingDate { machine: SystemClock::new(), offset_ms: AtomicI64::new(0) });
    let shared = Arc::clone(&clock) as Arc<dyn Clock>;
    let node = Node::with_clock(EngineChoice::Process, settings(), Vec::new(), shared).await.unwrap();
    node.deploy("f", |_| {});
    let first = node.record(node.invoke("f", json!({})).await.id).await;
    let nap = node.invoke("f", json!({"do": "sleep", "s": 0.5}));
    let jump = async {
        node.until("it runs", |node| node.invoker.in_use().running == 1).await;
        clock.offset_ms.store(jump_ms, Ordering::SeqCst);
    };
    let (over_it, ()) = tokio::join!(nap, jump);
    let over_it = node.record(over_it.id).await;
    assert!(matches!(over_it.outcome, Outcome::Answered), "{over_it:?}");
    let took = Duration::from_micros(over_it.duration_us);
    assert!(took >= Duration::from_millis(500) && took < Duration::from_secs(60), "{took:?}");

    // Idle sandboxes are looked at each second.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let after = node.record(node.invoke("f", json!({})).await.id).await;
    assert_eq!((after.sandbox, after.cold), (first.sandbox, false), "kept over the jump");
    let moved_ms = after.start.millis() as i64 - first.start.millis() as i64;
    assert!((jump_ms..jump_ms + HOUR_MS).contains(&moved_ms), "records have the new date: {moved_ms} ms");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_jump_of_the_date_ends_no_idle_sandbox_and_no_invocation() {
    tokio::join!(all_goes_on_over_a_jump(HOUR_MS), all_goes_on_over_a_jump(-HOUR_MS));
}
