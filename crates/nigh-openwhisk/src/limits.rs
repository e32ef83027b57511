//! The limits of actions: OpenWhisk's defaults, within the limits of sandboxes. Pure.

use std::time::Duration;

use nigh_functions::action::LOGS_MB;
use nigh_terms::ByteSize;
use serde::Deserialize;

use super::error::WhiskError;
use super::throttle::NamespaceLimits;

/// The time limit of an activation in milliseconds: range and default (OpenWhisk: 60 s).
const TIMEOUT_MS: std::ops::RangeInclusive<i64> = 100..=900_000;
const TIMEOUT_MS_DEFAULT: u64 = 60_000;
/// The megabytes that an action books: range and default (OpenWhisk: 256).
const MEMORY_MB: std::ops::RangeInclusive<i64> = 128..=10_240;
const MEMORY_MB_DEFAULT: u64 = 256;
const LOGS_MB_RANGE: std::ops::RangeInclusive<i64> = 0..=10;
/// Activations that one sandbox may run at once.
const CONCURRENCY: i64 = 1;
/// The longest input, and the longest answer; a longer answer is an error of the action.
pub(super) const PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// The longest code, decoded from base64.
pub(super) const CODE_BYTES_MAX: usize = 48 << 20;
/// Actions of one sequence, including those of sequences within it.
pub(super) const SEQUENCE_MAX: usize = 50;
/// The longest wait for a blocking invocation.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(60);
/// Items of a list.
pub(super) const LIST_MAX: usize = 200;
pub(super) const LIST_DEFAULT: usize = 30;

/// The limits in a request.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct LimitsShape {
    timeout: Option<i64>,
    memory: Option<i64>,
    logs: Option<i64>,
    concurrency: Option<i64>,
}

/// Checked limits; those that a request does not set keep their value or have the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) timeout: Option<Duration>,
    pub(super) memory: Option<ByteSize>,
    pub(super) logs_mb: Option<u64>,
}

impl Limits {
    /// The limits of a new action.
    pub(super) fn or_defaults(self) -> Self {
        Self {
            timeout: self.timeout.or(Some(Duration::from_millis(TIMEOUT_MS_DEFAULT))),
            memory: self.memory.or(Some(ByteSize::mib(MEMORY_MB_DEFAULT))),
            logs_mb: self.logs_mb.or(Some(LOGS_MB)),
        }
    }
}

fn within(
    what: &str,
    unit: &str,
    value: Option<i64>,
    range: &std::ops::RangeInclusive<i64>,
) -> Result<Option<u64>, WhiskError> {
    let Some(value) = value else { return Ok(None) };
    let (least, most) = (range.start(), range.end());
    if value < *least {
        return Err(WhiskError::bad_request(format!(
            "{what} {value} {unit} below allowed threshold of {least} {unit}"
        )));
    }
    if value > *most {
        return Err(WhiskError::bad_request(format!(
            "{what} {value} {unit} exceeds allowed threshold of {most} {unit}"
        )));
    }
    Ok(Some(value.unsigned_abs()))
}

impl TryFrom<LimitsShape> for Limits {
    type Error = WhiskError;

    fn try_from(shape: LimitsShape) -> Result<Self, WhiskError> {
        if let Some(concurrency) = shape.concurrency
            && concurrency != CONCURRENCY
        {
            let beyond = if concurrency > CONCURRENCY { "exceeds" } else { "below" };
            return Err(WhiskError::bad_request(format!(
                "concurrency {concurrency} {beyond} allowed threshold of {CONCURRENCY}"
            )));
        }
        Ok(Self {
            timeout: within("timeout", "milliseconds", shape.timeout, &TIMEOUT_MS)?.map(Duration::from_millis),
            memory: within("memory size", "MB", shape.memory, &MEMORY_MB)?.map(ByteSize::mib),
            logs_mb: within("log size", "MB", shape.logs, &LOGS_MB_RANGE)?,
        })
    }
}

/// The answer to `GET /namespaces/NAMESPACE/limits`; `concurrency` is the node's.
pub(super) fn of_namespace(concurrency: usize, own: &NamespaceLimits) -> serde_json::Value {
    let mut limits = serde_json::json!({
        "concurrentInvocations": own.concurrent_invocations.map_or(concurrency, |own| concurrency.min(own as usize)),
        "minActionMemory": MEMORY_MB.start(), "maxActionMemory": MEMORY_MB.end(),
        "minActionTimeout": TIMEOUT_MS.start(), "maxActionTimeout": TIMEOUT_MS.end(),
        "minActionLogs": LOGS_MB_RANGE.start(), "maxActionLogs": LOGS_MB_RANGE.end(),
        "minActionConcurrency": CONCURRENCY, "maxActionConcurrency": CONCURRENCY,
        "maxParameterSize": nigh_functions::action::parameters::PARAMETERS_BYTES_MAX,
        "sequenceLength": SEQUENCE_MAX,
        "storeActivations": true,
    });
    let a_minute = [("invocationsPerMinute", own.invocations_per_minute), ("firesPerMinute", own.fires_per_minute)];
    for (name, limit) in a_minute {
        if let Some(limit) = limit {
            limits[name] = limit.into();
        }
    }
    limits
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn limits(value: Value) -> Result<Limits, WhiskError> {
        serde_json::from_value::<LimitsShape>(value).unwrap().try_into()
    }

    #[test]
    fn each_limit_takes_its_ends_and_nothing_beyond() {
        for (name, least, most) in
            [("timeout", 100, 900_000), ("memory", 128, 10_240), ("logs", 0, 10), ("concurrency", 1, 1)]
        {
            for (value, good) in [(least - 1, false), (least, true), (most, true), (most + 1, false)] {
                assert_eq!(limits(json!({ name: value })).is_ok(), good, "{name} {value}");
            }
        }
        let said = limits(json!({ "memory": 64 })).unwrap_err();
        assert_eq!(
            (said.status.as_u16(), &*said.message),
            (400, "memory size 64 MB below allowed threshold of 128 MB")
        );
    }

    #[test]
    fn what_is_not_said_is_openwhisks_default() {
        let all = limits(json!({ "timeout": 500 })).unwrap().or_defaults();
        assert_eq!((all.timeout, all.memory), (Some(Duration::from_millis(500)), Some(ByteSize::mib(256))));
        assert_eq!(all.logs_mb, Some(10));
    }
}
