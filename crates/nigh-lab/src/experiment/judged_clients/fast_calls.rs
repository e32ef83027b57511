//! The experiment's calls by the fast path (docs/design/fast-path.md): puts, by memory of the node's from 64 KiB
//! on, and gets, which see that memory. What is known after them is told as of S3 calls.

use std::path::PathBuf;

use http::StatusCode;
use nigh_client::{Address, Client, ClientError, Conditions, Headers};

use super::BUCKET;
use super::body::{self, CONTENT_HEADER, WRITE_HEADER};
use super::history::ReadFinding;
use crate::experiment::client_calls::CallOutcome;
use crate::instrument::peer::S3Access;

#[derive(Debug)]
pub(crate) struct FastDoor {
    pub(crate) socket: PathBuf,
    pub(crate) access: S3Access,
}

/// One client's connection; made when it is needed, and anew after every fault of it.
pub(crate) struct FastCaller<'a> {
    door: &'a FastDoor,
    client: Option<Client>,
}

impl<'a> FastCaller<'a> {
    pub(crate) const fn new(door: &'a FastDoor) -> Self {
        Self { door, client: None }
    }

    /// Writes an object. None: the node wants to be asked over HTTP.
    pub(crate) fn put(&mut self, key: &str, headers: &[(&'static str, String)], bytes: &[u8]) -> Option<CallOutcome> {
        let headers: Headers = headers.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        match self.ask(|client| client.put(BUCKET, key, bytes, &headers)) {
            Ok(_) => Some(CallOutcome::Done { head: String::new(), body: Vec::new() }),
            Err(ClientError::UseHttp(_)) => None,
            Err(error @ ClientError::Refused { .. }) => Some(CallOutcome::Refused(error.to_string())),
            Err(error) => Some(CallOutcome::Broken(error.to_string())),
        }
    }

    /// What is under a key, if that is told. None: the node wants to be asked over HTTP.
    pub(crate) fn get(&mut self, key: &str) -> Option<Result<ReadFinding, String>> {
        let absent = StatusCode::NOT_FOUND.as_u16();
        match self.ask(|client| client.get(BUCKET, key, &Conditions::default())) {
            Ok(view) => Some(Ok(body::seen(view.header(WRITE_HEADER), view.header(CONTENT_HEADER), &view))),
            Err(ClientError::Refused { status, .. }) if status == absent => Some(Ok(ReadFinding::Absent)),
            Err(ClientError::UseHttp(_)) => None,
            Err(error) => Some(Err(error.to_string())),
        }
    }

    fn ask<T>(&mut self, call: impl FnOnce(&mut Client) -> Result<T, ClientError>) -> Result<T, ClientError> {
        let FastDoor { socket, access } = self.door;
        let mut client = match self.client.take() {
            Some(client) => client,
            None => {
                let address = Address::File(socket.clone());
                Client::connect(&address, &access.access_key, access.secret_key.reveal())?
            }
        };
        let answer = call(&mut client);
        if matches!(answer, Ok(_) | Err(ClientError::Refused { .. } | ClientError::UseHttp(_))) {
            self.client = Some(client);
        }
        answer
    }
}
