//! Large objects: Swift's static large objects, a manifest over segments (Swift documentation, "Large objects").
//!
//! Segments of the bucket `b` are in the container `b+segments`, which is no valid bucket name, as
//! `<SHA-256 of the key>/<upload>/<number>`. A manifest names the segments of one upload with their lengths and entity
//! tags, and segments are never overwritten, so a read returns the bytes of one upload or fails. After a write or deletion
//! of a key the segments of its other uploads are removed, and reads of the old object that are under way fail.

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use http::Method;
use nigh_data::{ObjectError, ObjectId, ObjectMeta};
use nigh_terms::hex;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::{CONTAINERS_MAX, SwiftStore, listing, put_headers, store_error};
use crate::wire::{Call, encode_path, encode_query};

/// The most segments that are sent or removed at a time.
const AT_ONCE: usize = 4;
/// The smallest part that becomes a segment, in bytes, because small segments cost many requests.
const SEGMENT_MIN: usize = 5 << 20;
/// The most segments of a manifest, by Swift's default (`max_manifest_segments`). More parts are joined.
const SEGMENTS_MAX: usize = 1000;
/// The longest object without segments in bytes, by Swift's default (`max_file_size`).
const WHOLE_MAX: usize = 5 << 30;
/// The length of the segments of a longer part, in bytes.
const CUT: usize = 1 << 30;
/// A generous estimate of the time that Swift needs to check one segment of a new manifest.
const LOOK: std::time::Duration = std::time::Duration::from_millis(50);

/// Divides the parts into segments of one or more pieces. None if the object needs no segments.
pub(super) fn segments(parts: &[Bytes]) -> Option<Vec<Vec<Bytes>>> {
    let total: usize = parts.iter().map(Bytes::len).sum();
    let all_but_last = &parts[..parts.len().saturating_sub(1)];
    if total <= WHOLE_MAX && (parts.len() < 2 || all_but_last.iter().any(|part| part.len() < SEGMENT_MIN)) {
        return None;
    }
    let cut = |part: &Bytes| -> Vec<Bytes> {
        let step = if part.len() > WHOLE_MAX { CUT } else { part.len().max(1) };
        (0..part.len()).step_by(step).map(|at| part.slice(at..part.len().min(at + step))).collect()
    };
    let pieces: Vec<Bytes> = parts.iter().flat_map(cut).collect();
    let joined = pieces.len().div_ceil(SEGMENTS_MAX).max(1);
    Some(pieces.chunks(joined).map(<[Bytes]>::to_vec).collect())
}

/// The folder that an object's segments are in, within the container of segments.
fn folder(object: &ObjectId) -> String {
    hex(&Sha256::digest(object.key.as_str().as_bytes()))
}

impl SwiftStore {
    fn segments_container(&self, object: &ObjectId) -> Result<String, ObjectError> {
        Ok(segments_of(&self.names.on_store(&object.namespace, &object.bucket)?))
    }

    /// Writes the segments, then the manifest that makes them the object.
    pub(super) async fn put_large(
        &self,
        object: &ObjectId,
        segments: Vec<Vec<Bytes>>,
        meta: &ObjectMeta,
    ) -> Result<(), ObjectError> {
        let headers = put_headers(object, meta)?;
        // A missing bucket gets no container of segments.
        self.head_container(&object.namespace, &object.bucket).await?;
        let container = self.segments_container(object)?;
        let make = Call::new("make segments", Method::PUT, format!("/{container}")).repeatable();
        self.wire.send_or_fail(&make).await?;
        self.unsegmented.lock().remove(&container);

        let upload = uuid::Uuid::new_v4().simple().to_string();
        let prefix = format!("{}/{upload}", folder(object));
        let manifest = match self.put_segments(&format!("{container}/{prefix}"), segments).await {
            Ok(manifest) => manifest,
            Err(error) => {
                self.sweep_or_say(object, &container, &prefix, None).await;
                return Err(error);
            }
        };
        let mut call = Call::new("put", Method::PUT, format!("{}?multipart-manifest=put", self.target(object)?));
        call.headers = headers;
        call.work = LOOK * u32::try_from(manifest.len()).unwrap_or(u32::MAX);
        call = call.body(vec![Bytes::from(json!(manifest).to_string())]);
        let done = self.send_for(object, &call).await;
        match &done {
            Ok(_) => self.sweep_or_say(object, &container, &folder(object), Some(&prefix)).await,
            // Swift may still write the manifest, so the segments stay until the key is written again.
            Err(error) if error.is_in_doubt() => {}
            Err(_) => self.sweep_or_say(object, &container, &prefix, None).await,
        }
        done.map(drop)
    }

    async fn put_segments(&self, path: &str, segments: Vec<Vec<Bytes>>) -> Result<Vec<serde_json::Value>, ObjectError> {
        futures::stream::iter(segments.into_iter().enumerate())
            .map(|(index, segment)| async move {
                let path = format!("/{path}/{index:05}");
                let bytes: usize = segment.iter().map(Bytes::len).sum();
                let call = Call::new("put segment", Method::PUT, path.clone()).body(segment).repeatable();
                let answer = self.wire.send_or_fail(&call).await?;
                let etag = answer.headers.get(http::header::ETAG).and_then(|etag| etag.to_str().ok());
                let etag = etag.ok_or_else(|| store_error(call.operation, "the answer has no ETag"))?;
                Ok(json!({"path": path, "etag": etag.trim_matches('"'), "size_bytes": bytes}))
            })
            .buffered(AT_ONCE)
            .try_collect()
            .await
    }

    /// Removes all segments of the object, after a deletion or a write without segments.
    pub(super) async fn drop_segments(&self, object: &ObjectId) -> Result<(), ObjectError> {
        let container = self.segments_container(object)?;
        if !self.unsegmented.lock().contains(&container) {
            self.sweep_or_say(object, &container, &folder(object), None).await;
        }
        Ok(())
    }

    /// Removes the container of a removed bucket's segments, if it has one.
    pub(super) async fn drop_segments_container(&self, container: &str) -> Result<(), ObjectError> {
        let container = segments_of(container);
        self.sweep(&container, "", None).await?;
        let call = Call::new("remove segments", Method::DELETE, format!("/{container}")).repeatable();
        match self.wire.send(&call).await {
            Err(error) if !error.is_missing() => Err(self.wire.error(error, &call)),
            _ => Ok(()),
        }
    }

    async fn sweep_or_say(&self, object: &ObjectId, container: &str, prefix: &str, keep: Option<&str>) {
        if let Err(error) = self.sweep(container, prefix, keep).await {
            tracing::warn!(%object, %error, "unused segments stay in {container}; the key's next write removes them");
        }
    }

    /// Removes all segments whose names begin with `prefix`, except those that begin with `keep`.
    async fn sweep(&self, container: &str, prefix: &str, keep: Option<&str>) -> Result<(), ObjectError> {
        let mut marker = String::new();
        loop {
            let target =
                format!("/{container}?format=json&prefix={}&marker={}", encode_query(prefix), encode_query(&marker));
            let call = Call::new("list segments", Method::GET, target);
            let answer = match self.wire.send(&call).await {
                Err(error) if error.is_missing() => {
                    let mut unsegmented = self.unsegmented.lock();
                    if unsegmented.len() >= CONTAINERS_MAX {
                        unsegmented.clear();
                    }
                    unsegmented.insert(container.to_owned());
                    return Ok(());
                }
                other => other.map_err(|error| self.wire.error(error, &call))?,
            };
            let page =
                listing::parse_objects(&answer.text().await?).map_err(|error| store_error(call.operation, error))?;
            let Some(last) = page.last() else { return Ok(()) };
            marker = last.key.as_str().to_owned();
            let goes = |name: &str| keep.is_none_or(|keep| !name.starts_with(keep));
            let gone: Vec<String> =
                page.iter().map(|entry| entry.key.as_str()).filter(|name| goes(name)).map(encode_path).collect();
            futures::stream::iter(gone)
                .map(|name| async move {
                    let call = Call::new("remove segment", Method::DELETE, format!("/{container}/{name}")).repeatable();
                    match self.wire.send(&call).await {
                        Err(error) if !error.is_missing() => Err(self.wire.error(error, &call)),
                        _ => Ok(()),
                    }
                })
                .buffer_unordered(AT_ONCE)
                .try_collect::<()>()
                .await?;
        }
    }
}

fn segments_of(container: &str) -> String {
    format!("{container}+segments")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(length: usize) -> Bytes {
        Bytes::from(vec![0; length])
    }

    #[test]
    fn parts_become_segments_if_they_are_worth_it() {
        assert_eq!(segments(&[part(10 << 20)]), None);
        assert_eq!(segments(&[part(5), part(5)]), None);
        let two = segments(&[part(SEGMENT_MIN), part(7)]).unwrap();
        assert_eq!(two.iter().map(|segment| segment[0].len()).collect::<Vec<_>>(), [SEGMENT_MIN, 7]);
        // An empty last part becomes no segment, because Swift refuses empty segments.
        assert_eq!(segments(&[part(SEGMENT_MIN), part(SEGMENT_MIN), part(0)]).unwrap().len(), 2);
    }

    #[test]
    fn more_parts_than_a_manifest_takes_are_joined() {
        let one = part(SEGMENT_MIN);
        let many = segments(&vec![one; 2500]).unwrap();
        assert!(many.len() <= SEGMENTS_MAX);
        assert_eq!(many.iter().flatten().count(), 2500);
    }

    #[test]
    fn an_object_longer_than_swift_takes_is_cut() {
        // The mapped pages are never touched, so they take no memory.
        let map = memmap2::MmapOptions::new().len(WHOLE_MAX + 1).map_anon().unwrap();
        let whole = Bytes::from_owner(map);
        let cut = segments(&[whole]).unwrap();
        assert_eq!(cut.iter().map(|segment| segment[0].len()).collect::<Vec<_>>(), [CUT, CUT, CUT, CUT, CUT, 1]);
    }
}
