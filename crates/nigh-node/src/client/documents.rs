//! Lists and notification rules in the S3 door's answers.

use serde::{Deserialize, Serialize};

/// A bucket in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketEntry {
    /// The bucket's name.
    #[serde(rename(deserialize = "Name"))]
    pub name: String,
    /// When it was created, RFC 3339.
    #[serde(rename(deserialize = "CreationDate"), default)]
    pub created: String,
}

/// An object in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectEntry {
    /// The object's key.
    #[serde(rename(deserialize = "Key"))]
    pub key: String,
    /// The object's length in bytes.
    #[serde(rename(deserialize = "Size"))]
    pub size: u64,
    /// When it was written, RFC 3339.
    #[serde(rename(deserialize = "LastModified"))]
    pub modified: String,
    /// The object's entity tag.
    #[serde(rename(deserialize = "ETag"), default)]
    pub etag: String,
}

/// A page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectPage {
    /// The objects.
    pub objects: Vec<ObjectEntry>,
    /// The common prefixes of keys, up to the delimiter.
    pub common_prefixes: Vec<String>,
    /// Where the next page begins; none if this is the last page.
    pub next: Option<String>,
}

/// The rules of a bucket's notification configuration that name functions.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct NotificationRules {
    #[serde(rename = "CloudFunctionConfiguration", default)]
    rules: Vec<NotificationRule>,
}

#[derive(Serialize, Deserialize)]
struct NotificationRule {
    #[serde(rename = "Id", default)]
    id: String,
    #[serde(rename = "CloudFunction")]
    function: String,
    #[serde(rename = "Event")]
    events: Vec<String>,
    #[serde(rename = "Filter", default, skip_serializing_if = "Option::is_none")]
    filter: Option<NotificationFilter>,
}

#[derive(Serialize, Deserialize)]
struct NotificationFilter {
    #[serde(rename = "S3Key")]
    key: KeyFilter,
}

#[derive(Serialize, Deserialize)]
struct KeyFilter {
    #[serde(rename = "FilterRule", default)]
    rules: Vec<FilterRule>,
}

#[derive(Serialize, Deserialize)]
struct FilterRule {
    #[serde(rename = "Name")]
    name: String,
    #[serde(rename = "Value")]
    value: String,
}

impl NotificationRules {
    /// Makes new objects below `prefix` invoke the function. Replaces an earlier rule for the same function and prefix.
    pub(super) fn set(&mut self, function: &str, arn: &str, prefix: &str) {
        let id = format!("{function}:{prefix}");
        self.rules.retain(|rule| rule.id != id);
        let filter = NotificationFilter {
            key: KeyFilter { rules: vec![FilterRule { name: "prefix".to_owned(), value: prefix.to_owned() }] },
        };
        self.rules.push(NotificationRule {
            id,
            function: arn.to_owned(),
            events: vec!["s3:ObjectCreated:*".to_owned()],
            filter: (!prefix.is_empty()).then_some(filter),
        });
    }
}
