//! Signatures: the secret with which `s3s` checks one, and the operation that the request turned out to be.

use async_trait::async_trait;
use nigh_engine::AccessKeys;
use nigh_terms::{AccessKeyId, SecretKey as Secret};
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3Error, S3ErrorCode, S3Result};
use std::sync::Arc;

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

/// The secrets of the keys of clients, or of one sandbox's.
pub(crate) struct Secrets {
    keys: AccessKeys,
    /// The only key that is known, where the door is served in one sandbox's network.
    only: Option<AccessKeyId>,
}

impl Secrets {
    /// All keys of clients, or `only` one of a sandbox.
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
                "the access key does not exist, or not at this door, or died with its sandbox; a function's key is good at \
                 its AWS_ENDPOINT_URL_S3",
            )
        };
        let key = AccessKeyId::new(access_key);
        let secret = secret_here(&self.keys, &key, self.only.as_ref()).ok_or_else(unknown)?;
        Ok(SecretKey::from(secret.reveal()))
    }
}

/// Denies a request without a signature, and notes its operation. Each handler checks what the signer may do.
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
