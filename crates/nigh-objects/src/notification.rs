//! Bucket notifications: which changes of which objects are told to which functions, and the document that tells them.
//! Pure.
//!
//! The rules, names and the document's form are S3's: API reference, `PutBucketNotificationConfiguration`; user guide,
//! "Event notification types and destinations", "Event message structure" (version 2.1), "Configuring event
//! notifications using object key name filtering".

use std::collections::BTreeSet;

use bytes::Bytes;
use nigh_data::{ETag, ObjectId};
use nigh_terms::{BucketName, Principal, Timestamp, Version};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use serde_json::json;
use thiserror::Error;
use uuid::Uuid;

/// The most rules of one bucket.
pub(crate) const RULES_MAX: usize = 100;
/// The most characters of a rule's id.
const ID_CHARS_MAX: usize = 255;
/// The most bytes of a prefix or suffix: a key has no more.
const FILTER_BYTES_MAX: usize = 1024;
/// The characters that keys keep in documents: form encoding, with `/` left readable as S3 does.
const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'*').remove(b'_').remove(b'/').remove(b' ');

macro_rules! changes {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        /// What happened to an object.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum ObjectChange {
            $($(#[$doc])* $name,)*
        }

        impl ObjectChange {
            /// Every change.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The name in documents, without `s3:`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

changes! {
    /// The object was put.
    Put = "ObjectCreated:Put";
    /// The object was uploaded by a form; Nigh's S3 door accepts none.
    Post = "ObjectCreated:Post";
    /// The object was copied to its key.
    Copy = "ObjectCreated:Copy";
    /// The object was uploaded in parts.
    CompleteMultipartUpload = "ObjectCreated:CompleteMultipartUpload";
    /// The object was deleted.
    Delete = "ObjectRemoved:Delete";
    /// The object was hidden by a delete marker; only versioned buckets have them.
    DeleteMarkerCreated = "ObjectRemoved:DeleteMarkerCreated";
}

/// The pattern of a rule: one kind of change, or all of a group with `*`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EventPattern(String);

impl EventPattern {
    /// Parses a pattern like `s3:ObjectCreated:*`.
    ///
    /// # Errors
    /// `Event` if there is no such event here.
    pub fn new(text: &str) -> Result<Self, NotificationError> {
        let pattern = Self(text.chars().take(ID_CHARS_MAX).collect());
        if ObjectChange::ALL.iter().any(|change| pattern.names(*change)) {
            Ok(pattern)
        } else {
            Err(NotificationError::Event(pattern.0))
        }
    }

    /// True if the pattern matches `change`.
    #[must_use]
    pub fn names(&self, change: ObjectChange) -> bool {
        let Some(pattern) = self.0.strip_prefix("s3:") else { return false };
        match pattern.strip_suffix('*') {
            Some(group) => group.ends_with(':') && change.name().starts_with(group),
            None => change.name() == pattern,
        }
    }

    /// The pattern as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for EventPattern {
    type Error = NotificationError;

    fn try_from(text: String) -> Result<Self, NotificationError> {
        Self::new(&text)
    }
}

impl From<EventPattern> for String {
    fn from(pattern: EventPattern) -> Self {
        pattern.0
    }
}

/// One rule: these changes of these objects are told to this function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotificationRule {
    /// The rule's id, unique in the bucket.
    pub id: String,
    /// The function's ARN, as the client gave it.
    pub function: String,
    /// The changes that match; one suffices.
    pub events: Vec<EventPattern>,
    /// The prefix of the objects' keys; empty for any.
    pub prefix: String,
    /// The suffix of the objects' keys; empty for any.
    pub suffix: String,
}

/// Why a configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "each message says what the fields hold")]
pub enum NotificationError {
    #[error(
        "The event {0:?} is not supported for notifications; there are s3:ObjectCreated:* and s3:ObjectRemoved:*, and \
         their single events"
    )]
    Event(String),
    #[error("a notification configuration needs at least one event")]
    NoEvent,
    #[error("Same ID used for multiple configurations. IDs must be unique")]
    SameId,
    #[error("the ID of a notification configuration has at most 255 characters")]
    Id,
    #[error("a prefix or suffix has at most 1024 bytes")]
    Filter,
    #[error("a bucket has at most {RULES_MAX} notification configurations")]
    TooMany,
    #[error(
        "Configurations overlap. Configurations on the same bucket cannot share a common event type, unless their \
         prefixes or suffixes keep them apart ({0:?} and {1:?} do not)"
    )]
    Overlap(String, String),
}

impl NotificationRule {
    /// True if the rule matches `change` of the object at `key`.
    #[must_use]
    pub fn wants(&self, change: ObjectChange, key: &str) -> bool {
        // In a short key prefix and suffix may overlap: S3 checks each by itself.
        key.starts_with(&self.prefix)
            && key.ends_with(&self.suffix)
            && self.events.iter().any(|pattern| pattern.names(change))
    }

    fn overlaps(&self, other: &Self) -> bool {
        let shares_event = ObjectChange::ALL.iter().any(|change| {
            let names = |rule: &Self| rule.events.iter().any(|pattern| pattern.names(*change));
            names(self) && names(other)
        });
        let prefixes = self.prefix.starts_with(&other.prefix) || other.prefix.starts_with(&self.prefix);
        let suffixes = self.suffix.ends_with(&other.suffix) || other.suffix.ends_with(&self.suffix);
        shares_event && prefixes && suffixes
    }
}

/// The rules of a bucket. Without rules there is no configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotificationConfig {
    /// The rules.
    pub rules: Vec<NotificationRule>,
}

impl NotificationConfig {
    /// Checks the rules against each other and S3's limits.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check(&self) -> Result<(), NotificationError> {
        if self.rules.len() > RULES_MAX {
            return Err(NotificationError::TooMany);
        }
        let mut ids = BTreeSet::new();
        for (at, rule) in self.rules.iter().enumerate() {
            if rule.events.is_empty() {
                return Err(NotificationError::NoEvent);
            }
            if rule.id.chars().count() > ID_CHARS_MAX {
                return Err(NotificationError::Id);
            }
            if !ids.insert(&rule.id) {
                return Err(NotificationError::SameId);
            }
            if rule.prefix.len() > FILTER_BYTES_MAX || rule.suffix.len() > FILTER_BYTES_MAX {
                return Err(NotificationError::Filter);
            }
            if let Some(other) = self.rules[..at].iter().find(|other| rule.overlaps(other)) {
                return Err(NotificationError::Overlap(other.id.clone(), rule.id.clone()));
            }
        }
        Ok(())
    }

    /// The rules that match `change` of the object at `key`.
    pub fn wanting(&self, change: ObjectChange, key: &str) -> impl Iterator<Item = &NotificationRule> {
        self.rules.iter().filter(move |rule| rule.wants(change, key))
    }
}

/// A change, as the document describes it.
#[derive(Debug)]
pub(crate) struct ChangeNotice<'a> {
    /// The object.
    pub(crate) object: &'a ObjectId,
    /// What happened.
    pub(crate) change: ObjectChange,
    /// The principal that made the change.
    pub(crate) who: &'a Principal,
    /// The new size in bytes and the entity tag; none if the object was removed.
    pub(crate) created: Option<(u64, &'a ETag)>,
    /// The version of the change.
    pub(crate) version: Version,
    /// When the change was made.
    pub(crate) at: Timestamp,
    /// The node's region.
    pub(crate) region: &'a str,
}

/// A key, encoded as in documents.
#[must_use]
pub(crate) fn encoded_key(key: &str) -> String {
    utf8_percent_encode(key, KEPT).to_string().replace(' ', "+")
}

/// The most bytes of the document for an object and a rule.
#[must_use]
pub(crate) fn document_bytes_max(object: &ObjectId, rule: &NotificationRule) -> usize {
    /// The bytes of everything but key and id: names, dates, an entity tag, a function's name.
    const REST: usize = 1536;
    encoded_key(object.key.as_str()).len() + 6 * rule.id.len() + REST
}

/// The document that tells the function of `rule`.
#[must_use]
pub(crate) fn document(changed: &ChangeNotice<'_>, rule: &NotificationRule) -> Bytes {
    let ChangeNotice { object, change, who, created, version, at, region } = changed;
    let bucket: &BucketName = &object.bucket;
    let actor = who.function.as_ref().map_or_else(|| who.namespace.to_string(), ToString::to_string);
    let mut described = json!({
        "key": encoded_key(object.key.as_str()),
        // Of two events of a key, the later has the greater text.
        "sequencer": format!("{:08X}{:016X}", version.epoch.0, version.sequence.0),
    });
    if let Some((size, etag)) = created {
        described["size"] = (*size).into();
        described["eTag"] = etag.0.as_str().into();
    }
    let record = json!({
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "awsRegion": region,
        "eventTime": at.rfc3339(),
        "eventName": change.name(),
        "userIdentity": { "principalId": format!("AWS:{actor}") },
        // The doors listen on this machine; a client behind a proxy is not known here.
        "requestParameters": { "sourceIPAddress": "127.0.0.1" },
        "responseElements": {
            "x-amz-request-id": Uuid::new_v4().simple().to_string().to_uppercase()[..16],
            "x-amz-id-2": "nigh",
        },
        "s3": {
            "s3SchemaVersion": "1.0",
            "configurationId": rule.id,
            "bucket": {
                "name": bucket,
                "ownerIdentity": { "principalId": who.namespace },
                "arn": format!("arn:aws:s3:::{bucket}"),
            },
            "object": described,
        },
    });
    Bytes::from(json!({ "Records": [record] }).to_string())
}

#[cfg(test)]
mod tests {
    use nigh_terms::{Epoch, Namespace, ObjectKey, Sequence};

    use super::*;

    fn rule(id: &str, events: &[&str], prefix: &str, suffix: &str) -> NotificationRule {
        NotificationRule {
            id: id.to_owned(),
            function: "arn".to_owned(),
            events: events.iter().map(|event| EventPattern::new(event).unwrap()).collect(),
            prefix: prefix.to_owned(),
            suffix: suffix.to_owned(),
        }
    }

    fn check(rules: &[NotificationRule]) -> Result<(), NotificationError> {
        NotificationConfig { rules: rules.to_vec() }.check()
    }

    const CREATED: &str = "s3:ObjectCreated:*";

    #[test]
    fn a_rule_concerns_its_changes_of_keys_that_begin_and_end_as_it_says() {
        let pictures = rule("1", &[CREATED], "in/", ".png");
        assert!(pictures.wants(ObjectChange::Put, "in/a.png"));
        assert!(pictures.wants(ObjectChange::CompleteMultipartUpload, "in/b/a.png"));
        assert!(!pictures.wants(ObjectChange::Put, "in/a.jpg") && !pictures.wants(ObjectChange::Put, "out/a.png"));
        assert!(!pictures.wants(ObjectChange::Delete, "in/a.png"));
        assert!(rule("2", &["s3:ObjectRemoved:Delete"], "", "").wants(ObjectChange::Delete, "x"));
    }

    #[test]
    fn events_that_are_not_here_are_refused_by_name() {
        for bad in ["s3:ObjectTagging:*", "s3:ReducedRedundancyLostObject", "ObjectCreated:*", "s3:*", "", "s3:Object*"]
        {
            let refused = EventPattern::new(bad).unwrap_err();
            assert_eq!(refused, NotificationError::Event(bad.to_owned()));
        }
    }

    #[test]
    fn rules_that_share_an_event_must_be_apart_by_prefix_or_suffix() {
        let overlaps = |a, b| matches!(check(&[a, b]), Err(NotificationError::Overlap(..)));
        assert!(overlaps(rule("1", &[CREATED], "", ""), rule("2", &["s3:ObjectCreated:Put"], "in/", "")));
        assert!(overlaps(rule("1", &[CREATED], "in/", ".png"), rule("2", &[CREATED], "in/a/", "g")));
        assert!(!overlaps(rule("1", &[CREATED], "in/", ""), rule("2", &[CREATED], "out/", "")));
        assert!(!overlaps(rule("1", &[CREATED], "", ".png"), rule("2", &[CREATED], "", ".jpg")));
        assert!(!overlaps(rule("1", &[CREATED], "", ""), rule("2", &["s3:ObjectRemoved:*"], "", "")));
        assert_eq!(
            check(&[rule("1", &[CREATED], "a", ""), rule("1", &[CREATED], "b", "")]),
            Err(NotificationError::SameId)
        );
        assert_eq!(check(&[rule("1", &[], "a", "")]), Err(NotificationError::NoEvent));
        let many: Vec<_> = (0..=RULES_MAX).map(|n| rule(&n.to_string(), &[CREATED], &format!("{n}/"), "")).collect();
        assert_eq!(check(&many), Err(NotificationError::TooMany));
        assert_eq!(check(&many[1..]), Ok(()));
    }

    #[test]
    fn a_document_has_s3s_members_and_an_encoded_key() {
        let object = ObjectId {
            namespace: Namespace::new("tenant").unwrap(),
            bucket: BucketName::new("pictures").unwrap(),
            key: ObjectKey::new("in/red & grün+1*.png").unwrap(),
        };
        let who = Principal::outside(object.namespace.clone());
        let etag = ETag("0123".to_owned());
        let mut changed = ChangeNotice {
            object: &object,
            change: ObjectChange::Put,
            who: &who,
            created: Some((7, &etag)),
            version: Version { epoch: Epoch(2), sequence: Sequence(255) },
            at: Timestamp(1_700_000_000_120),
            region: "us-east-1",
        };
        let told = rule("on-put", &[CREATED], "in/", "");
        let text = document(&changed, &told);
        assert!(text.len() < document_bytes_max(&object, &told));
        let value: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let record = &value["Records"][0];
        assert_eq!(
            (record["eventVersion"].as_str(), record["eventName"].as_str()),
            (Some("2.1"), Some("ObjectCreated:Put"))
        );
        assert_eq!(record["eventTime"], "2023-11-14T22:13:20.120Z");
        assert_eq!(
            record["s3"]["object"],
            json!({ "key": "in/red+%26+gr%C3%BCn%2B1*.png", "size": 7, "eTag": "0123", "sequencer": "0000000200000000000000FF" })
        );
        assert_eq!(record["s3"]["bucket"]["arn"], "arn:aws:s3:::pictures");
        assert_eq!(record["s3"]["configurationId"], "on-put");

        changed.change = ObjectChange::Delete;
        changed.created = None;
        let value: serde_json::Value = serde_json::from_slice(&document(&changed, &told)).unwrap();
        assert!(value["Records"][0]["s3"]["object"].get("size").is_none());
    }
}
