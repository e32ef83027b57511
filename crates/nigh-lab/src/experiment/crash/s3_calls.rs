//! The S3 calls of the experiment: signed, over one connection, and told apart by what is known after them.

use std::net::SocketAddr;

use http::Method;
use tokio::runtime::Handle;

use super::body::{self, CONTENT_HEADER, WRITE_HEADER};
use super::fast_calls::FastDoor;
use super::history::ReadFinding;
use crate::LabError;
use crate::instrument::http_load::{Connection, header};
use crate::instrument::sign::Signer;

/// A call's answer, and so what is known.
#[derive(Debug)]
pub(in crate::experiment) enum CallOutcome {
    /// It was done.
    Done { head: String, body: Vec<u8> },
    /// 404: there is nothing.
    Absent,
    /// Another status: refused, or failed midway.
    Refused(String),
    /// None came.
    Broken(String),
}

impl CallOutcome {
    /// What a connection gave.
    pub(in crate::experiment) fn of_exchange(exchanged: std::io::Result<(String, Vec<u8>)>) -> Self {
        match exchanged {
            // S3 may find out that it fails when it has begun its answer.
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
}

/// Who calls a server.
#[derive(Debug)]
pub(in crate::experiment) struct Door {
    pub(in crate::experiment) server: SocketAddr,
    pub(in crate::experiment) signer: Signer,
    pub(in crate::experiment) handle: Handle,
    /// The same server without HTTP, if it has that.
    pub(super) fast: Option<FastDoor>,
}

impl Door {
    /// A server that speaks HTTP only.
    pub(in crate::experiment) const fn http(server: SocketAddr, signer: Signer, handle: Handle) -> Self {
        Self { server, signer, handle, fast: None }
    }
}

/// One client's connection; made when it is needed, and anew after everything that is no success.
pub(in crate::experiment) struct Caller<'a> {
    door: &'a Door,
    connection: Option<Connection>,
}

impl<'a> Caller<'a> {
    pub(in crate::experiment) const fn new(door: &'a Door) -> Self {
        Self { door, connection: None }
    }

    /// Sends one request and waits for its answer. Blocks.
    pub(in crate::experiment) fn call(
        &mut self,
        method: &Method,
        path: &str,
        headers: &[(&'static str, &str)],
        body: &[u8],
    ) -> Result<CallOutcome, LabError> {
        let Door { server, signer, handle, .. } = self.door;
        let request = handle.block_on(signer.signed(method.clone(), *server, path, headers, body))?;
        let exchanged = match self.connection.take() {
            Some(connection) => Ok(connection),
            None => Connection::open(*server),
        };
        let exchanged = exchanged.and_then(|mut connection| {
            let answer = connection.fetch(&request)?;
            // Some servers close after some answers, and say so.
            let closes = header(&answer.0, "connection").is_some_and(|said| said.eq_ignore_ascii_case("close"));
            self.connection = (!closes).then_some(connection);
            Ok(answer)
        });
        Ok(CallOutcome::of_exchange(exchanged))
    }

    /// What is at `path`; none if that is not told.
    pub(super) fn get(&mut self, path: &str) -> Result<Result<ReadFinding, String>, LabError> {
        Ok(match self.call(&Method::GET, path, &[], b"")? {
            CallOutcome::Done { head, body } => {
                Ok(body::seen(header(&head, WRITE_HEADER), header(&head, CONTENT_HEADER), &body))
            }
            CallOutcome::Absent => Ok(ReadFinding::Absent),
            CallOutcome::Refused(why) | CallOutcome::Broken(why) => Err(why),
        })
    }

    /// The keys of a bucket of at most a thousand, with their sizes.
    pub(super) fn list(&mut self, bucket: &str) -> Result<Result<Vec<(String, usize)>, String>, LabError> {
        Ok(match self.call(&Method::GET, &format!("/{bucket}?list-type=2"), &[], b"")? {
            CallOutcome::Done { body, .. } => Ok(entries(&String::from_utf8_lossy(&body))),
            CallOutcome::Absent => Err("404".to_owned()),
            CallOutcome::Refused(why) | CallOutcome::Broken(why) => Err(why),
        })
    }
}

/// Keys and sizes in a page of a listing; the experiment's keys need no escapes.
fn entries(page: &str) -> Vec<(String, usize)> {
    let entry = |text: &str| Some((element(text, "Key")?.to_owned(), element(text, "Size")?.parse().ok()?));
    page.split("<Contents>").skip(1).filter_map(entry).collect()
}

/// The text of an XML element.
pub(in crate::experiment) fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>")).map(|(text, _)| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_gives_keys_and_sizes() {
        let page = "<ListBucketResult><Contents><Key>own/0</Key><Size>7</Size></Contents>\
                    <Contents><Key>shared/1</Key><ETag>x</ETag><Size>0</Size></Contents></ListBucketResult>";
        assert_eq!(entries(page), [("own/0".to_owned(), 7), ("shared/1".to_owned(), 0)]);
        assert_eq!(entries("<ListBucketResult></ListBucketResult>"), []);
    }
}
