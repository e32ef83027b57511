//! The policy of a bucket: the modes of its writes, and whether it is written from outside too. Pure.
//!
//! A mode is a promise about what has happened when a write is acknowledged. The most specific statement wins: a tag's
//! over a prefix's, a longer prefix's over a shorter one's, then the bucket's, the namespace's, the node's; the result
//! is never weaker than the bucket's floor.

use std::fmt;
use std::str::FromStr;

use nigh_data::Tags;
use nigh_stores::StoreAbilities;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::freshness::Freshness;

/// What has happened when a write is acknowledged. In order: a later one promises more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WriteMode {
    /// The bytes are in this node's memory, never in the store. A crash or an eviction loses them.
    Ephemeral,
    /// The bytes are in the journal, and go to the store later.
    Lazy,
    /// The bytes are in the journal, and the store shows that they are coming.
    Shadow,
    /// The store has the bytes.
    Through,
}

impl WriteMode {
    /// Every mode, weakest first.
    pub const ALL: [Self; 4] = [Self::Ephemeral, Self::Lazy, Self::Shadow, Self::Through];

    /// The name in settings.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ephemeral => "ephemeral",
            Self::Lazy => "lazy",
            Self::Shadow => "shadow",
            Self::Through => "through",
        }
    }
}

impl fmt::Display for WriteMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text that names no mode.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not a write mode; use one of ephemeral, lazy, shadow, through")]
pub struct ParseWriteModeError(String);

impl FromStr for WriteMode {
    type Err = ParseWriteModeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = Self::ALL.into_iter().find(|mode| mode.as_str() == text);
        named.ok_or_else(|| ParseWriteModeError(text.to_owned()))
    }
}

/// Who writes to a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Only Nigh writes to it.
    #[default]
    Exclusive,
    /// The bucket is also written from outside, and Nigh overwrites no outside write.
    Shared,
}

/// What the entity tag of an object is, where it is written in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EntityTag {
    /// The MD5 of its bytes.
    Md5,
    /// Half of their SHA-256, with `-1` behind it. Clients take it for a multipart upload's, which is no MD5.
    Composite,
}

/// A mode for some objects of a bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModeRule {
    /// The prefix of their keys; all keys if empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// The tag (key and value) that they must have; none: any or no tags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<(String, String)>,
    /// The mode of their writes.
    pub mode: WriteMode,
}

/// The policy of a bucket's writes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "PolicyDocument")]
pub struct BucketPolicy {
    /// The bucket's mode; with none, the namespace's or the node's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<WriteMode>,
    /// The weakest mode that any object of the bucket gets; none: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floor: Option<WriteMode>,
    /// Whether the bucket is written from outside too.
    pub access: Access,
    /// How long ago the store may have been asked about an object that is served from memory; none: any time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub freshness: Option<Freshness>,
    /// The entity tags of its objects; none: `md5`, and `composite` for segments of 1 MiB and more on the fast path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etag: Option<EntityTag>,
    /// The modes of some of its objects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<ModeRule>,
}

/// A policy as it is read: also one that an earlier build stored, which asked the store at each hit or never.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct PolicyDocument {
    mode: Option<WriteMode>,
    floor: Option<WriteMode>,
    access: Access,
    revalidate: bool,
    freshness: Option<Freshness>,
    etag: Option<EntityTag>,
    rules: Vec<ModeRule>,
}

impl From<PolicyDocument> for BucketPolicy {
    fn from(document: PolicyDocument) -> Self {
        let PolicyDocument { mode, floor, access, revalidate, freshness, etag, rules } = document;
        let freshness = freshness.or_else(|| revalidate.then_some(Freshness::ALWAYS));
        Self { mode, floor, access, freshness, etag, rules }
    }
}

/// The most rules of a bucket.
const RULES_MAX: usize = 100;
/// The most bytes of a prefix: as long as S3's longest key.
const PREFIX_MAX: usize = 1024;

/// Why a policy is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "each message says what the fields hold")]
pub enum PolicyError {
    #[error("{count} rules are more than the {RULES_MAX} a bucket may have")]
    TooManyRules { count: usize },
    #[error("the prefix of rule {0} is longer than a key can be")]
    PrefixTooLong(usize),
    #[error("rules {0} and {1} apply to the same objects and differ; remove one of them")]
    Contradiction(usize, usize),
    #[error("the mode shadow needs a store that shows what is coming (Swift with Nigh's middleware); this is {0}")]
    NoShadow(&'static str),
    #[error(
        "a shared bucket needs a store that can refuse to overwrite what others wrote; {0} cannot: use the mode through"
    )]
    NoConditions(&'static str),
    #[error("the entity tag composite needs a store whose listings show it (a directory, Swift); this is {0}: use md5")]
    NoTags(&'static str),
}

impl BucketPolicy {
    /// The mode of an object with `key` and `tags`; `default` is the namespace's or the node's.
    #[must_use]
    pub fn mode_of(&self, key: &str, tags: &Tags, default: WriteMode) -> WriteMode {
        let fits = |rule: &&ModeRule| {
            let tagged = rule.tag.as_ref().is_none_or(|(name, value)| tags.get(name) == Some(value));
            tagged && key.starts_with(&rule.prefix)
        };
        let rule = self.rules.iter().filter(fits).max_by_key(|rule| (rule.tag.is_some(), rule.prefix.len()));
        let mode = rule.map(|rule| rule.mode).or(self.mode).unwrap_or(default);
        self.floor.map_or(mode, |floor| mode.max(floor))
    }

    /// Every mode that an object of the bucket may have.
    fn modes(&self, default: WriteMode) -> impl Iterator<Item = WriteMode> {
        let floor = self.floor.unwrap_or(WriteMode::Ephemeral);
        let own = self.mode.unwrap_or(default);
        self.rules.iter().map(|rule| rule.mode).chain([own]).map(move |mode| mode.max(floor))
    }

    /// Refuses a policy that contradicts itself, or that `store` cannot support.
    ///
    /// # Errors
    /// Which rule, or which ability the store lacks.
    pub fn check(&self, default: WriteMode, store: StoreAbilities) -> Result<(), PolicyError> {
        if self.rules.len() > RULES_MAX {
            return Err(PolicyError::TooManyRules { count: self.rules.len() });
        }
        for (at, rule) in self.rules.iter().enumerate() {
            if rule.prefix.len() > PREFIX_MAX {
                return Err(PolicyError::PrefixTooLong(at + 1));
            }
            let same = |other: &ModeRule| other.prefix == rule.prefix && other.tag == rule.tag;
            let differs = |other: &ModeRule| same(other) && other.mode != rule.mode;
            if let Some(other) = self.rules.iter().skip(at + 1).position(differs) {
                return Err(PolicyError::Contradiction(at + 1, at + 2 + other));
            }
        }
        if !store.shadows && self.modes(default).any(|mode| mode == WriteMode::Shadow) {
            return Err(PolicyError::NoShadow(store.kind));
        }
        if self.etag == Some(EntityTag::Composite) && !store.lists_tags {
            return Err(PolicyError::NoTags(store.kind));
        }
        // A later push may meet a write from outside.
        let later = |mode| matches!(mode, WriteMode::Lazy | WriteMode::Shadow);
        if self.access == Access::Shared && !store.conditions && self.modes(default).any(later) {
            return Err(PolicyError::NoConditions(store.kind));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABLE: StoreAbilities =
        StoreAbilities { kind: "able", conditions: true, shadows: true, lands_late: true, lists_tags: true };
    const PLAIN: StoreAbilities =
        StoreAbilities { kind: "plain", conditions: false, shadows: false, lands_late: true, lists_tags: false };

    fn rule(prefix: &str, tag: Option<(&str, &str)>, mode: WriteMode) -> ModeRule {
        let tag = tag.map(|(name, value)| (name.to_owned(), value.to_owned()));
        ModeRule { prefix: prefix.to_owned(), tag, mode }
    }

    #[test]
    fn the_most_specific_statement_wins_and_the_floor_holds() {
        let policy = BucketPolicy {
            mode: Some(WriteMode::Through),
            rules: vec![
                rule("tmp/", None, WriteMode::Lazy),
                rule("tmp/scratch/", None, WriteMode::Ephemeral),
                rule("", Some(("keep", "no")), WriteMode::Ephemeral),
            ],
            ..BucketPolicy::default()
        };
        let none = Tags::new();
        let tagged: Tags = [("keep".to_owned(), "no".to_owned())].into();
        for (key, tags, mode) in [
            ("a", &none, WriteMode::Through),
            ("tmp/a", &none, WriteMode::Lazy),
            ("tmp/scratch/a", &none, WriteMode::Ephemeral),
            ("a", &tagged, WriteMode::Ephemeral),
            ("tmp/a", &tagged, WriteMode::Ephemeral),
        ] {
            assert_eq!(policy.mode_of(key, tags, WriteMode::Lazy), mode, "{key}");
        }
        let floored = BucketPolicy { floor: Some(WriteMode::Lazy), ..policy };
        assert_eq!(floored.mode_of("tmp/scratch/a", &none, WriteMode::Lazy), WriteMode::Lazy);
        assert_eq!(floored.mode_of("a", &none, WriteMode::Lazy), WriteMode::Through);
        let silent = BucketPolicy::default();
        assert_eq!(silent.mode_of("a", &none, WriteMode::Shadow), WriteMode::Shadow);
    }

    #[test]
    fn a_policy_that_the_store_cannot_keep_is_refused_and_says_why() {
        let policy = |access, mode| BucketPolicy { access, mode: Some(mode), ..BucketPolicy::default() };
        let check = |policy: &BucketPolicy, store| policy.check(WriteMode::Lazy, store);
        let shadow = policy(Access::Exclusive, WriteMode::Shadow);
        assert_eq!(check(&shadow, ABLE), Ok(()));
        assert_eq!(check(&shadow, PLAIN), Err(PolicyError::NoShadow("plain")));
        assert_eq!(check(&policy(Access::Shared, WriteMode::Lazy), PLAIN), Err(PolicyError::NoConditions("plain")));
        assert_eq!(check(&policy(Access::Shared, WriteMode::Through), PLAIN), Ok(()));
        let floored = BucketPolicy { floor: Some(WriteMode::Through), ..policy(Access::Shared, WriteMode::Lazy) };
        assert_eq!(check(&floored, PLAIN), Ok(()), "the floor makes all of it go through");
        let tagged = BucketPolicy { etag: Some(EntityTag::Composite), ..BucketPolicy::default() };
        assert_eq!((check(&tagged, ABLE), check(&tagged, PLAIN)), (Ok(()), Err(PolicyError::NoTags("plain"))));
        let by_default = BucketPolicy { access: Access::Shared, ..BucketPolicy::default() };
        assert_eq!(check(&by_default, PLAIN), Err(PolicyError::NoConditions("plain")));
    }

    #[test]
    fn a_policy_that_an_earlier_build_stored_asks_the_store_as_it_did() {
        let read = |text: &str| serde_json::from_str::<BucketPolicy>(text).unwrap();
        let old =
            r#"{"mode":"lazy","access":"shared","revalidate":REVALIDATES,"rules":[{"prefix":"a","mode":"through"}]}"#;
        for (revalidates, freshness) in [("true", Some(Freshness::ALWAYS)), ("false", None)] {
            let policy = read(&old.replace("REVALIDATES", revalidates));
            assert_eq!((policy.freshness, policy.access, policy.rules.len()), (freshness, Access::Shared, 1));
            assert_eq!(read(&serde_json::to_string(&policy).unwrap()), policy);
        }
        assert_eq!(read(r#"{"freshness":"30s"}"#).freshness, Some(Freshness::millis(30_000)));
        assert!(serde_json::from_str::<BucketPolicy>(r#"{"fresh":"30s"}"#).is_err(), "a wrong name is refused");
    }

    #[test]
    fn rules_that_contradict_each_other_are_refused_by_number() {
        let rules = vec![
            rule("a", None, WriteMode::Lazy),
            rule("b", None, WriteMode::Lazy),
            rule("a", None, WriteMode::Through),
        ];
        let policy = BucketPolicy { rules, ..BucketPolicy::default() };
        assert_eq!(policy.check(WriteMode::Lazy, ABLE), Err(PolicyError::Contradiction(1, 3)));
    }

    #[test]
    fn modes_are_read_as_they_are_written() {
        for mode in WriteMode::ALL {
            assert_eq!(mode.as_str().parse(), Ok(mode));
        }
        assert!("none".parse::<WriteMode>().unwrap_err().to_string().contains("ephemeral, lazy, shadow, through"));
    }
}
