//! The two threads of the node's memory: one keeps the budget, one watches running sandboxes.
//!
//! The keeper lets the cache give way and gives it what is free; it may take milliseconds. The watch looks at sandboxes
//! that run below what they booked, each some milliseconds, and has them grow; it writes one file and hands everything
//! else to the keeper. It runs before all that shares a processor by weight (`SCHED_FIFO`, sched(7)), where the system
//! permits it: else a burst of a function is over before it is seen. It decides nothing (`memory_growth`, `memory_budget`).

use std::io;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Weak, mpsc};
use std::thread::Builder;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::node_memory::NodeMemoryState;

/// The keeper looks so often though nobody rings: time passes for the slack.
const KEEP_EVERY: Duration = Duration::from_secs(1);
/// And so often while somebody waits for what the cache cannot give yet.
const KEEP_EVERY_WAITING: Duration = Duration::from_millis(2);
/// The watch looks whether it is still wanted.
const WATCH_IDLE: Duration = Duration::from_secs(1);

/// Wakes a thread.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rung: Mutex<bool>,
    woken: Condvar,
    /// Its thread sleeps for long.
    sleeps_long: AtomicBool,
}

impl Bell {
    /// Wakes the thread, or keeps it from falling asleep.
    pub(crate) fn ring(&self) {
        *self.rung.lock() = true;
        self.woken.notify_one();
    }

    /// Wakes the thread if it would sleep for long.
    pub(crate) fn ring_if_asleep(&self) {
        // Either this sees that it sleeps, or it sees what was done before this (`start_watch`).
        fence(Ordering::SeqCst);
        if self.sleeps_long.load(Ordering::Relaxed) {
            self.ring();
        }
    }

    /// Returns when it is rung, or after `longest`.
    fn wait(&self, longest: Duration) {
        let mut rung = self.rung.lock();
        if !*rung {
            self.woken.wait_for(&mut rung, longest);
        }
        *rung = false;
    }
}

/// Starts the keeper; it ends with the node's memory.
pub(crate) fn start_keeper(memory: Weak<NodeMemoryState>, bell: Arc<Bell>) -> io::Result<()> {
    let keep = move || {
        let mut pause = KEEP_EVERY;
        loop {
            bell.wait(pause);
            let Some(memory) = memory.upgrade() else { return };
            pause = if memory.settle() { KEEP_EVERY_WAITING } else { KEEP_EVERY };
        }
    };
    Builder::new().name("nigh-memory".to_owned()).spawn(keep).map(drop)
}

/// Starts the watch; it ends with the node's memory. True if it runs before others.
pub(crate) fn start_watch(memory: Weak<NodeMemoryState>, bell: Arc<Bell>) -> io::Result<bool> {
    let (says, said) = mpsc::channel();
    let watch = move || {
        // Nobody is left to hear it only if the node does not start.
        let _unheard = says.send(run_before_others());
        loop {
            let look = || memory.upgrade().map(|memory| memory.look_at_all());
            let Some(mut pause) = look() else { return };
            if pause.is_none() {
                bell.sleeps_long.store(true, Ordering::Relaxed);
                fence(Ordering::SeqCst);
                // Who came in between did not ring.
                pause = look().flatten();
            }
            bell.wait(pause.unwrap_or(WATCH_IDLE));
            bell.sleeps_long.store(false, Ordering::Relaxed);
        }
    };
    Builder::new().name("nigh-watch".to_owned()).spawn(watch)?;
    said.recv().map_err(io::Error::other)
}

/// Gives this thread the lowest real-time priority; false if the system does not permit it.
fn run_before_others() -> bool {
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: the call reads `lowest`, which lives beyond it, and changes this thread alone (0).
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &raw const lowest) == 0 }
}
