//! An activation's record as OpenWhisk shows it. Pure.

use nigh_functions::action::names::EntityName;
use nigh_functions::action::parameters::Parameters;
use nigh_functions::action::version::SemVer;
use nigh_schedule::activation::{Activation, Outcome};
use nigh_terms::{InvocationId, Namespace, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::response::{Response, Status};

/// A record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) id: InvocationId,
    pub(super) namespace: Namespace,
    /// What was invoked.
    pub(super) name: EntityName,
    #[serde(default)]
    pub(super) version: SemVer,
    pub(super) start: Timestamp,
    /// The end; a trigger has none.
    #[serde(default)]
    pub(super) end: Option<Timestamp>,
    #[serde(default)]
    pub(super) duration_ms: u64,
    /// The sequence that it was a part of.
    #[serde(default)]
    pub(super) cause: Option<InvocationId>,
    pub(super) response: Response,
    #[serde(default)]
    pub(super) logs: Vec<String>,
    #[serde(default)]
    pub(super) annotations: Parameters,
}

/// An id as OpenWhisk writes it: 32 hexadecimal digits.
pub(super) fn written(id: InvocationId) -> String {
    id.to_string().replace('-', "")
}

/// Parses an id of 32 hexadecimal digits, with or without hyphens.
pub(super) fn read(text: &str) -> Option<InvocationId> {
    text.parse().ok().filter(|_| text.len() == 32 || text.len() == 36)
}

impl Record {
    /// `NAMESPACE/[PACKAGE/]NAME` of what was invoked.
    pub(super) fn path(&self) -> &str {
        self.annotations.get("path").and_then(Value::as_str).unwrap_or_default()
    }

    /// Whether `name`, which is `NAME` or `PACKAGE/NAME`, was invoked.
    pub(super) fn is_of(&self, name: &str) -> bool {
        let path = self.path();
        match path.strip_prefix(self.namespace.as_str()).and_then(|rest| rest.strip_prefix('/')) {
            Some(path) => path == name,
            None => self.name.as_str() == name,
        }
    }

    /// The whole record.
    pub(super) fn shown(&self) -> Value {
        let mut shown = self.head();
        shown["subject"] = json!(self.namespace);
        shown["response"] = self.response.shown();
        shown["logs"] = json!(self.logs);
        shown
    }

    /// The record as in lists.
    pub(super) fn summary(&self) -> Value {
        let mut shown = self.head();
        if self.end.is_some() {
            shown["statusCode"] = self.response.status.code().into();
        }
        shown
    }

    fn head(&self) -> Value {
        let mut shown = json!({
            "activationId": written(self.id),
            "namespace": self.namespace,
            "name": self.name,
            "version": self.version,
            "publish": false,
            "annotations": self.annotations,
            "start": self.start.millis(),
        });
        if let Some(end) = self.end {
            shown["end"] = end.millis().into();
            shown["duration"] = self.duration_ms.into();
        }
        if let Some(cause) = self.cause {
            shown["cause"] = written(cause).into();
        }
        shown
    }

    /// The record of an activation of another door, which has no answer.
    pub(super) fn of_activation(
        run: &Activation,
        path: &nigh_functions::action::names::EntityPath,
        kind: &str,
    ) -> Self {
        let (wait_ms, init_ms) = (run.wait_us / 1000, run.init_us.div_ceil(1000));
        let start = Timestamp(run.start.millis() + wait_ms);
        let duration_ms = run.duration_us.div_ceil(1000) + init_ms;
        let mut annotations = Parameters::default();
        annotations.set("path", format!("{}/{path}", run.namespace).into());
        annotations.set("kind", kind.into());
        annotations.set("waitTime", wait_ms.into());
        if run.cold {
            annotations.set("initTime", init_ms.into());
        }
        let response = match &run.outcome {
            Outcome::Answered => Response::success(json!({})),
            Outcome::HandlerError { error_type, message } => {
                Response::error(Status::ApplicationError, format!("{error_type}: {message}"))
            }
            Outcome::InitError { message, .. } => Response::error(Status::DeveloperError, message.clone()),
            Outcome::TimedOut => Response::error(Status::DeveloperError, "The action exceeded its time limits."),
            Outcome::OutOfMemory => {
                Response::error(Status::DeveloperError, "The action exhausted its memory and was aborted.")
            }
            Outcome::Crashed { reason } => Response::error(Status::DeveloperError, format!("The action {reason}.")),
            Outcome::Stopped => Response::error(Status::WhiskError, "The node was stopping."),
        };
        let end = Timestamp(start.millis() + duration_ms);
        Self {
            id: run.id,
            namespace: run.namespace.clone(),
            name: path.name.clone(),
            version: SemVer::default(),
            start,
            end: Some(end),
            duration_ms,
            cause: None,
            response,
            logs: lines(&run.log, run.log_omitted, end),
            annotations,
        }
    }
}

/// A log in OpenWhisk's format, without Lambda's first and last lines. All lines are of `stdout` and have the time of the
/// end.
pub(super) fn lines(log: &str, omitted: u64, end: Timestamp) -> Vec<String> {
    let time = end.rfc3339();
    let frames = |line: &&str| {
        let is_frame =
            ["START RequestId: ", "END RequestId: ", "REPORT RequestId: "].iter().any(|word| line.starts_with(word));
        !is_frame
    };
    let lines = log.lines().filter(frames).map(|line| format!("{time:<30} stdout: {line}"));
    let cut = (omitted > 0).then(|| {
        format!("{time:<30} stderr: Logs were truncated: {omitted} bytes more were printed before these lines.")
    });
    cut.into_iter().chain(lines).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nigh_schedule::test_support::activation;

    #[test]
    fn a_run_of_another_door_is_shown_as_far_as_it_is_known() {
        let mut run = activation("tenant", "p__a", Outcome::Answered);
        run.log = format!("START RequestId: {} Version: $LATEST\nhello\nREPORT RequestId: x\n", run.id);
        (run.wait_us, run.init_us, run.duration_us) = (2_000, 30_500, 4_100);
        let record = Record::of_activation(&run, &"p/a".parse().unwrap(), "python:3");
        let shown = record.shown();
        assert_eq!(shown["activationId"].as_str().unwrap().len(), 32);
        assert_eq!((&shown["name"], &shown["duration"]), (&json!("a"), &json!(36)));
        assert_eq!((shown["start"].as_u64(), shown["end"].as_u64()), (Some(3), Some(39)));
        assert_eq!(record.logs.len(), 1);
        assert!(record.logs[0].ends_with(" stdout: hello"), "{:?}", record.logs);
        let annotation = |key: &str| record.annotations.get(key).cloned();
        assert_eq!((annotation("path"), annotation("initTime")), (Some(json!("tenant/p/a")), Some(json!(31))));
        assert!(record.is_of("p/a") && !record.is_of("a") && !record.is_of("tenant/p/a"));
        run.cold = false;
        let warm = Record::of_activation(&run, &"p/a".parse().unwrap(), "python:3");
        assert_eq!(warm.annotations.get("initTime"), None);
        assert_eq!(read(&written(run.id)), Some(run.id));
        assert!(read("x").is_none() && read("{01234567-0123-0123-0123-012345678901}").is_none());
    }
}
