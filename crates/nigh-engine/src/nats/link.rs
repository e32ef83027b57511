//! The connection to a NATS cluster, and the JetStream requests of this engine.
//!
//! Only the answers to conditional publishes decide anything. Reads (`message`, `last_message`) decide nothing, and their
//! callers verify them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::connection::State;
use async_nats::jetstream::context::GetStreamErrorKind;
use async_nats::jetstream::stream::{Config, RawMessageError, RawMessageErrorKind, Stream};
use async_nats::jetstream::{self, Context, ErrorCode};
use async_nats::{HeaderMap, Request, RequestErrorKind};
use async_recursion::async_recursion as boxed;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};

use super::ClusterError;
use super::publish_reply::{Attempt, PublishReply};
use super::settings::ClusterSettings;

pub(super) use super::publish_reply::NotPublished;

/// The distance between pings. The client changes the server after some unanswered ones.
const PING_EVERY: Duration = Duration::from_secs(2);
/// How long one answer may take; then the request is repeated.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// How long the first answer to a read may take; each repetition has twice as long, up to `ANSWER_WITHIN`. A request that a
/// server lost as it became the leader, or ceased to be, is sent again soon.
const READ_WITHIN: Duration = Duration::from_millis(400);
/// The shortest and the longest wait before a request is repeated.
const RETRY_MIN: Duration = Duration::from_millis(20);
const RETRY_MAX: Duration = Duration::from_millis(500);
/// The least time for creating a stream: new servers first elect a leader.
const OPENED_WITHIN: Duration = Duration::from_secs(45);

/// The place of a published message in its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MessagePlace {
    pub(super) place: u64,
    /// True if the message was sent more than once, so that a second copy may be written.
    pub(super) again: bool,
}

/// A cluster of NATS servers.
#[derive(Clone, Debug)]
pub struct Cluster {
    context: Context,
    settings: ClusterSettings,
    /// When the servers last confirmed a write; before the first one, when this client connected.
    confirmed: Arc<Mutex<Instant>>,
}

/// The state of the connection to the servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkState {
    /// The name of the server that this client is connected to; none if it is connected to none.
    pub server: Option<String>,
    /// The time since a majority of the servers last confirmed a write of this client.
    pub unconfirmed: Duration,
}

impl Cluster {
    /// Connects to the first server that answers.
    ///
    /// # Errors
    /// If no server answers, or a server rejects this client.
    #[boxed]
    pub async fn connect(settings: ClusterSettings) -> Result<Self, ClusterError> {
        settings.check()?;
        let mut options = async_nats::ConnectOptions::new()
            .name(&settings.name)
            .ping_interval(PING_EVERY)
            .request_timeout(Some(ANSWER_WITHIN));
        if let Some(token) = &settings.token {
            options = options.token(token.reveal().to_owned());
        }
        if let Some(roots) = &settings.root_certificates {
            options = options.add_root_certificates(roots.clone()).require_tls(true);
        }
        if let Some((certificate, key)) = &settings.client_certificate {
            options = options.add_client_certificate(certificate.clone(), key.clone());
        }
        let connected = options.connect(&settings.servers[..]).await;
        let client = connected.map_err(|error| ClusterError::Connect {
            servers: settings.servers.join(", "),
            reason: error.to_string(),
        })?;
        let mut context = jetstream::new(client);
        context.set_timeout(ANSWER_WITHIN);
        Ok(Self { context, settings, confirmed: Arc::new(Mutex::new(Instant::now())) })
    }

    /// The settings of the connection.
    #[must_use]
    pub const fn settings(&self) -> &ClusterSettings {
        &self.settings
    }

    /// The state of the connection. A server that is stopped counts as connected until the client misses its pings, so
    /// whether the servers work is known from `unconfirmed`.
    #[must_use]
    pub fn link_state(&self) -> LinkState {
        let client = self.context.client();
        let server = (client.connection_state() == State::Connected).then(|| client.server_info().server_name);
        LinkState { server, unconfirmed: self.confirmed.lock().elapsed() }
    }

    pub(super) const fn context(&self) -> &Context {
        &self.context
    }

    async fn attempt(&self, subject: &str, headers: &HeaderMap, payload: &Bytes) -> Attempt {
        let attempt = self.request(subject, headers, payload).await;
        if matches!(attempt, Attempt::Stands(_)) {
            *self.confirmed.lock() = Instant::now();
        }
        attempt
    }

    async fn request(&self, subject: &str, headers: &HeaderMap, payload: &Bytes) -> Attempt {
        let request = Request::new().headers(headers.clone()).payload(payload.clone());
        match self.context.client().send_request(subject.to_owned(), request).await {
            Ok(answer) => match serde_json::from_slice::<PublishReply>(&answer.payload) {
                Ok(answer) => answer.judged(),
                Err(error) => Attempt::Unanswered(error.to_string()),
            },
            Err(error) => match error.kind() {
                RequestErrorKind::NoResponders => Attempt::NotTaken(error.to_string()),
                RequestErrorKind::MaxPayloadExceeded | RequestErrorKind::InvalidSubject => {
                    Attempt::Never(NotPublished::Refused(error.to_string()))
                }
                RequestErrorKind::TimedOut | RequestErrorKind::Other => Attempt::Unanswered(error.to_string()),
            },
        }
    }

    /// Publishes a message, repeatedly, until its outcome is known. Its id makes servers write it once, as long as they
    /// remember the id.
    pub(super) async fn publish(
        &self,
        subject: &str,
        headers: &HeaderMap,
        payload: &Bytes,
        within: Duration,
    ) -> Result<MessagePlace, NotPublished> {
        let begun = Instant::now();
        let (mut again, mut wait) = (false, RETRY_MIN);
        loop {
            let reason = match self.attempt(subject, headers, payload).await {
                Attempt::Stands(place) => return Ok(MessagePlace { place, again }),
                // Servers check for room before they check whether they already have the message.
                Attempt::Never(NotPublished::Full) if again => "there is no room to take it again".to_owned(),
                Attempt::Never(never) => return Err(never),
                Attempt::NotTaken(reason) => reason,
                Attempt::Unanswered(reason) => {
                    again = true;
                    reason
                }
            };
            if begun.elapsed() + wait >= within {
                return Err(if again { NotPublished::Unknown(reason) } else { NotPublished::NotTaken(reason) });
            }
            sleep(wait).await;
            wait = (2 * wait).min(RETRY_MAX);
        }
    }

    /// Sends a part of a batch; servers answer only the last part.
    pub(super) async fn send(&self, subject: &str, headers: HeaderMap, payload: Bytes) -> Result<(), ClusterError> {
        let sent = self.context.client().publish_with_headers(subject.to_owned(), headers, payload).await;
        sent.map_err(|error| self.unreachable("send to", subject)(&error))
    }

    /// Publishes once.
    pub(super) async fn publish_once(
        &self,
        subject: &str,
        headers: &HeaderMap,
        payload: &Bytes,
    ) -> Result<u64, NotPublished> {
        match self.attempt(subject, headers, payload).await {
            Attempt::Stands(place) => Ok(place),
            Attempt::Never(never) => Err(never),
            Attempt::NotTaken(reason) => Err(NotPublished::NotTaken(reason)),
            Attempt::Unanswered(reason) => Err(NotPublished::Unknown(reason)),
        }
    }

    /// The error for a failed operation `what` on `of`.
    pub(super) fn unreachable<E: std::fmt::Display>(
        &self,
        what: &'static str,
        of: &str,
    ) -> impl Fn(&E) -> ClusterError {
        let of = of.to_owned();
        move |reason| ClusterError::Unreachable { what, of: of.clone(), reason: reason.to_string() }
    }

    /// Repeats `ask` until it gets an answer or the time is over.
    pub(super) async fn until_answered<T, E, F>(
        &self,
        what: &'static str,
        of: &str,
        ask: impl FnMut() -> F,
    ) -> Result<T, ClusterError>
    where
        F: Future<Output = Result<T, E>>,
        E: std::fmt::Display,
    {
        self.answered_within(self.settings.answer_within, what, of, ask).await
    }

    /// As `until_answered`, for a read: nothing happens if it is sent again while the first answer is on its way.
    async fn until_read<T, E, F>(
        &self,
        what: &'static str,
        of: &str,
        mut ask: impl FnMut() -> F,
    ) -> Result<T, ClusterError>
    where
        F: Future<Output = Result<T, E>>,
        E: std::fmt::Display,
    {
        let mut patience = READ_WITHIN;
        self.until_answered(what, of, || {
            let asked = timeout(patience, ask());
            patience = (2 * patience).min(ANSWER_WITHIN);
            async move {
                match asked.await {
                    Ok(answer) => answer.map_err(|error| error.to_string()),
                    Err(_) => Err("the servers do not answer".to_owned()),
                }
            }
        })
        .await
    }

    async fn answered_within<T, E, F>(
        &self,
        within: Duration,
        what: &'static str,
        of: &str,
        mut ask: impl FnMut() -> F,
    ) -> Result<T, ClusterError>
    where
        F: Future<Output = Result<T, E>>,
        E: std::fmt::Display,
    {
        let begun = Instant::now();
        let mut wait = RETRY_MIN;
        loop {
            match ask().await {
                Ok(answer) => return Ok(answer),
                Err(reason) if begun.elapsed() + wait >= within => {
                    return Err(self.unreachable(what, of)(&reason));
                }
                Err(_) => {}
            }
            sleep(wait).await;
            wait = (2 * wait).min(RETRY_MAX);
        }
    }

    async fn stream(&self, name: &str) -> Result<Stream<()>, ClusterError> {
        let stream = self.context.get_stream_no_info(name).await;
        stream.map_err(|error| self.unreachable("name the stream", name)(&error))
    }

    /// The message at a place of the stream `name`, if its leader has one.
    pub(super) async fn message(&self, name: &str, place: u64) -> Result<Option<Bytes>, ClusterError> {
        let stream = self.stream(name).await?;
        self.until_read("read a message of", name, || async {
            found(stream.get_raw_message(place).await.map(|message| message.payload))
        })
        .await
    }

    /// The last message of `subject` in the stream `name`, with its place, if the leader has one.
    pub(super) async fn last_message(&self, name: &str, subject: &str) -> Result<Option<(u64, Bytes)>, ClusterError> {
        let stream = self.stream(name).await?;
        self.until_read("read the last message of", subject, || async {
            let last = stream.get_last_raw_message_by_subject(subject).await;
            found(last.map(|message| (message.sequence, message.payload)))
        })
        .await
    }

    /// Removes the messages of `subject` before `place` from the stream `name`.
    pub(super) async fn purge(&self, name: &str, subject: &str, place: u64) -> Result<(), ClusterError> {
        let purged = self.stream(name).await?.purge().filter(subject).sequence(place).await;
        purged.map(|_| ()).map_err(|error| self.unreachable("trim the stream", name)(&error))
    }

    /// Removes all messages whose subjects match `filter` from the stream `name`.
    pub(super) async fn purge_all(&self, name: &str, filter: &str) -> Result<(), ClusterError> {
        let purged = self.stream(name).await?.purge().filter(filter).await;
        purged.map(|_| ()).map_err(|error| self.unreachable("trim the stream", name)(&error))
    }

    /// Returns the settings of the stream `wanted`, which is created if there is none and `make` allows it.
    pub(super) async fn stream_as(&self, wanted: &Config, make: bool) -> Result<Config, ClusterError> {
        let name = &wanted.name;
        let answer_within = self.settings.answer_within;
        let within = if make { answer_within.max(OPENED_WITHIN) } else { answer_within };
        let found = self
            .answered_within(within, "look for the stream", name, || async {
                match self.context.get_stream(name).await {
                    Ok(stream) => Ok(Some(stream.cached_info().config.clone())),
                    Err(error) => match error.kind() {
                        GetStreamErrorKind::JetStream(reason) if reason.error_code() == ErrorCode::STREAM_NOT_FOUND => {
                            Ok(None)
                        }
                        _ => Err(error),
                    },
                }
            })
            .await?;
        match found {
            Some(found) => as_wanted(wanted, found),
            None if make => {
                let make = || self.context.create_stream(wanted.clone());
                let made = self.answered_within(within, "make the stream", name, make).await?;
                as_wanted(wanted, made.cached_info().config.clone())
            }
            None => Err(ClusterError::Gone { stream: name.clone() }),
        }
    }
}

/// Turns "not found" into none: it is an answer.
fn found<T>(answer: Result<T, RawMessageError>) -> Result<Option<T>, RawMessageError> {
    match answer {
        Ok(message) => Ok(Some(message)),
        Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Rejects a stream whose settings would lose acknowledged writes.
fn as_wanted(wanted: &Config, found: Config) -> Result<Config, ClusterError> {
    let told = |config: &Config| {
        format!(
            "subjects {:?}, {} replicas, {:?} storage, discard {:?}, {:?} retention, at most {} bytes, {} a subject, \
             max age {:?}, direct reads {}, batches {}",
            config.subjects,
            config.num_replicas,
            config.storage,
            config.discard,
            config.retention,
            config.max_bytes,
            config.max_messages_per_subject,
            config.max_age,
            config.allow_direct,
            config.allow_atomic_publish
        )
    };
    let (wanted_told, found_told) = (told(wanted), told(&found));
    if wanted_told == found_told {
        return Ok(found);
    }
    Err(ClusterError::Settings { stream: wanted.name.clone(), found: found_told, wanted: wanted_told })
}
