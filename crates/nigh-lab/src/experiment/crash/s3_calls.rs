//! The S3 calls of the experiment: signed, over one connection, and told apart by what is known after them.

use std::net::SocketAddr;

use http::Method;
use tokio::runtime::Handle;

use super::body::{self, CONTENT_HEADER, WRITE_HEADER};
use super::fast_calls::FastDoor;
use super::history::ReadFinding;
use crate::LabError;
use crate::experiment::client_calls::{CallOutcome, element, exchange};
use crate::instrument::http_load::{Connection, header};
use crate::instrument::sign::Signer;

#[derive(Debug)]
pub(in crate::experiment) struct Door {
    pub(in crate::experiment) server: SocketAddr,
    pub(in crate::experiment) signer: Signer,
    pub(in crate::experiment) handle: Handle,
    /// The same server without HTTP, if it has that.
    pub(super) fast: Option<FastDoor>,
}

impl Door {
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

    pub(in crate::experiment) fn call(
        &mut self,
        method: &Method,
        path: &str,
        headers: &[(&'static str, String)],
        body: &[u8],
    ) -> Result<CallOutcome, LabError> {
        let headers: Vec<(&'static str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let Door { server, signer, handle, .. } = self.door;
        let request = handle.block_on(signer.signed(method.clone(), *server, path, &headers, body))?;
        Ok(exchange(&mut self.connection, || Connection::open(*server), &request))
    }

    /// What is at `path`; none if that is not told.
    pub(super) fn get(&mut self, path: &str) -> Result<Result<ReadFinding, String>, LabError> {
        Ok(match self.call(&Method::GET, path, &[], b"")? {
            CallOutcome::Done { head, body } => {
                Ok(body::seen(header(&head, WRITE_HEADER), header(&head, CONTENT_HEADER), &body))
            }
            other => other.body().map(|_| ReadFinding::Absent),
        })
    }

    /// The keys of a bucket of at most a thousand, with their sizes.
    pub(super) fn list(&mut self, bucket: &str) -> Result<Result<Vec<(String, usize)>, String>, LabError> {
        let listed = self.call(&Method::GET, &format!("/{bucket}?list-type=2"), &[], b"")?.body();
        Ok(listed
            .and_then(|page| page.ok_or_else(|| "404".to_owned()))
            .map(|page| entries(&String::from_utf8_lossy(&page))))
    }
}

/// Keys and sizes in a page of a listing; the experiment's keys need no escapes.
fn entries(page: &str) -> Vec<(String, usize)> {
    let entry = |text: &str| Some((element(text, "Key")?.to_owned(), element(text, "Size")?.parse().ok()?));
    page.split("<Contents>").skip(1).filter_map(entry).collect()
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
