//! What invokes a function of a template by itself: events of SAM, and its URL. Pure.

use nigh_node::client::TriggerFilter;
use nigh_terms::BucketName;
use serde_json::{Map, Value};

use super::intrinsics::scalar_text;
use super::properties::{Properties, Reasons};
use super::stack::{StackFunction, StackSchedule};
use crate::deploy::{Trigger, UrlAccess};

/// Events that Nigh does not have, and what to do instead.
const OTHER_EVENTS: [(&str, &str); 5] = [
    (
        "Api",
        "a REST API sends events of format 1.0, a function's URL of 2.0: make it an HttpApi event, or add FunctionUrlConfig",
    ),
    ("CloudWatchEvent", EVENT_BUS),
    ("EventBridgeRule", EVENT_BUS),
    ("SQS", "there are no queues; `nigh invoke --event` puts an event into the function's own"),
    ("SNS", "there are no topics; `nigh invoke --event` puts an event into the function's queue"),
];
const EVENT_BUS: &str = "there is no event bus; for dates use a Schedule event";
/// What a schedule does without.
pub(super) const SCHEDULE_REASONS: &Reasons = &[
    ("RetryPolicy", false, "a run that is due is in the function's queue of events, with its retries"),
    ("DeadLetterConfig", false, DEAD_LETTERS),
    ("FlexibleTimeWindow", false, "each run begins at its date"),
    ("RoleArn", false, NO_ROLES),
    ("PermissionsBoundary", false, NO_ROLES),
    ("GroupName", false, "there is one group of schedules"),
    ("OmitName", false, "a schedule has a name"),
];
/// What a URL does without.
pub(super) const URL_REASONS: &Reasons = &[
    ("Cors", true, "a function answers CORS requests by itself"),
    ("InvokeMode", true, "answers are not streamed"),
    ("Qualifier", false, "a function has one version, $LATEST"),
];
/// Why roles and policies do not come along.
pub(super) const NO_ROLES: &str = "there are no roles: a function may use all that its namespace has";
/// Why queues for dead letters do not come along.
pub(super) const DEAD_LETTERS: &str = "events that failed for good are dead letters: `nigh events list`";

/// Reads the events of a function: `owner` has its properties.
pub(super) fn read(owner: &mut Properties<'_>, events: Map<String, Value>, function: &mut StackFunction) {
    for (logical, event) in events {
        let label = format!("Events.{logical}");
        let Some(Value::Object(event)) = owner.unfolded_within(&label, &event) else { continue };
        let kind = event.get("Type").and_then(Value::as_str).unwrap_or_default().to_owned();
        let properties = match event.get("Properties").map(|properties| owner.unfolded_within(&label, properties)) {
            Some(Some(Value::Object(properties))) => properties,
            Some(_) | None => Map::new(),
        };
        let mut event = owner.part(&label, properties);
        let reasons: &Reasons = match kind.as_str() {
            "S3" => {
                bucket_event(&mut event, function);
                &[]
            }
            "Schedule" | "ScheduleV2" => {
                schedule_event(&mut event, &logical, function);
                SCHEDULE_REASONS
            }
            "HttpApi" => {
                http_event(&mut event, function);
                &[]
            }
            other => {
                let known = OTHER_EVENTS.iter().find(|(name, _)| *name == other);
                let why =
                    known.map_or_else(|| format!("Nigh has no events of type {other:?}"), |(_, why)| (*why).to_owned());
                event.leave_out("", true, why);
                owner.adopt(event.abandon());
                continue;
            }
        };
        owner.adopt(event.finish(reasons));
    }
}

fn bucket_event(event: &mut Properties<'_>, function: &mut StackFunction) {
    let Some(bucket) = event.text("Bucket") else { return };
    let filter = event.map("Filter");
    let events = event.texts("Events");
    if let Some(trigger) = trigger(event, &bucket, filter, events) {
        function.triggers.push(trigger);
    }
}

/// The trigger of a bucket by a notification's filter and events; none, and listed, if Nigh cannot have it.
pub(super) fn trigger(
    owner: &mut Properties<'_>,
    bucket: &str,
    filter: Option<Map<String, Value>>,
    events: Vec<String>,
) -> Option<Trigger> {
    let bucket = match BucketName::new(bucket) {
        Ok(bucket) => bucket,
        Err(error) => {
            owner.leave_out("Bucket", true, error.to_string());
            return None;
        }
    };
    let mut found = TriggerFilter::created("");
    let key = filter.map(Value::Object).and_then(|filter| owner.resolved_within("Filter", &filter));
    let rules = key.as_ref().and_then(|filter| filter.get("S3Key")?.get("Rules")?.as_array());
    for rule in rules.into_iter().flatten() {
        let part = |name: &str| rule.get(name).and_then(scalar_text).unwrap_or_default();
        match part("Name").to_ascii_lowercase().as_str() {
            "prefix" => found.prefix = part("Value"),
            "suffix" => found.suffix = part("Value"),
            other => owner.leave_out("Filter", true, format!("{other:?} is neither prefix nor suffix")),
        }
    }
    let (here, others): (Vec<String>, Vec<String>) = events.into_iter().partition(|event| is_event_here(event));
    if !others.is_empty() {
        owner.leave_out("Events", true, format!("buckets have no {}", others.join(", ")));
        if here.is_empty() {
            return None;
        }
    }
    if !here.is_empty() {
        found.events = here;
    }
    Some(Trigger { bucket, filter: found })
}

fn is_event_here(event: &str) -> bool {
    ["s3:ObjectCreated:", "s3:ObjectRemoved:"].iter().any(|group| event.starts_with(group))
}

fn schedule_event(event: &mut Properties<'_>, logical: &str, function: &mut StackFunction) {
    let expression = event.text("Schedule").or_else(|| event.text("ScheduleExpression"));
    let name = event.text("Name").unwrap_or_else(|| schedule_name(function.name.as_str(), logical));
    if let Some(schedule) = schedule(event, name, expression) {
        function.schedules.push(schedule);
    }
}

/// A name for a schedule that has none.
pub(super) fn schedule_name(function: &str, logical: &str) -> String {
    format!("{function}-{logical}").chars().take(64).collect()
}

/// A schedule by the properties that SAM's events and EventBridge's resources share.
pub(super) fn schedule(owner: &mut Properties<'_>, name: String, expression: Option<String>) -> Option<StackSchedule> {
    let enabled = [owner.flag("State"), owner.flag("Enabled")].into_iter().flatten().all(|enabled| enabled);
    let timezone = owner.text("ScheduleExpressionTimezone").filter(|zone| zone != "UTC");
    let input = owner.text("Input");
    let description = owner.text("Description");
    let Some(expression) = expression else {
        owner.leave_out("", true, "it has no schedule expression");
        return None;
    };
    Some(StackSchedule { name, expression, timezone, input, description, enabled })
}

/// Routes of HTTP APIs send events of format 2.0, as a function's URL does.
fn http_event(event: &mut Properties<'_>, function: &mut StackFunction) {
    let (method, path) = (event.text("Method"), event.text("Path"));
    let route = [method, path].into_iter().flatten().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
    let _the_api = event.raw("ApiId");
    let _how_long = event.raw("TimeoutInMillis");
    if event.text("PayloadFormatVersion").is_some_and(|version| version != "2.0") {
        event.leave_out("", true, "a function's URL sends events of format 2.0, not of PayloadFormatVersion 1.0");
        return;
    }
    let has_authorizer = event.map("Auth").is_some_and(|auth| auth.get("Authorizer").is_some_and(|one| one != "NONE"));
    if has_authorizer {
        event.leave_out("", true, "there are no authorizers; add FunctionUrlConfig with AuthType AWS_IAM");
        return;
    }
    function.url = function.url.or(Some(UrlAccess::Public));
    let route = if route.is_empty() { "the route".to_owned() } else { route };
    event.leave_out("", false, format!("{route} is the function's public URL, which takes every method and path"));
}

/// Reads `FunctionUrlConfig`, or a resource that gives a function a URL.
pub(super) fn url(config: &mut Properties<'_>) -> UrlAccess {
    let auth = config.text("AuthType").unwrap_or_default();
    if config.text("InvokeMode").is_some_and(|mode| mode != "BUFFERED") {
        config.leave_out("InvokeMode", true, "answers are not streamed");
    }
    UrlAccess::of_auth(&auth)
}
