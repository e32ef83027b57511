//! Small documents by name in a stream that keeps the newest of each: the layout of NATS' own key-value buckets, so that
//! `nats kv` lists them.
//!
//! A write names the place of the document's last message, and the server refuses it if that is another. A long value goes
//! ahead of its document in chunks, all in one atomic batch: they stand right before it.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::header::{
    NATS_BATCH_COMMIT, NATS_BATCH_COMMIT_FINAL, NATS_BATCH_ID, NATS_BATCH_SEQUENCE,
    NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, NATS_EXPECTED_STREAM, NATS_MESSAGE_ID,
};
use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use bytes::Bytes;
use futures::StreamExt as _;
use tokio::sync::mpsc;

use super::document_format::{Document, decode, encode};
use super::link::NotPublished;
use super::{Cluster, ClusterError};

/// The messages of one batch at most (the servers' own limit).
const BATCH_MAX: usize = 1000;
/// Reads of a document that is written meanwhile.
const READS_MAX: usize = 16;
/// Documents that a watcher may be behind.
const WATCHED_AHEAD: usize = 256;
const WATCHED_ANEW_AFTER: Duration = Duration::from_millis(200);
/// The longest subject: a server takes a line of 4096 bytes with all else that is in it.
const SUBJECT_MAX_BYTES: usize = 3500;

/// Why a document was not written.
#[derive(Debug)]
pub(super) enum NotWritten {
    /// Its last message is another.
    Conflict,
    /// The rest.
    Other(ClusterError),
}

/// A document that was found: its place, and its value unless it was deleted.
pub(super) struct FoundDocument {
    pub(super) place: u64,
    pub(super) value: Option<Vec<u8>>,
}

/// A document to write: its subject, and its value unless it is to be deleted.
pub(super) type Change = (String, Option<Vec<u8>>);

/// What a consumer gives.
struct DocumentWatch {
    messages: pull::Ordered,
    /// Documents that are there already.
    left: u64,
    /// Its name.
    consumer: String,
}

/// The documents of a bucket.
#[derive(Clone, Debug)]
pub(super) struct Documents {
    cluster: Cluster,
    bucket: String,
    stream: String,
}

impl Documents {
    /// The bucket `{name}-{purpose}`, made if it is not there. Documents that are not written again go after `max_age`,
    /// if that is not zero.
    pub(super) async fn open(cluster: Cluster, purpose: &str, max_age: Duration) -> Result<Self, ClusterError> {
        let bucket = format!("{}-{purpose}", cluster.settings().name);
        let config = cluster.settings().documents_config(&bucket, max_age);
        cluster.stream_as(&config, true).await?;
        Ok(Self { cluster, bucket, stream: config.name })
    }

    /// The subject of a document whose name is of these parts, any bytes each.
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

    /// What subjects of documents below these parts begin with, and the filter that catches them.
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
            &"it is written all the time, or a part of it is gone",
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

    /// Writes a document if its last message is at `expected`; 0 if there is none. The answer is its place.
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
                // It may be this very write that stands there, if an answer to it was lost.
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

    /// Writes documents whatever they are at: all of them or none.
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
            let reason =
                format!("{} messages are more than go together ({BATCH_MAX}); write fewer at a time", batch.len());
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

    /// Writes a short document over whatever stands there; its place.
    pub(super) async fn write_over(&self, subject: &str, value: &[u8]) -> Result<u64, ClusterError> {
        let nonce: u64 = rand::random();
        let (message, _) = encode(Some(value), nonce);
        let mut headers = self.headers();
        headers.insert(NATS_MESSAGE_ID, format!("{nonce:016x}"));
        let within = self.cluster.settings().answer_within;
        let published = self.cluster.publish(subject, &headers, &message, within).await;
        published.map(|published| published.place).map_err(|reason| self.refused(subject, &format!("{reason:?}")))
    }

    /// Writes `beside`, whatever these documents are at, in one with the document of `subject`, whose last message must be
    /// at `expected`: all of them or none. The answer is that one's place. `message` is its own, and no other's: repeated
    /// with the same, it stands once.
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
            // An answer was lost.
            (Some((place, last)), _) if last == *message => Ok(place),
            (_, NotPublished::Condition) => Err(NotWritten::Conflict),
            (_, other) => Err(NotWritten::Other(self.refused(subject, &format!("{other:?}")))),
        }
    }

    /// The messages of a document with `value`: the last is its own, the others are chunks that go ahead of it.
    pub(super) fn messages_of(subject: &str, value: &[u8]) -> Vec<(String, Bytes)> {
        let (message, chunks) = encode(Some(value), rand::random());
        let chunks = chunk_messages(subject, chunks).map(|(subject, chunk, _)| (subject, chunk));
        chunks.chain([(subject.to_owned(), message)]).collect()
    }

    /// Drops the document with all below it; what is dropped was never there.
    pub(super) async fn drop_with_all_below(&self, subject: &str) -> Result<(), ClusterError> {
        // First what is below: while the document stands it is known that there may be something.
        self.cluster.purge_all(&self.stream, &format!("{subject}.>")).await?;
        self.cluster.purge_all(&self.stream, subject).await
    }

    /// Publishes messages together; the answer is the last one's place.
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

    /// Drops chunks of values that were replaced; of one that was replaced by a short value when it is deleted.
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

    /// All documents right below these parts, as a server knows them, with their last parts; deleted ones are left out.
    pub(super) async fn list(&self, parts: &[&str]) -> Result<Vec<(String, FoundDocument)>, ClusterError> {
        self.list_since(parts, None).await
    }

    /// The same. With a document and a place of it: as a server knows them that has all up to there.
    pub(super) async fn list_since(
        &self,
        parts: &[&str],
        since: Option<(&str, u64)>,
    ) -> Result<Vec<(String, FoundDocument)>, ClusterError> {
        let (prefix, filter) = self.below(parts)?;
        let filters: Vec<String> = [filter].into_iter().chain(since.map(|(subject, _)| subject.to_owned())).collect();
        let found = self
            .cluster
            .until_answered("list the documents of", &self.bucket, || async {
                let DocumentWatch { mut messages, mut left, consumer } = self.messages(&filters).await?;
                let mut found = Vec::new();
                while left > 0 {
                    let Some(next) = messages.next().await else { break };
                    let message = next.map_err(|error| error.to_string())?;
                    let info = message.info().map_err(|error| error.to_string())?;
                    left = info.pending;
                    found.push((message.subject.to_string(), info.stream_sequence, message.payload.clone()));
                }
                drop(messages);
                // One that stays is dropped by the servers after a while.
                let _ = self.cluster.context().delete_consumer_from_stream(&consumer, &self.stream).await;
                let has_all = since.is_none_or(|(subject, place)| {
                    // Servers give what they have in the order of the places.
                    found.iter().any(|(found, at, _)| found == subject && *at >= place)
                });
                if has_all { Ok(found) } else { Err("the server that was asked is behind".to_owned()) }
            })
            .await?;
        let mut documents = Vec::new();
        for (subject, place, message) in found {
            let Some(key) = subject.strip_prefix(&prefix).and_then(decoded) else { continue };
            let document = match self.value(&subject, place, &message).await? {
                Some(value) => Some(FoundDocument { place, value }),
                None => self.get(&subject).await?,
            };
            if let Some(document) = document.filter(|document| document.value.is_some()) {
                documents.push((key, document));
            }
        }
        documents.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(documents)
    }

    /// The newest of each document that one of `filters` catches, then each as it is written.
    async fn messages(&self, filters: &[String]) -> Result<DocumentWatch, String> {
        let told = |error: &dyn std::fmt::Display| error.to_string();
        let stream = self.cluster.context().get_stream_no_info(&self.stream).await.map_err(|error| told(&error))?;
        let config = pull::OrderedConfig {
            filter_subjects: filters.to_vec(),
            deliver_policy: DeliverPolicy::LastPerSubject,
            ..pull::OrderedConfig::default()
        };
        let consumer = stream.create_consumer(config).await.map_err(|error| told(&error))?;
        let (left, name) = (consumer.cached_info().num_pending, consumer.cached_info().name.clone());
        Ok(DocumentWatch { messages: consumer.messages().await.map_err(|error| told(&error))?, left, consumer: name })
    }

    /// Each document right below these parts, first as it is, then as it is written; where the servers are lost all of them
    /// again. Ends when the receiver is dropped.
    pub(super) fn watch(&self, parts: &[&str]) -> Result<mpsc::Receiver<(String, FoundDocument)>, ClusterError> {
        let (prefix, filter) = self.below(parts)?;
        let (send, received) = mpsc::channel(WATCHED_AHEAD);
        let documents = self.clone();
        tokio::spawn(async move {
            while !send.is_closed() {
                let followed = documents.follow(&prefix, &filter, &send);
                tokio::select! {
                    reason = followed => tracing::debug!(bucket = documents.bucket, reason, "watched anew"),
                    () = send.closed() => return,
                }
                tokio::time::sleep(WATCHED_ANEW_AFTER).await;
            }
        });
        Ok(received)
    }

    /// Gives what comes to `send`, until something fails: the reason.
    async fn follow(&self, prefix: &str, filter: &str, send: &mpsc::Sender<(String, FoundDocument)>) -> String {
        let mut messages = match self.messages(&[filter.to_owned()]).await {
            Ok(watched) => watched.messages,
            Err(reason) => return reason,
        };
        while let Some(next) = messages.next().await {
            let message = match next {
                Ok(message) => message,
                Err(error) => return error.to_string(),
            };
            let (subject, place) = match message.info() {
                Ok(info) => (message.subject.to_string(), info.stream_sequence),
                Err(error) => return error.to_string(),
            };
            let Some(key) = subject.strip_prefix(prefix).and_then(decoded) else { continue };
            match self.value(&subject, place, &message.payload).await {
                Ok(Some(value)) => {
                    if send.send((key, FoundDocument { place, value })).await.is_err() {
                        break;
                    }
                }
                // It was replaced meanwhile, and comes again.
                Ok(None) => {}
                Err(error) => tracing::error!(%error, "a document cannot be read"),
            }
        }
        "the servers have ended it".to_owned()
    }
}

fn chunk_messages(subject: &str, chunks: Vec<Bytes>) -> impl Iterator<Item = (String, Bytes, HeaderMap)> {
    (0..).zip(chunks).map(move |(at, chunk)| (format!("{subject}.{at}"), chunk, HeaderMap::new()))
}

/// Any text as a part of a subject: letters, digits and `-_/` stand for themselves, other bytes as `=XX`.
fn push_encoded(subject: &mut String, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_/".contains(&byte) {
            subject.push(char::from(byte));
        } else {
            subject.push_str(&format!("={byte:02X}"));
        }
    }
}

/// The text that was encoded so, behind the `k` that each part begins with.
fn decoded(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.strip_prefix('k')?.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        if first == b'=' {
            let (digits, behind) = rest.split_at_checked(2)?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = behind;
        } else {
            bytes.push(first);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_name_is_one_part_of_a_subject_and_comes_back(text in any::<String>()) {
            let mut part = "k".to_owned();
            push_encoded(&mut part, &text);
            prop_assert!(!part.contains(['.', '*', '>', ' ', '\0']) && part.is_ascii());
            prop_assert_eq!(decoded(&part), Some(text));
        }
    }
}
