//! Lists and watches documents.

use std::time::Duration;

use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use futures::StreamExt as _;
use tokio::sync::mpsc;

use super::{ClusterError, Documents, FoundDocument};
use crate::nats::document_names::decoded;

/// The most documents that wait for a watcher.
const WATCH_QUEUE: usize = 256;
const WATCH_RETRY_PAUSE: Duration = Duration::from_millis(200);

/// A consumer of documents.
struct DocumentWatch {
    messages: pull::Ordered,
    /// Number of documents that existed before and have not been read yet.
    left: u64,
    /// The consumer's name.
    consumer: String,
}

impl Documents {
    /// All documents right below these parts, with the last part of their names, as one server knows them.
    pub(in crate::nats) async fn list(&self, parts: &[&str]) -> Result<Vec<(String, FoundDocument)>, ClusterError> {
        self.list_since(parts, None).await
    }

    /// Lists as `list` does. `since` is a document and a place; the server must have everything up to that place.
    pub(in crate::nats) async fn list_since(
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
                // If this fails, the servers drop the consumer after a while.
                let _ = self.cluster.context().delete_consumer_from_stream(&consumer, &self.stream).await;
                let has_all = since.is_none_or(|(subject, place)| {
                    // Servers send messages in the order of their places.
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

    /// The last message of each document that matches one of `filters`, then each new message.
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

    /// Each document right below these parts as it is now, then each write. When the servers were unreachable, all
    /// documents are sent again. Ends when the receiver is dropped.
    pub(in crate::nats) fn watch(
        &self,
        parts: &[&str],
    ) -> Result<mpsc::Receiver<(String, FoundDocument)>, ClusterError> {
        let (prefix, filter) = self.below(parts)?;
        let (send, received) = mpsc::channel(WATCH_QUEUE);
        let documents = self.clone();
        tokio::spawn(async move {
            while !send.is_closed() {
                let followed = documents.follow(&prefix, &filter, &send);
                tokio::select! {
                    reason = followed => tracing::debug!(bucket = documents.bucket, reason, "the documents are watched again"),
                    () = send.closed() => return,
                }
                tokio::time::sleep(WATCH_RETRY_PAUSE).await;
            }
        });
        Ok(received)
    }

    /// Sends each document and each write to `send` until something fails. Returns the reason.
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
                // The document was replaced meanwhile: its new message follows.
                Ok(None) => {}
                Err(error) => tracing::error!(%error, "a document cannot be read"),
            }
        }
        "the servers have ended the subscription".to_owned()
    }
}
