//! Signature checks: gives `s3s` the secret of a key, and notes the operation that a request is for.

use async_trait::async_trait;
use http::{HeaderMap, header};
use nigh_engine::{AccessKeys, Action};
use nigh_http::shares::{Share, Shares};
use nigh_terms::{AccessKeyId, SecretKey as Secret};
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3Error, S3ErrorCode, S3Result};
use std::sync::Arc;

use crate::actions::{action, copied_from};
use crate::audit::SignatureNote;
use crate::error::not_implemented;
use crate::handlers::Handlers;
use crate::notes::RequestNotes;
use crate::telemetry::Operation;

/// The secret of `key`, if it is good here: at the node's own door for clients' keys, at a sandbox's door for the key of
/// that sandbox, which is `only`.
pub(crate) fn secret_here(keys: &AccessKeys, key: &AccessKeyId, only: Option<&AccessKeyId>) -> Option<Secret> {
    match only {
        None => keys.client_secret(key),
        Some(only) => keys.secret(key).filter(|_| only == key),
    }
}

/// The secrets of all keys of the node, or of one key only.
#[derive(Clone)]
pub(crate) struct Secrets {
    keys: AccessKeys,
    /// The only key that is accepted, for a door that serves one sandbox. None if all keys are accepted.
    only: Option<AccessKeyId>,
}

impl Secrets {
    /// The secrets of all keys, or of `only` one.
    pub(crate) const fn new(keys: AccessKeys, only: Option<AccessKeyId>) -> Self {
        Self { keys, only }
    }

    /// The secret of `key`, if it is good here.
    pub(crate) fn of(&self, key: &AccessKeyId) -> Option<Secret> {
        secret_here(&self.keys, key, self.only.as_ref())
    }
}

#[async_trait]
impl S3Auth for Secrets {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        let unknown = || {
            S3Error::with_message(
                S3ErrorCode::InvalidAccessKeyId,
                "the access key does not exist, or not at this door, is disabled or has expired, or died with its sandbox; a \
                 function's key is good at its AWS_ENDPOINT_URL_S3",
            )
        };
        let secret = self.of(&AccessKeyId::new(access_key)).ok_or_else(unknown)?;
        Ok(SecretKey::from(secret.reveal()))
    }
}

/// Whether a request claims to be signed for Lambda or Step Functions.
pub(crate) fn is_for_functions(headers: &HeaderMap) -> bool {
    let authorization = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    ["/lambda/aws4_request", "/states/aws4_request"].iter().any(|scope| authorization.contains(scope))
}

/// Refuses a request that is signed for STS: `s3s` would read its body before it checks its signature.
pub(crate) fn check_service(headers: &HeaderMap) -> S3Result<()> {
    let authorization = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    match authorization {
        Some(text) if text.contains("/sts/aws4_request") => Err(not_implemented("the Security Token Service")),
        _ => Ok(()),
    }
}

/// Takes the share of a request that the access key `signer` has signed; none where the door has no shares.
pub(crate) fn take_share(shares: Option<&Arc<Shares>>, signer: &str) -> S3Result<Option<Share>> {
    let Some(shares) = shares else { return Ok(None) };
    let taken = || {
        S3Error::with_message(
            S3ErrorCode::SlowDown,
            "this access key has too many requests under way at this door; try again when some have been answered",
        )
    };
    shares.take(signer).map(Some).ok_or_else(taken)
}

/// Denies a request without a signature and one that its key's scope or its namespace's quota does not have, notes its
/// operation, and takes its share before its body is read. Each handler finds for whom the signer acts.
pub(crate) struct Signers {
    /// None at a sandbox's door.
    pub(crate) shares: Option<Arc<Shares>>,
    pub(crate) handlers: Arc<Handlers>,
}

#[async_trait]
impl S3Access for Signers {
    async fn check(&self, context: &mut S3AccessContext<'_>) -> S3Result<()> {
        let operation = Operation::of(context.s3_op().name());
        let notes = context.extensions_mut().get::<Arc<RequestNotes>>().cloned();
        if let Some(notes) = &notes {
            notes.set_operation(operation);
        }
        let unsigned = || {
            S3Error::with_message(S3ErrorCode::AccessDenied, "the request is not signed; sign it with an access key")
        };
        if context.credentials().is_some() {
            SignatureNote::note(context.extensions_mut());
        }
        let signer = context.credentials().ok_or_else(unsigned)?;
        let key = AccessKeyId::new(&*signer.access_key);
        if let Some(bucket) = copied_from(context.headers()) {
            self.handlers.authorize(&key, Action::ReadBucket(bucket))?;
        }
        let bucket = context.s3_path().get_bucket_name().unwrap_or_default();
        self.handlers.admit(&key, action(operation, bucket, context.headers()))?;
        let share = take_share(self.shares.as_ref(), &signer.access_key)?;
        if let Some(notes) = notes {
            notes.set_share(share);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn what_is_signed_for_functions_is_told_from_what_is_signed_for_objects() {
        let signed = |service: &str| {
            let text =
                format!("AWS4-HMAC-SHA256 Credential=K/20260101/us-east-1/{service}/aws4_request, SignedHeaders=host");
            HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_str(&text).unwrap())])
        };
        assert!(is_for_functions(&signed("lambda")) && is_for_functions(&signed("states")));
        assert!(!is_for_functions(&signed("s3")) && !is_for_functions(&HeaderMap::new()));
    }
}
