//! S3 calls of the experiments whose clients record a history, and what is known after each.

use std::net::SocketAddr;
use std::time::Duration;

use http::Method;
use tokio::runtime::Handle;

use crate::LabError;
use crate::instrument::http_load::{Connection, REPLY_TIMEOUT, header};
use crate::instrument::sign::Signer;

/// What is known after a call.
#[derive(Debug)]
pub(super) enum CallOutcome {
    Done {
        head: String,
        body: Vec<u8>,
    },
    /// 404: there is nothing.
    Absent,
    /// Another status: refused, or failed midway.
    Refused(String),
    /// No answer came.
    Broken(String),
}

impl CallOutcome {
    fn of_exchange(exchanged: std::io::Result<(String, Vec<u8>)>) -> Self {
        match exchanged {
            // S3 may fail after it has begun its answer with a success status.
            Ok((_, body)) if body.windows(7).take(512).any(|window| window == b"<Error>") => {
                Self::Refused(String::from_utf8_lossy(&body).into_owned())
            }
            Ok((head, body)) => Self::Done { head, body },
            Err(error) => {
                let text = error.to_string();
                if text.starts_with("HTTP/1.1 404") {
                    Self::Absent
                } else if text.starts_with("HTTP/1.1 ") {
                    Self::Refused(text)
                } else {
                    Self::Broken(text)
                }
            }
        }
    }

    /// The body of a successful call; none if the object does not exist; else the reason for the failure.
    pub(super) fn body(self) -> Result<Option<Vec<u8>>, String> {
        match self {
            Self::Done { body, .. } => Ok(Some(body)),
            Self::Absent => Ok(None),
            Self::Refused(why) | Self::Broken(why) => Err(why),
        }
    }

    /// An error unless the call is done.
    pub(super) fn expect_done(self, what: &str) -> Result<(), LabError> {
        match self {
            Self::Done { .. } => Ok(()),
            other => Err(LabError::Request { what: what.to_owned(), reason: format!("{other:?}") }),
        }
    }
}

/// An S3 door, for clients that are threads.
#[derive(Clone, Debug)]
pub(super) struct Door {
    pub(super) server: SocketAddr,
    pub(super) signer: Signer,
    pub(super) handle: Handle,
}

/// One client's connection; made when it is needed, and anew after everything that is no success.
pub(super) struct Caller<'a> {
    door: &'a Door,
    patience: Duration,
    connection: Option<Connection>,
}

impl<'a> Caller<'a> {
    pub(super) const fn new(door: &'a Door) -> Self {
        Self::within(door, REPLY_TIMEOUT)
    }

    /// Waits for each answer no longer than `patience`.
    pub(super) const fn within(door: &'a Door, patience: Duration) -> Self {
        Self { door, patience, connection: None }
    }

    /// Sends one signed request. Blocks.
    pub(super) fn call(
        &mut self,
        method: &Method,
        path: &str,
        headers: &[(&'static str, String)],
        body: &[u8],
    ) -> Result<CallOutcome, LabError> {
        let headers: Vec<(&'static str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let Door { server, signer, handle } = self.door;
        let request = handle.block_on(signer.signed(method.clone(), *server, path, &headers, body))?;
        Ok(exchange(&mut self.connection, || Connection::open_within(*server, self.patience), &request))
    }
}

/// Sends one request over the kept connection, or over a new one. It is kept after a success, unless the server closes it.
pub(super) fn exchange(
    kept: &mut Option<Connection>,
    open: impl FnOnce() -> std::io::Result<Connection>,
    request: &[u8],
) -> CallOutcome {
    let connection = kept.take().map_or_else(open, Ok);
    CallOutcome::of_exchange(connection.and_then(|mut connection| {
        let answer = connection.fetch(request)?;
        let closes = header(&answer.0, "connection").is_some_and(|said| said.eq_ignore_ascii_case("close"));
        *kept = (!closes).then_some(connection);
        Ok(answer)
    }))
}

/// The text of an XML element.
pub(super) fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>")).map(|(text, _)| text)
}
