//! Signing in and out of the page: a key or a link becomes a cookie.
//!
//! The cookie is the session's token. Scripts do not see it, other sites do not send it, and over TLS its name
//! (`__Host-`) keeps other doors of the machine from setting it. Without TLS its name has the port, because browsers
//! give a machine's cookies to all its ports.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{ConnectInfo, Extension, Query, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use nigh_terms::AdminRole;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::sessions::{Holder, LINK_VALID, Link, SESSION_VALID};
use super::{Caller, Way};
use crate::admin::answered::PeerUser;
use crate::admin::refusal::Refusal;
use crate::admin::{AdminSource, json, no_content};

/// Where a link leads, without its token.
pub(in crate::admin) const SIGN_IN: &str = "/sign-in";

/// A door's cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::admin) struct Cookie {
    pub(super) port: u16,
    pub(super) is_secure: bool,
}

impl Cookie {
    fn name(self) -> String {
        if self.is_secure { "__Host-nigh".to_owned() } else { format!("nigh-{}", self.port) }
    }

    /// The token in a request's cookies.
    pub(super) fn token(self, headers: &HeaderMap) -> Option<&str> {
        let name = self.name();
        let texts = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let pairs = texts.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let mut own = pairs.filter(|(known, _)| *known == name).map(|(_, token)| token);
        own.next()
    }

    /// The header `Set-Cookie` for `token`, which lasts for `valid`.
    fn set(self, token: &str, valid: Duration) -> Result<HeaderValue, Refusal> {
        let (name, secure, age) = (self.name(), if self.is_secure { "; Secure" } else { "" }, valid.as_secs());
        HeaderValue::from_str(&format!("{name}={token}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict{secure}"))
            .map_err(Refusal::internal)
    }
}

/// Who is signed in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(in crate::admin) struct SessionStatus {
    /// `view` or `operate`.
    pub(in crate::admin) role: AdminRole,
    /// The access key; none after a link and on the Unix socket.
    pub(in crate::admin) access_key: Option<String>,
    /// Seconds until the session is over; none if each request gives the key.
    pub(in crate::admin) expires_in_s: Option<u64>,
}

impl SessionStatus {
    fn of(caller: &Caller) -> Self {
        let expires_in_s = match &caller.way {
            Way::Session { left, .. } => Some(left.as_secs()),
            Way::Socket | Way::Key(..) => None,
        };
        Self { role: caller.role, access_key: caller.access_key().map(ToString::to_string), expires_in_s }
    }
}

pub(in crate::admin) async fn session<N: AdminSource>(
    State(_): State<Arc<N>>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Refusal> {
    json(&SessionStatus::of(&caller))
}

pub(in crate::admin) async fn sign_in<N: AdminSource>(
    State(node): State<Arc<N>>,
    cookie: Option<Extension<Cookie>>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Refusal> {
    let (Some(Extension(cookie)), Way::Key(key, secret)) = (cookie, caller.way.clone()) else {
        let words = "a session begins with an access key and its secret by HTTP Basic, at the admin API's TCP address";
        return Err(Refusal::bad_request(words));
    };
    let token = node.sign_ins().open(Holder::Key(key, secret), Instant::now());
    let status = SessionStatus { expires_in_s: Some(SESSION_VALID.as_secs()), ..SessionStatus::of(&caller) };
    let mut response = json(&status)?;
    response.headers_mut().insert(header::SET_COOKIE, cookie.set(&token, SESSION_VALID)?);
    Ok(response)
}

pub(in crate::admin) async fn sign_out<N: AdminSource>(
    State(node): State<Arc<N>>,
    cookie: Option<Extension<Cookie>>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Refusal> {
    let mut response = no_content();
    if let (Some(Extension(cookie)), Way::Session { token, .. }) = (cookie, &caller.way) {
        node.sign_ins().close(token, Instant::now());
        response.headers_mut().insert(header::SET_COOKIE, cookie.set("", Duration::ZERO)?);
    }
    Ok(response)
}

/// The link to make.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::admin) struct LinkParams {
    /// `view` or `operate`; if absent, the role of who asks.
    role: Option<AdminRole>,
}

/// A link that signs in one browser, once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SignInLink {
    /// The link.
    pub url: String,
    /// Seconds for which it is valid.
    pub expires_in_s: u64,
}

pub(in crate::admin) async fn link<N: AdminSource>(
    State(node): State<Arc<N>>,
    peer: Option<Extension<ConnectInfo<PeerUser>>>,
    Query(LinkParams { role }): Query<LinkParams>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Refusal> {
    let Some(door) = node.status().endpoints.admin else {
        return Err(Refusal::not_found("this node serves no page".to_owned()));
    };
    let maker = caller.maker(peer.and_then(|Extension(ConnectInfo(peer))| peer.user()));
    let link = Link { role: role.unwrap_or(caller.role).min(caller.role), maker };
    let token = node.sign_ins().make_link(link, Instant::now());
    json(&SignInLink { url: format!("{door}{SIGN_IN}?token={token}"), expires_in_s: LINK_VALID.as_secs() })
}

/// A link's token.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::admin) struct TokenParams {
    token: String,
}

/// Opens the session of a link and leads to the page.
pub(in crate::admin) async fn follow_link<N: AdminSource>(
    State(node): State<Arc<N>>,
    method: Method,
    cookie: Option<Extension<Cookie>>,
    Query(TokenParams { token }): Query<TokenParams>,
) -> Result<Response, Refusal> {
    // Whoever only looks whether the page exists does not use the link up.
    let opened = (method == Method::GET).then(|| node.sign_ins().use_link(&token, Instant::now())).flatten();
    match (opened, cookie) {
        (Some(session), Some(Extension(cookie))) => {
            let cookie = cookie.set(&session, SESSION_VALID)?;
            Ok((
                StatusCode::SEE_OTHER,
                [(header::LOCATION, HeaderValue::from_static("/")), (header::SET_COOKIE, cookie)],
            )
                .into_response())
        }
        _ => Err(Refusal::gone("this link was used or is over; `nigh page` prints another".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_hidden_from_scripts_and_other_sites() {
        let plain = Cookie { port: 9403, is_secure: false };
        let text = plain.set("abc", Duration::from_secs(60)).unwrap_or_else(|_| panic!("a token is a header's text"));
        assert_eq!(text, "nigh-9403=abc; Path=/; Max-Age=60; HttpOnly; SameSite=Strict");
        let secure = Cookie { is_secure: true, ..plain };
        let text = secure.set("abc", Duration::ZERO).unwrap_or_else(|_| panic!("a token is a header's text"));
        assert_eq!(text, "__Host-nigh=abc; Path=/; Max-Age=0; HttpOnly; SameSite=Strict; Secure");
    }

    #[test]
    fn the_token_is_found_among_other_cookies() {
        let door = Cookie { port: 9403, is_secure: false };
        let mut headers = HeaderMap::new();
        headers.append(header::COOKIE, HeaderValue::from_static("other=1; nigh-9404=no"));
        assert_eq!(door.token(&headers), None);
        headers.append(header::COOKIE, HeaderValue::from_static("x=y;nigh-9403=yes"));
        assert_eq!(door.token(&headers), Some("yes"));
    }
}
