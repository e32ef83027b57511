//! How many processors are idle (`/proc/stat`, proc_stat(5)): only then does a further sandbox help.

use std::time::Duration;

use nigh_terms::Monotonic;

/// The kernel counts hundredths of a second: over less than this the answer is coarse.
const WINDOW: Duration = Duration::from_millis(100);

/// Measures by two looks at the kernel's counters.
pub(crate) struct IdleProcessors {
    processors: usize,
    ticks_a_second: u64,
    /// The last look, and the idle ticks of all processors by then.
    last: Option<(Monotonic, u64)>,
}

impl IdleProcessors {
    /// For a machine on which this process may use so many.
    pub(crate) fn new(processors: usize) -> Self {
        Self { processors, ticks_a_second: rustix::param::clock_ticks_per_second(), last: None }
    }

    /// How many were idle since the last look. None if that was just now, or the kernel does not say.
    pub(crate) fn measure(&mut self, now: Monotonic) -> Option<f64> {
        if self.last.is_some_and(|(last, _)| now.since(last) < WINDOW) {
            return None;
        }
        let ticks = idle_ticks(&std::fs::read_to_string("/proc/stat").ok()?)?;
        let (last, before) = self.last.replace((now, ticks))?;
        let passed = now.since(last);
        // A mean over a long time says nothing of now.
        (passed < 10 * WINDOW).then(|| self.idle(ticks.saturating_sub(before), passed))
    }

    fn idle(&self, ticks: u64, passed: Duration) -> f64 {
        let seconds = ticks as f64 / self.ticks_a_second.max(1) as f64;
        (seconds / passed.as_secs_f64()).min(self.processors as f64)
    }
}

/// The ticks that all processors have idled since the boot: `idle`, and `iowait`, in which they are idle too.
fn idle_ticks(stat: &str) -> Option<u64> {
    let all = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = all.split_whitespace().map_while(|tick| tick.parse().ok()).collect();
    Some(ticks.get(3)? + ticks.get(4).unwrap_or(&0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_and_waits_for_disks_count() {
        assert_eq!(idle_ticks("cpu  10 20 30 400 50 0 0\ncpu0 1 2 3 4 5\n"), Some(450));
        assert_eq!(idle_ticks("cpu  10 20\n"), None);
        assert_eq!(idle_ticks("intr 1\n"), None);
    }

    #[test]
    fn ticks_become_processors_as_many_as_may_be_used() {
        let of = IdleProcessors { processors: 2, ticks_a_second: 100, last: None };
        assert!((of.idle(10, Duration::from_millis(200)) - 0.5).abs() < 1e-9);
        assert!((of.idle(160, Duration::from_millis(200)) - 2.0).abs() < 1e-9);
    }
}
