//! Transactions over several objects, an extension of S3. They begin and end with requests on `/`, and a header puts an
//! operation on one object into a transaction. docs/design/transactions.md.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use nigh_objects::{CommittedTransaction, TransactionName};
use s3s::{Body, S3Request, S3Response, S3Result};

use crate::error::{invalid_request, s3_error};
use crate::handlers::{Handlers, notes};
use crate::query;
use crate::telemetry::Operation;
use crate::transaction_header::TRANSACTION;

static COPY_SOURCE: HeaderName = HeaderName::from_static("x-amz-copy-source");
static XML: HeaderValue = HeaderValue::from_static("application/xml");

/// A request to begin, commit or abort a transaction. Parsed once, and passed on in the request's extensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TransactionRequest {
    /// Begins a transaction.
    Begin,
    /// Commits the transaction with this name.
    Commit(String),
    /// Aborts the transaction with this name.
    Abort(String),
}

impl TransactionRequest {
    /// Parses a request. None if it does not begin, commit or abort a transaction.
    pub(crate) fn of(method: &Method, uri: &Uri) -> Option<Self> {
        if uri.path() != "/" {
            return None;
        }
        let (_, name) = query::pairs(uri.query()?).find(|(name, _)| name == "transaction")?;
        let name = name.decode()?.into_owned();
        match *method {
            Method::POST if name.is_empty() => Some(Self::Begin),
            Method::POST => Some(Self::Commit(name)),
            Method::DELETE => Some(Self::Abort(name)),
            _ => None,
        }
    }

    pub(crate) const fn operation(&self) -> Operation {
        match self {
            Self::Begin => Operation::BeginTransaction,
            Self::Commit(_) => Operation::CommitTransaction,
            Self::Abort(_) => Operation::AbortTransaction,
        }
    }
}

/// Refuses a request that names a transaction but cannot be in one: if Nigh ignored the header, the client would rely
/// on a transaction that does not apply. `is_read` is true for GetObject and HeadObject.
pub(crate) fn check(method: &Method, uri: &Uri, headers: &HeaderMap, is_read: bool) -> S3Result<()> {
    if !headers.contains_key(&TRANSACTION) {
        return Ok(());
    }
    let has_key = uri.path().trim_start_matches('/').split_once('/').is_some_and(|(_, key)| !key.is_empty());
    // Parameters that name no part of an object: those of a signature, and the operation's name that some SDKs send.
    let is_plain = |name: &str| name == "x-id" || name.to_ascii_lowercase().starts_with("x-amz-");
    let names_object = || uri.query().into_iter().flat_map(query::pairs).all(|(name, _)| is_plain(&name));
    let writes = matches!(*method, Method::PUT | Method::DELETE) && has_key && names_object();
    if is_read || writes && !headers.contains_key(&COPY_SOURCE) {
        return Ok(());
    }
    Err(invalid_request("only GetObject, HeadObject, PutObject and DeleteObject can be in a transaction"))
}

/// Begins, commits or aborts a transaction.
pub(crate) async fn answer(
    handlers: &Handlers,
    asked: TransactionRequest,
    request: &S3Request<Body>,
) -> S3Result<S3Response<Body>> {
    if let Some(notes) = notes(request) {
        notes.set_operation(asked.operation());
    }
    let who = handlers.enter(request)?;
    let memory = handlers.memory();
    let parsed = |name: &str| name.parse::<TransactionName>().map_err(s3_error);
    match asked {
        TransactionRequest::Begin => {
            let begun = memory.begin_transaction(&who).map_err(s3_error)?;
            let name = begun.name.to_string();
            let document = format!(
                "<BeginTransactionResult><TransactionId>{name}</TransactionId>\
                 <ExpiresInSeconds>{}</ExpiresInSeconds></BeginTransactionResult>",
                begun.lasts.as_secs(),
            );
            let mut response = documented(&document);
            if let Ok(name) = HeaderValue::try_from(name) {
                response.headers.insert(TRANSACTION.clone(), name);
            }
            Ok(response)
        }
        TransactionRequest::Commit(name) => {
            let committed = memory.commit_transaction(parsed(&name)?, &who).await.map_err(s3_error)?;
            Ok(documented(&committed_document(&committed)))
        }
        TransactionRequest::Abort(name) => {
            memory.abort_transaction(parsed(&name)?, &who).map_err(s3_error)?;
            let mut response = S3Response::new(Body::empty());
            response.status = Some(StatusCode::NO_CONTENT);
            Ok(response)
        }
    }
}

fn committed_document(committed: &Arc<CommittedTransaction>) -> String {
    let mut document = "<CommitTransactionResult>".to_owned();
    for written in &committed.written {
        let text = |text: &str| quick_xml::escape::escape(text).into_owned();
        let etag = written.etag.as_ref().map(|etag| format!("<ETag>&quot;{}&quot;</ETag>", text(&etag.0)));
        document.push_str(&format!(
            "<Object><Bucket>{}</Bucket><Key>{}</Key>{}<Version>{}</Version></Object>",
            text(written.object.bucket.as_str()),
            text(written.object.key.as_str()),
            etag.unwrap_or_default(),
            written.version,
        ));
    }
    document.push_str("</CommitTransactionResult>");
    document
}

fn documented(document: &str) -> S3Response<Body> {
    let whole = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>{document}");
    let mut response = S3Response::new(Body::from(whole));
    response.headers.insert(header::CONTENT_TYPE, XML.clone());
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::ReadExtension;

    #[test]
    fn a_transaction_begins_and_ends_on_the_root_alone() {
        let of = |method: Method, uri: &str| TransactionRequest::of(&method, &uri.parse().unwrap());
        assert_eq!(of(Method::POST, "/?transaction"), Some(TransactionRequest::Begin));
        assert_eq!(of(Method::POST, "/?transaction="), Some(TransactionRequest::Begin));
        assert_eq!(of(Method::POST, "/?transaction=0-ab"), Some(TransactionRequest::Commit("0-ab".to_owned())));
        assert_eq!(of(Method::DELETE, "/?transaction=0-ab"), Some(TransactionRequest::Abort("0-ab".to_owned())));
        for other in [(Method::POST, "/b?transaction"), (Method::GET, "/?transaction"), (Method::POST, "/?delete")] {
            assert_eq!(of(other.0.clone(), other.1), None, "{other:?}");
        }
    }

    #[test]
    fn what_can_be_in_no_transaction_is_refused_and_not_passed_over() {
        let verdict = |method: Method, uri: &str, copies: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(TRANSACTION.clone(), HeaderValue::from_static("0-ab"));
            if copies {
                headers.insert(COPY_SOURCE.clone(), HeaderValue::from_static("/b/other"));
            }
            let uri = uri.parse().unwrap();
            check(&method, &uri, &headers, ReadExtension::of(&method, &uri).is_some()).is_ok()
        };
        for uri in ["/b/k", "/b/k?x-id=PutObject", "/b/k?X-Amz-Signature=0"] {
            for method in [Method::GET, Method::HEAD, Method::PUT, Method::DELETE] {
                assert!(verdict(method.clone(), uri, false), "{method} {uri}");
            }
        }
        for (method, uri) in [
            (Method::GET, "/b?list-type=2"),
            (Method::GET, "/b/k?tagging"),
            (Method::PUT, "/b/k?tagging"),
            (Method::PUT, "/b/k?partNumber=1&uploadId=2"),
            (Method::POST, "/b/k?uploads"),
            (Method::POST, "/b?delete"),
            (Method::PUT, "/b"),
            (Method::DELETE, "/b/"),
        ] {
            assert!(!verdict(method.clone(), uri, false), "{method} {uri}");
        }
        assert!(!verdict(Method::PUT, "/b/k", true));
    }
}
