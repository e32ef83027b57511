//! The session with a Swift account: one token for all requests. The first request logs in; the token is renewed shortly
//! before its end, or when Swift rejects it. Concurrent requests share a login. After a rejected login the next one waits
//! for a while, because services lock out clients that try too often. The token is never printed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, StatusCode};
use tokio::sync::Mutex;
use uuid::Uuid;

use super::auth::{EndpointChoice, LoginRequest, SwiftLogin};
use super::shadow::signature::Signer;
use super::{STORE, shadow};
use crate::connections::{Connections, head_of};
use crate::wire::{Access, Pass};
use crate::wire_error::WireError;

/// How long the next login waits after a rejected login.
const REFUSED_FOR: Duration = Duration::from_secs(5);
/// The longest text of a refusal that an error message quotes, in characters.
const MESSAGE_MAX: usize = 200;
const X_AUTH_TOKEN: HeaderName = HeaderName::from_static("x-auth-token");

/// A session. Nothing is sent before the first request.
pub(super) struct Session {
    connections: Connections,
    auth_url: String,
    login: SwiftLogin,
    choice: EndpointChoice,
    state: Mutex<State>,
    /// The number of finished logins. A request reads it before it waits for `state`, to see whether another login
    /// finished meanwhile.
    logins: AtomicU64,
    /// Signs each request. None if the store has no shadows.
    signer: Option<Signer>,
}

#[derive(Default)]
struct State {
    held: Option<ActiveLogin>,
    /// The error and the time of the last login. None if that login succeeded.
    failed: Option<(WireError, Instant)>,
}

struct ActiveLogin {
    pass: Pass,
    token: HeaderValue,
    url: String,
    until: Instant,
}

impl Session {
    pub(super) fn new(connections: Connections, auth_url: String, login: SwiftLogin, choice: EndpointChoice) -> Self {
        Self { connections, auth_url, login, choice, state: Mutex::default(), logins: AtomicU64::new(0), signer: None }
    }

    /// Signs each request from now on.
    pub(super) fn sign_with(&mut self, signer: Signer) {
        self.signer = Some(signer);
    }

    /// The account's name and the service's description (`GET /info`). The description is None if the service does not
    /// publish one.
    pub(super) async fn info(&self) -> Result<(String, Option<serde_json::Value>), WireError> {
        let mut head = head_of(Method::GET, "/")?;
        self.authorise(&mut head, "").await?;
        let storage = head.uri.clone();
        let (scheme, authority) =
            (storage.scheme_str().unwrap_or("http"), storage.authority().map_or("", |host| host.as_str()));
        let account = storage.path().trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        let account = percent_encoding::percent_decode_str(account).decode_utf8_lossy().into_owned();
        let head = head_of(Method::GET, &format!("{scheme}://{authority}/info"))?;
        let answer = self.connections.ask((head, Vec::new()), (STORE, "info"), Duration::ZERO).await?;
        // Operators can turn the description off.
        if !answer.status.is_success() {
            return Ok((account, None));
        }
        Ok((account, serde_json::from_slice(&answer.read().await?).ok()))
    }

    async fn log_in(&self) -> Result<ActiveLogin, WireError> {
        let LoginRequest { path, headers, body } = self.login.request().map_err(WireError::NotAllowed)?;
        let method = if body.is_some() { Method::POST } else { Method::GET };
        let mut head = head_of(method, &format!("{}{path}", self.auth_url))?;
        head.headers.extend(headers);
        let body = body.map(|body| vec![Bytes::from(body)]).unwrap_or_default();
        // The request that needs the login was not sent, so every failed login counts as not sent.
        let failed = |error: WireError| match error {
            WireError::NotSent(reason) | WireError::Failed(reason) => WireError::NotSent(format!("login: {reason}")),
            other => other,
        };
        let answer = self.connections.ask((head, body), (STORE, "login"), Duration::ZERO).await.map_err(failed)?;
        let (status, headers) = (answer.status, answer.headers.clone());
        let text = answer.read().await.map_err(failed)?;
        match status {
            status if status.is_success() => {}
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let hint = "check store.access_key, store.secret_key and, with Keystone, project and domains";
                return Err(WireError::NotAllowed(format!("the login is refused ({status}); {hint}")));
            }
            status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                return Err(WireError::NotSent(format!("login: {status} {}", plain(&text))));
            }
            status => {
                let hint = "check store.endpoint and store.auth";
                return Err(WireError::NotAllowed(format!("login: {status} {}; {hint}", plain(&text))));
            }
        }
        let grant = self.login.grant(&self.choice, &headers, &text);
        let grant = grant.map_err(|error| WireError::NotAllowed(error.to_string()))?;
        let token = HeaderValue::from_str(grant.token.reveal());
        let mut token = token.map_err(|_| WireError::NotAllowed("the login's token is not printable".to_owned()))?;
        token.set_sensitive(true);
        let pass = Pass(self.logins.load(Ordering::Relaxed));
        Ok(ActiveLogin { pass, token, url: grant.url, until: Instant::now() + grant.used_for })
    }
}

#[async_trait]
impl Access for Session {
    fn store(&self) -> &'static str {
        STORE
    }

    async fn authorise(&self, head: &mut Parts, target: &str) -> Result<Pass, WireError> {
        let before = self.logins.load(Ordering::Acquire);
        let mut state = self.state.lock().await;
        let now = Instant::now();
        let held = match state.held.take().filter(|held| now < held.until) {
            Some(held) => held,
            None => {
                let waited = before != self.logins.load(Ordering::Acquire);
                if let Some((error, when)) = &state.failed {
                    let refused = matches!(error, WireError::NotAllowed(_)) && now < *when + REFUSED_FOR;
                    if waited || refused {
                        return Err(error.clone());
                    }
                }
                let done = self.log_in().await;
                self.logins.fetch_add(1, Ordering::Release);
                state.failed = done.as_ref().err().map(|error| (error.clone(), Instant::now()));
                done?
            }
        };
        head.uri = head_of(Method::GET, &format!("{}{target}", held.url))?.uri;
        head.headers.insert(X_AUTH_TOKEN, held.token.clone());
        let pass = held.pass;
        state.held = Some(held);
        drop(state);
        if let Some(signer) = &self.signer {
            let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
            signer.sign(head, now_s, &Uuid::new_v4().simple().to_string());
        }
        Ok(pass)
    }

    async fn is_renewed(&self, pass: Pass) -> bool {
        let mut state = self.state.lock().await;
        if state.held.as_ref().is_some_and(|held| held.pass == pass) {
            state.held = None;
        }
        true
    }

    fn explain(&self, body: &[u8]) -> (String, String) {
        shadow::tags::refusal(body).unwrap_or_else(|| (String::new(), plain(body)))
    }

    /// Swift also answers 503 when it wrote too few replicas of an object, and may still copy them.
    fn busy_wrote_nothing(&self) -> bool {
        false
    }
}

/// A refusal's text without markup.
fn plain(body: &[u8]) -> String {
    let (mut text, mut markup) = (String::new(), false);
    for letter in String::from_utf8_lossy(body).chars().take(4 * MESSAGE_MAX) {
        match letter {
            '<' => markup = true,
            '>' if markup => {
                markup = false;
                text.push(' ');
            }
            _ if markup => {}
            letter if letter.is_control() => text.push(' '),
            letter => text.push(letter),
        }
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(MESSAGE_MAX).collect()
}
