//! Writes an object to the remote, in one request or in the parts of its upload. The bytes are sent without a copy, from a
//! segment or a mapped spool file.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use http::Method;
use http::header::{HeaderName, HeaderValue};
use nigh_data::{ObjectError, ObjectId, ObjectMeta};

use super::{DIALECT, RemoteStore, STORE, store_error, xml};
use crate::Payload;
use crate::carried::{is_md5, to_headers};
use crate::payload::pieces;
use crate::wire::{Call, encode_query};

/// The most parts of one upload that are sent at a time.
const PARTS_AT_ONCE: usize = 4;
/// The smallest part in bytes, except the last part (S3 User Guide, "multipart upload limits").
const PART_MIN: u64 = 5 << 20;
const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");

fn bytes_of_hex(hex: &str) -> Option<Vec<u8>> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok()).collect()
}

impl RemoteStore {
    /// Writes the object. Keeps its parts if the remote accepts them, so that the remote computes the same tag.
    pub(super) async fn upload(
        &self,
        object: &ObjectId,
        payload: &Payload,
        meta: &ObjectMeta,
        conditions: Vec<(HeaderName, HeaderValue)>,
    ) -> Result<(), ObjectError> {
        let pieces = pieces(STORE, payload, meta)?;
        let all_but_last = &pieces[..pieces.len().saturating_sub(1)];
        let large_enough = all_but_last.iter().all(|piece| piece.len() as u64 >= PART_MIN);
        if pieces.len() > 1 && !is_md5(&meta.etag) && large_enough {
            self.put_parts(object, pieces, meta, conditions).await
        } else {
            self.put_whole(object, pieces, meta, conditions).await
        }
    }

    async fn put_whole(
        &self,
        object: &ObjectId,
        body: Vec<Bytes>,
        meta: &ObjectMeta,
        conditions: Vec<(HeaderName, HeaderValue)>,
    ) -> Result<(), ObjectError> {
        let mut call = Call::new("put", Method::PUT, self.target(object)?).body(body);
        call.headers = to_headers(DIALECT, &object.key, meta)?;
        call.headers.extend(conditions);
        if is_md5(&meta.etag)
            && let Some(md5) = bytes_of_hex(&meta.etag.0)
            && let Ok(md5) = HeaderValue::from_str(&BASE64.encode(md5))
        {
            // The remote rejects bytes that were damaged in transfer.
            call = call.header(CONTENT_MD5, md5);
        }
        self.send_for(object, &call).await.map(drop)
    }

    async fn put_parts(
        &self,
        object: &ObjectId,
        parts: Vec<Bytes>,
        meta: &ObjectMeta,
        conditions: Vec<(HeaderName, HeaderValue)>,
    ) -> Result<(), ObjectError> {
        let target = self.target(object)?;
        let mut begin = Call::new("begin upload", Method::POST, format!("{target}?uploads=")).repeatable();
        begin.headers = to_headers(DIALECT, &object.key, meta)?;
        let answer = self.send_for(object, &begin).await?;
        let begun = answer.text().await?;
        let upload = xml::parse_upload(&begun).map_err(|error| store_error(begin.operation, error))?;
        let upload = encode_query(&upload);
        let done = self.upload_parts(object, &target, &upload, parts, conditions).await;
        if done.is_err() {
            let abort = Call::new("abort upload", Method::DELETE, format!("{target}?uploadId={upload}")).repeatable();
            if let Err(error) = self.wire.send(&abort).await {
                tracing::warn!(%object, ?error, "an upload to the store could not be aborted; it keeps its parts");
            }
        }
        done
    }

    async fn upload_parts(
        &self,
        object: &ObjectId,
        target: &str,
        upload: &str,
        parts: Vec<Bytes>,
        conditions: Vec<(HeaderName, HeaderValue)>,
    ) -> Result<(), ObjectError> {
        let etags: Vec<String> = futures::stream::iter(parts.into_iter().enumerate())
            .map(|(index, part)| async move {
                let number = index + 1;
                let call =
                    Call::new("upload part", Method::PUT, format!("{target}?partNumber={number}&uploadId={upload}"));
                let answer = self.send_for(object, &call.body(vec![part]).repeatable()).await?;
                let etag = answer.headers.get(http::header::ETAG).and_then(|etag| etag.to_str().ok());
                etag.map(str::to_owned).ok_or_else(|| store_error("upload part", "the answer has no ETag"))
            })
            .buffered(PARTS_AT_ONCE)
            .try_collect()
            .await?;
        let mut call = Call::new("complete upload", Method::POST, format!("{target}?uploadId={upload}"))
            .body(vec![Bytes::from(xml::complete_upload(&etags))]);
        call.headers = conditions;
        let answer = self.send_for(object, &call).await?;
        let text = answer.text().await?;
        // S3 may answer "200 OK" and report an error in the body.
        match xml::parse_error(&text) {
            Some((code, message)) => Err(store_error(call.operation, format!("{code} {message}"))),
            None => Ok(()),
        }
    }
}
