//! Signature version 4 (IAM User Guide, "Create a signed AWS API request"), written for the tests: what the door
//! verifies is not checked with the code that verifies it.

use nigh_terms::hex;
use sha2::{Digest, Sha256};

use crate::client::Request;

/// The region that a signer of the tests signs for, if it does not say otherwise.
pub(crate) const REGION: &str = "us-east-1";

/// Seconds in whose course a presigned URL of the tests is good.
const PRESIGNED_SECONDS: u64 = 60;

/// Whoever signs.
#[derive(Clone)]
pub(crate) struct Signer {
    pub(crate) key: String,
    pub(crate) secret: String,
    /// How far this signer's clock is ahead.
    pub(crate) skew_seconds: i64,
    pub(crate) region: &'static str,
}

/// How a body is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    Signed,
    Unsigned,
    /// aws-chunked, each chunk signed.
    Chunks,
    /// aws-chunked, each chunk and the trailer signed.
    ChunksAndTrailer,
    /// aws-chunked, nothing but the head signed.
    UnsignedChunksAndTrailer,
}

pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

fn hmac(key: &[u8], text: &str) -> [u8; 32] {
    let mut block = [0; 64];
    if key.len() > 64 {
        block[..32].copy_from_slice(&sha256(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let inner = sha256(&[&block.map(|byte| byte ^ 0x36)[..], text.as_bytes()].concat());
    sha256(&[&block.map(|byte| byte ^ 0x5c)[..], &inner].concat())
}

/// Percent-encodes all but RFC 3986's unreserved characters.
pub(crate) fn encode(text: &str, keep_slashes: bool) -> String {
    let keep = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || (keep_slashes && byte == b'/');
    text.bytes().map(|byte| if keep(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// A signed moment: what chunk signatures go on from.
struct Scope {
    date: String,
    scope: String,
    key: [u8; 32],
}

impl Scope {
    fn sign(&self, kind: &str, text: &str) -> String {
        hex(&hmac(&self.key, &format!("{kind}\n{}\n{}\n{text}", self.date, self.scope)))
    }
}

impl Signer {
    fn scope(&self) -> Scope {
        self.scope_at(std::time::SystemTime::now())
    }

    fn scope_at(&self, now: std::time::SystemTime) -> Scope {
        let now = now.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64;
        let now = time::OffsetDateTime::from_unix_timestamp(now + self.skew_seconds).unwrap();
        let day = format!("{:04}{:02}{:02}", now.year(), u8::from(now.month()), now.day());
        let date = format!("{day}T{:02}{:02}{:02}Z", now.hour(), now.minute(), now.second());
        let key = [self.region, "s3", "aws4_request"]
            .iter()
            .fold(hmac(format!("AWS4{}", self.secret).as_bytes(), &day), |key, text| hmac(&key, text));
        Scope { date, scope: format!("{day}/{}/s3/aws4_request", self.region), key }
    }

    fn signature(scope: &Scope, request: &Request, query: &str, signed: &[(String, String)], payload: &str) -> String {
        let names: Vec<_> = signed.iter().map(|(name, _)| name.as_str()).collect();
        let fields: String = signed.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
        let path = encode(&request.path, true);
        let canonical = format!("{}\n{path}\n{query}\n{fields}\n{}\n{payload}", request.method, names.join(";"));
        scope.sign("AWS4-HMAC-SHA256", &hex(&sha256(canonical.as_bytes())))
    }

    /// Signs in a header; every header is signed. The body is encoded as `payload` says. The moment is that of the header
    /// `date` if there is one.
    pub(crate) fn sign(&self, request: Request, payload: Payload) -> Request {
        let length = request.body.len();
        self.sign_length(request, payload, length)
    }

    /// The same, for a body of `length` bytes that is sent otherwise.
    pub(crate) fn sign_length(&self, mut request: Request, payload: Payload, length: usize) -> Request {
        let date =
            request.headers.iter().find(|(name, _)| name == "date").map(|(_, date)| date.replace("-0000", "GMT"));
        let scope = match &date {
            Some(date) => self.scope_at(httpdate::parse_http_date(date).unwrap()),
            None => self.scope(),
        };
        let content = match payload {
            Payload::Signed => hex(&sha256(&request.body)),
            Payload::Unsigned => "UNSIGNED-PAYLOAD".to_owned(),
            Payload::Chunks => "STREAMING-AWS4-HMAC-SHA256-PAYLOAD".to_owned(),
            Payload::ChunksAndTrailer => "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER".to_owned(),
            Payload::UnsignedChunksAndTrailer => "STREAMING-UNSIGNED-PAYLOAD-TRAILER".to_owned(),
        };
        request = request.header("x-amz-content-sha256", &content);
        if date.is_none() {
            request = request.header("x-amz-date", &scope.date);
        }
        let chunked = !matches!(payload, Payload::Signed | Payload::Unsigned);
        if chunked {
            request = request
                .header("content-encoding", "aws-chunked")
                .header("x-amz-decoded-content-length", &length.to_string());
            if let Some((name, _)) = &request.trailer {
                let name = name.clone();
                request = request.header("x-amz-trailer", &name);
            }
        }
        let mut signed = request.headers.clone();
        signed.sort();
        let query = request.canonical_query();
        let signature = Self::signature(&scope, &request, &query, &signed, &content);
        let names: Vec<_> = signed.iter().map(|(name, _)| name.as_str()).collect();
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={}/{}, SignedHeaders={}, Signature={signature}",
            self.key,
            scope.scope,
            names.join(";")
        );
        if chunked {
            request.body = chunks(&scope, signature, &request, payload);
        }
        request.header("authorization", &authorization)
    }

    /// Signs in the query: `request` as it is, with no header but `host` signed.
    pub(crate) fn presign(&self, mut request: Request) -> Request {
        let scope = self.scope();
        for (name, value) in [
            ("X-Amz-Algorithm", "AWS4-HMAC-SHA256".to_owned()),
            ("X-Amz-Credential", format!("{}/{}", self.key, scope.scope)),
            ("X-Amz-Date", scope.date.clone()),
            ("X-Amz-Expires", PRESIGNED_SECONDS.to_string()),
            ("X-Amz-SignedHeaders", "host".to_owned()),
        ] {
            request = request.query(name, &value);
        }
        let host: Vec<_> = request.headers.iter().filter(|(name, _)| name == "host").cloned().collect();
        let query = request.canonical_query();
        let signature = Self::signature(&scope, &request, &query, &host, "UNSIGNED-PAYLOAD");
        request.query("X-Amz-Signature", &signature)
    }
}

fn chunks(scope: &Scope, seed: String, request: &Request, payload: Payload) -> Vec<u8> {
    let nothing = hex(&sha256(b""));
    let mut previous = seed;
    let mut body = Vec::new();
    let ends: [&[u8]; 1] = [b""];
    for chunk in request.body.chunks(64 * 1024).chain(ends) {
        body.extend_from_slice(format!("{:x}", chunk.len()).as_bytes());
        if payload != Payload::UnsignedChunksAndTrailer {
            let text = format!("{previous}\n{nothing}\n{}", hex(&sha256(chunk)));
            previous = scope.sign("AWS4-HMAC-SHA256-PAYLOAD", &text);
            body.extend_from_slice(format!(";chunk-signature={previous}").as_bytes());
        }
        body.extend_from_slice(b"\r\n");
        body.extend_from_slice(chunk);
        if !chunk.is_empty() {
            body.extend_from_slice(b"\r\n");
        }
    }
    if let Some((name, value)) = &request.trailer {
        body.extend_from_slice(format!("{name}:{value}\r\n").as_bytes());
        if payload == Payload::ChunksAndTrailer {
            let text = format!("{previous}\n{}", hex(&sha256(format!("{name}:{value}\n").as_bytes())));
            let signature = scope.sign("AWS4-HMAC-SHA256-TRAILER", &text);
            body.extend_from_slice(format!("x-amz-trailer-signature:{signature}\r\n").as_bytes());
        }
    }
    body.extend_from_slice(b"\r\n");
    body
}
