//! The S3 door of a server, for signed requests one at a time.

use std::net::SocketAddr;

use http::Method;

use crate::LabError;
use crate::instrument::http_load::Connection;
use crate::instrument::sign::Signer;

#[derive(Clone, Debug)]
pub(crate) struct S3Door {
    /// Signs for `s3`.
    pub signer: Signer,
    pub address: SocketAddr,
}

impl S3Door {
    /// Sends a request by a new connection, as servers close one that idles.
    pub(crate) async fn send(&self, method: Method, path: &str, body: &[u8]) -> Result<(), LabError> {
        let what = format!("{method} {path}");
        let request = self.signer.signed(method, self.address, path, &[], body).await?;
        let sent = Connection::open(self.address).and_then(|mut connection| connection.exchange(&request));
        sent.map(drop).map_err(|error| LabError::Request { what, reason: error.to_string() })
    }
}
