//! The path of one request from the connection to `s3s` and back.
//!
//! Before `s3s`, the request is screened and its body is guarded. After `s3s`, every answer gets the request id, client
//! errors that `s3s` reports as server faults are corrected, and the meters are updated.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use http_body::Body as _;
use hyper::body::Incoming;
use nigh_data::Digest;
use nigh_engine::AccessKeys;
use nigh_http::audit::Audit;
use nigh_http::farewell::Farewell;
use nigh_http::mounted_api::SandboxApi;
use nigh_http::places::{Place, Places};
use nigh_http::shares::Shares;
use nigh_objects::ObjectMemory;
use nigh_terms::AccessKeyId;
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::validation::NameValidation;
use s3s::{Body, HttpRequest, S3Error, S3ErrorCode};
use tokio::runtime::Handle;

use crate::audit::{Answered, AuditedRequest, SignatureNote, error_code};
use crate::auth::{Secrets, Signers, check_service, is_for_functions};
use crate::error::{fate_error, not_implemented};
use crate::handlers::Handlers;
use crate::lanes::Lanes;
use crate::notes::RequestNotes;
use crate::operations::{Routes, SharedHandlers};
use crate::read::{ReadExtension, Reads};
use crate::request_id::RequestId;
use crate::request_trace::RequestTrace;
use crate::screen::screen;
use crate::serve::DoorLimits;
use crate::signed_read::SignedReads;
use crate::telemetry::{Operation, Telemetry};
use crate::transactions::{self, TransactionRequest};
use crate::upload_body::UploadBody;
use crate::{checksum_headers, payload, query, signed_date, xml_body};

/// This door in metrics.
const DOOR: &str = "s3";
static REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");
static CONTENT_SHA256: HeaderName = HeaderName::from_static("x-amz-content-sha256");

/// The S3 API of one node's object memory. Cheap to clone.
///
/// Its meters belong to the `metrics` recorder that is installed when the door is created.
#[derive(Clone)]
pub struct S3Door {
    handlers: Arc<Handlers>,
    keys: AccessKeys,
    telemetry: Arc<Telemetry>,
    audit: Audit,
    service: S3Service,
    signed_reads: Arc<SignedReads>,
    /// The API of functions, at a sandbox's door.
    functions: Option<Arc<dyn SandboxApi>>,
    pub(crate) limits: DoorLimits,
    pub(crate) places: Arc<Places>,
    pub(crate) lanes: Arc<Lanes>,
    pub(crate) farewell: Farewell,
}

impl S3Door {
    /// Creates a door for all keys of the node. Tasks that its requests start run in the runtime in which this function
    /// is called.
    ///
    /// # Errors
    /// If the caller is in no runtime, or if the system cannot start a thread for connections.
    pub fn new(memory: Arc<ObjectMemory>, keys: AccessKeys, limits: DoorLimits) -> io::Result<Self> {
        let handlers = Arc::new(Handlers::new(memory, keys.clone()));
        let shares = Some(Arc::new(Shares::new(limits.connections)));
        let (service, signed_reads) = services(&handlers, Secrets::new(keys.clone(), None), shares, limits);
        let telemetry = Arc::new(Telemetry::new());
        let places = Arc::new(Places::of_door(limits.connections, DOOR));
        let lanes = Arc::new(Lanes::open()?);
        let (audit, farewell) = (Audit::off(), Farewell::default());
        let functions = None;
        Ok(Self { handlers, keys, telemetry, audit, service, signed_reads, functions, limits, places, lanes, farewell })
    }

    /// The same door, with its requests in this audit trail.
    #[must_use]
    pub fn with_audit(self, audit: Audit) -> Self {
        Self { audit, ..self }
    }

    /// The same door with its own connections, for the key of one sandbox only. Serve it in that sandbox's network.
    #[must_use]
    pub fn for_sandbox(&self, key: AccessKeyId) -> Self {
        // All places are the one key's, and it keeps them from nobody.
        let limits = DoorLimits { first_head_timeout: self.limits.head_timeout, ..self.limits };
        let (service, signed_reads) =
            services(&self.handlers, Secrets::new(self.keys.clone(), Some(key)), None, limits);
        let places = Arc::new(Places::of_door(limits.sandbox_connections, DOOR));
        // A sandbox has no other node to go to.
        Self { service, signed_reads, limits, places, farewell: Farewell::default(), ..self.clone() }
    }

    /// The same door, which leaves requests that are signed for Lambda or Step Functions to `functions`.
    #[must_use]
    pub fn with_functions(self, functions: Arc<dyn SandboxApi>) -> Self {
        Self { functions: Some(functions), ..self }
    }

    /// The same door; `farewell` asks its clients to leave before it closes.
    #[must_use]
    pub fn with_farewell(self, farewell: Farewell) -> Self {
        Self { farewell, ..self }
    }

    /// The runtimes of the threads that serve its connections.
    #[must_use]
    pub fn runtimes(&self) -> Vec<Handle> {
        self.lanes.runtimes()
    }

    /// The handlers of object reads, for the fast path.
    pub(crate) fn reads(&self) -> Reads {
        Reads(Arc::clone(&self.handlers))
    }

    /// The access keys that this door knows.
    pub(crate) const fn keys(&self) -> &AccessKeys {
        &self.keys
    }

    /// The meters of this door.
    pub(crate) const fn telemetry(&self) -> &Arc<Telemetry> {
        &self.telemetry
    }

    /// The audit trail of this door.
    pub(crate) const fn audit(&self) -> &Audit {
        &self.audit
    }

    /// Answers one request of a client at the address `from`, which is none over a Unix socket. A write that continues
    /// after its connection has closed keeps `place`, so that a client never has more requests in progress than it may
    /// have connections.
    pub(crate) async fn answer(
        &self,
        request: http::Request<Incoming>,
        place: Arc<Place>,
        from: Option<IpAddr>,
    ) -> Response<Body> {
        let began = Instant::now();
        let id = RequestId::next();
        let (mut parts, incoming) = request.into_parts();
        if let Some(functions) = self.functions.as_ref().filter(|_| is_for_functions(&parts.headers)) {
            return functions.answer(parts, incoming).await.map(Body::http_body);
        }
        let trace = RequestTrace::of_http(&parts, &self.keys);
        let reading = ReadExtension::of(&parts.method, &parts.uri);
        let read_operation = reading.as_ref().map(|reading| reading.operation);
        let is_read = reading.is_some();
        let is_head = parts.method == Method::HEAD;
        let audited = AuditedRequest::begin(&self.audit, &mut parts, is_read, from);
        let mut notes = None;
        let screened = screen(&parts.method, &parts.uri, &parts.headers)
            .and_then(|()| transactions::check(&parts.method, &parts.uri, &parts.headers, is_read));
        if screened.is_ok() {
            signed_date::complete(&mut parts.headers);
        }
        let without_body = reading.as_ref().filter(|_| screened.is_ok() && incoming.is_end_stream());
        let signer = without_body.and_then(|reading| self.signed_reads.signer(reading, &parts));
        let mut response = match (screened, reading, signer) {
            (Err(refusal), ..) => error_response(refusal),
            (Ok(()), Some(reading), Some(key)) => {
                SignatureNote::note(&parts.extensions);
                let answered = trace.scope(self.signed_reads.answer(&key, &reading, &parts)).await;
                answered.unwrap_or_else(error_response)
            }
            (Ok(()), reading, _) => {
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
                    Ok(body) => {
                        let served = trace.scope(self.service.call(HttpRequest::from_parts(parts, body))).await;
                        served.unwrap_or_else(|error| {
                            tracing::error!(?error, "an S3 request was not answered");
                            error_response(S3Error::new(S3ErrorCode::InternalError))
                        })
                    }
                }
            }
        };
        if let Some(correction) = notes.as_deref().and_then(|notes| correction(notes, response.status())) {
            response = error_response(correction);
        }
        let operation = read_operation.or_else(|| notes.map(|notes| notes.operation())).unwrap_or(Operation::Unknown);
        let error = audited.as_ref().and_then(|_| error_code(&response));
        finish(&mut response, id, operation, is_head);
        if tracing::enabled!(tracing::Level::DEBUG) {
            let (request, operation, status) = (id.as_str(), operation.name(), response.status().as_u16());
            trace.logged(|| tracing::debug!(request, operation, status, "an S3 request was answered"));
        }
        let bytes = response.body().size_hint().exact().unwrap_or_default();
        self.telemetry.answered(operation, response.status(), bytes, began.elapsed());
        if let Some(audited) = audited {
            let answered = Answered { status: response.status(), request_id: id.as_str(), error: error.as_deref() };
            audited.record(&self.audit, &self.keys, operation, answered);
        }
        trace.answered(operation, response.status(), Some(id));
        response
    }

    /// The request's body, guarded against silence and re-framed if it is aws-chunked.
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
            // `s3s` does not accept such a document: it compares the decoded length with the encoded length.
            (Some(_), true) => return Err(not_implemented("the aws-chunked encoding of a document")),
            (Some(signed), false) => body = body.chunked(signed),
            (None, true) => {
                // A malformed `Content-MD5` is refused before the body is read.
                payload::content_md5(&parts.headers)?;
                let digest = Digest::new(checksum_headers::claimed_algorithm(&parts.headers));
                body = body.document(self.limits.document_bytes, digest);
            }
            (None, false) => {}
        }
        Ok(Body::http_body(body))
    }
}

/// Returns true if the body is a document. The bodies of PutObject and UploadPart are not: the object memory checks
/// their digests.
fn carries_document(parts: &http::request::Parts) -> bool {
    let has_key = parts.uri.path().trim_start_matches('/').split_once('/').is_some_and(|(_, key)| !key.is_empty());
    let query = parts.uri.query().unwrap_or_default();
    let is_tagging = query::pairs(query).any(|(name, _)| name == "tagging");
    parts.method != Method::PUT || !has_key || is_tagging
}

/// What answers requests, and what answers those of them that are signed reads.
fn services(
    handlers: &Arc<Handlers>,
    secrets: Secrets,
    shares: Option<Arc<Shares>>,
    limits: DoorLimits,
) -> (S3Service, Arc<SignedReads>) {
    let mut config = S3Config::default();
    config.xml_max_body_size = limits.document_bytes;
    let mut builder = S3ServiceBuilder::new(SharedHandlers(Arc::clone(handlers)));
    builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config))));
    let routes = Routes { reads: Reads(Arc::clone(handlers)), shares: shares.clone() };
    let signed_reads = Arc::new(SignedReads::new(routes.clone(), secrets.clone()));
    builder.set_auth(secrets);
    builder.set_access(Signers { shares, handlers: Arc::clone(handlers) });
    builder.set_validation(AnyBucketName);
    builder.set_route(routes);
    (builder.build(), signed_reads)
}

/// Leaves bucket names to the handlers, all of which check them: `s3s` refuses one without saying what is wrong with it.
struct AnyBucketName;

impl NameValidation for AnyBucketName {
    fn validate_bucket_name(&self, _: &str) -> bool {
        true
    }
}

/// The correct error if `s3s` reported a server fault although the request's document could not be read. None if
/// `s3s`'s own answer is right.
fn correction(notes: &RequestNotes, status: StatusCode) -> Option<S3Error> {
    if notes.handled() || status.is_success() {
        return None;
    }
    if let Some(error) = fate_error(notes.fate()) {
        return Some(error);
    }
    // The body arrived whole, but no handler was called: the signed SHA-256 must be wrong.
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

/// Names the request in its answer, corrects its document, and takes the body from answers that must not have one.
fn finish(response: &mut Response<Body>, id: RequestId, operation: Operation, is_head: bool) {
    let status = response.status();
    let is_object = status.is_success() && matches!(operation, Operation::GetObject | Operation::HeadObject);
    let document = if is_object { None } else { response.body().bytes() };
    if let Some(document) = document.and_then(|document| xml_body::corrected(&document, operation)) {
        *response.body_mut() = Body::from(document);
        remove_lengths(response.headers_mut());
    }
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

/// Returns the error document with the request id added. None if `document` is not an error document.
fn with_request_id(document: &Bytes, id: RequestId) -> Option<Bytes> {
    let head = document.strip_suffix(b"</Error>")?;
    Some([head, b"<RequestId>", id.as_str().as_bytes(), b"</RequestId></Error>"].concat().into())
}
