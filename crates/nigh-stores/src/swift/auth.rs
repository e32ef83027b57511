//! The requests and answers of logins to Swift. Pure.
//!
//! TempAuth is Swift's own v1 protocol (`swift.common.middleware.tempauth`); the other two logins are Keystone's
//! Identity API v3 (`POST /v3/auth/tokens`), whose answer also says where the object store is.

use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use nigh_terms::SecretKey;
use serde::Deserialize;
use serde_json::{Value, json};
use thiserror::Error;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The assumed life of a token whose answer states none. If the token expires earlier, Swift rejects it and it is
/// renewed.
const LIFE_ASSUMED: Duration = Duration::from_secs(3600);
/// The longest time that a token is used, even if its life is longer.
const USED_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long before its end a token is renewed, unless a tenth of its life is less.
const MARGIN: Duration = Duration::from_secs(60);
/// The type of Swift in Keystone's catalog.
const OBJECT_STORE: &str = "object-store";

/// The credentials of a login.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the fields have the words of Swift's and Keystone's documents")]
pub enum SwiftLogin {
    /// Swift's own login: `account:user` and the user's key.
    TempAuth { user: String, key: SecretKey },
    /// Keystone, by a user's password, for a project.
    Password { user: String, user_domain: String, password: SecretKey, project: String, project_domain: String },
    /// Keystone, by an application credential's id and secret; it belongs to a project.
    ApplicationCredential { id: String, secret: SecretKey },
}

/// Selects an endpoint of a catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointChoice {
    /// The endpoint's region. None for any region.
    pub region: Option<String>,
    /// The endpoint's interface: `public`, `internal` or `admin`.
    pub interface: String,
}

/// The result of a login.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The token.
    pub token: SecretKey,
    /// The account's URL, without a slash at its end.
    pub url: String,
    /// How long the token may be used.
    pub used_for: Duration,
}

/// Why an answer is not a successful login.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GrantError {
    /// A part is missing or cannot be parsed.
    #[error("the login's answer has no {0}; check that store.endpoint is the address of the login")]
    Missing(&'static str),
    /// The body does not follow the protocol.
    #[error("the login's answer cannot be read: {0}; check that store.endpoint is Keystone's v3 address")]
    Illegible(String),
    /// The catalog has other endpoints.
    #[error("the catalog has no object store for {wanted}; it has {found}; set store.region and store.interface")]
    NoEndpoint {
        /// The endpoint that was looked for.
        wanted: String,
        /// The endpoints in the catalog.
        found: String,
    },
}

/// The request of a login.
pub(super) struct LoginRequest {
    /// The path below the login's URL.
    pub(super) path: &'static str,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    /// The body, which is sent by POST. None for a GET request.
    pub(super) body: Option<String>,
}

impl SwiftLogin {
    /// The request.
    pub(super) fn request(&self) -> Result<LoginRequest, String> {
        match self {
            Self::TempAuth { user, key } => {
                let secret = |text: &str| {
                    let value = HeaderValue::from_str(text);
                    let mut value = value.map_err(|_| "the user and its key must be printable".to_owned())?;
                    value.set_sensitive(true);
                    Ok::<_, String>(value)
                };
                let user = (HeaderName::from_static("x-auth-user"), secret(user)?);
                let key = (HeaderName::from_static("x-auth-key"), secret(key.reveal())?);
                Ok(LoginRequest { path: "", headers: vec![user, key], body: None })
            }
            Self::Password { user, user_domain, password, project, project_domain } => {
                let user = json!({"name": user, "domain": {"name": user_domain}, "password": password.reveal()});
                let identity = json!({"methods": ["password"], "password": {"user": user}});
                let scope = json!({"project": {"name": project, "domain": {"name": project_domain}}});
                Ok(keystone(json!({"auth": {"identity": identity, "scope": scope}})))
            }
            Self::ApplicationCredential { id, secret } => {
                let credential = json!({"id": id, "secret": secret.reveal()});
                let identity = json!({"methods": ["application_credential"], "application_credential": credential});
                Ok(keystone(json!({"auth": {"identity": identity}})))
            }
        }
    }

    /// Parses the answer.
    pub(super) fn grant(&self, choice: &EndpointChoice, headers: &HeaderMap, body: &[u8]) -> Result<Grant, GrantError> {
        match self {
            Self::TempAuth { .. } => parse_tempauth(headers),
            Self::Password { .. } | Self::ApplicationCredential { .. } => parse_keystone(choice, headers, body),
        }
    }
}

fn keystone(body: Value) -> LoginRequest {
    let json = (http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    LoginRequest { path: "/auth/tokens", headers: vec![json], body: Some(body.to_string()) }
}

fn text<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<&'a str, GrantError> {
    let value = headers.get(name).and_then(|value| value.to_str().ok()).filter(|value| !value.is_empty());
    value.ok_or(GrantError::Missing(name))
}

fn used_for(life: Duration) -> Duration {
    life.saturating_sub(MARGIN.min(life / 10)).min(USED_MAX)
}

fn account_url(url: &str) -> Result<String, GrantError> {
    super::check_endpoint(url, true).map_err(|_| GrantError::Missing("valid URL of the account"))
}

/// Parses TempAuth's answer, which is in the headers.
///
/// # Errors
/// If the token or the URL is missing.
pub fn parse_tempauth(headers: &HeaderMap) -> Result<Grant, GrantError> {
    let life = text(headers, "x-auth-token-expires").ok().and_then(|seconds| seconds.parse().ok());
    Ok(Grant {
        token: SecretKey::new(text(headers, "x-auth-token")?),
        url: account_url(text(headers, "x-storage-url")?)?,
        used_for: used_for(life.map_or(LIFE_ASSUMED, Duration::from_secs)),
    })
}

#[derive(Deserialize)]
struct TokenAnswer {
    token: Token,
}

#[derive(Deserialize)]
struct Token {
    issued_at: Option<String>,
    expires_at: Option<String>,
    #[serde(default)]
    catalog: Vec<Service>,
}

#[derive(Deserialize)]
struct Service {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    endpoints: Vec<Endpoint>,
}

#[derive(Deserialize)]
struct Endpoint {
    #[serde(default)]
    interface: String,
    #[serde(default)]
    region: Option<String>,
    url: String,
}

/// Parses Keystone's answer: the token is in a header, its life and the catalog in the body. The life is the time between
/// issue and end, both by Keystone's clock.
///
/// # Errors
/// If a part is missing, or the catalog has no object store that matches `choice`.
pub fn parse_keystone(choice: &EndpointChoice, headers: &HeaderMap, body: &[u8]) -> Result<Grant, GrantError> {
    let answer: TokenAnswer = serde_json::from_slice(body).map_err(|error| GrantError::Illegible(error.to_string()))?;
    let token = SecretKey::new(text(headers, "x-subject-token")?);
    let date = |text: &Option<String>| OffsetDateTime::parse(text.as_deref()?, &Rfc3339).ok();
    let life = match (date(&answer.token.issued_at), date(&answer.token.expires_at)) {
        (Some(issued), Some(expires)) => Duration::try_from(expires - issued).unwrap_or(Duration::ZERO),
        _ => LIFE_ASSUMED,
    };
    let services = answer.token.catalog.iter().filter(|service| service.kind == OBJECT_STORE);
    let endpoints: Vec<&Endpoint> = services.flat_map(|service| &service.endpoints).collect();
    let is_chosen = |endpoint: &&&Endpoint| {
        endpoint.interface == choice.interface && (choice.region.is_none() || choice.region == endpoint.region)
    };
    let Some(chosen) = endpoints.iter().find(is_chosen) else {
        let region = choice.region.as_deref().unwrap_or("any region");
        let name = |one: &&Endpoint| format!("{} in {}", one.interface, one.region.as_deref().unwrap_or("no region"));
        let found: Vec<String> = endpoints.iter().map(name).collect();
        return Err(GrantError::NoEndpoint {
            wanted: format!("{} in {region}", choice.interface),
            found: if found.is_empty() { "none".to_owned() } else { found.join(", ") },
        });
    };
    Ok(Grant { token, url: account_url(&chosen.url)?, used_for: used_for(life) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    fn choice(region: Option<&str>) -> EndpointChoice {
        EndpointChoice { region: region.map(str::to_owned), interface: "public".to_owned() }
    }

    const CATALOG: &[u8] = br#"{"token": {"issued_at": "2026-01-01T00:00:00.000000Z",
        "expires_at": "2026-01-01T01:00:00.000000Z", "catalog": [
        {"type": "identity", "endpoints": [{"interface": "public", "region": "one", "url": "http://i"}]},
        {"type": "object-store", "name": "swift", "endpoints": [
            {"interface": "admin", "region": "one", "url": "http://a/v1"},
            {"interface": "public", "region": "one", "region_id": "one", "url": "http://p1/v1/AUTH_x/"},
            {"interface": "public", "region": "two", "url": "http://p2/v1/AUTH_x"}]}]}}"#;

    #[test]
    fn tempauth_grants_by_headers() {
        let grant = parse_tempauth(&headers(&[
            ("x-auth-token", "AUTH_tk1"),
            ("x-storage-url", "http://127.0.0.1:8080/v1/AUTH_test"),
            ("x-auth-token-expires", "86400"),
        ]))
        .unwrap();
        assert_eq!((grant.token.reveal(), &*grant.url), ("AUTH_tk1", "http://127.0.0.1:8080/v1/AUTH_test"));
        assert_eq!(grant.used_for, Duration::from_secs(86340));
        assert!(!format!("{grant:?}").contains("AUTH_tk1"));
        let error = parse_tempauth(&headers(&[("x-auth-token", "t")])).unwrap_err();
        assert_eq!(error, GrantError::Missing("x-storage-url"));
        assert!(parse_tempauth(&headers(&[("x-auth-token", "t"), ("x-storage-url", "not a url")])).is_err());
    }

    #[test]
    fn keystone_grants_the_endpoint_of_the_region_and_interface() {
        let token = headers(&[("x-subject-token", "gAAA")]);
        let of = |region| parse_keystone(&choice(region), &token, CATALOG);
        let grant = of(None).unwrap();
        assert_eq!((grant.token.reveal(), &*grant.url), ("gAAA", "http://p1/v1/AUTH_x"));
        assert_eq!(grant.used_for, Duration::from_secs(3540));
        assert_eq!(of(Some("two")).unwrap().url, "http://p2/v1/AUTH_x");
        let error = of(Some("three")).unwrap_err().to_string();
        assert!(error.contains("public in three") && error.contains("public in two"), "{error}");
        assert_eq!(
            parse_keystone(&choice(None), &HeaderMap::new(), CATALOG).unwrap_err(),
            GrantError::Missing("x-subject-token")
        );
        assert!(matches!(parse_keystone(&choice(None), &token, b"<html>"), Err(GrantError::Illegible(_))));
    }

    #[test]
    fn a_short_life_keeps_a_short_margin_and_one_that_is_over_none() {
        assert_eq!(used_for(Duration::from_secs(100)), Duration::from_secs(90));
        assert_eq!(used_for(Duration::ZERO), Duration::ZERO);
        assert_eq!(used_for(Duration::MAX), USED_MAX);
    }

    #[test]
    fn a_login_says_who_and_for_what() {
        let secret = SecretKey::new("hush");
        let login = SwiftLogin::Password {
            user: "u".to_owned(),
            user_domain: "Default".to_owned(),
            password: secret.clone(),
            project: "p".to_owned(),
            project_domain: "Default".to_owned(),
        };
        let asked = login.request().unwrap();
        let body: Value = serde_json::from_str(&asked.body.unwrap()).unwrap();
        assert_eq!(asked.path, "/auth/tokens");
        assert_eq!(body["auth"]["identity"]["password"]["user"]["password"], "hush");
        assert_eq!(body["auth"]["scope"]["project"]["name"], "p");
        let asked = SwiftLogin::TempAuth { user: "a:b".to_owned(), key: secret.clone() }.request().unwrap();
        assert!(asked.body.is_none() && asked.headers.iter().all(|(_, value)| value.is_sensitive()));
        let asked = SwiftLogin::ApplicationCredential { id: "i".to_owned(), secret }.request().unwrap();
        let body: Value = serde_json::from_str(&asked.body.unwrap()).unwrap();
        assert_eq!(body["auth"]["identity"]["application_credential"]["id"], "i");
        assert!(body["auth"].get("scope").is_none());
        assert!(!format!("{login:?}").contains("hush"));
    }
}
