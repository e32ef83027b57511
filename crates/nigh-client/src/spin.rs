//! Whether a client looks for an answer some times before it sleeps. Pure, but for the one look at the machine.
//!
//! A node answers a small read in less time than the kernel takes to wake a sleeper on another processor. Where there is no
//! processor to spare, whoever spins only keeps the node from answering.

use std::sync::OnceLock;
use std::time::Duration;

/// How long one wait spins at most.
pub(crate) const SPIN_MAX: Duration = Duration::from_micros(25);
/// How many waits sleep at once, at most, after spins in vain.
const PAUSE_MAX: u32 = 255;

/// Decides wait by wait: each spin in vain doubles the number of waits that sleep at once, and an answer ends that.
#[derive(Debug)]
pub(crate) struct Spin {
    is_allowed: bool,
    pause: u32,
    left: u32,
}

impl Spin {
    pub(crate) const fn new(is_allowed: bool) -> Self {
        Self { is_allowed, pause: 0, left: 0 }
    }

    /// Allowed if this process may use two processors, by its affinity and its cgroup's quota.
    pub(crate) fn of_machine() -> Self {
        static HAS_TWO: OnceLock<bool> = OnceLock::new();
        let has_two = || std::thread::available_parallelism().is_ok_and(|processors| processors.get() > 1);
        Self::new(*HAS_TWO.get_or_init(has_two))
    }

    /// Whether the next wait spins.
    pub(crate) fn begin(&mut self) -> bool {
        if !self.is_allowed {
            return false;
        }
        if self.left > 0 {
            self.left -= 1;
            return false;
        }
        true
    }

    /// An answer came while it spun.
    pub(crate) fn answered(&mut self) {
        self.pause = 0;
    }

    /// None came.
    pub(crate) fn in_vain(&mut self) {
        self.pause = (2 * self.pause + 1).min(PAUSE_MAX);
        self.left = self.pause;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_there_is_one_processor_no_wait_spins() {
        let mut spin = Spin::new(false);
        assert!((0..10).all(|_| !spin.begin()));
    }

    #[test]
    fn spins_in_vain_become_rare_until_one_is_answered() {
        let mut spin = Spin::new(true);
        let waits_until_next = |spin: &mut Spin| {
            spin.in_vain();
            (0..).find(|_| spin.begin()).unwrap()
        };
        assert!(spin.begin());
        assert_eq!([(); 4].map(|()| waits_until_next(&mut spin)), [1, 3, 7, 15]);
        for _ in 0..20 {
            waits_until_next(&mut spin);
        }
        assert_eq!(waits_until_next(&mut spin), PAUSE_MAX);
        spin.answered();
        assert!(spin.begin());
        assert_eq!(waits_until_next(&mut spin), 1);
    }
}
