//! A client that sends what it is told, right or wrong.

use std::collections::HashMap;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::sign::encode;

/// A request. Path and query values are plain text here and encoded on the wire.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// What follows an aws-chunked body.
    pub(crate) trailer: Option<(String, String)>,
}

impl Request {
    pub(crate) fn new(method: &str, path: &str) -> Self {
        let headers = vec![("host".to_owned(), "door".to_owned())];
        Self { method: method.into(), path: path.into(), query: Vec::new(), headers, body: Vec::new(), trailer: None }
    }

    pub(crate) fn query(mut self, name: &str, value: &str) -> Self {
        self.query.push((name.into(), value.into()));
        self
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    pub(crate) fn trailer(mut self, name: &str, value: &str) -> Self {
        self.trailer = Some((name.into(), value.into()));
        self
    }

    pub(crate) fn canonical_query(&self) -> String {
        let mut pairs: Vec<_> = self
            .query
            .iter()
            .map(|(name, value)| format!("{}={}", encode(name, false), encode(value, false)))
            .collect();
        pairs.sort();
        pairs.join("&")
    }

    /// The bytes of its head; the connection is to be closed behind the answer.
    pub(crate) fn head(&self) -> Vec<u8> {
        let query = self.canonical_query();
        let mark = if query.is_empty() { "" } else { "?" };
        let mut head = format!("{} {}{mark}{query} HTTP/1.1\r\n", self.method, encode(&self.path, true));
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        if !self.headers.iter().any(|(name, _)| name == "content-length" || name == "transfer-encoding") {
            head += &format!("content-length: {}\r\n", self.body.len());
        }
        head += "connection: close\r\n\r\n";
        head.into_bytes()
    }
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// What stands in the first element of that name.
    pub(crate) fn element(&self, name: &str) -> String {
        let text = self.text();
        let inside = text.split_once(&format!("<{name}>")).and_then(|(_, rest)| rest.split_once(&format!("</{name}>")));
        inside.map_or_else(String::new, |(inside, _)| inside.to_owned())
    }

    /// What stands in all elements of that name.
    pub(crate) fn elements(&self, name: &str) -> Vec<String> {
        let (open, close) = (format!("<{name}>"), format!("</{name}>"));
        self.text().split(&open).skip(1).filter_map(|rest| Some(rest.split_once(&close)?.0.to_owned())).collect()
    }

    /// The code of an error document, with the status.
    pub(crate) fn error(&self) -> (u16, String) {
        (self.status, self.element("Code"))
    }

    /// Reads an answer as its bytes came, until the end.
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("an answer has a head");
        let head = std::str::from_utf8(&bytes[..end]).unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        if status == 100 {
            return Self::parse(&bytes[end + 4..]);
        }
        let headers = lines
            .map(|line| line.split_once(':').unwrap())
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        Self { status, headers, body: bytes[end + 4..].to_vec() }
    }
}

/// Sends `head` and `body`, then reads until the end. The door may answer and close before it has the whole body.
pub(crate) async fn exchange(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), head: &[u8], body: &[u8]) -> Response {
    let _ = stream.write_all(head).await;
    let _ = stream.write_all(body).await;
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer).await;
    assert!(read.is_ok() || !answer.is_empty(), "no answer: {read:?}");
    Response::parse(&answer)
}
