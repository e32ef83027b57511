//! How far a long run is, on standard error, and how Ctrl-C ends it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::LabError;

/// What Ctrl-C leaves of a run in parts.
pub(crate) const PARTS_KEPT: &str =
    "parts that are done are kept if --html or --progress was given: run the same command again";

/// A bar of `length` parts with the time that has passed.
pub(crate) fn bar(length: u64) -> ProgressBar {
    styled(length, "[{elapsed}] {bar:30} {pos}/{len} {msg}")
}

/// A bar of `length` parts as `template` shows it.
pub(crate) fn styled(length: u64, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template);
    ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// A bar with its clock running, for a run that begins with `message`.
pub(crate) fn ticking_bar(length: u64, message: &'static str) -> ProgressBar {
    let bar = bar(length);
    bar.enable_steady_tick(Duration::from_millis(500));
    bar.set_message(message);
    bar
}

/// A sign of life with a word on what is done.
pub(crate) fn spinner() -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {msg}");
    ProgressBar::new_spinner().with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
}

/// A flag that Ctrl-C sets.
pub(crate) fn stop_on_interrupt() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            flag.store(true, Ordering::Relaxed);
        }
    });
    stop
}

/// Fails if Ctrl-C has set `stop`; `kept` says what is left of the run.
pub(crate) fn unless_stopped(stop: &AtomicBool, kept: &'static str) -> Result<(), LabError> {
    if stop.load(Ordering::Relaxed) { Err(LabError::Interrupted { kept }) } else { Ok(()) }
}
