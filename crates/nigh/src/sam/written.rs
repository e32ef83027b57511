//! Writes a stack as a SAM template. Pure.

use serde_json::{Map, Value, json};

use super::stack::{LayerRef, Stack, StackCode, StackFunction, StackLayer, StackSchedule};
use super::yaml_writer;
use crate::deploy::{Trigger, UrlAccess};

/// The transform of SAM.
const TRANSFORM: &str = "AWS::Serverless-2016-10-31";

/// The template of `stack`: its own names in it are made of letters and digits, as CloudFormation wants them.
pub(crate) fn write(stack: &Stack) -> String {
    let mut names = Names::default();
    let buckets: Vec<(String, &str)> =
        stack.buckets.iter().map(|bucket| (names.logical(bucket.as_str(), "Bucket"), bucket.as_str())).collect();
    let layers: Vec<(String, &StackLayer)> =
        stack.layers.iter().map(|layer| (names.logical(layer.name.as_str(), "Layer"), layer)).collect();
    let mut resources = Map::new();
    for (logical, bucket) in &buckets {
        resources.insert(logical.clone(), resource("AWS::S3::Bucket", json!({ "BucketName": bucket })));
    }
    for (logical, layer) in &layers {
        resources.insert(logical.clone(), resource("AWS::Serverless::LayerVersion", layer_properties(layer)));
    }
    for function in &stack.functions {
        let logical = names.logical(function.name.as_str(), "Function");
        let properties = function_properties(function, &buckets, &layers);
        resources.insert(logical, resource("AWS::Serverless::Function", properties));
    }
    yaml_writer::write(&json!({
        "AWSTemplateFormatVersion": "2010-09-09",
        "Transform": TRANSFORM,
        "Resources": resources,
    }))
}

/// The names in the template that are taken.
#[derive(Default)]
struct Names(Vec<String>);

impl Names {
    /// `hello-world` as `HelloWorldFunction`, with a number behind it if another has that name.
    fn logical(&mut self, name: &str, kind: &str) -> String {
        let words = name.split(|letter: char| !letter.is_ascii_alphanumeric());
        let mut logical: String = words
            .flat_map(|word| {
                let (first, rest) = word.split_at(word.len().min(1));
                [first.to_ascii_uppercase(), rest.to_owned()]
            })
            .collect();
        logical.push_str(kind);
        let mut unique = logical.clone();
        let mut number = 2;
        while self.0.contains(&unique) {
            unique = format!("{logical}{number}");
            number += 1;
        }
        self.0.push(unique.clone());
        unique
    }
}

fn resource(kind: &str, properties: Value) -> Value {
    json!({ "Type": kind, "Properties": properties })
}

fn layer_properties(layer: &StackLayer) -> Value {
    let mut properties = json!({ "LayerName": layer.name, "ContentUri": layer.code });
    if let Some(description) = &layer.description {
        properties["Description"] = description.as_str().into();
    }
    if let Some(license) = &layer.license {
        properties["LicenseInfo"] = license.as_str().into();
    }
    if !layer.runtimes.is_empty() {
        properties["CompatibleRuntimes"] = json!(layer.runtimes);
    }
    properties
}

fn function_properties(
    function: &StackFunction,
    buckets: &[(String, &str)],
    layers: &[(String, &StackLayer)],
) -> Value {
    let mut properties = Map::new();
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            properties.insert(name.to_owned(), value);
        }
    };
    set("FunctionName", Some(function.name.as_str().into()));
    match &function.code {
        StackCode::Path(path) => set("CodeUri", Some(json!(path))),
        StackCode::Inline(text) => set("InlineCode", Some(text.as_str().into())),
    }
    set("Runtime", function.runtime.as_deref().map(Value::from));
    set("Handler", function.handler.as_deref().map(Value::from));
    set("MemorySize", function.memory_mib.map(Value::from));
    set("Timeout", function.timeout_s.map(Value::from));
    set("EphemeralStorage", function.tmp_mib.map(|size| json!({ "Size": size })));
    set("Description", function.description.as_deref().map(Value::from));
    let environment = (!function.environment.is_empty()).then(|| json!({ "Variables": function.environment }));
    set("Environment", environment);
    let layer = |layer: &LayerRef| match layer {
        LayerRef::Arn(arn) => Value::from(arn.as_str()),
        LayerRef::Own(own) => {
            let named = layers.iter().find(|(_, layer)| layer.logical == *own);
            json!({ "Ref": named.map_or(own.as_str(), |(logical, _)| logical.as_str()) })
        }
    };
    let layers: Vec<Value> = function.layers.iter().map(layer).collect();
    set("Layers", (!layers.is_empty()).then_some(layers.into()));
    set("ReservedConcurrentExecutions", function.reserved.map(Value::from));
    set("FunctionUrlConfig", function.url.and_then(UrlAccess::auth).map(|auth| json!({ "AuthType": auth })));
    set(
        "EventInvokeConfig",
        function.events.as_ref().map(|events| {
            let mut config = Map::new();
            config.extend(events.retries.map(|retries| ("MaximumRetryAttempts".to_owned(), Value::from(retries))));
            config.extend(events.age_s.map(|age| ("MaximumEventAgeInSeconds".to_owned(), Value::from(age))));
            let ends = [("OnSuccess", &events.on_success), ("OnFailure", &events.on_failure)];
            let destinations = ends.into_iter().filter_map(|(end, arn)| {
                let arn = arn.as_deref()?;
                let kind = if arn.starts_with("arn:aws:s3:") { "S3Bucket" } else { "Lambda" };
                Some((end.to_owned(), json!({ "Type": kind, "Destination": arn })))
            });
            let destinations: Map<String, Value> = destinations.collect();
            if !destinations.is_empty() {
                config.insert("DestinationConfig".to_owned(), destinations.into());
            }
            Value::Object(config)
        }),
    );
    let triggers = function.triggers.iter().enumerate();
    let triggers = triggers.map(|(at, trigger)| (format!("Objects{}", at + 1), bucket_event(trigger, buckets)));
    let schedules = function.schedules.iter().enumerate();
    let schedules = schedules.map(|(at, schedule)| (format!("Schedule{}", at + 1), schedule_event(schedule)));
    let events: Map<String, Value> = triggers.chain(schedules).collect();
    set("Events", (!events.is_empty()).then_some(events.into()));
    Value::Object(properties)
}

fn bucket_event(trigger: &Trigger, buckets: &[(String, &str)]) -> Value {
    let named = buckets.iter().find(|(_, bucket)| *bucket == trigger.bucket.as_str());
    let bucket = named.map_or_else(|| Value::from(trigger.bucket.as_str()), |(logical, _)| json!({ "Ref": logical }));
    let filter = &trigger.filter;
    let events = match filter.events.as_slice() {
        [one] => json!(one),
        all => json!(all),
    };
    let mut properties = json!({ "Bucket": bucket, "Events": events });
    let filters = [("prefix", &filter.prefix), ("suffix", &filter.suffix)];
    let rules = filters.iter().filter(|(_, value)| !value.is_empty());
    let rules: Vec<Value> = rules.map(|(name, value)| json!({ "Name": name, "Value": value })).collect();
    if !rules.is_empty() {
        properties["Filter"] = json!({ "S3Key": { "Rules": rules } });
    }
    resource("S3", properties)
}

fn schedule_event(schedule: &StackSchedule) -> Value {
    let state = if schedule.enabled { "ENABLED" } else { "DISABLED" };
    let mut properties = json!({ "Name": schedule.name, "ScheduleExpression": schedule.expression, "State": state });
    let texts = [
        ("ScheduleExpressionTimezone", &schedule.timezone),
        ("Input", &schedule.input),
        ("Description", &schedule.description),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            properties[name] = text.as_str().into();
        }
    }
    resource("ScheduleV2", properties)
}

#[cfg(test)]
mod tests {
    use nigh_node::client::TriggerFilter;
    use nigh_terms::{BucketName, FunctionName};

    use super::super::stack::AsyncSettings;
    use super::super::template::{Inputs, read};
    use super::*;

    #[test]
    fn a_stack_that_is_written_and_read_is_the_same() {
        let text = |text: &str| Some(text.to_owned());
        let bucket = BucketName::new("my.photos").unwrap();
        let trigger = |prefix: &str, suffix: &str, events: &[&str]| {
            let mut filter = TriggerFilter::created(prefix);
            filter.suffix = suffix.to_owned();
            filter.events = events.iter().map(|event| (*event).to_owned()).collect();
            Trigger { bucket: bucket.clone(), filter }
        };
        let schedule = |name: &str, enabled: bool| StackSchedule {
            name: name.to_owned(),
            expression: "cron(0 8 ? * MON-FRI *)".to_owned(),
            timezone: text("Europe/Paris"),
            input: text("{\"a\": \"b: c\"}"),
            description: None,
            enabled,
        };
        let name = |name: &str| FunctionName::new(name).unwrap();
        let full = StackFunction {
            runtime: text("python3.11"),
            handler: text("app.handler"),
            memory_mib: Some(512),
            timeout_s: Some(30),
            tmp_mib: Some(1024),
            description: text("Makes: small ones\nof large ones"),
            environment: [("LEVEL".to_owned(), "01".to_owned()), ("YES".to_owned(), "yes".to_owned())].into(),
            layers: vec![
                LayerRef::Own("ToolsLayer".to_owned()),
                LayerRef::Arn("arn:aws:lambda:x:000000000000:layer:a:1".to_owned()),
            ],
            reserved: Some(0),
            url: Some(UrlAccess::Public),
            triggers: vec![
                trigger("in/", ".png", &["s3:ObjectCreated:*"]),
                trigger("", "", &["s3:ObjectRemoved:*", "s3:ObjectCreated:Put"]),
            ],
            schedules: vec![schedule("one", true), schedule("two", false)],
            events: Some(AsyncSettings {
                retries: Some(0),
                age_s: Some(60),
                on_success: text("arn:aws:s3:::done"),
                on_failure: text("arn:aws:lambda:us-east-1:000000000000:function:plain"),
            }),
            ..StackFunction::new(
                "MakeThumbsFunction",
                name("make-thumbs"),
                StackCode::Path("code/make-thumbs.zip".into()),
            )
        };
        let plain = StackFunction::new("PlainFunction", name("plain"), StackCode::Path("code/plain.zip".into()));
        let stack = Stack {
            functions: vec![full, plain],
            layers: vec![StackLayer {
                logical: "ToolsLayer".to_owned(),
                name: name("tools"),
                code: "layers/tools.zip".into(),
                description: text("tools"),
                runtimes: vec!["python3.11".to_owned()],
                license: text("MIT"),
            }],
            buckets: vec![bucket],
            left_out: Vec::new(),
        };
        let written = write(&stack);
        let inputs = Inputs { region: "us-east-1".to_owned(), ..Inputs::default() };
        assert_eq!(read(&written, &inputs).unwrap(), stack, "{written}");
    }

    #[test]
    fn names_in_a_template_have_letters_and_digits_and_differ() {
        let mut names = Names::default();
        assert_eq!(names.logical("hello-world_2", "Function"), "HelloWorld2Function");
        assert_eq!(names.logical("helloWorld-2", "Function"), "HelloWorld2Function2");
        assert_eq!(names.logical("--", "Function"), "Function");
    }
}
