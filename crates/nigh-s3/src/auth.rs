//! Signature checks: gives `s3s` the secret of a key, and notes the operation that a request is for.

use async_trait::async_trait;
use nigh_engine::AccessKeys;
use nigh_terms::AccessKeyId;
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3Error, S3ErrorCode, S3Result};
use std::sync::Arc;

use crate::notes::RequestNotes;
use crate::telemetry::Operation;

/// The secrets of all keys of the node, or of one key only.
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
}

#[async_trait]
impl S3Auth for Secrets {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        let unknown = || {
            S3Error::with_message(
                S3ErrorCode::InvalidAccessKeyId,
                "the access key does not exist, or not for this sandbox, or died with its sandbox",
            )
        };
        if self.only.as_ref().is_some_and(|only| only.as_str() != access_key) {
            return Err(unknown());
        }
        let secret = self.keys.secret(&AccessKeyId::new(access_key)).ok_or_else(unknown)?;
        Ok(SecretKey::from(secret.reveal()))
    }
}

/// Denies a request without a signature, and notes the operation of a request. Each handler checks what the signer may
/// do.
pub(crate) struct Signers;

#[async_trait]
impl S3Access for Signers {
    async fn check(&self, context: &mut S3AccessContext<'_>) -> S3Result<()> {
        let operation = Operation::of(context.s3_op().name());
        if let Some(notes) = context.extensions_mut().get::<Arc<RequestNotes>>() {
            notes.set_operation(operation);
        }
        match context.credentials() {
            Some(_) => Ok(()),
            None => Err(S3Error::with_message(S3ErrorCode::AccessDenied, "the request is not signed")),
        }
    }
}
