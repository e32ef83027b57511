//! The signals that end a process that runs until it is told to end: `nigh up` and `nigh cluster up`.
//!
//! SIGINT and SIGTERM ask the process to end in order; a second one, to end at once. SIGHUP asks it to end in order. The
//! system sends it when a terminal or an SSH session is lost, sometimes twice, so it never ends the process at once. A
//! process that was started with SIGHUP ignored, as by nohup(1), keeps ignoring it.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The file of the kernel that shows which signals this process ignores (proc(5)).
const STATUS_FILE: &str = "/proc/self/status";

/// The signals, which no longer end this process by themselves.
pub(crate) struct EndSignals {
    interrupt: Signal,
    terminate: Signal,
    /// None if the process was started with it ignored.
    hang_up: Option<Signal>,
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
            hang_up: if is_ignored { None } else { Some(signal(hang_up)?) },
        })
    }

    /// Returns when the process must end.
    pub(crate) async fn end(&mut self) {
        tokio::select! {
            () = end_at_once(&mut self.interrupt, &mut self.terminate) => {}
            () = received(self.hang_up.as_mut()) => {}
        }
    }

    /// Returns when the process, which already ends in order, must end at once.
    pub(crate) async fn end_at_once(&mut self) {
        end_at_once(&mut self.interrupt, &mut self.terminate).await;
    }
}

async fn end_at_once(interrupt: &mut Signal, terminate: &mut Signal) {
    tokio::select! {
        () = received(Some(interrupt)) => {}
        () = received(Some(terminate)) => {}
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
}
