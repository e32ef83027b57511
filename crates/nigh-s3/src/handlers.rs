//! What every operation starts with: the object memory, the principal of a request, and the checked names in the
//! request.

use std::sync::Arc;

use nigh_data::{ChecksumClaim, Digest};
use nigh_engine::{AccessKeys, Action, CallGuard};
use nigh_objects::ObjectMemory;
use nigh_terms::{AccessKeyId, BucketName, Namespace, ObjectKey, Principal, Timestamp};
use s3s::auth::Credentials;
use s3s::dto::{Owner, Timestamp as WireTimestamp};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Result};

use crate::error::{refused, s3_error};
use crate::notes::RequestNotes;
use crate::{checksum_headers, payload};

/// The state that all handlers use.
pub(crate) struct Handlers {
    memory: Arc<ObjectMemory>,
    keys: AccessKeys,
}

impl Handlers {
    /// The handlers of one node.
    pub(crate) const fn new(memory: Arc<ObjectMemory>, keys: AccessKeys) -> Self {
        Self { memory, keys }
    }

    /// The node's object memory.
    pub(crate) fn memory(&self) -> &ObjectMemory {
        &self.memory
    }

    /// The principal of a request; only this function decides it. The call counts as in progress until the guard is
    /// dropped.
    pub(crate) fn principal(&self, credentials: Option<&Credentials>) -> S3Result<(Principal, CallGuard)> {
        self.principal_of(&signer(credentials)?)
    }

    /// The principal of a key, for the fast path.
    pub(crate) fn principal_of(&self, key: &AccessKeyId) -> S3Result<(Principal, CallGuard)> {
        self.keys.enter(key).map_err(refused)
    }

    /// Checks that a key may do `action`, without counting a request.
    pub(crate) fn authorize(&self, key: &AccessKeyId, action: Action<'_>) -> S3Result<()> {
        self.keys.authorize(key, action).map(drop).map_err(refused)
    }

    /// Accepts a request that is about to do `action`, and returns its principal. The call counts as in progress until the
    /// guard is dropped.
    pub(crate) fn admit(&self, key: &AccessKeyId, action: Action<'_>) -> S3Result<(Principal, CallGuard)> {
        self.keys.admit(key, action).map_err(refused)
    }

    /// Begins to handle a request: notes that the request's document was read, and returns the principal.
    pub(crate) fn enter<T>(&self, request: &S3Request<T>) -> S3Result<Principal> {
        // Every request has notes, except reads of objects.
        let notes = notes(request).ok_or_else(|| S3Error::new(S3ErrorCode::InternalError))?;
        notes.set_handled();
        let (who, call) = self.principal(request.credentials.as_ref())?;
        notes.set_call(call);
        Ok(who)
    }

    /// Begins to handle a request that has a document. The document must match `Content-MD5` and the checksum that the
    /// request states.
    pub(crate) fn enter_with_document<T>(&self, request: &S3Request<T>) -> S3Result<Principal> {
        let who = self.enter(request)?;
        check_document(request, checksum_headers::claim(&request.headers, None)?)?;
        Ok(who)
    }
}

/// The key that signed a request.
pub(crate) fn signer(credentials: Option<&Credentials>) -> S3Result<AccessKeyId> {
    let unsigned =
        || S3Error::with_message(S3ErrorCode::AccessDenied, "the request is not signed; sign it with an access key");
    Ok(AccessKeyId::new(&*credentials.ok_or_else(unsigned)?.access_key))
}

/// Compares a request's document with the digests that the request states.
pub(crate) fn check_document<T>(request: &S3Request<T>, claim: Option<ChecksumClaim>) -> S3Result<()> {
    let digest = notes(request).and_then(|notes| notes.take_digest());
    let digest = digest.unwrap_or_else(|| Digest::new(claim.as_ref().map(|claim| claim.algorithm)));
    digest.check(payload::content_md5(&request.headers)?, claim).map_err(s3_error)
}

/// The notes of a request. None if the request is a read of an object.
pub(crate) fn notes<T>(request: &S3Request<T>) -> Option<&Arc<RequestNotes>> {
    request.extensions.get()
}

/// Parses the name of a bucket.
pub(crate) fn bucket_name(name: &str) -> S3Result<BucketName> {
    BucketName::new(name).map_err(|error| S3Error::with_message(S3ErrorCode::InvalidBucketName, error.to_string()))
}

/// Parses an object's key.
pub(crate) fn object_key(key: &str) -> S3Result<ObjectKey> {
    ObjectKey::new(key).map_err(|error| {
        let code = if key.is_empty() { S3ErrorCode::InvalidArgument } else { S3ErrorCode::KeyTooLongError };
        S3Error::with_message(code, error.to_string())
    })
}

/// `when` in the form that documents use.
pub(crate) fn wire_date(when: Timestamp) -> WireTimestamp {
    when.date().into()
}

/// The owner by which documents name a namespace.
pub(crate) fn owner(namespace: &Namespace) -> Owner {
    Owner { display_name: Some(namespace.to_string()), id: Some(namespace.to_string()) }
}
