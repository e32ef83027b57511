//! The resources of a template: functions, layers and buckets become parts of a stack, others hang on a function or are left
//! out. Pure.

use std::collections::BTreeMap;

use nigh_terms::{BucketName, FunctionName};
use serde_json::{Map, Value};

use super::events::{self, NO_ROLES, SCHEDULE_REASONS, URL_REASONS};
use super::functions::{self, ASYNC_REASONS, FUNCTION_REASONS, LAYER_REASONS, NO_VERSIONS};
use super::properties::{Properties, Reasons};
use super::stack::{LeftOut, Stack, StackFunction};
use super::template::{BUCKET_TYPE, FUNCTION_TYPES, LAYER_TYPES, Resource, Template};

const NO_APIS: &str = "there are no APIs: functions with HttpApi events or FunctionUrlConfig have URLs";
const NO_QUEUES: &str = "there are no queues; events of a function wait in its own";
const STATE_MACHINES: &str =
    "make it by `nigh workflow create NAME FILE`, its definition with the functions' ARNs of here";
const ENCRYPTION: &str = "objects are encrypted by the disk or store below, if at all";
/// Types of resources that do not come along; a type that ends with `::` stands for all below it.
const OTHER_TYPES: &Reasons = &[
    ("AWS::IAM::", false, NO_ROLES),
    ("AWS::Lambda::Permission", false, "buckets, schedules and URLs need no permission to invoke"),
    ("AWS::Lambda::Version", false, NO_VERSIONS),
    ("AWS::Lambda::Alias", true, NO_VERSIONS),
    ("AWS::Lambda::EventSourceMapping", true, "there are no event sources beside buckets and schedules"),
    ("AWS::Logs::", false, "each invocation's log is kept: `nigh logs`"),
    ("AWS::CloudWatch::", true, "alarms are made of `nigh metrics`"),
    ("AWS::S3::BucketPolicy", false, "a bucket is its namespace's alone"),
    ("AWS::Serverless::Api", true, NO_APIS),
    ("AWS::Serverless::HttpApi", false, NO_APIS),
    ("AWS::ApiGateway::", true, NO_APIS),
    ("AWS::ApiGatewayV2::", true, NO_APIS),
    ("AWS::Serverless::StateMachine", true, STATE_MACHINES),
    ("AWS::StepFunctions::StateMachine", true, STATE_MACHINES),
    ("AWS::Serverless::SimpleTable", true, "there are no tables; name an own one by --parameter"),
    ("AWS::DynamoDB::", true, "there are no tables; name an own one by --parameter"),
    ("AWS::SQS::", true, NO_QUEUES),
    ("AWS::SNS::", true, "there are no topics; `nigh invoke --event` puts an event into a function's queue"),
    ("AWS::Serverless::Application", true, "import its template by itself"),
    ("AWS::CloudFormation::Stack", true, "import its template by itself"),
    ("AWS::Scheduler::ScheduleGroup", false, "there is one group of schedules"),
];
const BUCKET_REASONS: &Reasons = &[
    ("BucketEncryption", false, ENCRYPTION),
    ("PublicAccessBlockConfiguration", false, "a bucket is its namespace's alone"),
    ("OwnershipControls", false, "a bucket is its namespace's alone"),
    ("AccessControl", false, "a bucket is its namespace's alone"),
    ("Tags", false, "tags have no effect here"),
    ("VersioningConfiguration", true, "objects have one version"),
    ("LifecycleConfiguration", true, "objects stay until they are deleted"),
    ("CorsConfiguration", true, "the S3 door answers no CORS requests"),
    ("WebsiteConfiguration", true, "buckets are no websites"),
];
const RULE_REASONS: &Reasons = &[("RoleArn", false, NO_ROLES), ("EventBusName", false, "there is no event bus")];
const TARGET_REASONS: &Reasons = &[
    ("Id", false, "a schedule has one target"),
    ("RoleArn", false, NO_ROLES),
    ("DeadLetterConfig", false, events::DEAD_LETTERS),
    ("RetryPolicy", false, "a run that is due is in the function's queue of events, with its retries"),
];

/// The resources that were read, with what they leave out.
struct Reading<'a> {
    template: &'a Template<'a>,
    stack: Stack,
    functions: BTreeMap<String, StackFunction>,
}

/// The stack of the template's resources.
pub(super) fn stack(template: &Template<'_>) -> Stack {
    let mut reading = Reading { template, stack: Stack::default(), functions: BTreeMap::new() };
    let (functions, others): (Vec<_>, Vec<_>) =
        template.resources.iter().partition(|(_, resource)| FUNCTION_TYPES.contains(&resource.kind.as_str()));
    // Others hang on functions.
    for (logical, resource) in functions.into_iter().chain(others) {
        reading.read(logical, resource);
    }
    let Reading { mut stack, functions, .. } = reading;
    stack.functions = functions.into_values().collect();
    // A bucket may be named by an event and be no resource.
    let named = stack.functions.iter().flat_map(|function| &function.triggers).map(|trigger| trigger.bucket.clone());
    let named: Vec<BucketName> = named.collect();
    stack.buckets.extend(named);
    stack
}

impl Reading<'_> {
    fn read(&mut self, logical: &str, resource: &Resource) {
        let template = self.template;
        let mut properties = Properties::new(&template.scope, logical, resource.properties.clone());
        let left_out = match resource.kind.as_str() {
            "AWS::Serverless::Function" => self.function(properties, logical, "CodeUri"),
            "AWS::Lambda::Function" => self.function(properties, logical, "Code"),
            kind if LAYER_TYPES.contains(&kind) => {
                let code = if kind == "AWS::Lambda::LayerVersion" { "Content" } else { "ContentUri" };
                match functions::layer(&mut properties, logical, code) {
                    Some(layer) => {
                        self.stack.layers.push(layer);
                        properties.finish(LAYER_REASONS)
                    }
                    None => properties.abandon(),
                }
            }
            BUCKET_TYPE => self.bucket(properties, logical),
            "AWS::Lambda::Url" => {
                if let Some(function) = self.target(&mut properties, "TargetFunctionArn") {
                    let auth = events::url(&mut properties);
                    self.on(&function, |function| function.url = Some(auth));
                }
                properties.finish(URL_REASONS)
            }
            "AWS::Lambda::EventInvokeConfig" => {
                if let Some(function) = self.target(&mut properties, "FunctionName") {
                    let settings = functions::async_settings(&mut properties);
                    self.on(&function, |function| function.events = settings);
                }
                properties.finish(ASYNC_REASONS)
            }
            "AWS::Events::Rule" => self.rule(properties, logical),
            "AWS::Scheduler::Schedule" => self.schedule(properties, logical),
            kind => {
                let reason = OTHER_TYPES.iter().find(|(known, ..)| match known.strip_suffix("::") {
                    Some(group) => kind.starts_with(group),
                    None => kind == *known,
                });
                let (is_missed, why) =
                    reason.map_or((true, "Nigh has nothing for it"), |(_, is_missed, why)| (*is_missed, *why));
                properties.leave_out("", is_missed, format!("{kind}: {why}"));
                properties.abandon()
            }
        };
        self.stack.left_out.extend(left_out);
    }

    fn function(&mut self, mut properties: Properties<'_>, logical: &str, code: &str) -> Vec<LeftOut> {
        let _its_name = properties.raw("FunctionName");
        let name = self.template.scope.resources.get(logical).and_then(|named| FunctionName::new(&named.name).ok());
        // A function whose name is not allowed is listed already.
        let Some(name) = name else { return properties.abandon() };
        match functions::function(&mut properties, logical, name, code) {
            Some(function) => {
                self.functions.insert(logical.to_owned(), function);
                properties.finish(FUNCTION_REASONS)
            }
            None => properties.abandon(),
        }
    }

    fn bucket(&mut self, mut properties: Properties<'_>, logical: &str) -> Vec<LeftOut> {
        let _its_name = properties.raw("BucketName");
        let name = self.template.scope.resources.get(logical).map(|named| named.name.clone());
        let Some(name) = name else { return properties.abandon() };
        self.stack.buckets.extend(BucketName::new(&name).ok());
        if let Some(config) = properties.map("NotificationConfiguration") {
            let mut config = properties.part("NotificationConfiguration", config);
            for rule in config.list("LambdaConfigurations") {
                let Some(Value::Object(rule)) = config.unfolded_within("LambdaConfigurations", &rule) else { continue };
                let mut rule = config.part("LambdaConfigurations", rule);
                if let Some(function) = self.target(&mut rule, "Function") {
                    let (filter, events) = (rule.map("Filter"), rule.texts("Event"));
                    let trigger = events::trigger(&mut rule, &name, filter, events);
                    self.on(&function, |function| function.triggers.extend(trigger));
                }
                config.adopt(rule.finish(&[]));
            }
            properties.adopt(config.finish(&[]));
        }
        properties.finish(BUCKET_REASONS)
    }

    /// A rule of EventBridge, if it has a schedule.
    fn rule(&mut self, mut properties: Properties<'_>, logical: &str) -> Vec<LeftOut> {
        if properties.raw("EventPattern").is_some() {
            properties.leave_out("", true, "AWS::Events::Rule: there is no event bus");
            return properties.abandon();
        }
        let expression = properties.text("ScheduleExpression");
        let name = properties.text("Name").unwrap_or_else(|| logical.to_owned());
        for (number, target) in properties.list("Targets").into_iter().enumerate() {
            let Some(Value::Object(target)) = properties.unfolded_within("Targets", &target) else { continue };
            // Each target is a schedule of its own here.
            let name = if number == 0 { name.clone() } else { events::schedule_name(&name, &number.to_string()) };
            self.schedule_of(&mut properties, target, name, expression.clone(), "Targets");
        }
        properties.finish(RULE_REASONS)
    }

    /// A schedule of EventBridge Scheduler.
    fn schedule(&mut self, mut properties: Properties<'_>, logical: &str) -> Vec<LeftOut> {
        let expression = properties.text("ScheduleExpression");
        let name = properties.text("Name").unwrap_or_else(|| logical.to_owned());
        if let Some(target) = properties.map("Target") {
            self.schedule_of(&mut properties, target, name, expression, "Target");
        }
        properties.finish(SCHEDULE_REASONS)
    }

    /// Adds a schedule to the function that `target` names.
    fn schedule_of(
        &mut self,
        properties: &mut Properties<'_>,
        target: Map<String, Value>,
        name: String,
        expression: Option<String>,
        part: &str,
    ) {
        let mut target = properties.part(part, target);
        if let Some(function) = self.target(&mut target, "Arn")
            && let Some(mut schedule) = events::schedule(properties, name, expression)
        {
            schedule.input = target.text("Input");
            self.on(&function, |function| function.schedules.push(schedule));
        }
        properties.adopt(target.finish(TARGET_REASONS));
    }

    /// The name in the template of the function that a property names; none, and listed, if it is none of the template.
    fn target(&self, properties: &mut Properties<'_>, property: &str) -> Option<String> {
        let raw = properties.unfolded(property)?;
        let named = match raw.get("Ref").or_else(|| raw.get("Fn::GetAtt")) {
            Some(Value::String(path)) => path.split('.').next().map(str::to_owned),
            Some(Value::Array(path)) => path.first().and_then(Value::as_str).map(str::to_owned),
            _ => None,
        };
        let found = named.filter(|logical| self.functions.contains_key(logical)).or_else(|| {
            let value = properties.resolved_within(property, &raw)?;
            let text = value.as_str()?;
            let name = text.rsplit(':').next()?;
            let mut all = self.functions.iter();
            all.find(|(_, function)| function.name.as_str() == name).map(|(logical, _)| logical.clone())
        });
        if found.is_none() {
            properties.leave_out(property, true, "it is no function that comes along");
        }
        found
    }

    fn on(&mut self, function: &str, change: impl FnOnce(&mut StackFunction)) {
        if let Some(function) = self.functions.get_mut(function) {
            change(function);
        }
    }
}
