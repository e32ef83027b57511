//! Serverless Framework's `serverless.yml`, turned into a SAM template. Pure.
//!
//! Variables (`${self:…}`, `${opt:…}`, `${env:…}`) are filled in; one without a value marks what needs it, so that it is
//! left out with the reason.

use std::cell::Cell;

use serde_json::{Map, Value, json};

use super::intrinsics::{UNKNOWN_VARIABLE, scalar_text};
use super::stack::LeftOut;
use super::template::Inputs;

/// The deepest nesting of variables in variables.
const DEPTH_MAX: usize = 16;
/// The most variables, those within the values of others counted each time.
const VARIABLES_MAX: usize = 10_000;
/// The stage if none is named.
const STAGE: &str = "dev";
/// The framework's defaults, which are not Lambda's.
const MEMORY_MB: u64 = 1024;
const TIMEOUT_S: u64 = 6;
/// Settings of functions, and of `provider` for all, with their names in a template.
const SETTINGS: [(&str, &str); 8] = [
    ("handler", "Handler"),
    ("runtime", "Runtime"),
    ("memorySize", "MemorySize"),
    ("timeout", "Timeout"),
    ("description", "Description"),
    ("reservedConcurrency", "ReservedConcurrentExecutions"),
    ("ephemeralStorageSize", "EphemeralStorage"),
    ("layers", "Layers"),
];
/// Parts of a function that `function` turns into something else.
const OTHERS: [&str; 5] = ["name", "environment", "events", "url", "image"];
/// Parts of `provider` that have effect beside these.
const PROVIDER: [&str; 5] = ["name", "stage", "region", "environment", "stackName"];
/// Parts of a document that are no resources: the name, whether the application misses it, and why.
const SECTIONS: [(&str, bool, &str); 5] = [
    ("plugins", true, "plugins are not run"),
    ("package", false, "the folder of serverless.yml is packed; dependencies are built by `nigh deploy`'s rules"),
    ("custom", false, "it has effect where variables name it"),
    ("params", false, "give values by --parameter"),
    ("stepFunctions", true, "make state machines by `nigh workflow create NAME FILE`"),
];

/// What an event is described by that has a name alone.
static NOTHING: Value = Value::Null;

/// What variables are filled in with.
struct Variables<'a> {
    document: &'a Value,
    inputs: &'a Inputs,
    /// The stage, once it is known.
    stage: Option<String>,
    /// The variables that have been filled in.
    count: Cell<usize>,
}

/// The template of a document, and what does not come into it.
///
/// # Errors
/// If a section has another form than the framework describes.
pub(super) fn template(document: &Value, inputs: &Inputs) -> Result<(Map<String, Value>, Vec<LeftOut>), String> {
    let given = inputs.parameters.get("stage").cloned();
    let mut variables = Variables { document, inputs, stage: given.clone(), count: Cell::new(0) };
    let own = variables.filled(&document["provider"]["stage"], 0).as_str().map(str::to_owned);
    let stage = given.or(own).unwrap_or_else(|| STAGE.to_owned());
    variables.stage = Some(stage.clone());
    let filled = variables.filled(document, 0);

    let provider = &filled["provider"];
    if provider.get("name").and_then(Value::as_str).is_some_and(|name| name != "aws") {
        return Err(format!("its provider is {}, and only aws is understood", provider["name"]));
    }
    let service =
        filled["service"].as_str().or_else(|| filled["service"]["name"].as_str()).unwrap_or("service").to_owned();
    let functions = filled["functions"].as_object().ok_or_else(|| "functions: a map is expected".to_owned())?;
    let mut resources = filled["resources"]["Resources"].as_object().cloned().unwrap_or_default();
    let mut left_out = Vec::new();
    for (key, function) in functions {
        let Some(settings) = function.as_object() else { return Err(format!("functions.{key}: a map is expected")) };
        let name = settings.get("name").cloned();
        let name = name.unwrap_or_else(|| format!("{service}-{stage}-{key}").into());
        let (properties, more) = properties(key, settings, provider, name);
        left_out.extend(more);
        resources.insert(
            logical(key, "LambdaFunction"),
            json!({ "Type": "AWS::Serverless::Function", "Properties": properties }),
        );
    }
    for (key, layer) in filled["layers"].as_object().into_iter().flatten() {
        let mut properties = json!({ "LayerName": layer.get("name").cloned().unwrap_or_else(|| key.as_str().into()) });
        for (from, to) in
            [("path", "ContentUri"), ("description", "Description"), ("compatibleRuntimes", "CompatibleRuntimes")]
        {
            if let Some(value) = layer.get(from) {
                properties[to] = value.clone();
            }
        }
        resources.insert(
            logical(key, "LambdaLayer"),
            json!({ "Type": "AWS::Serverless::LayerVersion", "Properties": properties }),
        );
    }
    let is_known = |name: &str| SETTINGS.iter().any(|(known, _)| *known == name) || PROVIDER.contains(&name);
    let others = provider.as_object().into_iter().flatten().map(|(name, _)| name).filter(|name| !is_known(name));
    left_out.extend(others.map(|name| nothing_for(format!("provider.{name}"), name)));
    let sections = SECTIONS.iter().filter(|(name, ..)| filled.get(*name).is_some());
    left_out.extend(sections.map(|(name, is_missed, why)| LeftOut {
        is_missed: *is_missed,
        what: (*name).to_owned(),
        why: (*why).to_owned(),
    }));
    Ok((Map::from_iter([("Resources".to_owned(), Value::Object(resources))]), left_out))
}

/// The name that the framework gives a resource: `hello-world` becomes `HelloDashworldLambdaFunction`.
fn logical(key: &str, suffix: &str) -> String {
    let mut name: String = key.replace('-', "Dash").replace('_', "Underscore");
    if let Some(first) = name.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    name + suffix
}

fn properties(key: &str, settings: &Map<String, Value>, provider: &Value, name: Value) -> (Value, Vec<LeftOut>) {
    let mut properties = json!({ "FunctionName": name, "CodeUri": ".", "MemorySize": MEMORY_MB, "Timeout": TIMEOUT_S });
    for (from, to) in SETTINGS {
        let value = settings.get(from).or_else(|| provider.get(from)).filter(|value| !value.is_null());
        if let Some(value) = value {
            properties[to] = match to {
                "EphemeralStorage" => json!({ "Size": value }),
                _ => value.clone(),
            };
        }
    }
    if settings.contains_key("image") {
        properties["PackageType"] = "Image".into();
    }
    let mut variables = provider["environment"].as_object().cloned().unwrap_or_default();
    variables.extend(settings.get("environment").and_then(Value::as_object).cloned().unwrap_or_default());
    if !variables.is_empty() {
        properties["Environment"] = json!({ "Variables": variables });
    }
    match settings.get("url") {
        None | Some(Value::Null | Value::Bool(false)) => {}
        Some(url) => {
            let is_signed = url.get("authorizer").and_then(Value::as_str) == Some("aws_iam");
            properties["FunctionUrlConfig"] = json!({ "AuthType": if is_signed { "AWS_IAM" } else { "NONE" } });
        }
    }
    let mut events = Map::new();
    let listed = settings.get("events").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for (number, event) in listed.iter().enumerate() {
        let (kind, described) = match event {
            Value::String(kind) => (kind.as_str(), &NOTHING),
            Value::Object(event) => match event.iter().next() {
                Some((kind, described)) => (kind.as_str(), described),
                None => continue,
            },
            _ => continue,
        };
        for (part, event) in events_of(kind, described).into_iter().enumerate() {
            let suffix = if part == 0 { String::new() } else { format!("x{part}") };
            events.insert(format!("{kind}{}{suffix}", number + 1), event);
        }
    }
    if !events.is_empty() {
        properties["Events"] = Value::Object(events);
    }
    let is_known = |name: &str| SETTINGS.iter().any(|(known, _)| *known == name) || OTHERS.contains(&name);
    let others = settings.keys().filter(|name| !is_known(name));
    let left_out = others.map(|name| nothing_for(format!("functions.{key}.{name}"), name)).collect();
    (properties, left_out)
}

/// A setting that does not come along.
fn nothing_for(what: String, name: &str) -> LeftOut {
    LeftOut { is_missed: name == "vpc", what, why: "Nigh has nothing for it".to_owned() }
}

/// An event of the framework as events of SAM.
fn events_of(kind: &str, described: &Value) -> Vec<Value> {
    let event = |kind: &str, properties: Value| json!({ "Type": kind, "Properties": properties });
    match kind {
        "s3" => {
            let bucket = if described.is_string() { described } else { &described["bucket"] };
            let mut properties = json!({ "Bucket": bucket });
            if let Some(changes) = described.get("event") {
                properties["Events"] = changes.clone();
            }
            let rules = described["rules"].as_array().into_iter().flatten().filter_map(Value::as_object).flatten();
            let rules: Vec<Value> = rules.map(|(name, value)| json!({ "Name": name, "Value": value })).collect();
            if !rules.is_empty() {
                properties["Filter"] = json!({ "S3Key": { "Rules": rules } });
            }
            vec![event("S3", properties)]
        }
        "schedule" => {
            let rates = match described.get("rate") {
                Some(Value::Array(rates)) => rates.clone(),
                Some(rate) => vec![rate.clone()],
                None => vec![described.clone()],
            };
            let one = |rate: Value| {
                let mut properties = json!({ "ScheduleExpression": rate });
                for (from, to) in [
                    ("enabled", "Enabled"),
                    ("name", "Name"),
                    ("description", "Description"),
                    ("timezone", "ScheduleExpressionTimezone"),
                ] {
                    if let Some(value) = described.get(from) {
                        properties[to] = value.clone();
                    }
                }
                if let Some(input) = described.get("input") {
                    properties["Input"] = input.as_str().map_or_else(|| input.to_string(), str::to_owned).into();
                }
                event("ScheduleV2", properties)
            };
            rates.into_iter().map(one).collect()
        }
        "httpApi" => {
            let text = described.as_str().unwrap_or_default();
            let (method, path) = text.split_once(' ').unwrap_or(("", text));
            let part = |name: &str, own: &str| described.get(name).cloned().unwrap_or_else(|| own.into());
            let mut properties = json!({ "Method": part("method", method), "Path": part("path", path) });
            if let Some(authorizer) = described.get("authorizer") {
                properties["Auth"] = json!({ "Authorizer": authorizer });
            }
            vec![event("HttpApi", properties)]
        }
        "http" => vec![event("Api", json!({}))],
        "sqs" | "sns" => vec![event(&kind.to_ascii_uppercase(), json!({}))],
        "eventBridge" => vec![event("EventBridgeRule", json!({}))],
        other => vec![event(other, json!({}))],
    }
}

impl Variables<'_> {
    /// `value`, with all variables filled in.
    fn filled(&self, value: &Value, depth: usize) -> Value {
        match value {
            Value::String(text) if text.contains("${") => {
                self.text(text, depth).unwrap_or_else(|why| json!({ UNKNOWN_VARIABLE: why }))
            }
            Value::Array(items) => items.iter().map(|item| self.filled(item, depth)).collect(),
            Value::Object(entries) => {
                let filled = entries.iter().map(|(key, value)| (key.clone(), self.filled(value, depth)));
                Value::Object(filled.collect())
            }
            other => other.clone(),
        }
    }

    fn text(&self, text: &str, depth: usize) -> Result<Value, String> {
        if depth > DEPTH_MAX {
            return Err(format!("{text} names itself"));
        }
        self.count.set(self.count.get() + 1);
        if self.count.get() > VARIABLES_MAX {
            return Err(format!("{text}: there are more than {VARIABLES_MAX} variables"));
        }
        let (mut out, mut rest) = (String::new(), text);
        while let Some((before, behind)) = rest.split_once("${") {
            out.push_str(before);
            let (variable, behind) = up_to_its_end(behind).ok_or_else(|| format!("{text}: a }} is missing"))?;
            rest = behind;
            if !is_variable(variable) {
                // Of CloudFormation's `Fn::Sub`.
                out.push_str(&format!("${{{variable}}}"));
                continue;
            }
            let value = self.value(variable, depth + 1)?;
            if out.is_empty() && rest.is_empty() {
                return Ok(value);
            }
            let value = scalar_text(&value).ok_or_else(|| format!("${{{variable}}} is no text"))?;
            out.push_str(&value);
        }
        out.push_str(rest);
        Ok(out.into())
    }

    /// The value of `self:a.b, 'default'`.
    fn value(&self, variable: &str, depth: usize) -> Result<Value, String> {
        let (source, default) = match split_default(variable) {
            Some((source, default)) => (source.trim(), Some(default.trim())),
            None => (variable.trim(), None),
        };
        // A variable within the name of another.
        let source = match self.text(source, depth)? {
            Value::String(source) => source,
            other => other.to_string(),
        };
        let found = match source.split_once(':').unwrap_or((source.as_str(), "")) {
            ("self", path) => self.at(path).map(|value| self.filled(value, depth)),
            ("opt", "stage") => self.stage.as_deref().map(Value::from),
            ("sls", "stage") => Some(self.stage.as_deref().unwrap_or(STAGE).into()),
            ("opt" | "param", name) => self.inputs.parameters.get(name).map(|value| value.as_str().into()),
            ("env", name) => self.inputs.environment.get(name).map(|value| value.as_str().into()),
            ("aws", "region") => Some(self.inputs.region.as_str().into()),
            ("aws", "accountId") => Some(nigh_terms::ACCOUNT.into()),
            _ => None,
        };
        match (found.filter(|value| !value.is_null()), default) {
            (Some(value), _) => Ok(value),
            (None, Some(default)) => self.default(default, depth),
            (None, None) => {
                let name = source.split_once(':').map_or(source.as_str(), |(_, name)| name);
                Err(format!(
                    "${{{variable}}} has no value here; write one, or use ${{opt:{name}}} and --parameter {name}=VALUE"
                ))
            }
        }
    }

    /// A default: a text in quotes, a number, or another variable without `${}`.
    fn default(&self, text: &str, depth: usize) -> Result<Value, String> {
        let quoted = ['\'', '"'].iter().find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote));
        match quoted {
            Some(text) => Ok(text.into()),
            None if text.starts_with("${") => self.text(text, depth),
            None if is_variable(text) => self.value(text, depth + 1),
            None => Ok(super::yaml::plain(text)),
        }
    }

    /// The value at a path of the document.
    fn at(&self, path: &str) -> Option<&Value> {
        if path == "service" {
            return self.document["service"].get("name").or_else(|| self.document.get("service"));
        }
        path.split('.').try_fold(self.document, |value, name| match value {
            Value::Array(items) => items.get(name.parse::<usize>().ok()?),
            other => other.get(name),
        })
    }
}

/// The text up to the brace that ends the variable, and what follows it.
fn up_to_its_end(text: &str) -> Option<(&str, &str)> {
    let mut depth = 1;
    for (at, letter) in text.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some((&text[..at], &text[at + 1..]));
        }
    }
    None
}

/// The variable and its default, split at the first comma that is within no other variable.
fn split_default(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0;
    for (at, letter) in text.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => return Some((&text[..at], &text[at + 1..])),
            _ => {}
        }
    }
    None
}

/// True for the framework's variables, whose sources are in lower case: `self:`, `file(…)`.
fn is_variable(text: &str) -> bool {
    let source: String = text.chars().take_while(char::is_ascii_alphanumeric).collect();
    let behind = &text[source.len()..];
    source.starts_with(|first: char| first.is_ascii_lowercase()) && (behind.starts_with(':') || behind.starts_with('('))
}

#[cfg(test)]
mod tests;
