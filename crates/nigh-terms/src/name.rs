//! Names that users choose, checked once when they enter.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why a name is rejected.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{kind} {name:?} is not allowed: {why}")]
pub struct NameError {
    kind: &'static str,
    name: String,
    why: &'static str,
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $check:path) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(std::sync::Arc<str>);

        impl $name {
            /// Checks `text` and takes it as a name.
            ///
            /// # Errors
            /// The rule that `text` breaks.
            pub fn new(text: &str) -> Result<Self, NameError> {
                match $check(text) {
                    Ok(()) => Ok(Self(text.into())),
                    Err(why) => Err(NameError { kind: $kind, name: text.chars().take(64).collect(), why }),
                }
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        /// Ordered, compared and hashed as its text, so that maps are searched by text.
        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;

            fn try_from(text: String) -> Result<Self, NameError> {
                Self::new(&text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0.as_ref().to_owned()
            }
        }
    };
}

name! {
    /// A tenant. Nothing passes from one namespace to another.
    Namespace, "namespace", check_namespace
}
name! {
    /// A bucket, by the rules of S3 general purpose buckets (S3 User Guide, "Bucket naming rules").
    BucketName, "bucket", check_bucket
}
name! {
    /// An object's key: 1 to 1024 bytes of UTF-8, any characters (S3 User Guide, "Naming objects").
    ObjectKey, "key", check_key
}
name! {
    /// A function's name: 1 to 64 of letters, digits, `-` and `_` (Lambda API reference, CreateFunction).
    FunctionName, "function", check_function
}

fn check_namespace(text: &str) -> Result<(), &'static str> {
    if !(1..=32).contains(&text.len()) {
        return Err("a namespace has 1 to 32 characters");
    }
    if !text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        return Err("a namespace has lower-case letters, digits and hyphens only");
    }
    if text.starts_with('-') || text.ends_with('-') {
        return Err("a namespace begins and ends with a letter or digit");
    }
    Ok(())
}

fn check_bucket(text: &str) -> Result<(), &'static str> {
    if !(3..=63).contains(&text.len()) {
        return Err("a bucket has 3 to 63 characters");
    }
    if !text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.') {
        return Err("a bucket has lower-case letters, digits, hyphens and dots only");
    }
    let edge = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    if !edge(text.bytes().next()) || !edge(text.bytes().next_back()) {
        return Err("a bucket begins and ends with a letter or digit");
    }
    if text.contains("..") {
        return Err("a bucket has no two dots in a row");
    }
    if text.parse::<std::net::Ipv4Addr>().is_ok() {
        return Err("a bucket is not an IP address");
    }
    Ok(())
}

fn check_key(text: &str) -> Result<(), &'static str> {
    match text.len() {
        1..=1024 => Ok(()),
        0 => Err("a key is not empty"),
        _ => Err("a key has at most 1024 bytes"),
    }
}

fn check_function(text: &str) -> Result<(), &'static str> {
    if !(1..=64).contains(&text.len()) {
        return Err("a function name has 1 to 64 characters");
    }
    if !text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_') {
        return Err("a function name has letters, digits, hyphens and underscores only");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_names_follow_s3() {
        for good in ["abc", "a.b-c", "0ab", &"x".repeat(63)] {
            assert!(BucketName::new(good).is_ok(), "{good}");
        }
        for bad in ["ab", "Abc", "a_b", "-abc", "abc-", "a..b", "192.168.0.1", "a/b", &"x".repeat(64)] {
            assert!(BucketName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn keys_are_any_text_of_up_to_1024_bytes() {
        for good in ["a", "a/b", "../..", "\u{0}", "ü/ 日本", &"k".repeat(1024)] {
            assert!(ObjectKey::new(good).is_ok(), "{good}");
        }
        assert!(ObjectKey::new("").is_err());
        assert!(ObjectKey::new(&"ü".repeat(513)).is_err());
    }

    #[test]
    fn a_name_is_checked_when_it_is_read_back() {
        assert!(serde_json::from_str::<FunctionName>("\"../etc\"").is_err());
        assert!(serde_json::from_str::<Namespace>("\"Tenant\"").is_err());
        assert!(serde_json::from_str::<Namespace>("\"tenant-1\"").is_ok());
    }
}
