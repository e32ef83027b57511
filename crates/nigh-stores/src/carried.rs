//! Converts an object's metadata into headers of a store, and back. Pure.
//!
//! Metadata for which the store has a header is in that header, so that other readers of the bucket see it. The rest is
//! JSON: the version and token, tags, checksums, part lengths, the acknowledged entity tag and time, and texts that a
//! header or Swift cannot hold. The JSON, with `%XX` for all but printable ASCII, is cut into user metadata `nigh-0`,
//! `nigh-1`, ...: Swift accepts at most 256 bytes a value. It names its key: an outsider's copy of the object has the same
//! headers, and is not taken for the object.

use std::collections::BTreeMap;

use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE, ETAG, EXPIRES, HeaderMap,
    HeaderName, HeaderValue, LAST_MODIFIED,
};
use nigh_data::{Attributes, Checksum, ChecksumAlgorithm, ETag, ObjectError, ObjectMeta, Tags};
use nigh_terms::{ObjectKey, Timestamp, Token, Version};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use time::PrimitiveDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

/// How a store writes user metadata.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dialect {
    /// The store's kind, for messages.
    pub(super) store: &'static str,
    /// The prefix of headers with user metadata.
    pub(super) meta: &'static str,
    /// The separator within names of user metadata: `-` or `_`.
    pub(super) joint: char,
    /// Returns true for an attribute that the store keeps in its own header.
    pub(super) system: fn(&HeaderName) -> bool,
}

impl Dialect {
    /// The dialect of a store that keeps user metadata in headers: S3, Swift.
    pub(super) const fn of_headers(store: &'static str, meta: &'static str) -> Self {
        Self { store, meta, joint: '-', system: |_| true }
    }

    /// The prefix of Nigh's own names within user metadata.
    fn ours(self) -> String {
        format!("nigh{}", self.joint)
    }

    fn is_plain_name(self, name: &str) -> bool {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == self.joint;
        // If the separator is `_`, a name must be an identifier of C#, which is Azure's rule, so it must not begin with
        // a digit.
        let begins = self.joint == '-' || !name.starts_with(|c: char| c.is_ascii_digit());
        !name.is_empty()
            && name.len() <= NAME_MAX
            && !name.starts_with(&self.ours())
            && begins
            && name.chars().all(plain)
    }
}

/// The longest value that is sent, in bytes. Swift's limit is 256.
const VALUE_MAX: usize = 250;
/// The longest name that is sent as it is, in bytes. Swift's limit is 128.
const NAME_MAX: usize = 100;
/// The most user metadata of one object, in bytes. S3 allows 2 KiB, Swift 4 KiB; a strict S3 service rejects more.
const CARRIED_MAX: usize = 3000;
/// The checksums of parts are added as far as all user metadata stays within this number of bytes, names and values
/// together: the limit of S3. So no store refuses an object for them.
const WITH_PART_CHECKSUMS_MAX: usize = 2 << 10;
/// Bytes beside the checksums of parts that come with them: their field in the JSON, and the names of headers.
const PART_CHECKSUMS_FRAME: usize = 100;
/// ASCII characters that are encoded. (A blank at the end of a piece would be lost in transfer.)
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%').add(b' ');
const HTTP_DATE: &[BorrowedFormatItem<'_>] =
    format_description!("[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT");

/// Metadata for which the store has no header. The field names are short to save space.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct ExtraMetadata {
    /// The key of the object that this metadata belongs to.
    #[serde(rename = "k")]
    key: String,
    #[serde(rename = "v")]
    version: Version,
    #[serde(rename = "t", skip_serializing_if = "Token::is_empty")]
    token: Token,
    #[serde(rename = "m")]
    modified: Timestamp,
    /// None in objects that older versions of Nigh wrote.
    #[serde(rename = "e", skip_serializing_if = "Option::is_none")]
    etag: Option<ETag>,
    #[serde(rename = "g", skip_serializing_if = "BTreeMap::is_empty")]
    tags: Tags,
    #[serde(rename = "c", skip_serializing_if = "Vec::is_empty")]
    checksums: Vec<Checksum>,
    /// The lengths of the parts in bytes, each with the number of consecutive parts of this length.
    #[serde(rename = "p", skip_serializing_if = "Vec::is_empty")]
    parts: Vec<(u64, u32)>,
    /// The attributes for which the store has no header.
    #[serde(rename = "a", skip_serializing_if = "is_default")]
    attributes: Attributes,
    /// True if the object has no content type, even if the remote shows a default.
    #[serde(rename = "u", skip_serializing_if = "std::ops::Not::not")]
    untyped: bool,
}

fn is_default(attributes: &Attributes) -> bool {
    *attributes == Attributes::default()
}

/// A short checksum that identifies a key.
fn mark(key: &ObjectKey) -> String {
    format!("{:016x}", crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, key.as_str().as_bytes()))
}

/// Returns true if Nigh and Swift transmit the text unchanged.
fn is_plain(text: &str) -> bool {
    text.len() <= VALUE_MAX && text.trim() == text && !text.is_empty() && text.bytes().all(|b| matches!(b, b' '..=b'~'))
}

fn system_headers(attributes: &mut Attributes) -> [(HeaderName, &mut Option<String>); 6] {
    [
        (CONTENT_TYPE, &mut attributes.content_type),
        (CACHE_CONTROL, &mut attributes.cache_control),
        (CONTENT_DISPOSITION, &mut attributes.content_disposition),
        (CONTENT_ENCODING, &mut attributes.content_encoding),
        (CONTENT_LANGUAGE, &mut attributes.content_language),
        (EXPIRES, &mut attributes.expires),
    ]
}

/// The headers that store `meta` with the object `key`.
///
/// # Errors
/// `MetadataTooLarge` if the remote has no room for all of the metadata. Part lengths are left out before that: the
/// object can be read without them, but not by part number. So is a CRC-64/NVME: its writer need not have asked for it.
/// Of the parts' checksums, those of the first parts are sent, as many as have room.
pub(super) fn to_headers(
    dialect: Dialect,
    key: &ObjectKey,
    meta: &ObjectMeta,
) -> Result<Vec<(HeaderName, HeaderValue)>, ObjectError> {
    let mut headers = Vec::new();
    let mut rest = meta.attributes.clone();
    for (name, value) in system_headers(&mut rest) {
        if let Some(text) = value.take_if(|text| is_plain(text) && (dialect.system)(&name))
            && let Ok(text) = HeaderValue::from_str(&text)
        {
            headers.push((name, text));
        }
    }
    for (name, value) in std::mem::take(&mut rest.user) {
        let header =
            HeaderName::try_from(format!("{}{name}", dialect.meta)).ok().filter(|_| dialect.is_plain_name(&name));
        match (header, HeaderValue::from_str(&value).ok().filter(|_| is_plain(&value))) {
            (Some(header), Some(text)) => headers.push((header, text)),
            _ => {
                rest.user.insert(name, value);
            }
        }
    }
    let mut carried = ExtraMetadata {
        key: mark(key),
        version: meta.version,
        token: meta.token.clone(),
        modified: meta.modified,
        etag: Some(meta.etag.clone()),
        tags: meta.tags.clone(),
        checksums: meta.checksums.iter().map(Checksum::without_parts).collect(),
        parts: run_lengths(&meta.parts),
        untyped: meta.attributes.content_type.is_none(),
        attributes: rest,
    };
    let mut text = carried.to_text(dialect)?;
    if text.len() > CARRIED_MAX {
        carried.parts.clear();
        text = carried.to_text(dialect)?;
    }
    if text.len() > CARRIED_MAX {
        carried.checksums.retain(|checksum| checksum.algorithm != ChecksumAlgorithm::Crc64Nvme);
        text = carried.to_text(dialect)?;
    }
    if text.len() > CARRIED_MAX {
        return Err(ObjectError::MetadataTooLarge);
    }
    if let (Some(known), Some(first)) = (meta.checksums.first(), carried.checksums.first_mut())
        && !known.parts.is_empty()
        && !carried.parts.is_empty()
    {
        let of_users = |(name, value): &(HeaderName, HeaderValue)| {
            Some(name.as_str().strip_prefix(dialect.meta)?.len() + value.len())
        };
        let taken = headers.iter().filter_map(of_users).sum::<usize>() + text.len() + PART_CHECKSUMS_FRAME;
        // Four characters of base64 carry three bytes.
        let room = WITH_PART_CHECKSUMS_MAX.saturating_sub(taken) / 4 * 3;
        *first = known.with_parts_within(room);
        text = carried.to_text(dialect)?;
    }
    // The text is ASCII, so each cut is between characters.
    for (index, piece) in text.as_bytes().chunks(VALUE_MAX).enumerate() {
        let name = HeaderName::try_from(format!("{}{}{index}", dialect.meta, dialect.ours()));
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(piece)) {
            headers.push((name, value));
        }
    }
    Ok(headers)
}

impl ExtraMetadata {
    fn to_text(&self, dialect: Dialect) -> Result<String, ObjectError> {
        let json = serde_json::to_string(self).map_err(|error| ObjectError::Store {
            store: dialect.store,
            operation: "put",
            reason: format!("the metadata cannot be written: {error}"),
        })?;
        Ok(utf8_percent_encode(&json, ESCAPED).to_string())
    }

    fn from_headers(dialect: Dialect, headers: &HeaderMap, key: &ObjectKey) -> Option<Self> {
        let mut text = String::new();
        for index in 0.. {
            let Some(piece) = headers.get(format!("{}{}{index}", dialect.meta, dialect.ours())) else { break };
            text.push_str(piece.to_str().ok()?);
        }
        let json = percent_decode_str(&text).decode_utf8().ok()?;
        serde_json::from_str(&json).ok().filter(|carried: &Self| carried.key == mark(key))
    }
}

/// Reads the metadata of the object `key` of `size` bytes, and the remote's own entity tag, from the headers of the
/// remote's answer.
pub(super) fn from_headers(dialect: Dialect, key: &ObjectKey, size: u64, headers: &HeaderMap) -> (ObjectMeta, ETag) {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let remote_etag = ETag(text(ETAG).unwrap_or_default().trim_matches('"').to_owned());
    let carried = ExtraMetadata::from_headers(dialect, headers, key);
    let ours = carried.is_some();
    let ExtraMetadata { version, token, modified, etag, tags, checksums, parts, mut attributes, untyped, .. } =
        carried.unwrap_or_default();
    for (name, value) in system_headers(&mut attributes) {
        if value.is_none() && !(untyped && name == CONTENT_TYPE) {
            *value = text(name);
        }
    }
    for (name, value) in headers {
        if let Some(name) = name.as_str().strip_prefix(dialect.meta)
            && !name.starts_with(&dialect.ours())
        {
            attributes.user.insert(name.to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned());
        }
    }
    let modified = if ours { modified } else { text(LAST_MODIFIED).map_or(Timestamp(0), |date| http_date(&date)) };
    let meta = ObjectMeta {
        size,
        etag: etag.unwrap_or_else(|| remote_etag.clone()),
        modified,
        attributes,
        tags,
        checksums,
        parts: parts.into_iter().flat_map(|(length, count)| std::iter::repeat_n(length, count as usize)).collect(),
        version,
        token,
    };
    (meta, remote_etag)
}

/// Parses an HTTP date. Returns the beginning of 1970 if `text` is not an HTTP date.
pub(super) fn http_date(text: &str) -> Timestamp {
    PrimitiveDateTime::parse(text, HTTP_DATE)
        .ok()
        .and_then(|date| u64::try_from(date.assume_utc().unix_timestamp()).ok())
        .map_or(Timestamp(0), |seconds| Timestamp(seconds * 1000))
}

/// Returns true if the remote computes this entity tag itself, because it is an MD5.
pub(super) fn is_md5(etag: &ETag) -> bool {
    etag.0.len() == 32 && etag.0.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn run_lengths(parts: &[u64]) -> Vec<(u64, u32)> {
    let mut runs: Vec<(u64, u32)> = Vec::new();
    for &length in parts {
        match runs.last_mut() {
            Some((last, count)) if *last == length => *count += 1,
            _ => runs.push((length, 1)),
        }
    }
    runs
}

#[cfg(test)]
mod tests;
