//! The settings of a remote store.

use std::collections::BTreeMap;

use nigh_terms::{AccessKeyId, Namespace, SecretKey};
use thiserror::Error;

use crate::bucket_names::PrefixesMeet;
use crate::connections::NetworkLimits;

/// Where a remote store is, and how Nigh uses it.
#[derive(Clone, Debug)]
pub struct RemoteConfig {
    /// `http://host:port` or `https://host`; buckets are the path's first part.
    pub endpoint: String,
    /// The region that requests are signed for.
    pub region: String,
    /// The public half of the key.
    pub access_key: AccessKeyId,
    /// The secret half.
    pub secret_key: SecretKey,
    /// For each namespace, the prefix of its buckets' names on the remote. Other namespaces have no buckets.
    pub bucket_prefixes: BTreeMap<Namespace, String>,
    /// Limits of the requests.
    pub limits: NetworkLimits,
}

impl RemoteConfig {
    /// The store of a single namespace, whose buckets have the same names on the remote.
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
