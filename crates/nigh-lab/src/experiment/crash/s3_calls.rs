//! The S3 calls of the experiment: signed, over one connection, and told apart by what is known after them.

use std::net::SocketAddr;

use http::Method;
use tokio::runtime::Handle;

use super::body::{self, CONTENT_HEADER, WRITE_HEADER};
use super::fast_calls::FastDoor;
use super::history::Seen;
use crate::LabError;
use crate::http_load::{Connection, header};
use crate::sign::Signer;

/// A call's answer, and so what is known.
#[derive(Debug)]
pub(super) enum Answer {
    /// It was done.
    Done { head: String, body: Vec<u8> },
    /// 404: there is nothing.
    Absent,
    /// Another status: refused, or failed midway.
    Refused(String),
    /// None came.
    Broken(String),
}

/// Who calls a server.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) server: SocketAddr,
    pub(super) signer: Signer,
    pub(super) handle: Handle,
    /// The same server without HTTP, if it has that.
    pub(super) fast: Option<FastDoor>,
}

/// One client's connection; made when it is needed, and anew after everything that is no success.
pub(super) struct Caller<'a> {
    door: &'a Door,
    connection: Option<Connection>,
}

impl<'a> Caller<'a> {
    pub(super) const fn new(door: &'a Door) -> Self {
        Self { door, connection: None }
    }

    /// Sends one request and waits for its answer. Blocks.
    pub(super) fn call(
        &mut self,
        method: &Method,
        path: &str,
        headers: &[(&'static str, &str)],
        body: &[u8],
    ) -> Result<Answer, LabError> {
        let Door { server, signer, handle, .. } = self.door;
        let request = handle.block_on(signer.signed(method.clone(), *server, path, headers, body))?;
        let exchanged = match self.connection.take() {
            Some(connection) => Ok(connection),
            None => Connection::open(*server),
        };
        let exchanged = exchanged.and_then(|mut connection| {
            let answer = connection.fetch(&request)?;
            self.connection = Some(connection);
            Ok(answer)
        });
        Ok(match exchanged {
            // S3 may find out that it fails when it has begun its answer.
            Ok((_, body)) if body.windows(7).take(512).any(|window| window == b"<Error>") => {
                Answer::Refused(String::from_utf8_lossy(&body).into_owned())
            }
            Ok((head, body)) => Answer::Done { head, body },
            Err(error) => {
                let text = error.to_string();
                if text.starts_with("HTTP/1.1 404") {
                    Answer::Absent
                } else if text.starts_with("HTTP/1.1 ") {
                    Answer::Refused(text)
                } else {
                    Answer::Broken(text)
                }
            }
        })
    }

    /// What is at `path`; none if that is not told.
    pub(super) fn get(&mut self, path: &str) -> Result<Result<Seen, String>, LabError> {
        Ok(match self.call(&Method::GET, path, &[], b"")? {
            Answer::Done { head, body } => {
                Ok(body::seen(header(&head, WRITE_HEADER), header(&head, CONTENT_HEADER), &body))
            }
            Answer::Absent => Ok(Seen::Absent),
            Answer::Refused(why) | Answer::Broken(why) => Err(why),
        })
    }

    /// The keys of a bucket of at most a thousand, with their sizes.
    pub(super) fn list(&mut self, bucket: &str) -> Result<Result<Vec<(String, usize)>, String>, LabError> {
        Ok(match self.call(&Method::GET, &format!("/{bucket}?list-type=2"), &[], b"")? {
            Answer::Done { body, .. } => Ok(entries(&String::from_utf8_lossy(&body))),
            Answer::Absent => Err("404".to_owned()),
            Answer::Refused(why) | Answer::Broken(why) => Err(why),
        })
    }
}

/// Keys and sizes in a page of a listing; the experiment's keys need no escapes.
fn entries(page: &str) -> Vec<(String, usize)> {
    let entry = |text: &str| Some((element(text, "Key")?.to_owned(), element(text, "Size")?.parse().ok()?));
    page.split("<Contents>").skip(1).filter_map(entry).collect()
}

/// The text of an XML element.
pub(super) fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
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
