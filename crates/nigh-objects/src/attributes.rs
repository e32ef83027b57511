//! What an object carries beside its bytes.

use std::collections::BTreeMap;
use std::fmt;

use nigh_terms::{Timestamp, Token, Version};
use serde::{Deserialize, Serialize};

use crate::Checksum;

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
    /// The checksums kept with it: the one the writer asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checksums: Vec<Checksum>,
    /// The lengths of its parts, if it was uploaded in parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<u64>,
    /// Its place in the order of writes.
    pub version: Version,
    /// What its writer had seen, itself included.
    #[serde(default, skip_serializing_if = "Token::is_empty")]
    pub token: Token,
}
