//! The two threads of the node's memory: one keeps the budget, one watches running sandboxes.
//!
//! The keeper shrinks the cache and gives it what is free; that may take milliseconds. Every few milliseconds the watch looks
//! at sandboxes that run below what they booked, and has them grow; it writes one file and leaves everything else to the
//! keeper. Where the system permits it, the watch runs before all that shares a processor by weight (`SCHED_FIFO`,
//! sched(7)): else it would see a function's burst only when the burst is over. Neither decides anything
//! (`memory::growth`, `memory::budget`).

use std::io;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, mpsc};
use std::thread::Builder;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// How often the keeper works when nobody rings: the slack changes with time.
const KEEP_EVERY: Duration = Duration::from_secs(1);
/// How often it works while a sandbox waits for memory that the cache cannot free yet.
const KEEP_EVERY_WAITING: Duration = Duration::from_millis(2);
/// How often the watch looks when no sandbox can grow.
const WATCH_IDLE: Duration = Duration::from_secs(1);

/// Wakes a thread.
#[derive(Debug, Default)]
pub(super) struct Bell {
    rung: Mutex<bool>,
    woken: Condvar,
    /// Its thread sleeps for long.
    sleeps_long: AtomicBool,
}

impl Bell {
    /// Wakes the thread, or keeps it from falling asleep.
    pub(super) fn ring(&self) {
        *self.rung.lock() = true;
        self.woken.notify_one();
    }

    /// Wakes the thread if it would sleep for long.
    pub(super) fn ring_if_asleep(&self) {
        // Either this sees that the thread sleeps, or the thread sees what was done before this (`start_watch`).
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

/// Starts the keeper. `settle` does what the budget asks for and says whether a sandbox still waits for memory; the thread ends
/// when it returns None.
pub(super) fn start_keeper(bell: Arc<Bell>, settle: impl Fn() -> Option<bool> + Send + 'static) -> io::Result<()> {
    let keep = move || {
        let mut pause = KEEP_EVERY;
        loop {
            bell.wait(pause);
            let Some(is_awaited) = settle() else { return };
            pause = if is_awaited { KEEP_EVERY_WAITING } else { KEEP_EVERY };
        }
    };
    Builder::new().name("nigh-memory".to_owned()).spawn(keep).map(drop)
}

/// Starts the watch; true if it runs before others. `look` has sandboxes grow and says how long until the next look, if any can
/// grow; the thread ends when it returns None.
pub(super) fn start_watch(
    bell: Arc<Bell>,
    look: impl Fn() -> Option<Option<Duration>> + Send + 'static,
) -> io::Result<bool> {
    let (says, said) = mpsc::channel();
    let watch = move || {
        // It fails only if the node's start has been given up.
        let _unheard = says.send(run_before_others());
        loop {
            let Some(mut pause) = look() else { return };
            if pause.is_none() {
                bell.sleeps_long.store(true, Ordering::Relaxed);
                fence(Ordering::SeqCst);
                // A sandbox that began just before this did not ring.
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
