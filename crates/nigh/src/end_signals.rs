//! The signals to a process that runs until it is told to end: `nigh up`, `nigh dev` and `nigh cluster up`.
//!
//! | signal | `nigh up` |
//! |---|---|
//! | SIGTERM | drain; further ones change nothing, because supervisors repeat it |
//! | SIGINT | drain; during a drain end at once |
//! | SIGHUP | with a terminal: drain, for the session is lost; without one: read the settings again |
//! | SIGUSR1 | open log files again |
//!
//! The system sends SIGHUP when a terminal or an SSH session is lost, sometimes twice, so it never ends the process at once. A
//! process that was started with SIGHUP ignored, as by nohup(1), keeps ignoring it.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The files of the kernel that show which signals this process ignores, and its terminal (proc(5)).
const STATUS_FILE: &str = "/proc/self/status";
const STAT_FILE: &str = "/proc/self/stat";

/// What a signal to a node means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeSignal {
    /// SIGINT: a person has pressed Ctrl-C.
    Interrupt,
    /// SIGTERM, or a lost session.
    Terminate,
    /// Read the settings again.
    Reload,
    /// Open log files again.
    Reopen,
}

/// The signals, which no longer end this process by themselves.
pub(crate) struct EndSignals {
    interrupt: Signal,
    terminate: Signal,
    user: Signal,
    /// None if the process was started with it ignored.
    hang_up: Option<Signal>,
    has_terminal: bool,
}

impl EndSignals {
    /// Handles the signals from now on.
    ///
    /// # Errors
    /// If the system refuses.
    pub(crate) fn handle() -> io::Result<Self> {
        let hang_up = SignalKind::hangup();
        let is_ignored = ignores(&std::fs::read_to_string(STATUS_FILE)?, hang_up);
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            user: signal(SignalKind::user_defined1())?,
            hang_up: if is_ignored { None } else { Some(signal(hang_up)?) },
            has_terminal: has_terminal(&std::fs::read_to_string(STAT_FILE)?),
        })
    }

    /// The next signal to a node.
    pub(crate) async fn next(&mut self) -> NodeSignal {
        tokio::select! {
            () = received(Some(&mut self.interrupt)) => NodeSignal::Interrupt,
            () = received(Some(&mut self.terminate)) => NodeSignal::Terminate,
            () = received(self.hang_up.as_mut()) => {
                if self.has_terminal { NodeSignal::Terminate } else { NodeSignal::Reload }
            }
            () = received(Some(&mut self.user)) => NodeSignal::Reopen,
        }
    }

    /// Returns when a process that has no settings to read again must end.
    pub(crate) async fn end(&mut self) {
        while self.next().await == NodeSignal::Reopen {}
    }

    /// Returns when the process, which already ends in order, must end at once.
    pub(crate) async fn end_at_once(&mut self) {
        tokio::select! {
            () = received(Some(&mut self.interrupt)) => {}
            () = received(Some(&mut self.terminate)) => {}
        }
    }
}

/// Returns when the signal is received; never without one.
async fn received(signal: Option<&mut Signal>) {
    if let Some(signal) = signal
        && signal.recv().await.is_some()
    {
        return;
    }
    std::future::pending().await
}

/// True if `status`, the text of `STATUS_FILE`, says that the process ignores the signal.
fn ignores(status: &str, signal: SignalKind) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    // Bit 0 is signal 1.
    (ignored >> (signal.as_raw_value() - 1)) & 1 == 1
}

/// True if `stat`, the text of `STAT_FILE`, names a controlling terminal: field 7, `tty_nr`.
fn has_terminal(stat: &str) -> bool {
    // Behind the name in parentheses, which may hold anything, field 3 is the first.
    let fields = stat.rsplit_once(") ").map(|(_, fields)| fields);
    fields.and_then(|fields| fields.split(' ').nth(4)).is_some_and(|terminal| terminal != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_mask_says_which_signals_are_ignored() {
        let status = "Name:\tnigh\nSigBlk:\t0000000000000003\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000002\n";
        assert!(ignores(status, SignalKind::hangup()) && ignores(status, SignalKind::pipe()));
        assert!(!ignores(status, SignalKind::interrupt()) && !ignores(status, SignalKind::terminate()));
        assert!(!ignores("Name:\tnigh\n", SignalKind::hangup()));
    }

    #[test]
    fn a_process_of_a_service_manager_has_no_terminal() {
        assert!(has_terminal("7 (ni) gh) S 1 7 7 34816 7 4194560 1 2"));
        assert!(!has_terminal("7 (ni) gh) S 1 7 7 0 -1 4194560 1 2"));
        assert!(!has_terminal(""));
    }
}
