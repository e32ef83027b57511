//! The log of a node: lines on standard error, as text or JSON. A reload changes its level.
//!
//! There is no log file, so nothing rotates here: systemd-journald or a container's runtime keeps what is on standard error.

mod start_lines;

use std::io::{self, IsTerminal as _};
use std::sync::Arc;

use nigh_node::config::{LogFormat, LogSettings, Settings};
use nigh_node::reload::{Apply, Reload};
use tracing_subscriber::EnvFilter;

use self::start_lines::{LogOutput, StartLines};
use crate::error::CliError;
use crate::output;

/// Replaces the filter of the log.
type SetFilter = dyn Fn(EnvFilter) -> Result<(), tracing_subscriber::reload::Error> + Send + Sync;

/// The level of the log, which a reload changes.
pub(crate) struct LogLevel(Arc<SetFilter>);

impl Reload for LogLevel {
    fn name(&self) -> &'static str {
        "log level"
    }

    fn takes(&self, setting: &str) -> bool {
        setting == "log.level"
    }

    fn check(&self, new: &Settings) -> Result<Apply, String> {
        let (filter, set) = (filter(&new.log.level)?, Arc::clone(&self.0));
        Ok(Box::new(move || {
            if let Err(error) = set(filter) {
                tracing::error!(%error, "the level of the log cannot be changed");
            }
            false
        }))
    }
}

/// True if a person reads the log, at a terminal.
pub(crate) fn is_for_people(settings: &LogSettings) -> bool {
    settings.format == LogFormat::Text && io::stderr().is_terminal()
}

/// Writes the log to standard error from now on. For people the lines of the start wait until `StartLines` is dropped.
pub(crate) fn to_stderr(settings: &LogSettings) -> Result<(LogLevel, Option<StartLines>), CliError> {
    let filter = filter(&settings.level).map_err(CliError::Usage)?;
    let output = LogOutput::new(io::stderr());
    let lines = is_for_people(settings).then(|| output.wait());
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(output);
    // When the terminal is lost, standard error cannot be written to. The subscriber would report that there, and panic.
    let builder = builder.log_internal_errors(false);
    let (initialized, set) = match settings.format {
        LogFormat::Text => {
            let colours = output::wants_colour(&io::stderr());
            let builder = builder.with_ansi(colours).with_target(false).with_filter_reloading();
            let handle = builder.reload_handle();
            let set: Arc<SetFilter> = Arc::new(move |filter: EnvFilter| handle.reload(filter));
            (builder.try_init(), set)
        }
        LogFormat::Json => {
            let builder = builder.json().with_filter_reloading();
            let handle = builder.reload_handle();
            let set: Arc<SetFilter> = Arc::new(move |filter: EnvFilter| handle.reload(filter));
            (builder.try_init(), set)
        }
    };
    initialized.map_err(|error| CliError::Usage(format!("the log cannot be set up: {error}")))?;
    Ok((LogLevel(set), lines))
}

/// The filter of a level.
fn filter(level: &str) -> Result<EnvFilter, String> {
    // s3s logs clients' mistakes as errors; the S3 door logs those that matter.
    let quiet = if level.contains("s3s") { "" } else { ",s3s=off" };
    EnvFilter::try_new(format!("{level}{quiet}")).map_err(|error| format!("setting log.level {level:?}: {error}"))
}
