//! Lists and notification rules in the S3 door's answers.

use nigh_objects::{EventPattern, NotificationConfig, NotificationError};
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

impl NotificationRule {
    /// The rule as the object memory has it.
    fn rule(&self) -> Result<nigh_objects::NotificationRule, NotificationError> {
        let filters = || self.filter.iter().flat_map(|filter| &filter.key.rules);
        let value = |name: &str| {
            let found = filters().find(|filter| filter.name.eq_ignore_ascii_case(name));
            found.map(|filter| filter.value.clone()).unwrap_or_default()
        };
        Ok(nigh_objects::NotificationRule {
            id: self.id.clone(),
            function: self.function.clone(),
            events: self.events.iter().map(|event| EventPattern::new(event)).collect::<Result<_, _>>()?,
            prefix: value("prefix"),
            suffix: value("suffix"),
        })
    }
}

impl NotificationRules {
    /// Checks the rules against each other and S3's limits, as the S3 door does.
    pub(super) fn check(&self) -> Result<(), NotificationError> {
        let rules = self.rules.iter().map(NotificationRule::rule).collect::<Result<_, _>>()?;
        NotificationConfig { rules }.check()
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_two_functions_are_checked_by_their_events_prefixes_and_suffixes() {
        let text = "<NotificationConfiguration><CloudFunctionConfiguration><Id>old</Id><CloudFunction>arn</CloudFunction>\
                    <Event>s3:ObjectCreated:*</Event><Filter><S3Key><FilterRule><Name>Prefix</Name><Value>in/</Value>\
                    </FilterRule></S3Key></Filter></CloudFunctionConfiguration></NotificationConfiguration>";
        let rules = || quick_xml::de::from_str::<NotificationRules>(text).unwrap();
        let check = |prefixes: &[&str]| {
            let mut rules = rules();
            prefixes.iter().for_each(|prefix| rules.set("new", "", prefix));
            rules.check()
        };
        assert_eq!(check(&["out/", "other/"]), Ok(()));
        for prefixes in [&["in/a/"][..], &[""], &["out/", "out/a/"]] {
            assert!(matches!(check(prefixes), Err(NotificationError::Overlap(..))), "{prefixes:?}");
        }
    }
}
