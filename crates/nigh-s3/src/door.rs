//! One request, from the connection to `s3s` and back.
//!
//! Before `s3s`: the screen, and the guard around the body. After it: the request's name on every answer, the client's
//! errors that `s3s` reports as faults of the server, and the meters.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use http_body::Body as _;
use hyper::body::Incoming;
use nigh_data::Digest;
use nigh_engine::AccessKeys;
use nigh_http::places::Places;
use nigh_http::shares::Shares;
use nigh_objects::ObjectMemory;
use nigh_terms::AccessKeyId;
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, HttpRequest, S3Error, S3ErrorCode};
use tokio::sync::OwnedSemaphorePermit;

use crate::auth::{Secrets, Signers, check_service};
use crate::error::{fate_error, not_implemented};
use crate::handlers::Handlers;
use crate::lanes::Lanes;
use crate::notes::RequestNotes;
use crate::operations::{Routes, SharedHandlers};
use crate::read::{ReadExtension, Reads};
use crate::request_id::RequestId;
use crate::screen::screen;
use crate::serve::DoorLimits;
use crate::telemetry::{Operation, Telemetry};
use crate::transactions::{self, TransactionRequest};
use crate::upload_body::UploadBody;
use crate::{checksum_headers, payload, query};

static REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");
static CONTENT_SHA256: HeaderName = HeaderName::from_static("x-amz-content-sha256");

/// The S3 API onto one node's object memory. Cheap to clone.
///
/// Its meters belong to the `metrics` recorder that is installed when it is made.
#[derive(Clone)]
pub struct S3Door {
    handlers: Arc<Handlers>,
    keys: AccessKeys,
    telemetry: Arc<Telemetry>,
    service: S3Service,
    pub(crate) limits: DoorLimits,
    pub(crate) places: Arc<Places>,
    pub(crate) lanes: Arc<Lanes>,
}

impl S3Door {
    /// A door for all of the node's keys. Tasks that its requests start run in the runtime in which this is called.
    ///
    /// # Errors
    /// If there is no such runtime, or the system gives no thread to serve connections on.
    pub fn new(memory: Arc<ObjectMemory>, keys: AccessKeys, limits: DoorLimits) -> io::Result<Self> {
        let handlers = Arc::new(Handlers::new(memory, keys.clone()));
        let shares = Some(Arc::new(Shares::new(limits.connections)));
        let service = service(&handlers, Secrets::new(keys.clone(), None), shares, limits);
        let telemetry = Arc::new(Telemetry::new());
        let places = Arc::new(Places::new(limits.connections));
        let lanes = Arc::new(Lanes::open()?);
        Ok(Self { handlers, keys, telemetry, service, limits, places, lanes })
    }

    /// The same door for one sandbox's key only, with connections of its own: to be served in that sandbox's network.
    #[must_use]
    pub fn for_sandbox(&self, key: AccessKeyId) -> Self {
        // All places are the one key's, and it keeps them from nobody.
        let limits = DoorLimits { first_head_timeout: self.limits.head_timeout, ..self.limits };
        let service = service(&self.handlers, Secrets::new(self.keys.clone(), Some(key)), None, limits);
        let places = Arc::new(Places::new(limits.sandbox_connections));
        Self { service, limits, places, ..self.clone() }
    }

    /// The reads of objects, for the fast path.
    pub(crate) fn reads(&self) -> Reads {
        Reads(Arc::clone(&self.handlers))
    }

    /// The keys that it knows.
    pub(crate) const fn keys(&self) -> &AccessKeys {
        &self.keys
    }

    /// Its meters.
    pub(crate) const fn telemetry(&self) -> &Arc<Telemetry> {
        &self.telemetry
    }

    /// Answers one request. A write that goes on after its connection has closed keeps the `place`: no client can have
    /// more requests under way than connections.
    pub(crate) async fn answer(
        &self,
        request: http::Request<Incoming>,
        place: Arc<OwnedSemaphorePermit>,
    ) -> Response<Body> {
        let began = Instant::now();
        let id = RequestId::next();
        let (mut parts, incoming) = request.into_parts();
        let reading = ReadExtension::of(&parts.method, &parts.uri);
        let read_operation = reading.as_ref().map(|reading| reading.operation);
        let is_read = reading.is_some();
        let is_head = parts.method == Method::HEAD;
        let mut notes = None;
        let screened = screen(&parts.method, &parts.uri, &parts.headers)
            .and_then(|()| transactions::check(&parts.method, &parts.uri, &parts.headers, is_read));
        let mut response = match screened {
            Err(refusal) => error_response(refusal),
            Ok(()) => {
                if let Some(reading) = reading {
                    parts.extensions.insert(reading);
                }
                if let Some(asked) = TransactionRequest::of(&parts.method, &parts.uri) {
                    parts.extensions.insert(asked);
                }
                let kept = if is_read && incoming.is_end_stream() {
                    Ok(Body::empty())
                } else {
                    let kept = Arc::new(RequestNotes::default());
                    parts.extensions.insert(Arc::clone(&kept));
                    parts.extensions.insert(place);
                    let body = self.guarded(&parts, incoming, &kept);
                    notes = Some(kept);
                    body
                };
                match kept {
                    Err(refusal) => error_response(refusal),
                    Ok(body) => self.service.call(HttpRequest::from_parts(parts, body)).await.unwrap_or_else(|error| {
                        tracing::error!(?error, "an S3 request was not answered");
                        error_response(S3Error::new(S3ErrorCode::InternalError))
                    }),
                }
            }
        };
        if let Some(correction) = notes.as_deref().and_then(|notes| correction(notes, response.status())) {
            response = error_response(correction);
        }
        finish(&mut response, id, is_head);
        let operation = read_operation.or_else(|| notes.map(|notes| notes.operation())).unwrap_or(Operation::Unknown);
        let bytes = response.body().size_hint().exact().unwrap_or_default();
        self.telemetry.answered(operation, response.status(), bytes, began.elapsed());
        response
    }

    /// The request's body, watched and re-framed.
    fn guarded(
        &self,
        parts: &http::request::Parts,
        incoming: Incoming,
        notes: &Arc<RequestNotes>,
    ) -> Result<Body, S3Error> {
        if incoming.is_end_stream() {
            return Ok(Body::empty());
        }
        check_service(&parts.headers)?;
        let mut body =
            UploadBody::new(incoming, Arc::clone(notes), self.telemetry.bytes_in().clone(), self.limits.body_silence);
        let chunks = match parts.headers.get(&CONTENT_SHA256).map(HeaderValue::as_bytes) {
            Some(b"STREAMING-UNSIGNED-PAYLOAD-TRAILER") => Some(false),
            Some(kind) if kind.starts_with(b"STREAMING-AWS4-HMAC") => Some(true),
            _ => None,
        };
        match (chunks, carries_document(parts)) {
            // `s3s` takes no such document: it compares the length with the encoding's.
            (Some(_), true) => return Err(not_implemented("the aws-chunked encoding of a document")),
            (Some(signed), false) => body = body.chunked(signed),
            (None, true) => {
                // A malformed value is refused before the body is read.
                payload::content_md5(&parts.headers)?;
                let digest = Digest::new(checksum_headers::claimed_algorithm(&parts.headers));
                body = body.document(self.limits.document_bytes, digest);
            }
            (None, false) => {}
        }
        Ok(Body::http_body(body))
    }
}

/// True if the body is a document: for every request but puts of objects and parts, whose digests the memory checks.
fn carries_document(parts: &http::request::Parts) -> bool {
    let has_key = parts.uri.path().trim_start_matches('/').split_once('/').is_some_and(|(_, key)| !key.is_empty());
    let query = parts.uri.query().unwrap_or_default();
    let is_tagging = query::pairs(query).any(|(name, _)| name == "tagging");
    parts.method != Method::PUT || !has_key || is_tagging
}

fn service(handlers: &Arc<Handlers>, secrets: Secrets, shares: Option<Arc<Shares>>, limits: DoorLimits) -> S3Service {
    let mut config = S3Config::default();
    config.xml_max_body_size = limits.document_bytes;
    let mut builder = S3ServiceBuilder::new(SharedHandlers(Arc::clone(handlers)));
    builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config))));
    builder.set_auth(secrets);
    builder.set_access(Signers(shares.clone()));
    builder.set_route(Routes { reads: Reads(Arc::clone(handlers)), shares });
    builder.build()
}

/// The right error where `s3s` has reported a fault of the server, and the request's document could not be read.
fn correction(notes: &RequestNotes, status: StatusCode) -> Option<S3Error> {
    if notes.handled() || status.is_success() {
        return None;
    }
    if let Some(error) = fate_error(notes.fate()) {
        return Some(error);
    }
    // The body came whole, and no handler was called: the SHA-256 that the signature covers must be wrong.
    (status == StatusCode::INTERNAL_SERVER_ERROR && notes.operation().has_document())
        .then(|| crate::error::s3_error(nigh_data::ObjectError::BadDigest { claim: payload::PAYLOAD_SHA256 }))
}

fn error_response(error: S3Error) -> Response<Body> {
    error.to_http_response().unwrap_or_else(|_| {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        response
    })
}

/// Names the request in its answer, and takes the body from answers that must not have one.
fn finish(response: &mut Response<Body>, id: RequestId, is_head: bool) {
    let status = response.status();
    if status == StatusCode::NOT_MODIFIED {
        *response.body_mut() = Body::empty();
        response.headers_mut().remove(header::CONTENT_TYPE);
    } else if status.is_client_error() || status.is_server_error() {
        if is_head {
            *response.body_mut() = Body::empty();
        } else if let Some(document) = response.body().bytes().and_then(|document| with_request_id(&document, id)) {
            *response.body_mut() = Body::from(document);
        }
        remove_lengths(response.headers_mut());
    }
    response.headers_mut().insert(REQUEST_ID.clone(), id.header());
}

fn remove_lengths(headers: &mut HeaderMap) {
    headers.remove(header::CONTENT_LENGTH);
}

/// An error document with the request's name in it.
fn with_request_id(document: &Bytes, id: RequestId) -> Option<Bytes> {
    let head = document.strip_suffix(b"</Error>")?;
    Some([head, b"<RequestId>", id.as_str().as_bytes(), b"</RequestId></Error>"].concat().into())
}
