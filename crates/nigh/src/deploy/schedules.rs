//! The schedule of a deployed function.

use nigh_terms::FunctionName;

use super::description::ScheduleText;
use crate::context::Globals;
use crate::error::CliError;

/// Checks, before anything is deployed, that `apply` can set the schedule.
///
/// # Errors
/// If it cannot.
pub(super) fn check(schedule: Option<&ScheduleText>) -> Result<(), CliError> {
    match schedule {
        None => Ok(()),
        Some(schedule) => Err(CliError::Usage(format!(
            "nothing is deployed: this Nigh has no schedules, so {:?} cannot be set; leave it out, and run `nigh invoke \
             NAME --event` by cron",
            schedule.words()
        ))),
    }
}

/// Makes the function run as its description says.
pub(super) async fn apply(
    name: &FunctionName,
    schedule: Option<&ScheduleText>,
    _globals: &Globals,
) -> Result<(), CliError> {
    debug_assert!(schedule.is_none(), "{name}: `check` lets none pass");
    Ok(())
}
