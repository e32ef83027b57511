//! A cold start: how it went, and how long its initialisation may take.

use std::time::Duration;

use nigh_llc::resctrl::Members;
use nigh_schedule::activation::Steps;
use nigh_schedule::sandbox_pool::ColdReason;
use nigh_terms::Monotonic;

use crate::invocation::phase_accountant::DataCalls;

/// How a cold start went.
pub(crate) struct Init {
    /// When it began.
    pub(crate) began: Monotonic,
    /// From then until it asked for its input.
    pub(crate) took: Duration,
    /// The data calls of the initialisation.
    pub(crate) calls: DataCalls,
    /// The steps of the engine.
    pub(crate) steps: Steps,
    /// Why it was made.
    pub(crate) reason: ColdReason,
}

/// Time in which an initialisation waits for a processor is added to its limit, up to so many times the limit.
const STARVED_MAX: u32 = 2;

/// How long an initialisation with `limit` may take: time in which its tasks were ready to run and had no processor does not
/// count (proc(5), `schedstat`).
pub(crate) fn init_limit(limit: Duration, tasks: Option<&Members>) -> Duration {
    let starved = tasks.map_or(Duration::ZERO, |tasks| waited_for_processors(tasks).unwrap_or_default());
    limit + starved.min(limit * STARVED_MAX)
}

/// The longest that a process among `tasks` has waited for a processor.
fn waited_for_processors(tasks: &Members) -> Option<Duration> {
    let pids: Vec<String> = match tasks {
        Members::Tree(process) => vec![process.pid.to_string()],
        Members::Cgroup(folder) => {
            std::fs::read_to_string(folder.join("cgroup.procs")).ok()?.lines().map(str::to_owned).collect()
        }
    };
    let waited = |pid: &String| run_delay(&std::fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?);
    pids.iter().filter_map(waited).max()
}

/// The second number: nanoseconds on a run queue.
fn run_delay(schedstat: &str) -> Option<Duration> {
    schedstat.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_initialisation_waits_for_a_processor_is_not_its_time() {
        assert_eq!(run_delay("123 4500000000 17\n"), Some(Duration::from_millis(4500)));
        assert_eq!(run_delay("123"), None);
        let limit = Duration::from_secs(10);
        assert_eq!(init_limit(limit, None), limit);
        let own = Members::Cgroup("/nowhere".into());
        assert_eq!(init_limit(limit, Some(&own)), limit);
    }
}
