//! `nigh functions show`: a function with all that hangs on it, and how it failed last.

use nigh_node::Activation;
use nigh_node::client::{NETWORK_VARIABLE, NONE};
use nigh_node::explain::outcome_words;
use nigh_terms::{ByteSize, FunctionName};
use serde_json::{Value, json};

use super::attached::{Attached, Buckets};
use crate::activations::warn_of_unanswered;
use crate::context::Globals;
use crate::error::CliError;
use crate::output;
use crate::printable;
use crate::schedules;

/// The failed invocations that are shown.
const ERRORS: usize = 3;
/// Characters of an error.
const ERROR_MAX: usize = 200;

/// A function and what is known of it.
struct Shown {
    /// In Lambda's form.
    configuration: Value,
    reserved: Option<u64>,
    attached: Attached,
    /// False if the buckets cannot be asked.
    knows_triggers: bool,
    /// The last failed invocations, newest first; none if they cannot be asked for.
    errors: Option<Vec<Activation>>,
}

/// Shows it.
pub(super) async fn run(name: &FunctionName, globals: &Globals) -> Result<(), CliError> {
    let lambda = globals.lambda().await?;
    let configuration = lambda.get(name).await.map_err(CliError::of_function(name))?;
    let buckets = Buckets::find(globals).await?;
    let shown = Shown {
        configuration,
        reserved: lambda.find(name).await?.and_then(|found| found.reserved),
        attached: Attached::find(name, &lambda, buckets.as_ref(), globals).await?,
        knows_triggers: buckets.is_some(),
        errors: last_errors(name, globals).await?,
    };
    if globals.json {
        return output::json(&shown.json());
    }
    let mut table = output::table(&[]);
    for (what, value) in shown.rows() {
        let lines: Vec<_> = value.lines().map(|line| printable::shown(&std::io::stdout(), line)).collect();
        table.add_row([what.to_owned(), lines.join("\n")]);
    }
    output::print_table(&table)
}

/// The last failed invocations; none if the node is another than the one that runs here.
async fn last_errors(name: &FunctionName, globals: &Globals) -> Result<Option<Vec<Activation>>, CliError> {
    if globals.endpoint.is_some() {
        return Ok(None);
    }
    let namespace = globals.namespace().await?;
    let path = format!("/activations?cluster=true&namespace={namespace}&limit={ERRORS}&errors=true&function={name}");
    let (found, unanswered) = globals.admin()?.get_of_cluster(&path).await?;
    warn_of_unanswered(&unanswered, globals.json);
    Ok(Some(found))
}

impl Shown {
    /// Lambda's description, with what hangs on the function beside it.
    fn json(&self) -> Value {
        let mut all = self.configuration.clone();
        let attached = &self.attached;
        all["Concurrency"] =
            self.reserved.map_or(Value::Null, |count| json!({ "ReservedConcurrentExecutions": count }));
        all["Triggers"] = if self.knows_triggers { json!(attached.triggers) } else { Value::Null };
        all["FunctionUrl"] = attached.url.as_ref().map_or(Value::Null, |(url, _)| url.as_str().into());
        all["FunctionUrlAccess"] = attached.url.as_ref().map_or(Value::Null, |(_, access)| json!(access));
        all["Schedules"] = json!(attached.schedules);
        all["EventInvokeConfig"] = attached.events.clone().unwrap_or_default();
        all["LastErrors"] = self.errors.as_ref().map_or(Value::Null, |errors| errors.iter().map(error_json).collect());
        all
    }

    /// The rows for people.
    fn rows(&self) -> Vec<(&'static str, String)> {
        let text = |field: &str| self.configuration[field].as_str().unwrap_or_default().to_owned();
        let number = |field: &str| self.configuration[field].as_u64().unwrap_or_default();
        let variables = self.configuration["Environment"]["Variables"].as_object();
        let tmp = self.configuration["EphemeralStorage"]["Size"].as_u64().unwrap_or_default();
        let network = variables.and_then(|all| all.get(NETWORK_VARIABLE)?.as_str()).unwrap_or(NONE);
        let names: Vec<&str> = variables.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
        let layers = self.configuration["Layers"].as_array().into_iter().flatten();
        let layers: Vec<&str> = layers.filter_map(|layer| layer["Arn"].as_str()).map(layer_words).collect();
        let attached = &self.attached;
        let mut rows = vec![
            ("Function", text("FunctionName")),
            ("Description", text("Description")),
            ("Runtime", format!("{}, handler {}", text("Runtime"), text("Handler"))),
            ("Memory", format!("{}, /tmp {}", ByteSize::mib(number("MemorySize")), ByteSize::mib(tmp))),
            ("Timeout", format!("{} s", number("Timeout"))),
            ("Code", format!("{}, changed {}", ByteSize(number("CodeSize")), text("LastModified"))),
            // Values may be secrets; --json has them.
            ("Environment", listed(&names)),
            ("Layers", listed(&layers)),
            ("Network", network.to_owned()),
            ("Concurrency", self.reserved.map_or_else(nothing, |count| format!("{count} reserved"))),
        ];
        let triggers = if self.knows_triggers {
            lines(attached.triggers.iter().map(ToString::to_string))
        } else {
            "not known: --endpoint names a Lambda door only".to_owned()
        };
        rows.push(("Triggers", triggers));
        let url = attached.url.as_ref().map(|(url, access)| format!("{url} ({})", access.word()));
        rows.push(("URL", url.unwrap_or_else(nothing)));
        rows.push(("Schedules", lines(attached.schedules.iter().map(schedule_words))));
        rows.push(("Events", attached.events.as_ref().map_or_else(nothing, event_words)));
        if let Some(errors) = &self.errors {
            rows.push(("Last errors", lines(errors.iter().map(error_words))));
        }
        rows.retain(|(what, value)| *what != "Description" || !value.is_empty());
        rows
    }
}

fn nothing() -> String {
    "-".to_owned()
}

fn listed(all: &[&str]) -> String {
    if all.is_empty() { nothing() } else { all.join(", ") }
}

/// Each on a line of its own.
fn lines(all: impl Iterator<Item = String>) -> String {
    let all: Vec<String> = all.collect();
    if all.is_empty() { nothing() } else { all.join("\n") }
}

/// `words:3` of a layer version's ARN.
fn layer_words(arn: &str) -> &str {
    arn.split_once(":layer:").map_or(arn, |(_, words)| words)
}

/// `rate(5 minutes) in UTC, next 2026-…`.
fn schedule_words(schedule: &Value) -> String {
    let name = schedule["Name"].as_str().unwrap_or("?");
    let state = match schedule["State"].as_str() {
        Some("ENABLED") => format!("next {}", schedules::date(schedule, "NextRun")),
        _ => "paused".to_owned(),
    };
    format!("{name}: {}, {state}", schedules::words_of(schedule))
}

/// `1 retry, at most 3600 s old; failed ones go to ARN`.
fn event_words(config: &Value) -> String {
    let retries = config["MaximumRetryAttempts"].as_u64().map(|count| match count {
        1 => "1 retry".to_owned(),
        count => format!("{count} retries"),
    });
    let age = config["MaximumEventAgeInSeconds"].as_u64().map(|age| format!("at most {age} s old"));
    let end = |end: &str, which: &str| {
        let arn = config["DestinationConfig"][end]["Destination"].as_str()?;
        Some(format!("{which} go to {arn}"))
    };
    let all = [retries, age, end("OnSuccess", "answered ones"), end("OnFailure", "failed ones")];
    all.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// `3 min ago: handler raised KeyError: 'x' (nigh explain ID)`.
fn error_words(one: &Activation) -> String {
    let words = outcome_words(&one.outcome).replace('\n', " ");
    let words = printable::shortened(&words, ERROR_MAX).into_owned();
    format!("{}: {words} (nigh explain {})", output::when(one.start), one.id)
}

fn error_json(one: &Activation) -> Value {
    json!({ "id": one.id, "start": one.start.rfc3339(), "error": outcome_words(&one.outcome) })
}

#[cfg(test)]
mod tests {
    use nigh_node::client::TriggerFilter;
    use nigh_terms::BucketName;

    use super::*;
    use crate::deploy::{Trigger, UrlAccess};

    fn shown() -> Shown {
        let configuration = json!({
            "FunctionName": "hello", "Runtime": "python3.11", "Handler": "main.handle", "MemorySize": 256, "Timeout": 30,
            "EphemeralStorage": { "Size": 512 }, "CodeSize": 2048, "LastModified": "2026-11-26T10:00:00.000+0000",
            "Description": "",
        });
        let attached = Attached::default();
        Shown { configuration, reserved: None, attached, knows_triggers: true, errors: Some(Vec::new()) }
    }

    #[test]
    fn a_plain_function_has_a_dash_where_nothing_hangs_on_it() {
        let rows = shown().rows();
        let row = |name: &str| rows.iter().find(|(what, _)| *what == name).map(|(_, value)| value.as_str());
        assert_eq!(row("Runtime"), Some("python3.11, handler main.handle"));
        assert_eq!(row("Memory"), Some("256 MiB, /tmp 512 MiB"));
        assert_eq!((row("Network"), row("Description")), (Some("none"), None));
        for what in ["Environment", "Layers", "Concurrency", "Triggers", "URL", "Schedules", "Events", "Last errors"] {
            assert_eq!(row(what), Some("-"), "{what}");
        }
    }

    #[test]
    fn all_that_hangs_on_a_function_has_a_row() {
        let mut full = shown();
        full.configuration["Environment"] = json!({ "Variables": { "LEVEL": "secret", "NIGH_NETWORK": "outbound" } });
        full.configuration["Layers"] = json!([{ "Arn": "arn:aws:lambda:us-east-1:000000000000:layer:words:3" }]);
        full.reserved = Some(4);
        let bucket = BucketName::new("photos").unwrap();
        full.attached = Attached {
            triggers: vec![Trigger { bucket, filter: TriggerFilter::created("in/") }],
            url: Some(("http://x/".to_owned(), UrlAccess::Iam)),
            schedules: vec![json!({
                "Name": "hello", "State": "DISABLED", "ScheduleExpression": "rate(1 hour)",
                "ScheduleExpressionTimezone": "UTC",
            })],
            events: Some(json!({
                "MaximumRetryAttempts": 1, "MaximumEventAgeInSeconds": 60,
                "DestinationConfig": { "OnSuccess": {}, "OnFailure": { "Destination": "arn:aws:s3:::failed" } },
            })),
        };
        let rows = full.rows();
        let row = |name: &str| rows.iter().find(|(what, _)| *what == name).unwrap().1.as_str();
        assert_eq!(row("Environment"), "LEVEL, NIGH_NETWORK");
        assert_eq!((row("Layers"), row("Network"), row("Concurrency")), ("words:3", "outbound", "4 reserved"));
        assert_eq!((row("Triggers"), row("URL")), ("photos/in/", "http://x/ (iam)"));
        assert_eq!(row("Schedules"), "hello: rate(1 hour) in UTC, paused");
        assert_eq!(row("Events"), "1 retry, at most 60 s old, failed ones go to arn:aws:s3:::failed");
        let json = full.json();
        assert_eq!(json["Environment"]["Variables"]["LEVEL"], "secret");
        assert_eq!((&json["Triggers"][0]["prefix"], &json["FunctionUrlAccess"]), (&json!("in/"), &json!("iam")));
        full.knows_triggers = false;
        assert!(full.json()["Triggers"].is_null());
    }
}
