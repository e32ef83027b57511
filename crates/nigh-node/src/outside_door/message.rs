//! Messages of Swift's middleware: a reader waits for a version, an outside write begins, an outside write has ended.
//! Pure.
//!
//! Follows `integrations/swift/README.md`, "Wire: Swift to Nigh". Unknown members are ignored.

use std::time::Duration;

use nigh_terms::{Epoch, Sequence, Version};
use serde::Deserialize;

/// The most bytes of a write's token.
const TOKEN_MAX: usize = 64;
/// The longest lease in seconds: the longest that the middleware can be set to.
const LEASE_S_MAX: f64 = 3600.0;

/// An object, as Swift names it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Target {
    /// The account: `AUTH_test`.
    pub account: String,
    /// The name of the container.
    pub container: String,
    /// The name of the object.
    pub object: String,
}

/// A reader waits for a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushRequest {
    /// The object.
    pub target: Target,
    /// The version in the placeholder's metadata.
    pub version: Version,
}

/// An outside write.
#[derive(Clone, Debug, PartialEq)]
pub enum Invalidation {
    /// The write begins, and is over after `lease` at the latest.
    Begin {
        /// The object.
        target: Target,
        /// The write's token.
        token: String,
        /// How long the write can last.
        lease: Duration,
    },
    /// The write has ended.
    End {
        /// The object.
        target: Target,
        /// The write's token.
        token: String,
        /// True if Swift has it; none if unknown.
        applied: Option<bool>,
    },
}

/// Parses a request for a push.
///
/// # Errors
/// What is wrong with it.
pub fn parse_push(body: &[u8]) -> Result<PushRequest, String> {
    #[derive(Deserialize)]
    struct Push {
        #[serde(flatten)]
        target: Target,
        version: String,
    }
    let Push { target, version } = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    let parsed = version.split_once('.').and_then(|(epoch, sequence)| {
        Some(Version { epoch: Epoch(number(epoch)?), sequence: Sequence(number(sequence)?) })
    });
    let version = parsed.ok_or_else(|| "the version is not epoch.sequence".to_owned())?;
    Ok(PushRequest { target, version })
}

/// Parses a message about an outside write.
///
/// # Errors
/// What is wrong with it.
pub fn parse_invalidation(body: &[u8]) -> Result<Invalidation, String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Phase {
        Begin,
        End,
    }
    #[derive(Deserialize)]
    struct MiddlewareMessage {
        phase: Phase,
        #[serde(flatten)]
        target: Target,
        token: String,
        lease: f64,
        applied: Option<bool>,
    }
    let MiddlewareMessage { phase, target, token, lease, applied } =
        serde_json::from_slice(body).map_err(|error| error.to_string())?;
    if token.is_empty() || token.len() > TOKEN_MAX {
        return Err(format!("the token has {} bytes: expected 1 to {TOKEN_MAX}", token.len()));
    }
    Ok(match phase {
        Phase::End => Invalidation::End { target, token, applied },
        Phase::Begin if (0.0..=LEASE_S_MAX).contains(&lease) => {
            Invalidation::Begin { target, token, lease: Duration::from_secs_f64(lease) }
        }
        Phase::Begin => return Err(format!("a lease of {lease} s is not allowed: give 0 to {LEASE_S_MAX} s")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> Target {
        Target { account: "AUTH_a".to_owned(), container: "c".to_owned(), object: "a/ü".to_owned() }
    }

    #[test]
    fn messages_are_read_as_the_document_draws_them() {
        let push = r#"{"account": "AUTH_a", "container": "c", "object": "a/ü", "version": "3.14"}"#.as_bytes();
        let version = Version { epoch: Epoch(3), sequence: Sequence(14) };
        assert_eq!(parse_push(push), Ok(PushRequest { target: target(), version }));
        let begin = r#"{"phase": "begin", "token": "t", "account": "AUTH_a", "container": "c", "object": "a/ü",
            "method": "PUT", "lease": 300.0}"#;
        let lease = Duration::from_secs(300);
        let expected = Invalidation::Begin { target: target(), token: "t".to_owned(), lease };
        assert_eq!(parse_invalidation(begin.as_bytes()), Ok(expected));
        for (text, applied) in [("true", Some(true)), ("false", Some(false)), ("null", None)] {
            let end = format!(
                r#"{{"phase": "end", "token": "t", "account": "AUTH_a", "container": "c", "object": "a/ü", "method": "PUT",
                "lease": 300, "status": 201, "applied": {text}, "deleted": false, "etag": "e", "timestamp": "1.2"}}"#
            );
            let expected = Invalidation::End { target: target(), token: "t".to_owned(), applied };
            assert_eq!(parse_invalidation(end.as_bytes()), Ok(expected));
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for text in ["", "[]", "{}", r#"{"account": "a", "container": "c", "object": "o", "version": "3"}"#] {
            assert!(parse_push(text.as_bytes()).is_err(), "{text}");
        }
        let begin = |token: &str, lease: &str| {
            format!(
                r#"{{"phase": "begin", "token": "{token}", "account": "a", "container": "c", "object": "o", "lease": {lease}}}"#
            )
        };
        assert!(parse_invalidation(begin("t", "1").as_bytes()).is_ok());
        for bad in
            [begin("", "1"), begin(&"t".repeat(65), "1"), begin("t", "-1"), begin("t", "1e9"), begin("t", "null")]
        {
            assert!(parse_invalidation(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
