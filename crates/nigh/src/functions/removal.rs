//! `nigh functions rm`: a function goes with all that hangs on it.
//!
//! The triggers go first, so that nothing invokes a function that is gone, whenever the command is interrupted. URL,
//! reservation and the handling of events are part of the function; the node removes its schedules with it.

use nigh_node::client::{ClientError, LambdaClient};
use nigh_terms::FunctionName;
use serde::Serialize;
use serde_json::json;

use super::attached::{Attached, Buckets};
use crate::context::Globals;
use crate::error::CliError;
use crate::output;

/// What went with a function.
#[derive(Debug, Serialize)]
struct Removed {
    function: FunctionName,
    triggers: Vec<String>,
    url: Option<String>,
    schedules: Vec<String>,
}

impl Removed {
    fn new(function: FunctionName, attached: &Attached) -> Self {
        Self {
            function,
            triggers: attached.triggers.iter().map(ToString::to_string).collect(),
            url: attached.url.as_ref().map(|(url, _)| url.clone()),
            schedules: attached.schedule_names().into_iter().map(str::to_owned).collect(),
        }
    }

    /// `removed hello with its trigger photos/in/ and its URL`.
    fn words(&self) -> String {
        let all = [
            part("trigger", "triggers", &self.triggers),
            part("schedule", "schedules", &self.schedules),
            self.url.as_ref().map(|_| "its URL".to_owned()),
        ];
        let all: Vec<String> = all.into_iter().flatten().collect();
        match all.as_slice() {
            [] => format!("removed {}", self.function),
            parts => format!("removed {} with {}", self.function, parts.join(" and ")),
        }
    }
}

fn part(one: &str, many: &str, names: &[String]) -> Option<String> {
    let word = if names.len() == 1 { one } else { many };
    (!names.is_empty()).then(|| format!("its {word} {}", names.join(", ")))
}

/// Removes the functions of these names.
pub(super) async fn run(names: Vec<FunctionName>, keeps_triggers: bool, globals: &Globals) -> Result<(), CliError> {
    let lambda = globals.lambda().await?;
    let buckets = if keeps_triggers { None } else { Buckets::find(globals).await? };
    if buckets.is_none() && !keeps_triggers {
        output::remark("nigh: triggers are not looked for, since --endpoint names a Lambda door only");
    }
    let mut removed: Vec<Removed> = Vec::new();
    for name in names {
        let one = match remove(name, &lambda, buckets.as_ref(), globals).await {
            Ok(one) => one,
            Err(error) => return Err(after(&removed, error)),
        };
        if !globals.json {
            output::line(one.words())?;
        }
        removed.push(one);
    }
    match removed.as_slice() {
        _ if !globals.json => Ok(()),
        [Removed { function, triggers, url, schedules }] => {
            output::json(&json!({ "removed": function, "triggers": triggers, "url": url, "schedules": schedules }))
        }
        all => {
            let names: Vec<&FunctionName> = all.iter().map(|one| &one.function).collect();
            output::json(&json!({ "removed": names, "functions": all }))
        }
    }
}

async fn remove(
    name: FunctionName,
    lambda: &LambdaClient,
    buckets: Option<&Buckets>,
    globals: &Globals,
) -> Result<Removed, CliError> {
    // A function that is not there keeps what it may have been promised.
    lambda.get(&name).await.map_err(CliError::of_function(&name))?;
    let attached = Attached::find(&name, lambda, buckets, globals).await?;
    if let Some(buckets) = buckets {
        buckets.take_triggers(&name).await?;
    }
    if let Err(error) = lambda.delete(&name).await {
        if let Some(buckets) = buckets {
            buckets.give_triggers_back(&name).await;
        }
        return Err(error.into());
    }
    Ok(Removed::new(name, &attached))
}

/// The error at one of several functions says which are gone.
fn after(removed: &[Removed], error: CliError) -> CliError {
    if removed.is_empty() {
        return error;
    }
    let gone = removed.iter().map(|one| one.function.as_str()).collect::<Vec<_>>().join(", ");
    let done = format!("; already removed: {gone}");
    match error {
        CliError::NoFunction { name, .. } => CliError::NoFunction { name, done },
        CliError::Client(ClientError::Refused { status, code, message }) => {
            ClientError::Refused { status, code, message: format!("{message}{done}") }.into()
        }
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_with_a_function_is_told() {
        let mut removed = Removed {
            function: FunctionName::new("hello").unwrap(),
            triggers: Vec::new(),
            url: None,
            schedules: Vec::new(),
        };
        assert_eq!(removed.words(), "removed hello");
        removed.triggers = vec!["photos/in/".to_owned(), "films/".to_owned()];
        removed.schedules = vec!["hello".to_owned()];
        removed.url = Some("http://x/".to_owned());
        let words = "removed hello with its triggers photos/in/, films/ and its schedule hello and its URL";
        assert_eq!(removed.words(), words);
    }

    #[test]
    fn an_error_names_the_functions_that_are_gone_already() {
        let gone = |name: &str| Removed::new(FunctionName::new(name).unwrap(), &Attached::default());
        let refused =
            || CliError::from(ClientError::Refused { status: 404, code: "C".to_owned(), message: "m".to_owned() });
        assert_eq!(after(&[], refused()).to_string(), "m (C)");
        assert_eq!(after(&[gone("a"), gone("b")], refused()).to_string(), "m; already removed: a, b (C)");
        let missing = || CliError::NoFunction { name: FunctionName::new("c").unwrap(), done: String::new() };
        assert_eq!(after(&[], missing()).to_string(), "there is no function c; `nigh functions ls` lists them");
        let told = after(&[gone("a")], missing());
        assert_eq!(told.to_string(), "there is no function c; `nigh functions ls` lists them; already removed: a");
        assert_eq!(told.code(), Some("ResourceNotFoundException"));
    }
}
