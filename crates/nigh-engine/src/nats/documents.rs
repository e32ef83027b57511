//! Small documents by name in a stream that keeps the newest of each: the layout of NATS' own key-value buckets, so
//! that `nats kv` lists them.
//!
//! A write names the place of the document's last message, and the server rejects the write if the last message is
//! elsewhere. The chunks of a long value are published right before its document, in one atomic batch.

mod watch;

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::header::{
    NATS_BATCH_COMMIT, NATS_BATCH_COMMIT_FINAL, NATS_BATCH_ID, NATS_BATCH_SEQUENCE,
    NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, NATS_EXPECTED_STREAM, NATS_MESSAGE_ID,
};
use bytes::Bytes;

use super::document_format::{Document, decode, encode};
use super::document_names::push_encoded;
use super::link::NotPublished;
use super::{Cluster, ClusterError};

/// The most messages of one batch (the servers' own limit).
const BATCH_MAX: usize = 1000;
/// A read is retried at most this often when the document is written meanwhile.
const READS_MAX: usize = 16;
/// The most bytes of a subject: it is a part of a protocol line, of which servers accept 4096 bytes.
const SUBJECT_MAX_BYTES: usize = 3500;

/// Why a document was not written.
#[derive(Debug)]
pub(super) enum NotWritten {
    /// The document has another last message.
    Conflict,
    /// Another reason prevented the write.
    Other(ClusterError),
}

/// A document that was found: its place, and its value; none if it was deleted.
pub(super) struct FoundDocument {
    pub(super) place: u64,
    pub(super) value: Option<Vec<u8>>,
}

/// A document to write: its subject, and its value; none to delete it.
pub(super) type Change = (String, Option<Vec<u8>>);

/// The documents of a bucket.
#[derive(Clone, Debug)]
pub(super) struct Documents {
    cluster: Cluster,
    bucket: String,
    stream: String,
}

impl Documents {
    /// Opens the bucket `{name}-{purpose}`, and creates it if there is none. Documents expire `max_age` after their last
    /// write, unless it is zero.
    pub(super) async fn open(cluster: Cluster, purpose: &str, max_age: Duration) -> Result<Self, ClusterError> {
        let bucket = format!("{}-{purpose}", cluster.settings().name);
        let config = cluster.settings().documents_config(&bucket, max_age);
        cluster.stream_as(&config, true).await?;
        Ok(Self { cluster, bucket, stream: config.name })
    }

    /// The subject of the document with these parts as its name.
    pub(super) fn subject(&self, parts: &[&str]) -> Result<String, ClusterError> {
        let mut subject = format!("$KV.{}", self.bucket);
        for part in parts {
            subject.push_str(".k");
            push_encoded(&mut subject, part);
        }
        if subject.len() > SUBJECT_MAX_BYTES {
            let reason = format!("its subject has {} bytes, and {SUBJECT_MAX_BYTES} at most", subject.len());
            return Err(self.cluster.unreachable("name the document", &parts.join("/"))(&reason));
        }
        Ok(subject)
    }

    /// The prefix of the subjects right below these parts, and the filter for them.
    fn below(&self, parts: &[&str]) -> Result<(String, String), ClusterError> {
        let subject = self.subject(parts)?;
        Ok((format!("{subject}."), format!("{subject}.*")))
    }

    /// The document, as the stream's leader knows it.
    pub(super) async fn get(&self, subject: &str) -> Result<Option<FoundDocument>, ClusterError> {
        for _ in 0..READS_MAX {
            let Some((place, message)) = self.cluster.last_message(&self.stream, subject).await? else {
                return Ok(None);
            };
            if let Some(value) = self.value(subject, place, &message).await? {
                return Ok(Some(FoundDocument { place, value }));
            }
        }
        Err(self.cluster.unreachable("read the document", subject)(
            &"it changes faster than it can be read, or a part of it is missing",
        ))
    }

    /// The value of a document's message; none if it was replaced meanwhile.
    async fn value(&self, subject: &str, place: u64, message: &Bytes) -> Result<Option<Option<Vec<u8>>>, ClusterError> {
        let damaged = |reason: String| self.cluster.unreachable("read the document", subject)(&reason);
        match decode(message).map_err(damaged)? {
            Document::Deleted => Ok(Some(None)),
            Document::Inline(value) => Ok(Some(Some(value.to_vec()))),
            Document::Chunked(head) => {
                let mut value = Vec::with_capacity(head.bytes as usize);
                for at in place.saturating_sub(u64::from(head.chunks))..place {
                    let Some(chunk) = self.cluster.message(&self.stream, at).await? else { return Ok(None) };
                    value.extend_from_slice(&chunk);
                }
                if head.is_of(&value) {
                    Ok(Some(Some(value)))
                } else {
                    Err(damaged("its checksum is wrong".to_owned()))
                }
            }
        }
    }

    /// Writes a document if its last message is at `expected` (0: if there is none). Returns its place.
    pub(super) async fn write(&self, subject: &str, value: Option<&[u8]>, expected: u64) -> Result<u64, NotWritten> {
        let nonce: u64 = rand::random();
        let (message, chunks) = encode(value, nonce);
        let mut headers = self.headers();
        headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, expected.to_string());
        let failed = |reason: NotPublished| match reason {
            NotPublished::Condition => NotWritten::Conflict,
            NotPublished::Full => NotWritten::Other(self.refused(subject, "the servers have no room")),
            NotPublished::NotTaken(reason) | NotPublished::Unknown(reason) | NotPublished::Refused(reason) => {
                NotWritten::Other(self.refused(subject, &reason))
            }
        };
        let count = chunks.len() as u64;
        let written = if chunks.is_empty() {
            headers.insert(NATS_MESSAGE_ID, format!("{nonce:016x}"));
            let within = self.cluster.settings().answer_within;
            self.cluster.publish(subject, &headers, &message, within).await.map(|published| published.place)
        } else {
            let document = (subject.to_owned(), message.clone(), headers);
            self.write_batch(chunk_messages(subject, chunks).chain([document]).collect()).await
        };
        let place = match written {
            Ok(place) => place,
            Err(reason @ (NotPublished::Condition | NotPublished::Unknown(_))) => {
                // The answer to this write may have been lost: then its message is the last.
                match self.cluster.last_message(&self.stream, subject).await.map_err(NotWritten::Other)? {
                    Some((place, last)) if last == message => place,
                    _ => return Err(failed(reason)),
                }
            }
            Err(reason) => return Err(failed(reason)),
        };
        if count > 0 || value.is_none() {
            self.drop_chunks(subject, place - count).await;
        }
        Ok(place)
    }

    /// Writes all documents or none, wherever their last messages are.
    pub(super) async fn write_all(&self, changes: Vec<Change>) -> Result<(), ClusterError> {
        if changes.is_empty() {
            return Ok(());
        }
        let of = self.bucket.as_str();
        let mut batch = Vec::new();
        for (subject, value) in &changes {
            let (message, chunks) = encode(value.as_deref(), rand::random());
            batch.extend(chunk_messages(subject, chunks));
            batch.push((subject.clone(), message, self.headers()));
        }
        if batch.len() > BATCH_MAX {
            let reason = format!(
                "{} messages are more than one batch takes ({BATCH_MAX}); write fewer documents at a time",
                batch.len()
            );
            return Err(self.refused(of, &reason));
        }
        let written = self.cluster.until_answered("write documents of", of, || async {
            match self.write_batch(batch.clone()).await {
                Ok(_) => Ok(Ok(())),
                Err(NotPublished::Unknown(reason) | NotPublished::NotTaken(reason)) => Err(reason),
                Err(other) => Ok(Err(format!("{other:?}"))),
            }
        });
        written.await?.map_err(|reason| self.refused(of, &reason))
    }

    /// Writes a short document, wherever its last message is. Returns its place.
    pub(super) async fn write_over(&self, subject: &str, value: &[u8]) -> Result<u64, ClusterError> {
        let nonce: u64 = rand::random();
        let (message, _) = encode(Some(value), nonce);
        let mut headers = self.headers();
        headers.insert(NATS_MESSAGE_ID, format!("{nonce:016x}"));
        let within = self.cluster.settings().answer_within;
        let published = self.cluster.publish(subject, &headers, &message, within).await;
        published.map(|published| published.place).map_err(|reason| self.refused(subject, &format!("{reason:?}")))
    }

    /// Writes the document of `subject`, if its last message is at `expected`, together with `beside`: all or none.
    /// Returns the place of the document. Its `message` is unique: a repeated call with the same message writes it once.
    pub(super) async fn write_beside(
        &self,
        subject: &str,
        message: &Bytes,
        expected: u64,
        beside: &[(String, Bytes)],
    ) -> Result<u64, NotWritten> {
        let mut headers = self.headers();
        headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, expected.to_string());
        let others = beside.iter().map(|(subject, message)| (subject.clone(), message.clone(), self.headers()));
        let batch: Vec<_> = others.chain([(subject.to_owned(), message.clone(), headers)]).collect();
        let reason = match self.write_batch(batch).await {
            Ok(place) => return Ok(place),
            Err(reason) => reason,
        };
        match (self.cluster.last_message(&self.stream, subject).await.map_err(NotWritten::Other)?, reason) {
            // The write succeeded, and its answer was lost.
            (Some((place, last)), _) if last == *message => Ok(place),
            (_, NotPublished::Condition) => Err(NotWritten::Conflict),
            (_, other) => Err(NotWritten::Other(self.refused(subject, &format!("{other:?}")))),
        }
    }

    /// The messages of a document with `value`: its chunks, then its own message.
    pub(super) fn messages_of(subject: &str, value: &[u8]) -> Vec<(String, Bytes)> {
        let (message, chunks) = encode(Some(value), rand::random());
        let chunks = chunk_messages(subject, chunks).map(|(subject, chunk, _)| (subject, chunk));
        chunks.chain([(subject.to_owned(), message)]).collect()
    }

    /// Removes all messages of the document and of the documents below it.
    pub(super) async fn drop_with_all_below(&self, subject: &str) -> Result<(), ClusterError> {
        // The documents below go first, because the document itself shows that there may be some.
        self.cluster.purge_all(&self.stream, &format!("{subject}.>")).await?;
        self.cluster.purge_all(&self.stream, subject).await
    }

    /// Publishes messages as one batch. Returns the place of the last one.
    async fn write_batch(&self, mut batch: Vec<(String, Bytes, HeaderMap)>) -> Result<u64, NotPublished> {
        let id = format!("{:032x}", rand::random::<u128>());
        let Some((last_subject, last, mut last_headers)) = batch.pop() else { return Ok(0) };
        let mark = |headers: &mut HeaderMap, number: usize| {
            headers.insert(NATS_BATCH_ID, id.as_str());
            headers.insert(NATS_BATCH_SEQUENCE, number.to_string());
        };
        let number = batch.len() + 1;
        for (at, (subject, message, mut headers)) in (1..).zip(batch) {
            mark(&mut headers, at);
            let sent = self.cluster.send(&subject, headers, message).await;
            sent.map_err(|error| NotPublished::NotTaken(error.to_string()))?;
        }
        mark(&mut last_headers, number);
        last_headers.insert(NATS_BATCH_COMMIT, NATS_BATCH_COMMIT_FINAL);
        self.cluster.publish_once(&last_subject, &last_headers, &last).await
    }

    /// Removes the chunks of replaced values. (Chunks that a short value replaced are removed with the document.)
    async fn drop_chunks(&self, subject: &str, before: u64) {
        if let Err(error) = self.cluster.purge(&self.stream, &format!("{subject}.*"), before).await {
            tracing::debug!(subject, %error, "chunks of an older value stay for now");
        }
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(NATS_EXPECTED_STREAM, self.stream.as_str());
        headers
    }

    fn refused(&self, of: &str, reason: &str) -> ClusterError {
        self.cluster.unreachable("write", of)(&reason)
    }
}

fn chunk_messages(subject: &str, chunks: Vec<Bytes>) -> impl Iterator<Item = (String, Bytes, HeaderMap)> {
    (0..).zip(chunks).map(move |(at, chunk)| (format!("{subject}.{at}"), chunk, HeaderMap::new()))
}
