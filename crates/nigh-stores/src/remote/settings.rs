//! The settings of a remote store.

use std::collections::BTreeMap;

use nigh_terms::{AccessKeyId, Namespace, SecretKey};
use thiserror::Error;

use crate::bucket_names::PrefixesMeet;
use crate::connections::NetworkLimits;

/// The settings of a remote store.
#[derive(Clone, Debug)]
pub struct RemoteConfig {
    /// The URL of the store, `http://host:port` or `https://host`. The bucket is the first part of the path.
    pub endpoint: String,
    /// The region that requests are signed for.
    pub region: String,
    /// The id of the access key.
    pub access_key: AccessKeyId,
    /// The secret of the access key.
    pub secret_key: SecretKey,
    /// For each namespace, the prefix of its buckets' names on the remote. Other namespaces have no buckets.
    pub bucket_prefixes: BTreeMap<Namespace, String>,
    /// Limits of the requests.
    pub limits: NetworkLimits,
}

impl RemoteConfig {
    /// The settings for a single namespace, whose buckets have the same names on the remote.
    #[must_use]
    pub fn of_one_namespace(
        namespace: Namespace,
        endpoint: impl Into<String>,
        region: impl Into<String>,
        access_key: AccessKeyId,
        secret_key: SecretKey,
    ) -> Self {
        Self {
            endpoint: endpoint.into(),
            region: region.into(),
            access_key,
            secret_key,
            bucket_prefixes: [(namespace, String::new())].into(),
            limits: NetworkLimits::default(),
        }
    }
}

/// Why a remote store cannot be used.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each message says what the fields hold")]
pub enum RemoteError {
    #[error("remote store: {0}")]
    Client(String),
    #[error("remote store: {0}")]
    PrefixesMeet(#[from] PrefixesMeet),
}
