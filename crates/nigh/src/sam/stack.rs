//! A stack: functions with what hangs on them, layers and buckets, and what a template asks for beside them.
//!
//! It is what a template becomes here, and what `nigh export sam` writes a template of.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use nigh_terms::{BucketName, FunctionName};
use serde::Serialize;

use crate::deploy::{Trigger, UrlAccess};

/// What a template describes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Stack {
    /// The functions, by name.
    pub(crate) functions: Vec<StackFunction>,
    /// The layers, by their names in the template.
    pub(crate) layers: Vec<StackLayer>,
    /// The buckets.
    pub(crate) buckets: Vec<BucketName>,
    /// What does not come along.
    pub(crate) left_out: Vec<LeftOut>,
}

/// A part of a template that the stack does not have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct LeftOut {
    /// True if the application has less without it; false if Nigh does not need it.
    pub(crate) is_missed: bool,
    /// The part: a resource, or a property of one.
    pub(crate) what: String,
    /// Why, and what to do about it.
    pub(crate) why: String,
}

/// A function of a stack. What is none stays as it is deployed; a new function takes Lambda's defaults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct StackFunction {
    /// The name in the template.
    pub(crate) logical: String,
    pub(crate) name: FunctionName,
    pub(crate) code: StackCode,
    pub(crate) runtime: Option<String>,
    pub(crate) handler: Option<String>,
    pub(crate) memory_mib: Option<u64>,
    pub(crate) timeout_s: Option<u64>,
    pub(crate) tmp_mib: Option<u64>,
    pub(crate) description: Option<String>,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) layers: Vec<LayerRef>,
    pub(crate) reserved: Option<u64>,
    pub(crate) url: Option<UrlAccess>,
    pub(crate) triggers: Vec<Trigger>,
    pub(crate) schedules: Vec<StackSchedule>,
    /// How its asynchronous invocations are handled.
    pub(crate) events: Option<AsyncSettings>,
}

/// Where the code of a function or layer is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StackCode {
    /// A folder or a zip archive; relative to the template.
    Path(PathBuf),
    /// The text of the one source file.
    Inline(String),
}

/// A layer of a function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LayerRef {
    /// A layer of the stack, by its name in the template.
    Own(String),
    /// The ARN of a layer version.
    Arn(String),
}

/// Dates at which a function runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct StackSchedule {
    pub(crate) name: String,
    /// `rate(5 minutes)`, `cron(0 8 ? * MON-FRI *)`, `at(2027-01-01T00:00:00)`.
    pub(crate) expression: String,
    /// The time zone of the expression; none for UTC.
    pub(crate) timezone: Option<String>,
    /// The input of each run.
    pub(crate) input: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) enabled: bool,
}

/// Retries of asynchronous invocations, and where their ends are recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct AsyncSettings {
    pub(crate) retries: Option<u64>,
    pub(crate) age_s: Option<u64>,
    /// The ARN of a function or bucket.
    pub(crate) on_success: Option<String>,
    /// The same.
    pub(crate) on_failure: Option<String>,
}

/// A layer of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct StackLayer {
    /// The name in the template.
    pub(crate) logical: String,
    pub(crate) name: FunctionName,
    pub(crate) code: PathBuf,
    pub(crate) description: Option<String>,
    pub(crate) runtimes: Vec<String>,
    pub(crate) license: Option<String>,
}

impl fmt::Display for StackSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.expression)?;
        if let Some(zone) = &self.timezone {
            write!(f, " in {zone}")?;
        }
        if !self.enabled {
            f.write_str(" (paused)")?;
        }
        Ok(())
    }
}

impl StackFunction {
    /// A function of which only names and code are known.
    pub(crate) fn new(logical: &str, name: FunctionName, code: StackCode) -> Self {
        Self {
            logical: logical.to_owned(),
            name,
            code,
            runtime: None,
            handler: None,
            memory_mib: None,
            timeout_s: None,
            tmp_mib: None,
            description: None,
            environment: BTreeMap::new(),
            layers: Vec::new(),
            reserved: None,
            url: None,
            triggers: Vec::new(),
            schedules: Vec::new(),
            events: None,
        }
    }
}

impl Stack {
    /// Keeps the functions of these names, or in the template so called, with the layers and buckets that they use.
    ///
    /// # Errors
    /// A name that no function has.
    pub(crate) fn only(mut self, names: &[String]) -> Result<Self, &str> {
        if names.is_empty() {
            return Ok(self);
        }
        let is_named =
            |function: &StackFunction, name: &str| function.logical == name || function.name.as_str() == name;
        if let Some(unknown) = names.iter().find(|name| !self.functions.iter().any(|one| is_named(one, name))) {
            return Err(unknown);
        }
        self.functions.retain(|one| names.iter().any(|name| is_named(one, name)));
        let functions = &self.functions;
        self.layers
            .retain(|layer| functions.iter().any(|one| one.layers.contains(&LayerRef::Own(layer.logical.clone()))));
        self.buckets
            .retain(|bucket| functions.iter().any(|one| one.triggers.iter().any(|trigger| trigger.bucket == *bucket)));
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use nigh_node::client::TriggerFilter;

    use super::*;

    #[test]
    fn a_choice_of_functions_keeps_what_they_use() {
        let bucket = |text: &str| BucketName::new(text).unwrap();
        let function = |logical: &str, name: &str, layer: &str, on: &str| StackFunction {
            layers: vec![LayerRef::Own(layer.to_owned())],
            triggers: vec![Trigger { bucket: bucket(on), filter: TriggerFilter::created("in/") }],
            ..StackFunction::new(logical, FunctionName::new(name).unwrap(), StackCode::Path("src".into()))
        };
        let layer = |logical: &str| StackLayer {
            logical: logical.to_owned(),
            name: FunctionName::new(logical).unwrap(),
            code: "layer".into(),
            description: None,
            runtimes: Vec::new(),
            license: None,
        };
        let stack = Stack {
            functions: vec![function("One", "one", "A", "photos"), function("Two", "two", "B", "films")],
            layers: vec![layer("A"), layer("B")],
            buckets: vec![bucket("photos"), bucket("films")],
            left_out: Vec::new(),
        };
        assert_eq!(stack.clone().only(&[]), Ok(stack.clone()));
        let names = ["Two".to_owned()];
        let two = stack.clone().only(&names).unwrap();
        assert_eq!((two.functions[0].name.as_str(), two.layers[0].logical.as_str()), ("two", "B"));
        assert_eq!((two.functions.len(), two.layers.len(), two.buckets), (1, 1, vec![bucket("films")]));
        assert_eq!(stack.only(&["two".to_owned(), "three".to_owned()]), Err("three"));
    }

    #[test]
    fn a_schedule_is_told_in_words() {
        let schedule = StackSchedule {
            name: "s".to_owned(),
            expression: "cron(0 8 ? * MON-FRI *)".to_owned(),
            timezone: Some("Europe/Paris".to_owned()),
            input: None,
            description: None,
            enabled: false,
        };
        assert_eq!(schedule.to_string(), "cron(0 8 ? * MON-FRI *) in Europe/Paris (paused)");
    }
}
