//! A schedule's document in the registry: JSON, with the number of its format.

use nigh_terms::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::ScheduleError;
use crate::schedule::{Schedule, ScheduleName, ScheduleProgress, ScheduleSettings, Timetable};

/// The format that this build writes.
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Document {
    format: u32,
    id: Uuid,
    created: Timestamp,
    modified: Timestamp,
    anchor: Timestamp,
    client_token: Option<String>,
    settings: ScheduleSettings,
    progress: ScheduleProgress,
}

/// What every format of the document has.
#[derive(Deserialize)]
struct Format {
    format: u32,
}

/// The schedule `name` that `document`, found at `place`, describes.
pub(super) fn decode(name: &ScheduleName, place: &str, document: &[u8]) -> Result<Schedule, ScheduleError> {
    let unreadable = |why: String| ScheduleError::Document(place.to_owned(), why);
    let Format { format } = serde_json::from_slice(document).map_err(|error| unreadable(error.to_string()))?;
    if format > FORMAT {
        return Err(unreadable(format!("its format is {format}, and this build reads up to {FORMAT}")));
    }
    let read: Document = serde_json::from_slice(document).map_err(|error| unreadable(error.to_string()))?;
    let Document { id, created, modified, anchor, client_token, settings, progress, .. } = read;
    let timetable = Timetable::of(&settings.times, anchor).map_err(|error| unreadable(error.to_string()))?;
    let name = name.clone();
    Ok(Schedule { name, id, settings, created, modified, anchor, client_token, progress, timetable })
}

/// The document of `schedule`, or why there is none.
pub(super) fn encode(schedule: &Schedule) -> Result<Vec<u8>, String> {
    let Schedule { id, created, modified, anchor, client_token, settings, progress, .. } = schedule.clone();
    let document = Document { format: FORMAT, id, created, modified, anchor, client_token, settings, progress };
    serde_json::to_vec(&document).map_err(|error| error.to_string())
}
