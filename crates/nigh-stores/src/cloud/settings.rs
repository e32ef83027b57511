//! The settings of a cloud store.

use std::collections::BTreeMap;
use std::path::PathBuf;

use nigh_terms::{Namespace, SecretKey};
use thiserror::Error;

use crate::bucket_names::PrefixesMeet;
use crate::connections::NetworkLimits;

/// The service, and the account that Nigh uses.
#[derive(Clone, Debug)]
pub enum CloudService {
    /// Google Cloud Storage.
    Gcs {
        /// The endpoint's URL. None for Google's own.
        endpoint: Option<String>,
        /// The account.
        account: GcsAccount,
    },
    /// Azure Blob Storage.
    Azure {
        /// `https://<account>.blob.core.windows.net`.
        endpoint: String,
        /// The storage account.
        account: String,
        /// The account's key, in Base64 as Azure shows it.
        key: SecretKey,
    },
}

/// The account for Google Cloud Storage.
#[derive(Clone, Debug)]
pub enum GcsAccount {
    /// A service account: the path of the file with its key.
    File(PathBuf),
    /// The account of the machine that Nigh runs on.
    OfMachine,
    /// No account, for emulators.
    Nobody,
}

/// The settings of a cloud store.
#[derive(Clone, Debug)]
pub struct CloudConfig {
    /// The service, and the account that Nigh uses.
    pub service: CloudService,
    /// For each namespace, the prefix of its buckets' names. Other namespaces have no buckets.
    pub bucket_prefixes: BTreeMap<Namespace, String>,
    /// Limits of the requests.
    pub limits: NetworkLimits,
}

/// Why a cloud store cannot be used.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each message says what the fields hold")]
pub enum CloudError {
    #[error("{store}: {reason}")]
    Client { store: &'static str, reason: String },
    #[error("cloud store: {0}")]
    PrefixesMeet(#[from] PrefixesMeet),
}
