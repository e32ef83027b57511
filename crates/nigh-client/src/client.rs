//! One connection and its calls.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};

use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Map, Value, json};
use sha2::Sha256;

use crate::packet::{Connection, Message};
use crate::view::Release;
use crate::{Address, ClientError, Created, ObjectFile, View};

/// Headers of a request or an answer, by name in lower case.
pub type Headers = BTreeMap<String, String>;

/// Bodies up to this length are sent in a packet; longer ones are written into memory of the node.
const INLINE_BELOW: usize = 64 * 1024;
/// The text before the nonce in the proof of a key.
const PROOF: &[u8] = b"nigh fast path 1\n";
const GREETING: u8 = 0;
const FAREWELL: u8 = 2;
const HELLO: u8 = 1;
const GET: u8 = 2;
const HEAD: u8 = 3;
const PUT: u8 = 4;
const CREATE: u8 = 5;
const COMMIT: u8 = 6;
const RELEASE: u8 = 7;
const ABANDON: u8 = 8;
/// The most released segments that one read reports; more are reported separately.
const RELEASED_MAX: usize = 64;
const SUCCESS: std::ops::Range<u64> = 200..300;
const NOT_MODIFIED: u64 = 304;
const USE_HTTP: u64 = 307;

/// The wanted part of an object, and conditions: texts as in HTTP's headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// `bytes=0-9`.
    pub range: Option<String>,
    /// A part of an object that was uploaded in parts, from 1.
    pub part: Option<u32>,
    /// Only if it has one of these entity tags.
    pub if_match: Option<String>,
    /// Only if it has none of these.
    pub if_none_match: Option<String>,
    /// Only if it changed since.
    pub if_modified_since: Option<String>,
    /// Only if it has not changed since.
    pub if_unmodified_since: Option<String>,
    /// Return its checksum too.
    pub with_checksum: bool,
}

impl Conditions {
    fn request(&self, bucket: &str, key: &str) -> Value {
        let mut fields = Map::new();
        fields.insert("bucket".to_owned(), bucket.into());
        fields.insert("key".to_owned(), key.into());
        for (name, text) in [
            ("range", &self.range),
            ("if_match", &self.if_match),
            ("if_none_match", &self.if_none_match),
            ("if_modified_since", &self.if_modified_since),
            ("if_unmodified_since", &self.if_unmodified_since),
        ] {
            if let Some(text) = text {
                fields.insert(name.to_owned(), text.as_str().into());
            }
        }
        if let Some(part) = self.part {
            fields.insert("part".to_owned(), part.into());
        }
        if self.with_checksum {
            fields.insert("checksum_mode".to_owned(), "ENABLED".into());
        }
        fields.into()
    }
}

/// An answer without bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// HTTP's status.
    pub status: u16,
    /// The answer's headers.
    pub headers: Headers,
}

/// A connection to a node, for one process and one call at a time.
#[derive(Debug)]
pub struct Client {
    connection: Connection,
    last_id: u32,
    /// Handles of released segments, which the next request reports.
    released: Receiver<u64>,
    tell: Sender<u64>,
}

impl Client {
    /// Connects as a function in a sandbox.
    ///
    /// # Errors
    /// If the environment is not that of a sandbox, or the node rejects its key.
    pub fn from_environment() -> Result<Self, ClientError> {
        let variable = |name| std::env::var(name).map_err(|_| ClientError::Environment(name));
        let address = Address::parse(&variable("NIGH_FAST_PATH")?);
        Self::connect(&address, &variable("AWS_ACCESS_KEY_ID")?, &variable("AWS_SECRET_ACCESS_KEY")?)
    }

    /// Connects with a key.
    ///
    /// # Errors
    /// If no node listens, or the node rejects the key.
    pub fn connect(address: &Address, access_key: &str, secret: &str) -> Result<Self, ClientError> {
        let mut connection = Connection::open(address)?;
        let greeting = connection.receive()?;
        let nonce = greeting.json.get("nonce").and_then(Value::as_str).filter(|_| greeting.kind == GREETING);
        let nonce = nonce.ok_or_else(|| ClientError::Protocol("the node sent no greeting".to_owned()))?;
        let mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes())
            .map_err(|error| ClientError::Protocol(error.to_string()))?
            .chain_update(PROOF)
            .chain_update(nonce.as_bytes());
        let mac: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        let (tell, released) = channel();
        let mut client = Self { connection, last_id: 0, released, tell };
        client.ask(HELLO, &json!({ "access_key": access_key, "mac": mac }), &[])?;
        Ok(client)
    }

    /// Reads an object, or a part of it.
    ///
    /// # Errors
    /// The node's refusal; `UseHttp` for an object that the node does not cache; `Refused` with status 304 and code
    /// `NotModified` if a condition says that the object has not changed.
    pub fn get(&mut self, bucket: &str, key: &str, conditions: &Conditions) -> Result<View, ClientError> {
        let message = self.ask(GET, &self.with_released(conditions.request(bucket, key)), &[])?;
        let headers = headers(&message);
        let Some(descriptor) = message.descriptor else { return Ok(View::copied(message.body, headers)) };
        let number = |name: &str| {
            let number = message.json.get(name).and_then(Value::as_u64);
            number.ok_or_else(|| ClientError::Protocol(format!("a segment without {name}")))
        };
        let release = Release { handle: number("handle")?, tell: self.tell.clone() };
        View::mapped(&descriptor, number("offset")?, number("length")? as usize, release, headers)
    }

    /// Reads the headers of an object.
    ///
    /// # Errors
    /// As of `get`.
    pub fn head(&mut self, bucket: &str, key: &str, conditions: &Conditions) -> Result<Answered, ClientError> {
        let message = self.ask(HEAD, &self.with_released(conditions.request(bucket, key)), &[])?;
        Ok(answered(&message))
    }

    /// Opens the present version of an object for reading at any offset. An object that is too large for the cache is read by
    /// ranges.
    ///
    /// # Errors
    /// As of `get`.
    pub fn open(&mut self, bucket: &str, key: &str) -> Result<ObjectFile<'_>, ClientError> {
        ObjectFile::open(self, bucket, key)
    }

    /// Writes an object, which is stored when this returns. `headers` are those of an S3 put: `content-type`, `x-amz-meta-*`,
    /// ...
    ///
    /// # Errors
    /// The node's refusal; `UseHttp` for an object that the node does not cache.
    pub fn put(&mut self, bucket: &str, key: &str, bytes: &[u8], headers: &Headers) -> Result<Answered, ClientError> {
        if bytes.len() < INLINE_BELOW {
            let request = json!({ "bucket": bucket, "key": key, "headers": headers });
            let message = self.ask(PUT, &request, bytes)?;
            return Ok(answered(&message));
        }
        let mut created = self.create(bucket, key, bytes.len() as u64)?;
        created.copy_from_slice(bytes);
        created.commit(self, headers)
    }

    /// Memory of the node for an object of `length` bytes. Fill it and commit it.
    ///
    /// # Errors
    /// As of `put`.
    pub fn create(&mut self, bucket: &str, key: &str, length: u64) -> Result<Created, ClientError> {
        let message = self.ask(CREATE, &json!({ "length": length }), &[])?;
        let handle = message.json.get("handle").and_then(Value::as_u64);
        match (message.descriptor, handle) {
            (Some(descriptor), Some(handle)) => Created::new(handle, (bucket, key), descriptor, length as usize),
            _ => Err(ClientError::Protocol("a segment without descriptor or handle".to_owned())),
        }
    }

    pub(crate) fn commit(
        &mut self,
        handle: u64,
        bucket: &str,
        key: &str,
        headers: &Headers,
    ) -> Result<Answered, ClientError> {
        let request = json!({ "handle": handle, "bucket": bucket, "key": key, "headers": headers });
        let message = self.ask(COMMIT, &request, &[])?;
        Ok(answered(&message))
    }

    pub(crate) fn release(&mut self, handle: u64) -> Result<(), ClientError> {
        self.tell(RELEASE, handle)
    }

    pub(crate) fn abandon(&mut self, handle: u64) -> Result<(), ClientError> {
        self.tell(ABANDON, handle)
    }

    /// Reports released segments now, not with the next call.
    ///
    /// # Errors
    /// If the connection is broken.
    pub fn flush(&mut self) -> Result<(), ClientError> {
        while let Ok(handle) = self.released.try_recv() {
            self.tell(RELEASE, handle)?;
        }
        Ok(())
    }

    /// Reads and reports released segments in one message, because a second message would wake the node again.
    fn with_released(&self, mut request: Value) -> Value {
        let released: Vec<_> = self.released.try_iter().take(RELEASED_MAX).collect();
        if !released.is_empty() {
            request["released"] = released.into();
        }
        request
    }

    /// Sends a request without an answer.
    fn tell(&mut self, operation: u8, handle: u64) -> Result<(), ClientError> {
        self.last_id = self.last_id.wrapping_add(1);
        self.connection.send(operation, self.last_id, &json!({ "handle": handle }), &[])
    }

    /// Sends a request and waits for the answer.
    fn ask(&mut self, operation: u8, request: &Value, body: &[u8]) -> Result<Message, ClientError> {
        self.flush()?;
        self.last_id = self.last_id.wrapping_add(1);
        let sent = self.connection.send(operation, self.last_id, request, body);
        // The last message of a node can be read even if the node reads nothing more.
        let message = match self.connection.receive() {
            Ok(message) => message,
            Err(error) => return Err(sent.err().unwrap_or(error)),
        };
        let status = message.json.get("status").and_then(Value::as_u64);
        match (message.kind, status) {
            (FAREWELL, _) => Err(refused(&message, status)),
            _ if message.id != self.last_id => Err(ClientError::Protocol("an answer to something else".to_owned())),
            (_, None) => Ok(message),
            (_, Some(USE_HTTP)) => {
                Err(ClientError::UseHttp("the node does not keep the object in memory, or cannot read it here"))
            }
            (_, Some(status)) if SUCCESS.contains(&status) => Ok(message),
            _ => Err(refused(&message, status)),
        }
    }
}

fn refused(message: &Message, status: Option<u64>) -> ClientError {
    let text = |name: &str| message.json.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let status = status.unwrap_or_default();
    let code = if status == NOT_MODIFIED { "NotModified".to_owned() } else { text("code") };
    ClientError::Refused { status: status as u16, code, message: text("message") }
}

fn headers(message: &Message) -> Headers {
    let headers = message.json.get("headers").and_then(Value::as_object);
    let texts =
        headers.into_iter().flatten().filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
    texts.collect()
}

fn answered(message: &Message) -> Answered {
    let status = message.json.get("status").and_then(Value::as_u64).unwrap_or_default();
    Answered { status: status as u16, headers: headers(message) }
}
