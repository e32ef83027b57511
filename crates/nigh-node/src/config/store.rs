//! Settings of a store: the node's, or one namespace's own. Pure.
//!
//! Every kind uses the same names: `endpoint` is the address of requests or logins; `access_key` and `secret_key`
//! identify the user, in each service's own way.

use std::path::{Path, PathBuf};

use nigh_stores::{NetworkLimits, RetryPolicy};
use nigh_terms::SecretKey;
use serde::{Deserialize, Serialize};

use super::{ConfigError, Span};

/// The kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StoreKind {
    /// A folder on this machine.
    Directory,
    /// An S3 service: Swift's s3api, MinIO, AWS.
    S3,
    /// OpenStack Swift, by its own API.
    Swift,
    /// Google Cloud Storage.
    Gcs,
    /// Azure Blob Storage.
    Azure,
}

impl StoreKind {
    /// The kind's name in the settings.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Directory => "directory",
            Self::S3 => "s3",
            Self::Swift => "swift",
            Self::Gcs => "gcs",
            Self::Azure => "azure",
        }
    }
}

/// How Nigh logs in to Swift.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SwiftAuth {
    /// Swift's TempAuth: `access_key` is `account:user`, `secret_key` its key.
    Tempauth,
    /// Keystone v3: `access_key` is the user, `secret_key` the password, for a project.
    Password,
    /// Keystone v3: `access_key` and `secret_key` are an application credential's id and secret.
    ApplicationCredential,
}

/// A store.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreSettings {
    /// The kind; each setting below names the kinds that use it.
    pub kind: StoreKind,
    /// directory: the folder.
    pub path: PathBuf,
    /// s3, gcs, azure: its URL; swift: the URL of the login.
    pub endpoint: Option<String>,
    /// s3: its region, `us-east-1` if absent; swift: the catalog's region, any if absent.
    pub region: Option<String>,
    /// s3, azure, swift: the user.
    pub access_key: Option<String>,
    /// s3, azure, swift: the user's secret, by file or variable only, because other users can read a command line.
    pub secret_key: Option<SecretKey>,
    /// gcs: the file of a service account's key; if absent, the machine's own account.
    pub credential_file: Option<PathBuf>,
    /// A prefix of each bucket's name in the store; not with directory.
    pub bucket_prefix: String,
    /// swift: how Nigh logs in.
    pub auth: SwiftAuth,
    /// swift, password: the project.
    pub project: Option<String>,
    /// swift, password: the project's domain.
    pub project_domain: String,
    /// swift, password: the user's domain.
    pub user_domain: String,
    /// swift, Keystone: `public`, `internal` or `admin`.
    pub interface: String,
    /// swift: the file with the secrets shared with Nigh's middleware; if absent, Nigh assumes that there is no
    /// middleware.
    pub shadow_secret_file: Option<PathBuf>,
    /// swift, middleware: this node's id in its `nodes`; if absent, the node's name.
    pub shadow_node: Option<String>,
    /// Network: the most requests at a time.
    pub concurrency: usize,
    /// Network: how long connecting may take.
    pub connect_timeout: Span,
    /// Network: how long a request waits for the first byte of an answer.
    pub answer_timeout: Span,
    /// Network: how long a request waits for the next bytes of an answer.
    pub idle_timeout: Span,
    /// Network: the most attempts at one request.
    pub attempts: u32,
    /// Network: the wait before the second attempt, doubled before each further one.
    pub backoff: Span,
    /// Network: the longest wait, even if a store asks for a longer one.
    pub backoff_max: Span,
}

/// The keys that name an account: a namespace with another account takes none of them from the node's store.
pub(super) const ACCOUNT: [&str; 5] = ["access_key", "secret_key", "credential_file", "project", "shadow_secret_file"];
/// The keys by which a namespace's own store names another account.
pub(super) const OTHER_ACCOUNT: [&str; 4] = ["kind", "endpoint", "access_key", "credential_file"];

impl StoreSettings {
    /// A directory store at `path`, with the defaults of the other settings.
    #[must_use]
    pub fn directory(path: &Path) -> Self {
        let network = NetworkLimits::default();
        let span = |duration: std::time::Duration| Span::millis(duration.as_millis() as u64);
        Self {
            kind: StoreKind::Directory,
            path: path.to_owned(),
            endpoint: None,
            region: None,
            access_key: None,
            secret_key: None,
            credential_file: None,
            bucket_prefix: String::new(),
            auth: SwiftAuth::Tempauth,
            project: None,
            project_domain: "Default".to_owned(),
            user_domain: "Default".to_owned(),
            interface: "public".to_owned(),
            shadow_secret_file: None,
            shadow_node: None,
            concurrency: network.concurrency,
            connect_timeout: span(network.connect),
            answer_timeout: span(network.answer),
            idle_timeout: span(network.idle),
            attempts: network.retry.attempts,
            backoff: span(network.retry.backoff),
            backoff_max: span(network.retry.backoff_max),
        }
    }

    /// The limits of a store over the network.
    #[must_use]
    pub fn limits(&self) -> NetworkLimits {
        NetworkLimits {
            concurrency: self.concurrency,
            connect: self.connect_timeout.duration(),
            answer: self.answer_timeout.duration(),
            idle: self.idle_timeout.duration(),
            retry: RetryPolicy {
                attempts: self.attempts,
                backoff: self.backoff.duration(),
                backoff_max: self.backoff_max.duration(),
            },
        }
    }

    /// The broken rules of the table `section`, for example `store`.
    pub(super) fn faults(&self, section: &str) -> Vec<ConfigError> {
        let mut faults = Vec::new();
        let mut broken =
            |key: &str, why: String| faults.push(ConfigError::Rule { key: format!("{section}.{key}"), why });
        let kind = self.kind.as_str();
        if self.shadow_secret_file.is_some() && self.kind != StoreKind::Swift {
            let why = format!("kind = \"{kind}\" has no middleware of Nigh's; swift has");
            broken("shadow_secret_file", why);
        }
        if self.kind == StoreKind::Directory {
            return faults;
        }
        if self.endpoint.is_none() && matches!(self.kind, StoreKind::S3 | StoreKind::Swift) {
            broken("endpoint", format!("kind = \"{kind}\" needs the URL of the service"));
        }
        if self.kind != StoreKind::Gcs && (self.access_key.is_none() || self.secret_key.is_none()) {
            let why = format!(
                "kind = \"{kind}\" needs access_key, and secret_key in the file or a variable (NIGH_{}__SECRET_KEY)",
                section.to_ascii_uppercase().replace('.', "__")
            );
            broken("access_key", why);
        }
        if self.kind == StoreKind::Swift && self.auth == SwiftAuth::Password && self.project.is_none() {
            broken("project", "auth = \"password\" needs the project's name".to_owned());
        }
        if self.concurrency == 0 {
            broken("concurrency", "at least one request must be allowed".to_owned());
        }
        if self.attempts == 0 {
            broken("attempts", "at least one attempt is needed".to_owned());
        }
        let spans = [
            ("connect_timeout", self.connect_timeout),
            ("answer_timeout", self.answer_timeout),
            ("idle_timeout", self.idle_timeout),
        ];
        for (key, _) in spans.iter().filter(|(_, span)| span.duration().is_zero()) {
            broken(key, "it must be longer than zero".to_owned());
        }
        faults
    }
}
