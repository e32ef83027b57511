//! Converts what opendal reports of an object into Nigh's metadata.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue};
use nigh_data::{ETag, ObjectMeta};
use nigh_terms::{ObjectKey, Timestamp, Version, hex};
use opendal::Metadata;

use super::{CloudStore, META};
use crate::carried::from_headers;

impl CloudStore {
    pub(super) fn meta_of(&self, key: &ObjectKey, metadata: &Metadata) -> ObjectMeta {
        let mut headers = HeaderMap::new();
        let system = [(CONTENT_TYPE, metadata.content_type()), (CACHE_CONTROL, metadata.cache_control())];
        let tag = self.listed_tag(metadata);
        let all = system.into_iter().chain([(ETAG, Some(tag.0.as_str()))]);
        let own = metadata.user_metadata().into_iter().flatten().filter_map(|(name, value)| {
            let name = HeaderName::try_from(format!("{META}{}", name.to_ascii_lowercase())).ok()?;
            Some((name, Some(value)))
        });
        for (name, value) in all.chain(own) {
            if let Some(Ok(value)) = value.map(HeaderValue::from_str) {
                headers.insert(name, value);
            }
        }
        let (mut meta, _) = from_headers(self.dialect, key, metadata.content_length(), &headers);
        if meta.version == Version::OUTSIDE {
            meta.modified = modified(metadata);
        }
        meta
    }

    /// The MD5 of the object's bytes if the service has it, otherwise the service's own entity tag.
    pub(super) fn listed_tag(&self, metadata: &Metadata) -> ETag {
        let md5 = metadata.content_md5().and_then(|md5| BASE64_STANDARD.decode(md5).ok());
        ETag(match md5 {
            Some(md5) if md5.len() == 16 => hex(&md5),
            _ => metadata.etag().unwrap_or_default().trim_matches('"').to_owned(),
        })
    }
}

pub(super) fn modified(metadata: &Metadata) -> Timestamp {
    let millis = metadata.last_modified().map(|time| time.into_inner().as_millisecond());
    Timestamp(millis.and_then(|millis| u64::try_from(millis).ok()).unwrap_or(0))
}
