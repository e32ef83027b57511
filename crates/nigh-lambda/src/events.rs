//! Asynchronous invocations (`InvocationType` `Event`) and their configuration.

use http::{Response, StatusCode};
use http_body_util::Full;
use nigh_functions::event_config::{AGE_SECONDS, Destination, EventConfig, NamedDestination, RETRIES_MAX};
use nigh_functions::function_arn::{LATEST, function_arn};
use nigh_functions::function_store::DeployedFunction;
use nigh_invoke::event_invoker::{EVENT_BYTES_MAX, NewEvent};
use nigh_terms::FunctionName;
use serde::Deserialize;
use serde_json::{Value, json};

use super::operations::Request;
use super::response::{LambdaResponse, empty_answer, header, json_answer, set};
use super::validation::read;
use super::{LambdaDoor, LambdaError};

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ConfigShape {
    maximum_retry_attempts: Option<i64>,
    maximum_event_age_in_seconds: Option<i64>,
    destination_config: Option<DestinationsShape>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DestinationsShape {
    on_success: Option<DestinationShape>,
    on_failure: Option<DestinationShape>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DestinationShape {
    destination: Option<String>,
}

/// The changes of a request; an outer `None` keeps the value.
struct ConfigChange {
    retries: Option<u32>,
    age_s: Option<u32>,
    on_success: Option<Option<NamedDestination>>,
    on_failure: Option<Option<NamedDestination>>,
}

fn within(name: &str, value: Option<i64>, range: std::ops::RangeInclusive<u32>) -> Result<Option<u32>, LambdaError> {
    let Some(value) = value else { return Ok(None) };
    match u32::try_from(value) {
        Ok(value) if range.contains(&value) => Ok(Some(value)),
        _ => {
            let (least, most) = (range.start(), range.end());
            Err(LambdaError::validation(format!("{name} is {value}; it must be between {least} and {most}")))
        }
    }
}

fn destination(shape: Option<DestinationShape>) -> Result<Option<Option<NamedDestination>>, LambdaError> {
    let Some(shape) = shape else { return Ok(None) };
    let named = shape.destination.filter(|arn| !arn.is_empty()).map(|arn| NamedDestination::of_arn(&arn));
    named.transpose().map(Some).map_err(|error| LambdaError::invalid_parameter(error.to_string()))
}

impl ConfigChange {
    fn read(body: &[u8]) -> Result<Self, LambdaError> {
        let shape: ConfigShape = read(body)?;
        let destinations = shape.destination_config.unwrap_or_default();
        let change = Self {
            retries: within("MaximumRetryAttempts", shape.maximum_retry_attempts, 0..=RETRIES_MAX)?,
            age_s: within("MaximumEventAgeInSeconds", shape.maximum_event_age_in_seconds, AGE_SECONDS)?,
            on_success: destination(destinations.on_success)?,
            on_failure: destination(destinations.on_failure)?,
        };
        if change.retries.is_none()
            && change.age_s.is_none()
            && change.on_success.is_none()
            && change.on_failure.is_none()
        {
            return Err(LambdaError::invalid_parameter(
                "You must specify at least one of error handling or destination setting.",
            ));
        }
        Ok(change)
    }

    fn apply(self, to: EventConfig) -> EventConfig {
        EventConfig {
            retries: self.retries.or(to.retries),
            age_s: self.age_s.or(to.age_s),
            on_success: self.on_success.unwrap_or(to.on_success),
            on_failure: self.on_failure.unwrap_or(to.on_failure),
            modified: to.modified,
        }
    }
}

impl LambdaDoor {
    pub(super) async fn invoke_later(
        &self,
        name: FunctionName,
        request: Request<'_>,
    ) -> Result<LambdaResponse, LambdaError> {
        if request.body.len() > EVENT_BYTES_MAX {
            return Err(LambdaError::too_large(format!(
                "Request must be smaller than {EVENT_BYTES_MAX} bytes for the InvokeFunction operation, asynchronously"
            )));
        }
        let event = NewEvent {
            namespace: request.who.namespace.clone(),
            function: name,
            client_context: request.client_context()?,
            payload: if request.body.is_empty() { "{}".into() } else { request.body },
            token: self.parts.invoke.seen(&request.who),
        };
        let id = self.parts.events.accept(event).await?;
        let mut answer = Response::new(Full::default());
        *answer.status_mut() = StatusCode::ACCEPTED;
        set(answer.headers_mut(), header::REQUEST_ID, &id.to_string());
        Ok(answer)
    }

    /// Sets a function's whole configuration, or only the named parts.
    pub(super) async fn set_event_config(
        &self,
        name: &FunctionName,
        request: &Request<'_>,
        is_whole: bool,
    ) -> Result<LambdaResponse, LambdaError> {
        self.deployed(name, request)?;
        let change = ConfigChange::read(&request.body)?;
        self.check_destinations(&change, request).await?;
        let arn = function_arn(&self.settings.region, name);
        let set = self.parts.functions.attach(&request.who.namespace, name, move |attached, now| {
            let before = match (is_whole, attached.events.take()) {
                (true, _) => EventConfig::default(),
                (false, Some(before)) => before,
                (false, None) => return Err(no_config(&arn)),
            };
            attached.events = Some(EventConfig { modified: now, ..change.apply(before) });
            Ok(())
        });
        let deployed = set.await?;
        self.event_config(&deployed)
    }

    /// Checks that a destination exists, as Lambda does.
    async fn check_destinations(&self, change: &ConfigChange, request: &Request<'_>) -> Result<(), LambdaError> {
        for named in [&change.on_success, &change.on_failure].into_iter().flatten().flatten() {
            let there = match &named.to {
                Destination::Function(function) => self.parts.functions.get(&request.who.namespace, function).is_some(),
                Destination::Bucket(bucket) => self.parts.objects.has_bucket(&request.who, bucket).await,
            };
            if !there {
                return Err(LambdaError::invalid_parameter(format!(
                    "The destination ARN {} is invalid: there is nothing of this name in the namespace.",
                    named.arn
                )));
            }
        }
        Ok(())
    }

    pub(super) fn get_event_config(
        &self,
        name: &FunctionName,
        request: &Request<'_>,
    ) -> Result<LambdaResponse, LambdaError> {
        self.event_config(&*self.deployed(name, request)?)
    }

    pub(super) fn list_event_configs(
        &self,
        name: &FunctionName,
        request: &Request<'_>,
    ) -> Result<LambdaResponse, LambdaError> {
        let deployed = self.deployed(name, request)?;
        let configs: Vec<Value> = self.event_config_value(&deployed).into_iter().collect();
        Ok(json_answer(StatusCode::OK, &json!({ "FunctionEventInvokeConfigs": configs })))
    }

    pub(super) async fn delete_event_config(
        &self,
        name: &FunctionName,
        request: &Request<'_>,
    ) -> Result<LambdaResponse, LambdaError> {
        self.deployed(name, request)?;
        let arn = function_arn(&self.settings.region, name);
        let deleted = self.parts.functions.attach(&request.who.namespace, name, move |attached, _| {
            attached.events.take().map(drop).ok_or_else(|| no_config(&arn))
        });
        deleted.await?;
        Ok(empty_answer(StatusCode::NO_CONTENT))
    }

    fn event_config(&self, deployed: &DeployedFunction) -> Result<LambdaResponse, LambdaError> {
        let arn = function_arn(&self.settings.region, &deployed.function.name);
        let config = self.event_config_value(deployed).ok_or_else(|| no_config(&arn))?;
        Ok(json_answer(StatusCode::OK, &config))
    }

    fn event_config_value(&self, deployed: &DeployedFunction) -> Option<Value> {
        let config = deployed.attached.events.as_ref()?;
        let to = |named: &Option<NamedDestination>| match named {
            Some(named) => json!({ "Destination": named.arn }),
            None => json!({}),
        };
        let mut value = json!({
            // Seconds, as the SDKs read dates of this operation.
            "LastModified": config.modified.millis() as f64 / 1000.0,
            "FunctionArn": format!("{}:{LATEST}", function_arn(&self.settings.region, &deployed.function.name)),
            "DestinationConfig": { "OnSuccess": to(&config.on_success), "OnFailure": to(&config.on_failure) },
        });
        if let Some(retries) = config.retries {
            value["MaximumRetryAttempts"] = retries.into();
        }
        if let Some(age) = config.age_s {
            value["MaximumEventAgeInSeconds"] = age.into();
        }
        Some(value)
    }
}

fn no_config(arn: &str) -> LambdaError {
    LambdaError::not_found(format!("The function {arn} doesn't have an EventInvokeConfig"))
}
