//! What an object carries beside its bytes.

use std::collections::BTreeMap;
use std::fmt;

use nigh_terms::{Timestamp, Token, Version};
use serde::{Deserialize, Serialize};

use crate::{Checksum, ObjectError};

/// An entity tag without its quotes: the MD5 of the bytes in hex, or `md5-of-md5s-N` for N parts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ETag(pub String);

impl fmt::Display for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Object tags: at most ten, keys unique.
pub type Tags = BTreeMap<String, String>;

/// What the writer says of an object; given back as it was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Attributes {
    /// `Content-Type`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// `Cache-Control`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_control: Option<String>,
    /// `Content-Disposition`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_disposition: Option<String>,
    /// `Content-Encoding`, without `aws-chunked`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_encoding: Option<String>,
    /// `Content-Language`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_language: Option<String>,
    /// `Expires`, as the HTTP date it was given as.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// `x-amz-meta-*`, names in lower case without the prefix; 2 KiB in all.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub user: BTreeMap<String, String>,
}

/// All that is known of a stored object but its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectMeta {
    /// Its length in bytes.
    pub size: u64,
    /// Its entity tag.
    pub etag: ETag,
    /// When it was written.
    pub modified: Timestamp,
    /// What the writer said of it.
    pub attributes: Attributes,
    /// Its tags.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: Tags,
    /// The checksums kept with it: the one the writer asked for, or S3's default. Objects that older builds of Nigh or
    /// others wrote may have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checksums: Vec<Checksum>,
    /// The lengths of its parts, if it was uploaded in parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<u64>,
    /// Its place in the order of writes.
    pub version: Version,
    /// What its writer had seen of other shards.
    #[serde(default, skip_serializing_if = "Token::is_empty")]
    pub token: Token,
}

/// User metadata in all, names and values.
const USER_BYTES_MAX: usize = 2 << 10;
/// Tags of an object.
const TAGS_MAX: usize = 10;
/// Characters of a tag's key.
const TAG_KEY_MAX: usize = 128;
/// Characters of a tag's value.
const TAG_VALUE_MAX: usize = 256;

impl Attributes {
    /// Refuses what S3 does ("Working with object metadata", S3 User Guide).
    pub fn check(&self) -> Result<(), ObjectError> {
        let bytes: usize = self.user.iter().map(|(name, value)| name.len() + value.len()).sum();
        if bytes > USER_BYTES_MAX { Err(ObjectError::MetadataTooLarge) } else { Ok(()) }
    }
}

/// Refuses the tags that S3 does ("Categorizing your storage using tags", S3 User Guide).
pub fn check_tags(tags: &Tags) -> Result<(), ObjectError> {
    if tags.len() > TAGS_MAX {
        return Err(ObjectError::InvalidTag(format!("Object tags cannot be greater than {TAGS_MAX}")));
    }
    let allowed = |text: &str| text.chars().all(|c| c.is_alphanumeric() || " +-=._:/@".contains(c));
    for (key, value) in tags {
        if !(1..=TAG_KEY_MAX).contains(&key.chars().count()) || !allowed(key) {
            return Err(ObjectError::InvalidTag("The TagKey you have provided is invalid".to_owned()));
        }
        if value.chars().count() > TAG_VALUE_MAX || !allowed(value) {
            return Err(ObjectError::InvalidTag("The TagValue you have provided is invalid".to_owned()));
        }
        if key.starts_with("aws:") {
            return Err(ObjectError::InvalidTag("System tags cannot be added/updated by requester".to_owned()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_limited_as_in_s3() {
        let tags = |pairs: &[(&str, &str)]| -> Tags {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let (key, value) = ("k".repeat(128), "ü".repeat(256));
        assert!(check_tags(&tags(&[("a b", ""), (&key, &value)])).is_ok());
        for (key, value) in
            [("", ""), (&*"k".repeat(129), ""), ("k", &*"v".repeat(257)), ("aws:x", ""), ("k*", ""), ("k", "<")]
        {
            assert!(check_tags(&tags(&[(key, value)])).is_err(), "{key} {value}");
        }
        let many: Tags = (0..11).map(|n| (n.to_string(), String::new())).collect();
        assert!(check_tags(&many).is_err());
    }

    #[test]
    fn user_metadata_is_limited_to_2_kib() {
        let of = |length: usize| Attributes {
            user: BTreeMap::from([("name".to_owned(), "v".repeat(length))]),
            ..Attributes::default()
        };
        assert!(of(2044).check().is_ok() && of(2045).check().is_err());
    }
}
