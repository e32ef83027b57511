//! Lists and notification rules in the S3 door's answers.

use std::fmt;

use nigh_objects::{EventPattern, NotificationConfig, NotificationError};
use serde::{Deserialize, Serialize};

use super::ClientError;

/// The changes of objects that trigger a function unless others are named.
const CREATED: &str = "s3:ObjectCreated:*";
/// What follows a function's name's place in its ARN.
const ARN_OF_FUNCTION: &str = ":function:";

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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketNotifications {
    #[serde(rename = "CloudFunctionConfiguration", default)]
    rules: Vec<NotificationRule>,
}

/// Which changes of which objects invoke a function.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct TriggerFilter {
    /// The prefix of the objects' keys; empty for any.
    pub prefix: String,
    /// The suffix of the objects' keys; empty for any.
    pub suffix: String,
    /// The changes, as S3 names them: `s3:ObjectCreated:*`.
    pub events: Vec<String>,
}

/// A rule that invokes a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionTrigger {
    /// The rule's id.
    pub id: String,
    /// Which changes it is for.
    pub filter: TriggerFilter,
    /// True if `set` made the rule: `nigh deploy` did, and no other client.
    pub is_own: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct NotificationFilter {
    #[serde(rename = "S3Key")]
    key: KeyFilter,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct KeyFilter {
    #[serde(rename = "FilterRule", default)]
    rules: Vec<FilterRule>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FilterRule {
    #[serde(rename = "Name")]
    name: String,
    #[serde(rename = "Value")]
    value: String,
}

impl TriggerFilter {
    /// New objects whose keys begin with `prefix`.
    #[must_use]
    pub fn created(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), suffix: String::new(), events: vec![CREATED.to_owned()] }
    }
}

/// The keys, and the changes if they are not the usual ones: `in/*.png (s3:ObjectRemoved:*)`.
impl fmt::Display for TriggerFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.prefix)?;
        if !self.suffix.is_empty() {
            write!(f, "*{}", self.suffix)?;
        }
        if self.events != [CREATED] {
            write!(f, " ({})", self.events.join(", "))?;
        }
        Ok(())
    }
}

impl NotificationRule {
    /// The value of a filter: `prefix` or `suffix`. Empty if the rule has no such filter.
    fn filter(&self, name: &str) -> String {
        let mut filters = self.filter.iter().flat_map(|filter| &filter.key.rules);
        let found = filters.find(|filter| filter.name.eq_ignore_ascii_case(name));
        found.map(|filter| filter.value.clone()).unwrap_or_default()
    }

    /// The rule as the object memory has it.
    fn rule(&self) -> Result<nigh_objects::NotificationRule, NotificationError> {
        Ok(nigh_objects::NotificationRule {
            id: self.id.clone(),
            function: self.function.clone(),
            events: self.events.iter().map(|event| EventPattern::new(event)).collect::<Result<_, _>>()?,
            prefix: self.filter("prefix"),
            suffix: self.filter("suffix"),
        })
    }

    /// True if the rule invokes `function`, which the ARN names, perhaps with a version behind it.
    fn invokes(&self, function: &str) -> bool {
        let named = self.function.split_once(ARN_OF_FUNCTION).map_or(self.function.as_str(), |(_, name)| name);
        named.split(':').next() == Some(function)
    }
}

/// The id of the rule that `set` makes: `FUNCTION:PREFIX` for a prefix alone.
fn own_id(function: &str, filter: &TriggerFilter) -> String {
    format!("{function}:{filter}")
}

impl BucketNotifications {
    /// Checks the rules against each other and S3's limits, as the S3 door does.
    ///
    /// # Errors
    /// What the door would answer to them.
    pub fn check(&self) -> Result<(), ClientError> {
        self.checked().map_err(|error| ClientError::Refused {
            status: 400,
            code: "InvalidArgument".to_owned(),
            message: error.to_string(),
        })
    }

    fn checked(&self) -> Result<(), NotificationError> {
        let rules = self.rules.iter().map(NotificationRule::rule).collect::<Result<_, _>>()?;
        NotificationConfig { rules }.check()
    }

    /// The rules that invoke `function`.
    #[must_use]
    pub fn triggers(&self, function: &str) -> Vec<FunctionTrigger> {
        let rules = self.rules.iter().filter(|rule| rule.invokes(function));
        rules
            .map(|rule| {
                let (prefix, suffix) = (rule.filter("prefix"), rule.filter("suffix"));
                let filter = TriggerFilter { prefix, suffix, events: rule.events.clone() };
                FunctionTrigger { id: rule.id.clone(), is_own: rule.id == own_id(function, &filter), filter }
            })
            .collect()
    }

    /// Makes the changes of `filter` invoke the function. Replaces an earlier rule for the same function and filter.
    pub fn set(&mut self, function: &str, arn: &str, filter: &TriggerFilter) {
        let id = own_id(function, filter);
        self.remove(&id);
        let values = [("prefix", &filter.prefix), ("suffix", &filter.suffix)];
        let values = values.into_iter().filter(|(_, value)| !value.is_empty());
        let rules: Vec<FilterRule> =
            values.map(|(name, value)| FilterRule { name: name.to_owned(), value: value.clone() }).collect();
        self.rules.push(NotificationRule {
            id,
            function: arn.to_owned(),
            events: filter.events.clone(),
            filter: (!rules.is_empty()).then_some(NotificationFilter { key: KeyFilter { rules } }),
        });
    }

    /// Removes the rule with this id.
    pub fn remove(&mut self, id: &str) {
        self.rules.retain(|rule| rule.id != id);
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
        let rules = || quick_xml::de::from_str::<BucketNotifications>(text).unwrap();
        let check = |prefixes: &[&str]| {
            let mut rules = rules();
            prefixes.iter().for_each(|prefix| rules.set("new", "", &TriggerFilter::created(prefix)));
            rules.checked()
        };
        assert_eq!(check(&["out/", "other/"]), Ok(()));
        for prefixes in [&["in/a/"][..], &[""], &["out/", "out/a/"]] {
            assert!(matches!(check(prefixes), Err(NotificationError::Overlap(..))), "{prefixes:?}");
        }
    }

    #[test]
    fn a_functions_triggers_are_found_by_the_arn_that_names_it_and_removed_by_their_ids() {
        let arn = "arn:aws:lambda:us-east-1:000000000000:function:resize";
        let mut rules = BucketNotifications::default();
        rules.set("resize", arn, &TriggerFilter::created("in/"));
        let other = "arn:aws:lambda:us-east-1:000000000000:function:resizer";
        rules.set("resizer", other, &TriggerFilter::created("other/"));
        let mut by_hand = rules.rules[0].clone();
        by_hand.id = "by hand".to_owned();
        by_hand.function = format!("{arn}:$LATEST");
        by_hand.filter = None;
        rules.rules.push(by_hand);
        let own = FunctionTrigger { id: "resize:in/".to_owned(), filter: TriggerFilter::created("in/"), is_own: true };
        let foreign = FunctionTrigger { id: "by hand".to_owned(), filter: TriggerFilter::created(""), is_own: false };
        assert_eq!(rules.triggers("resize"), [own, foreign.clone()]);
        rules.remove("resize:in/");
        assert_eq!(rules.triggers("resize"), [foreign]);
        assert_eq!(rules.triggers("resizer").len(), 1);
    }
    #[test]
    fn a_trigger_with_a_suffix_or_other_events_is_its_own_rule_and_stays_so_through_xml() {
        let arn = "arn:aws:lambda:us-east-1:000000000000:function:resize";
        let gone = vec!["s3:ObjectRemoved:*".to_owned()];
        let filters = [
            TriggerFilter { suffix: ".png".to_owned(), ..TriggerFilter::created("in/") },
            TriggerFilter { suffix: ".jpg".to_owned(), ..TriggerFilter::created("in/") },
            TriggerFilter { events: gone, ..TriggerFilter::created("in/") },
        ];
        let mut rules = BucketNotifications::default();
        for _again in 0..2 {
            filters.iter().for_each(|filter| rules.set("resize", arn, filter));
        }
        assert!(rules.checked().is_ok());
        let document = quick_xml::se::to_string_with_root("NotificationConfiguration", &rules).unwrap();
        let read: BucketNotifications = quick_xml::de::from_str(&document).unwrap();
        let triggers = read.triggers("resize");
        assert!(triggers.iter().all(|trigger| trigger.is_own), "{triggers:?}");
        let words: Vec<String> = triggers.iter().map(|trigger| trigger.filter.to_string()).collect();
        assert_eq!(words, ["in/*.png", "in/*.jpg", "in/ (s3:ObjectRemoved:*)"]);
    }
}
