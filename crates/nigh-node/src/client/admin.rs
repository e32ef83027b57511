//! The admin API's client, over the node's Unix socket. Paths are those below `/v1`.

use std::path::Path;

use async_recursion::async_recursion as boxed;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::http_call::{Target, full};
use super::{ANSWER_MAX, ClientError};
use crate::admin::{UNANSWERED, VERSION};

/// A client of one node's admin API.
pub struct AdminClient {
    target: Target,
}

/// Lines of JSON, as they arrive.
pub struct Lines {
    target: Target,
    unanswered: Vec<String>,
    body: Incoming,
    buffer: BytesMut,
}

/// An answer of any length, in pieces.
pub struct Pieces {
    target: Target,
    body: Incoming,
}

impl AdminClient {
    /// A client of the node whose admin socket is `socket`.
    #[must_use]
    pub fn new(socket: &Path) -> Self {
        Self { target: Target::Unix(socket.to_owned()) }
    }

    /// The JSON document at `path` (with its query).
    ///
    /// # Errors
    /// If the node rejects it, or its answer is not a `T`.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.document(&self.text(path).await?)
    }

    /// The JSON document at `path`, to which all members of the node's cluster contribute, and the names of the members
    /// that did not answer.
    ///
    /// # Errors
    /// If the node rejects it, or its answer is not a `T`.
    pub async fn get_of_cluster<T: DeserializeOwned>(&self, path: &str) -> Result<(T, Vec<String>), ClientError> {
        let (text, unanswered) = self.text_of_cluster(path).await?;
        Ok((self.document(&text)?, unanswered))
    }

    #[boxed]
    async fn text_of_cluster(&self, path: &str) -> Result<(Bytes, Vec<String>), ClientError> {
        let answer = self.answer(Method::GET, path, Bytes::new()).await?;
        let unanswered = unanswered(answer.headers());
        Ok((self.target.collect(answer.into_body()).await?, unanswered))
    }

    fn document<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, ClientError> {
        serde_json::from_slice(body)
            .map_err(|error| ClientError::Answer { endpoint: self.target.name(), reason: error.to_string() })
    }

    /// The text at `path`.
    #[boxed]
    pub async fn text(&self, path: &str) -> Result<Bytes, ClientError> {
        let body = self.call(Method::GET, path, Bytes::new()).await?;
        self.target.collect(body).await
    }

    /// Posts to `path`. Returns the node's answer.
    ///
    /// # Errors
    /// If the node rejects it, or its answer is not a `T`.
    pub async fn post<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let body = self.call(Method::POST, path, Bytes::new()).await?;
        self.document(&self.target.collect(body).await?)
    }

    /// Posts a document to `path`.
    pub async fn give<T: Serialize>(&self, path: &str, document: &T) -> Result<(), ClientError> {
        let body = self.call(Method::POST, path, json(document)?).await?;
        self.target.collect(body).await.map(drop)
    }

    /// Posts a document to `path`. Returns the node's answer.
    ///
    /// # Errors
    /// If the node rejects it, or its answer is not an `A`.
    pub async fn exchange<T: Serialize, A: DeserializeOwned>(
        &self,
        path: &str,
        document: &T,
    ) -> Result<A, ClientError> {
        let body = self.call(Method::POST, path, json(document)?).await?;
        self.document(&self.target.collect(body).await?)
    }

    /// Posts a document to `path`. Returns the lines of the answer.
    pub async fn give_for_lines<T: Serialize>(&self, path: &str, document: &T) -> Result<Lines, ClientError> {
        Ok(self.lines_of(self.answer(Method::POST, path, json(document)?).await?))
    }

    /// The bytes at `path`, piece by piece.
    #[boxed]
    pub async fn pieces(&self, path: &str) -> Result<Pieces, ClientError> {
        let body = self.call(Method::GET, path, Bytes::new()).await?;
        Ok(Pieces { target: self.target.clone(), body })
    }

    /// The lines at `path`, until the node ends them.
    #[boxed]
    pub async fn lines(&self, path: &str) -> Result<Lines, ClientError> {
        Ok(self.lines_of(self.answer(Method::GET, path, Bytes::new()).await?))
    }

    fn lines_of(&self, answer: Response<Incoming>) -> Lines {
        let unanswered = unanswered(answer.headers());
        Lines { target: self.target.clone(), unanswered, body: answer.into_body(), buffer: BytesMut::new() }
    }

    async fn call(&self, method: Method, path: &str, document: Bytes) -> Result<Incoming, ClientError> {
        self.answer(method, path, document).await.map(Response::into_body)
    }

    async fn answer(&self, method: Method, path: &str, document: Bytes) -> Result<Response<Incoming>, ClientError> {
        let mut answer = self.asked(&method, &format!("{VERSION}{path}"), document.clone()).await?;
        let mut status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let mut words = self.target.collect(answer.into_body()).await?;
        // Every refusal of this version has words: a node without any is of before `/v1`.
        if status == StatusCode::NOT_FOUND && words.is_empty() {
            answer = self.asked(&method, path, document).await?;
            status = answer.status();
            if status.is_success() {
                return Ok(answer);
            }
            words = self.target.collect(answer.into_body()).await?;
        }
        let code = if status == StatusCode::NOT_FOUND { "NotFound" } else { status.as_str() }.to_owned();
        let mut message = String::from_utf8_lossy(&words).trim().to_owned();
        if status == StatusCode::NOT_FOUND && message.is_empty() {
            message = format!("the node does not have {VERSION}{path}; it is of another version than this command");
        }
        Err(ClientError::Refused { status: status.as_u16(), code, message })
    }

    async fn asked(&self, method: &Method, path: &str, document: Bytes) -> Result<Response<Incoming>, ClientError> {
        let request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.target.authority()))
            .header(http::header::HOST, self.target.authority())
            .header(http::header::CONTENT_LENGTH, document.len())
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(full(document))
            .map_err(|error| ClientError::Request(error.to_string()))?;
        self.target.send(request).await
    }
}

/// The members of the cluster that did not answer.
fn unanswered(headers: &HeaderMap) -> Vec<String> {
    let names = headers.get(UNANSWERED).and_then(|names| names.to_str().ok()).unwrap_or_default();
    names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn json<T: Serialize>(document: &T) -> Result<Bytes, ClientError> {
    serde_json::to_vec(document).map(Bytes::from).map_err(|error| ClientError::Request(error.to_string()))
}

impl Pieces {
    /// The next piece, or none at the end.
    ///
    /// # Errors
    /// If the answer is cut off.
    #[boxed]
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        loop {
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(piece) = frame.into_data() {
                        return Ok(Some(piece));
                    }
                }
                Some(Err(error)) => return Err(self.target.broke(&error)),
                None => return Ok(None),
            }
        }
    }
}

impl Lines {
    /// The names of the members of the cluster that did not answer: their lines are missing.
    #[must_use]
    pub fn unanswered(&self) -> &[String] {
        &self.unanswered
    }

    /// The next line, or none at the end.
    ///
    /// # Errors
    /// If the connection fails, or the line is not a `T`.
    pub async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, ClientError> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(end + 1);
                return serde_json::from_slice(&line).map(Some).map_err(|error| self.strange(error.to_string()));
            }
            if self.buffer.len() > ANSWER_MAX {
                return Err(self.strange("a line has no end".to_owned()));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => self.buffer.extend_from_slice(frame.data_ref().map_or(&[][..], |bytes| bytes)),
                Some(Err(error)) => return Err(self.target.broke(&error)),
                None => return Ok(None),
            }
        }
    }

    fn strange(&self, reason: String) -> ClientError {
        ClientError::Answer { endpoint: self.target.name(), reason }
    }
}
