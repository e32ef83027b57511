//! Each namespace's parser process, and the pause of a namespace between two looks at objects.

use std::collections::HashMap;
use std::time::Duration;

use nigh_terms::Namespace;
use tokio::time::Instant;

use super::parser_process::ParserProcess;

/// How many processes run at a time, each for another namespace.
pub(super) const PROCESSES_MAX: usize = 4;
/// How long a process is kept idle.
const IDLE: Duration = Duration::from_secs(10);
/// The pause of a namespace after its process was killed: the first, and the longest.
const REST: Duration = Duration::from_secs(1);
const REST_MAX: Duration = Duration::from_secs(60);
/// A namespace pauses for this many times the duration of its last look, so that its looks use at most a fifth of a core.
const PACE: u32 = 4;

/// A namespace's process and pause.
#[derive(Default)]
pub(super) struct Lane {
    /// The process, idle since the given time.
    pub(super) process: Option<(ParserProcess, Instant)>,
    pub(super) rests_until: Option<Instant>,
    rest: Duration,
}

/// The end of a look.
pub(super) struct LookEnd {
    pub(super) namespace: Namespace,
    /// The process, if it can be used again.
    pub(super) process: Option<ParserProcess>,
    /// The process was killed, or none could be started.
    pub(super) trouble: bool,
    pub(super) took: Duration,
}

/// Ends the process that has been idle longest, if idle and `busy` processes are at the limit.
pub(super) fn make_room(lanes: &mut HashMap<Namespace, Lane>, busy: usize) {
    let idle = lanes.values().filter(|lane| lane.process.is_some()).count();
    if idle + busy < PROCESSES_MAX {
        return;
    }
    let longest = lanes.values_mut().filter(|lane| lane.process.is_some());
    if let Some(lane) = longest.min_by_key(|lane| lane.process.as_ref().map(|(_, since)| *since)) {
        lane.process = None;
    }
}

impl Lane {
    /// Takes back the process after a look, and sets how long the namespace pauses.
    pub(super) fn look_ended(&mut self, ended: LookEnd) {
        let now = Instant::now();
        self.process = ended.process.filter(|process| !process.is_worn()).map(|process| (process, now));
        if ended.trouble {
            self.rest = (self.rest * 2).clamp(REST, REST_MAX);
            self.rests_until = Some(now + self.rest);
        } else {
            if self.process.is_some() {
                self.rest = Duration::ZERO;
            }
            self.rests_until = Some(now + ended.took * PACE);
        }
    }

    /// Ends the process if it was idle for too long. False if the lane can be forgotten.
    pub(super) fn is_of_use(&mut self, now: Instant) -> bool {
        if self.process.as_ref().is_some_and(|(_, since)| now.duration_since(*since) > IDLE) {
            self.process = None;
        }
        // A lane outlives its pause, so that after repeated trouble the next pause is longer.
        self.process.is_some() || self.rests_until.is_some_and(|until| now < until + REST_MAX)
    }
}
