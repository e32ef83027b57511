//! The settings of a function's asynchronous invocations: how often they are tried, how old they may get, and where the record
//! of their end goes. Pure.
//!
//! Rules and limits: Lambda API reference, `PutFunctionEventInvokeConfig`; Lambda developer guide, "Retaining records
//! of asynchronous invocations". Records go only to functions and buckets of the same namespace: Nigh has no queues, topics or
//! buses.

use std::ops::RangeInclusive;
use std::time::Duration;

use nigh_terms::{BucketName, FunctionName, Timestamp};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::function_arn::parse_function_reference;

/// Retries after a function's error: the default, and the most.
pub const RETRIES_MAX: u32 = 2;
/// Seconds that an event may get old.
pub const AGE_SECONDS: RangeInclusive<u32> = 60..=21_600;
/// The longest ARN of a destination (API reference, `OnFailure`).
const ARN_BYTES_MAX: usize = 350;

/// Where a record goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Destination {
    /// To a function, as an event.
    Function(FunctionName),
    /// To a bucket, as an object.
    Bucket(BucketName),
}

/// A destination as its owner named it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedDestination {
    /// The ARN, as it was given.
    pub arn: String,
    /// What it names.
    pub to: Destination,
}

/// Why an ARN is no destination.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "the destination {arn:?} is not supported here: {why}; give the ARN of a function of this namespace \
     (arn:aws:lambda:REGION:000000000000:function:NAME) or of a bucket (arn:aws:s3:::NAME)"
)]
pub struct DestinationError {
    arn: String,
    why: String,
}

impl NamedDestination {
    /// The destination that `arn` names.
    ///
    /// # Errors
    /// If it names neither a function nor a bucket.
    pub fn of_arn(arn: &str) -> Result<Self, DestinationError> {
        let refused =
            |why: &str| DestinationError { arn: arn.chars().take(ARN_BYTES_MAX).collect(), why: why.to_owned() };
        if arn.len() > ARN_BYTES_MAX {
            return Err(refused("it is too long"));
        }
        let to = match arn.split(':').collect::<Vec<_>>().as_slice() {
            ["arn", _, "lambda", ..] => {
                // JSON may have a percent-encoded path; names have no `%`.
                Destination::Function(parse_function_reference(arn).map_err(|error| refused(&error.to_string()))?)
            }
            ["arn", _, "s3", "", "", bucket] => {
                Destination::Bucket(BucketName::new(bucket).map_err(|error| refused(&error.to_string()))?)
            }
            ["arn", _, service, ..] => return Err(refused(&format!("there is no {service} on this node"))),
            _ => return Err(refused("it is no ARN")),
        };
        Ok(Self { arn: arn.to_owned(), to })
    }
}

/// `FunctionEventInvokeConfig`. What is absent is Lambda's default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventConfig {
    /// Retries after an error of the function.
    pub retries: Option<u32>,
    /// How old an event may get, in seconds.
    pub age_s: Option<u32>,
    /// Where the record of a success goes.
    pub on_success: Option<NamedDestination>,
    /// Where the record of a failure goes.
    pub on_failure: Option<NamedDestination>,
    /// When it was set last.
    pub modified: Timestamp,
}

/// The rules for a function's events: its settings, completed by defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventPolicy {
    /// Retries after an error of the function.
    pub retries_max: u32,
    /// How old an event may get.
    pub age_max: Duration,
    /// Where the record of a success goes.
    pub on_success: Option<Destination>,
    /// Where the record of a failure goes.
    pub on_failure: Option<Destination>,
    /// How many may run at once, if the function has reserved concurrency. If that is 0, events fail at once.
    pub reserved: Option<usize>,
}

impl EventPolicy {
    /// What `config` says, for a function with this reserved concurrency.
    #[must_use]
    pub fn of(config: Option<&EventConfig>, reserved: Option<usize>) -> Self {
        let to = |place: Option<&NamedDestination>| place.map(|named| named.to.clone());
        Self {
            retries_max: config.and_then(|config| config.retries).unwrap_or(RETRIES_MAX),
            age_max: Duration::from_secs(config.and_then(|c| c.age_s).unwrap_or(*AGE_SECONDS.end()).into()),
            on_success: to(config.and_then(|config| config.on_success.as_ref())),
            on_failure: to(config.and_then(|config| config.on_failure.as_ref())),
            reserved,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_and_buckets_are_destinations_and_other_services_are_refused_by_name() {
        let function = NamedDestination::of_arn("arn:aws:lambda:eu-west-3:000000000000:function:next").unwrap();
        assert_eq!(function.to, Destination::Function(FunctionName::new("next").unwrap()));
        let bucket = NamedDestination::of_arn("arn:aws:s3:::failed-events").unwrap();
        assert_eq!(bucket.to, Destination::Bucket(BucketName::new("failed-events").unwrap()));
        for (arn, why) in [
            ("arn:aws:sqs:us-east-1:000000000000:queue", "no sqs"),
            ("arn:aws:sns:us-east-1:000000000000:topic", "no sns"),
            ("arn:aws:events:us-east-1:000000000000:event-bus/default", "no events"),
            ("arn:aws:lambda:us-east-1:123456789012:function:f", "not found"),
            ("arn:aws:s3:::A", "not allowed"),
            ("queue", "no ARN"),
        ] {
            let said = NamedDestination::of_arn(arn).unwrap_err().to_string();
            assert!(said.contains(why) && said.contains("arn:aws:s3:::NAME"), "{said}");
        }
    }

    #[test]
    fn what_is_not_said_is_lambdas_default() {
        let policy = EventPolicy::of(None, None);
        assert_eq!((policy.retries_max, policy.age_max), (2, Duration::from_secs(6 * 3600)));
        let said = EventConfig { retries: Some(0), age_s: Some(60), ..EventConfig::default() };
        let policy = EventPolicy::of(Some(&said), Some(3));
        assert_eq!((policy.retries_max, policy.age_max, policy.reserved), (0, Duration::from_secs(60), Some(3)));
    }
}
