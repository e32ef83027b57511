//! Reads what a sandbox sends, into bounded memory.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};

use super::RESPONSE_BYTES_MAX;

/// The most bytes of a too large response that are read and discarded, so that its sender can read the refusal.
const DISCARD_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The most bytes that are read of the body of any other refused request.
const REFUSED_BYTES_MAX: usize = 64 * 1024;

/// Reads a refused body if it is small, so that its connection can be used again.
pub(super) async fn discard(mut body: Incoming) {
    let mut size = 0;
    while let Some(Ok(frame)) = body.frame().await {
        size += frame.data_ref().map_or(0, Bytes::len);
        if size > REFUSED_BYTES_MAX {
            return;
        }
    }
}

/// A body that was read to its end.
pub(super) enum ReadBody {
    /// The whole body.
    Whole(Bytes),
    /// The body is larger than `RESPONSE_BYTES_MAX`.
    TooLarge,
}

/// Reads a body. Of a too large one it reads only as much as its sender needs to read the refusal.
pub(super) async fn read(mut body: Incoming) -> Result<ReadBody, hyper::Error> {
    let mut size = 0;
    let mut first = Bytes::new();
    let mut whole = BytesMut::new();
    let expected = body.size_hint().exact().and_then(|size| usize::try_from(size).ok()).unwrap_or(0);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        size += data.len();
        if size > DISCARD_BYTES_MAX {
            break;
        }
        if size > RESPONSE_BYTES_MAX {
            (first, whole) = (Bytes::new(), BytesMut::new());
        } else if size == data.len() {
            first = data;
        } else {
            // Only a response in several pieces is copied.
            if whole.is_empty() {
                whole.reserve(expected.min(RESPONSE_BYTES_MAX).max(size));
                whole.extend_from_slice(&first);
            }
            whole.extend_from_slice(&data);
        }
    }
    Ok(if size > RESPONSE_BYTES_MAX {
        ReadBody::TooLarge
    } else if whole.is_empty() {
        ReadBody::Whole(first)
    } else {
        ReadBody::Whole(whole.freeze())
    })
}
