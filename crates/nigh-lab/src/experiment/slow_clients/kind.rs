//! The doors, the ways in which a client of them is slow, and what such a client sends when. Pure.

use std::time::Duration;

use clap::ValueEnum;
use nigh_http::least_rate::LEAST_BYTES_PER_SECOND;
use serde::{Deserialize, Serialize};

/// A client just above the least rate sends an eighth more.
const ABOVE_BYTES_PER_SECOND: u64 = LEAST_BYTES_PER_SECOND + LEAST_BYTES_PER_SECOND / 8;
/// Of its body, a half-closed client has sent so many bytes.
const HALF_CLOSED_BYTES: usize = 1 << 10;
/// What a client sends behind its request while it reads the answer slowly. The node does not answer it before the answer is
/// taken. Once the node has closed the connection, the kernel refuses such a byte, so that the client learns of the end.
const NEXT_REQUEST: &[u8] = b"GET /";

/// An API that honest and slow clients call. All but `S3` share one listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::experiment) enum Door {
    /// The S3 door.
    S3,
    /// Invocations by the Lambda API.
    Lambda,
    /// Blocking invocations of an action by OpenWhisk's API.
    Openwhisk,
    /// Calls of a function's URL, unsigned.
    FunctionUrl,
}

impl Door {
    pub(super) const ALL: [Self; 4] = [Self::S3, Self::Lambda, Self::Openwhisk, Self::FunctionUrl];

    /// Whether both take their connections from one listener, and so share its places.
    pub(super) fn shares_places_with(self, other: Self) -> bool {
        (self == Self::S3) == (other == Self::S3)
    }
}

/// How a client is slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum SlowKind {
    /// Sends the head of a request, one byte a second.
    Head,
    /// Sends the head of an upload at once and its body by one byte a second.
    BodyBelow,
    /// Sends the head of an upload at once and its body a little faster than the least rate: the node must let it finish.
    BodyAbove,
    /// Sends a part of an upload and closes its sending side.
    HalfClosed,
    /// Asks for a large answer and reads it by one byte a second.
    Answer,
    /// Connects and sends nothing.
    Silent,
}

impl SlowKind {
    pub(super) const ALL: [Self; 6] =
        [Self::Head, Self::BodyBelow, Self::BodyAbove, Self::HalfClosed, Self::Answer, Self::Silent];
}

/// What a slow client sends, and how fast it sends and reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SlowRequest {
    bytes: Vec<u8>,
    /// Of these, so many when it has connected.
    at_once: usize,
    bytes_a_second: u64,
    /// Closes its sending side when it has sent what it sends at once.
    pub(super) half_closes: bool,
    /// Reads one byte of the answer each time it looks, and has little room for more.
    pub(super) reads_slowly: bool,
}

impl SlowRequest {
    /// The request of a client of this kind. `upload` is a whole request with a body; `answered` one whose answer is large.
    pub(super) fn new(kind: SlowKind, upload: Vec<u8>, answered: Vec<u8>) -> Self {
        let head = upload.windows(4).position(|window| window == b"\r\n\r\n").map_or(upload.len(), |end| end + 4);
        let (bytes, at_once, bytes_a_second) = match kind {
            SlowKind::Head => (upload, 0, 1),
            SlowKind::BodyBelow => (upload, head, 1),
            SlowKind::BodyAbove => (upload, head, ABOVE_BYTES_PER_SECOND),
            SlowKind::HalfClosed => {
                let part = upload.len().min(head + HALF_CLOSED_BYTES);
                (upload, part, 0)
            }
            SlowKind::Answer => {
                let whole = answered.len();
                ([answered, NEXT_REQUEST.repeat(64)].concat(), whole, 1)
            }
            SlowKind::Silent => (Vec::new(), 0, 0),
        };
        let (half_closes, reads_slowly) = (kind == SlowKind::HalfClosed, kind == SlowKind::Answer);
        Self { bytes, at_once, bytes_a_second, half_closes, reads_slowly }
    }

    /// Of the bytes behind the first `sent`, those that a client sends that has been connected for so long.
    pub(super) fn due(&self, sent: usize, connected: Duration) -> &[u8] {
        let dripped = (connected.as_secs_f64() * self.bytes_a_second as f64) as usize;
        let upto = self.bytes.len().min(self.at_once.saturating_add(dripped));
        self.bytes.get(sent..upto).unwrap_or_default()
    }

    /// A client that has sent so many bytes has sent all that it sends at once.
    pub(super) const fn has_begun(&self, sent: usize) -> bool {
        sent >= self.at_once
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &[u8] = b"PUT /b/k HTTP/1.1\r\ncontent-length: 9000\r\n\r\n";

    fn request(kind: SlowKind) -> SlowRequest {
        SlowRequest::new(kind, [HEAD, &[b'x'; 9000]].concat(), b"GET /large HTTP/1.1\r\n\r\n".to_vec())
    }

    /// How many bytes it has sent after so many seconds.
    fn sent(kind: SlowKind, seconds: u64) -> usize {
        request(kind).due(0, Duration::from_secs(seconds)).len()
    }

    #[test]
    fn each_kind_sends_its_part_at_once_and_the_rest_at_its_rate() {
        let of = |kind| [sent(kind, 0), sent(kind, 3), sent(kind, 3600)];
        let whole = HEAD.len() + 9000;
        assert_eq!(of(SlowKind::Head), [0, 3, 3600]);
        assert_eq!(of(SlowKind::BodyBelow), [HEAD.len(), HEAD.len() + 3, HEAD.len() + 3600]);
        assert_eq!(of(SlowKind::BodyAbove)[0], HEAD.len());
        assert_eq!(of(SlowKind::BodyAbove)[2], whole, "it ends");
        assert_eq!(of(SlowKind::HalfClosed), [HEAD.len() + 1024; 3]);
        assert_eq!(of(SlowKind::Silent), [0; 3]);
        assert!(sent(SlowKind::BodyAbove, 1) - HEAD.len() > LEAST_BYTES_PER_SECOND as usize);
        assert!(sent(SlowKind::BodyBelow, 60) - HEAD.len() < LEAST_BYTES_PER_SECOND as usize);
    }

    #[test]
    fn what_was_sent_is_not_sent_again_and_a_slow_reader_has_begun_with_its_whole_request() {
        let slow = request(SlowKind::BodyBelow);
        assert_eq!(slow.due(HEAD.len() + 2, Duration::from_secs(3)), b"x");
        assert_eq!(slow.due(HEAD.len() + 3, Duration::from_secs(3)), b"");
        assert_eq!(slow.due(HEAD.len() + 4, Duration::from_secs(3)), b"", "a clock that went back");
        let reader = request(SlowKind::Answer);
        assert!(!reader.has_begun(10) && reader.has_begun(b"GET /large HTTP/1.1\r\n\r\n".len()));
        assert_eq!(reader.due(0, Duration::ZERO), b"GET /large HTTP/1.1\r\n\r\n");
        assert!(reader.reads_slowly && !reader.half_closes && request(SlowKind::HalfClosed).half_closes);
    }

    #[test]
    fn the_doors_but_s3_share_the_places_of_one_listener() {
        assert!(Door::Lambda.shares_places_with(Door::FunctionUrl) && Door::S3.shares_places_with(Door::S3));
        assert!(!Door::S3.shares_places_with(Door::Openwhisk));
    }
}
