//! The admin API and the page over TCP: who asks, and from where.
//!
//! Two ways in: an access key and its secret by HTTP Basic, or the cookie of a session (`sign_in`). A request without
//! either goes on as nobody's, so that the page itself loads; each route of the API then asks for its role
//! (`has_role`).

mod attempts;
mod headers;
mod origin;
mod revocation;
mod sessions;
pub(super) mod sign_in;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use nigh_http::listener::DoorListener;
use nigh_terms::{AccessKeyId, AdminRole, SecretKey};
use parking_lot::Mutex;

pub(super) use self::sessions::LinkMaker;
pub(crate) use self::sessions::SignIns;

use self::attempts::Attempts;
use self::origin::Site;
use self::sessions::{Holder, Link};
use super::{AdminSource, answered};

/// Connections at a time, where files are plenty; while none is idle, further ones wait. A page has a stream and a few
/// requests.
const CONNECTIONS_MAX: usize = 512;
/// How long endless answers may take to end when the node stops.
const CLOSING: Duration = Duration::from_secs(5);

/// Who asks.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// What they may do.
    pub(crate) role: AdminRole,
    /// Their way in.
    way: Way,
}

#[derive(Clone, Debug)]
enum Way {
    /// The Unix socket, which is this user's and root's.
    Socket,
    /// A key by HTTP Basic.
    Key(AccessKeyId, SecretKey),
    /// A session, for whom it is, and how long it lasts.
    Session { token: String, holder: Holder, left: Duration },
}

impl Caller {
    /// Whoever reaches the Unix socket.
    pub(super) const fn of_socket() -> Self {
        Self { role: AdminRole::Operate, way: Way::Socket }
    }

    /// Their access key; none on the Unix socket and for sessions of links.
    pub(crate) const fn access_key(&self) -> Option<&AccessKeyId> {
        match &self.way {
            Way::Key(key, _) => Some(key),
            Way::Session { holder: Holder::Key(key, _), .. } => Some(key),
            Way::Session { holder: Holder::Link(_), .. } | Way::Socket => None,
        }
    }

    /// Who made the link that began their session; none if no link did.
    pub(super) const fn link_maker(&self) -> Option<&LinkMaker> {
        match &self.way {
            Way::Session { holder: Holder::Link(Link { maker, .. }), .. } => Some(maker),
            Way::Session { holder: Holder::Key(..), .. } | Way::Key(..) | Way::Socket => None,
        }
    }

    /// True if they still have the role with which they asked.
    fn has_role_still<N: AdminSource>(&self, node: &N, now: Instant) -> bool {
        let role_of = |key: &AccessKeyId, secret: &SecretKey| node.admin_role(key.as_str(), secret);
        let role = match &self.way {
            Way::Socket => Some(self.role),
            Way::Key(key, secret) => role_of(key, secret),
            Way::Session { token, .. } => node.sign_ins().find(token, now).and_then(|(holder, _)| holder.role(role_of)),
        };
        role.is_some_and(|role| role >= self.role)
    }

    /// Who makes a link that they ask for. `local` is the user at the Unix socket.
    fn maker(&self, local: Option<u32>) -> LinkMaker {
        match &self.way {
            Way::Socket => LinkMaker::LocalUser(local),
            Way::Key(key, secret) => LinkMaker::Key(key.clone(), secret.clone()),
            Way::Session { holder, .. } => holder.maker(),
        }
    }
}

/// Why a request does not reach the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rejection {
    /// The header `Host` names another machine.
    Host,
    /// Another site caused it.
    Site,
    /// The key or its secret is wrong, or it has no role here.
    Key,
    /// The address gave too many wrong keys; seconds until it is heard again.
    Wait(u64),
}

impl Rejection {
    const fn status(self) -> StatusCode {
        match self {
            Self::Host => StatusCode::MISDIRECTED_REQUEST,
            Self::Site => StatusCode::FORBIDDEN,
            Self::Key => StatusCode::UNAUTHORIZED,
            Self::Wait(_) => StatusCode::TOO_MANY_REQUESTS,
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Host => {
                "this door is on loopback and answers as localhost or 127.0.0.1 only; set admin.listen to reach it by \
                 another name"
            }
            Self::Site => "another site caused this request; only the node's own page may change something",
            Self::Key => {
                "the access key or its secret is wrong, or the key has no role; `nigh keys create --role view` makes one \
                 that has"
            }
            Self::Wait(_) => "too many wrong keys came from this address; wait a minute",
        }
    }
}

impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        let mut response = (self.status(), self.words()).into_response();
        if let Self::Wait(seconds) = self {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// Where the API is served over TCP.
pub(crate) struct TcpDoor {
    pub(crate) listener: DoorListener,
    /// The connections for which the open files suffice.
    pub(crate) connections_max: usize,
}

/// The door of a node.
struct AdminDoor {
    attempts: Mutex<Attempts>,
    is_loopback: bool,
    cookie: sign_in::Cookie,
}

/// Serves `router` to those whom `node` knows, until the node stops.
pub(super) async fn serve<N: AdminSource>(node: Arc<N>, router: Router, door: TcpDoor) {
    let TcpDoor { listener, connections_max } = door;
    let (is_loopback, port) = match listener.local_addr() {
        Ok(address) => (address.ip().is_loopback(), address.port()),
        Err(error) => return tracing::error!(%error, "the admin API is not served over TCP"),
    };
    let cookie = sign_in::Cookie { port, is_secure: listener.tls().is_some() };
    let door = Arc::new(AdminDoor { attempts: Mutex::default(), is_loopback, cookie });
    let (router, stop) = (TowerToHyperService::new(router), node.stop().clone());
    let ended = stop.clone();
    let connections_max = connections_max.min(CONNECTIONS_MAX);
    let serving = nigh_http::listener::serve("admin API", listener, connections_max, stop, move |request, from| {
        let (door, node, router) = (Arc::clone(&door), Arc::clone(&node), router.clone());
        async move { door.answer(&node, &router, request.map(axum::body::Body::new), from).await }
    });
    tokio::select! {
        () = serving => {}
        () = async { ended.cancelled().await; tokio::time::sleep(CLOSING).await } => {}
    }
}

impl AdminDoor {
    async fn answer<N: AdminSource>(
        &self,
        node: &Arc<N>,
        router: &TowerToHyperService<Router>,
        mut request: Request,
        from: IpAddr,
    ) -> Response {
        let began = Instant::now();
        let mut response = match self.admit(&**node, request.method(), request.headers(), from, began) {
            Ok(caller) => {
                let extensions = request.extensions_mut();
                extensions.insert(self.cookie);
                // The client's port is nobody's business.
                extensions.insert(ConnectInfo(SocketAddr::new(from, 0)));
                if let Some(caller) = caller.clone() {
                    extensions.insert(caller);
                }
                let response = match router.call(request).await {
                    Ok(response) => response,
                    Err(never) => match never {},
                };
                match caller {
                    Some(caller) => revocation::ends_with_role(node, caller, response),
                    None => response,
                }
            }
            Err(rejection) => {
                let named = request.headers().get(header::AUTHORIZATION).and_then(basic).map(|(key, _)| key);
                answered::refused(&**node, &request, named.as_ref(), from, (rejection.status(), began));
                rejection.into_response()
            }
        };
        headers::secure(response.headers_mut());
        response
    }

    /// Who sends a request with these headers; none for nobody that is known.
    fn admit<N: AdminSource>(
        &self,
        node: &N,
        method: &Method,
        headers: &HeaderMap,
        from: IpAddr,
        now: Instant,
    ) -> Result<Option<Caller>, Rejection> {
        if self.is_loopback && !origin::is_loopback_name(origin::text(headers, header::HOST.as_str())) {
            return Err(Rejection::Host);
        }
        let site = origin::site_of(headers);
        if !origin::may_act(method, site) {
            return Err(Rejection::Site);
        }
        match headers.get(header::AUTHORIZATION) {
            Some(authorization) => self.key(node, authorization, from, now).map(Some),
            None => Ok(self.session(node, method, headers, site, now)),
        }
    }

    fn key<N: AdminSource>(
        &self,
        node: &N,
        authorization: &HeaderValue,
        from: IpAddr,
        now: Instant,
    ) -> Result<Caller, Rejection> {
        if let Some(wait) = self.attempts.lock().wait(from, now) {
            return Err(Rejection::Wait(wait.as_secs() + 1));
        }
        let known = basic(authorization).and_then(|(key, secret)| {
            let role = node.admin_role(key.as_str(), &secret)?;
            Some(Caller { role, way: Way::Key(key, secret) })
        });
        known.ok_or_else(|| {
            self.attempts.lock().failed(from, now);
            tracing::warn!(%from, "a wrong key at the admin API");
            Rejection::Key
        })
    }

    fn session<N: AdminSource>(
        &self,
        node: &N,
        method: &Method,
        headers: &HeaderMap,
        site: Site,
        now: Instant,
    ) -> Option<Caller> {
        let token = self.cookie.token(headers).filter(|_| origin::cookie_counts(method, site))?;
        let (holder, left) = node.sign_ins().find(token, now)?;
        // Its key may have ended, or have another role now.
        let role = holder.role(|key, secret| node.admin_role(key.as_str(), secret))?;
        Some(Caller { role, way: Way::Session { token: token.to_owned(), holder, left } })
    }
}

/// The key and the secret of HTTP Basic (RFC 7617).
fn basic(authorization: &HeaderValue) -> Option<(AccessKeyId, SecretKey)> {
    let (scheme, credentials) = authorization.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(BASE64_STANDARD.decode(credentials.trim()).ok()?).ok()?;
    let (key, secret) = text.split_once(':')?;
    Some((AccessKeyId::new(key), SecretKey::new(secret)))
}

/// Lets a request pass whose caller has at least `needed`.
pub(super) async fn has_role(State(needed): State<AdminRole>, request: Request, next: Next) -> Response {
    let role = request.extensions().get::<Caller>().map(|caller| caller.role);
    match role {
        Some(role) if role >= needed => next.run(request).await,
        Some(role) => {
            (StatusCode::FORBIDDEN, format!("this needs the role {needed}, and who asks has {role}")).into_response()
        }
        None => {
            let words = "sign in first: give an access key and its secret (`curl -u KEY:SECRET`), or open the link \
                         that `nigh page` prints";
            let mut response = (StatusCode::UNAUTHORIZED, words).into_response();
            // A browser would ask with a window of its own, over the page's.
            if !origin::is_browser(request.headers()) {
                let challenge = HeaderValue::from_static("Basic realm=\"nigh\", charset=\"UTF-8\"");
                response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
            }
            response
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_and_the_secret_are_what_curl_sends() {
        let of = |text: &'static str| basic(&HeaderValue::from_static(text));
        let (key, secret) = of("Basic TklHSDE6YTpi").unwrap();
        assert_eq!((key.as_str(), secret.reveal()), ("NIGH1", "a:b"), "a secret may have a colon");
        assert!(of("basic TklHSDE6YTpi").is_some());
        for wrong in ["Basic", "Bearer TklHSDE6YTpi", "Basic ???", "Basic TklHSDE="] {
            assert!(of(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn every_rejection_has_its_status_and_says_why() {
        for (rejection, status, part) in [
            (Rejection::Host, 421, "set admin.listen"),
            (Rejection::Site, 403, "another site"),
            (Rejection::Key, 401, "no role"),
            (Rejection::Wait(7), 429, "wait a minute"),
        ] {
            assert!(rejection.words().contains(part), "{rejection:?}");
            let response = rejection.into_response();
            assert_eq!(response.status(), status);
            let waits = response.headers().contains_key(header::RETRY_AFTER);
            assert_eq!(waits, rejection == Rejection::Wait(7));
        }
    }
}
