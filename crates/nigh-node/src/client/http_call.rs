//! One HTTP request over a fresh connection, to a TCP address or a Unix socket.

use std::path::PathBuf;

use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use nigh_http::tls::client::ClientTls;
use tokio::net::{TcpStream, UnixStream};

use super::{ANSWER_MAX, CONNECT_TIMEOUT, ClientError, DoorAddress};

/// A request's body.
pub(super) type Payload = UnsyncBoxBody<Bytes, std::io::Error>;

/// A body that is in memory.
pub(super) fn full(bytes: impl Into<Bytes>) -> Payload {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// The address to connect to.
#[derive(Clone, Debug)]
pub(super) enum Target {
    /// `http://host:port` or `https://host:port`.
    Tcp {
        /// The URL as given.
        url: String,
        /// The part `host:port` of the URL.
        authority: String,
        /// Its host.
        host: String,
        /// With `https`: what is trusted.
        tls: Option<ClientTls>,
    },
    /// A Unix socket.
    Unix(PathBuf),
}

impl Target {
    /// The target at the address of a door.
    pub(super) fn of(door: &DoorAddress) -> Result<Self, ClientError> {
        let url = &door.url;
        let refused = |why: &str| ClientError::Request(format!("endpoint {url:?}: {why}"));
        let uri: Uri = url.parse().map_err(|_| refused("this is not a URL; write http://host:port"))?;
        let is_https = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(refused("write http://host:port or https://host:port")),
        };
        let authority = uri.authority().ok_or_else(|| refused("no host is named"))?;
        let host = authority.host().to_owned();
        let authority = match authority.port() {
            Some(_) => authority.to_string(),
            None => format!("{authority}:{}", if is_https { 443 } else { 80 }),
        };
        let tls = is_https.then(|| ClientTls::trusting(door.ca_bundle.as_deref())).transpose();
        let tls = tls.map_err(|error| ClientError::Request(format!("the authorities to trust: {error}")))?;
        Ok(Self::Tcp { url: url.trim_end_matches('/').to_owned(), authority, host, tls })
    }

    /// The target's name in messages.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Tcp { url, .. } => url.clone(),
            Self::Unix(path) => path.display().to_string(),
        }
    }

    /// The host header of requests.
    pub(super) fn authority(&self) -> &str {
        match self {
            Self::Tcp { authority, .. } => authority,
            Self::Unix(_) => "localhost",
        }
    }

    /// Sends `request`, whose URI is absolute, and returns the head of the answer.
    pub(super) async fn send(&self, mut request: Request<Payload>) -> Result<Response<Incoming>, ClientError> {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
        *request.uri_mut() = path.parse().map_err(|error| ClientError::Request(format!("{path}: {error}")))?;
        match self {
            Self::Tcp { authority, host, tls, .. } => {
                let stream = self.connect(TcpStream::connect(authority.as_str())).await?;
                stream.set_nodelay(true).map_err(|error| self.broke(&error))?;
                let Some(tls) = tls else {
                    let answer = self.exchange(stream, request).await?;
                    if answer.status() == StatusCode::UPGRADE_REQUIRED {
                        let reason = "this door speaks TLS; write https:// in the URL".to_owned();
                        return Err(ClientError::Http { endpoint: self.name(), reason });
                    }
                    return Ok(answer);
                };
                let secured = tokio::time::timeout(CONNECT_TIMEOUT, Box::pin(tls.connect(host, stream))).await;
                let late = || std::io::Error::from(std::io::ErrorKind::TimedOut);
                let stream = secured.unwrap_or_else(|_| Err(late())).map_err(|error| self.broke(&error))?;
                self.exchange(stream, request).await
            }
            Self::Unix(path) => {
                let stream = self.connect(UnixStream::connect(path)).await?;
                self.exchange(stream, request).await
            }
        }
    }

    async fn connect<S>(&self, connecting: impl Future<Output = std::io::Result<S>>) -> Result<S, ClientError> {
        let refused = |reason: String| ClientError::Connect { endpoint: self.name(), reason };
        tokio::time::timeout(CONNECT_TIMEOUT, connecting)
            .await
            .map_err(|_| refused(format!("no answer within {} s", CONNECT_TIMEOUT.as_secs())))?
            .map_err(|error| refused(error.to_string()))
    }

    async fn exchange<S>(&self, stream: S, request: Request<Payload>) -> Result<Response<Incoming>, ClientError>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| self.broke(&error))?;
        // The connection ends with the answer's last byte; the body reports its errors.
        tokio::spawn(connection);
        sender.send_request(request).await.map_err(|error| self.broke(&error))
    }

    /// An error of the connection, with hyper's source as the reason.
    pub(super) fn broke(&self, error: &dyn std::error::Error) -> ClientError {
        let mut reason = error.to_string();
        let mut cause = error.source();
        while let Some(below) = cause {
            reason = format!("{reason}: {below}");
            cause = below.source();
        }
        ClientError::Http { endpoint: self.name(), reason }
    }

    /// The whole answer. Fails if it is longer than the limit.
    pub(super) async fn collect(&self, body: Incoming) -> Result<Bytes, ClientError> {
        let whole = Limited::new(body, ANSWER_MAX).collect().await;
        whole.map(http_body_util::Collected::to_bytes).map_err(|error| self.broke(error.as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> Result<Target, ClientError> {
        Target::of(&DoorAddress { url: url.to_owned(), ca_bundle: None })
    }

    #[tokio::test]
    async fn nobody_listening_is_said_with_the_way_out() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let target = target(&format!("http://{free}")).unwrap();
        let request = Request::get(format!("http://{free}/")).body(full("")).unwrap();
        let message = target.send(request).await.unwrap_err().to_string();
        assert!(message.contains("nigh up") && message.contains(&free.to_string()), "{message}");
    }

    #[test]
    fn an_endpoint_is_a_url_of_http_or_https() {
        for (good, authority) in [
            ("http://127.0.0.1:9400/", "127.0.0.1:9400"),
            ("https://nigh.example", "nigh.example:443"),
            ("https://[::1]:9400", "[::1]:9400"),
            ("http://nigh.example", "nigh.example:80"),
        ] {
            assert_eq!(target(good).unwrap().authority(), authority);
        }
        for bad in ["ftp://host", "127.0.0.1:9400", "", "http://"] {
            assert!(target(bad).is_err(), "{bad}");
        }
        let missing = DoorAddress { url: "https://host".to_owned(), ca_bundle: Some("/nowhere.crt".into()) };
        assert!(Target::of(&missing).unwrap_err().to_string().contains("/nowhere.crt"));
    }
}
