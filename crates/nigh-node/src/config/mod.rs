//! All settings, their units and their defaults.
//!
//! A value comes from, weakest first: the default, the configuration file, a `NIGH_*` variable, a flag (`layers`). The
//! names here are the names in the file. In a variable two underscores separate section and name:
//! `functions.keep_alive` is `NIGH_FUNCTIONS__KEEP_ALIVE`. Sizes are written `64 MiB`, times `600 s`.

mod check;
mod cluster;
mod error;
mod faults;
mod functions;
mod health;
mod layers;
mod lists;
mod llc;
mod memory;
mod places;
mod python;
mod records;
#[cfg(test)]
mod reference;
mod shown;
mod span;
mod store;
mod tls;
mod traces;
mod workflows;
mod writes;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use nigh_engine::Retention;
use nigh_objects::WriteMode;
use nigh_terms::{ByteSize, Namespace};
use serde::{Deserialize, Serialize};

pub use cluster::{ClusterSettings, Roles};
pub use error::ConfigError;
pub use functions::{EventSettings, FunctionSettings, Network, PrewarmMode};
pub use health::HealthSettings;
pub use layers::{Configuration, FUNCTION_TABLE, Flag, Layers};
pub use lists::ListSetting;
pub use llc::{LlcBind, LlcPolicy, LlcSettings};
pub use memory::{MemoryLearner, MemorySettings, Sizing};
pub use python::PythonChoice;
pub use records::{AuditSettings, MetricsSettings};
pub use shown::ShownSetting;
pub use span::{ParseSpanError, Span};
pub use store::{StoreKind, StoreSettings, SwiftAuth};
pub use tls::{ClientCertificate, MinimumVersion, TlsSettings};
pub(crate) use traces::Collector;
pub use traces::TraceSettings;
pub use workflows::WorkflowSettings;
pub use writes::{DamagedJournal, OutsideSettings, WritesSettings};

use crate::machine::Machine;

/// All settings of a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The folder for everything that Nigh stores on this machine.
    pub state: PathBuf,
    /// The stable name of this machine.
    pub node: String,
    /// The namespace that the first start creates.
    pub namespace: Namespace,
    /// The AWS region that clients and functions see.
    pub region: String,
    /// Permits plain HTTP, and plain calls between nodes, beyond loopback. Its former name is `allow_remote`.
    pub allow_plain: bool,
    /// How long running requests and invocations may take to finish when the node ends.
    pub drain: Span,
    /// How long the doors stay open when the node ends: it says at once that it is not ready, and load balancers have this
    /// time to send new requests elsewhere.
    pub drain_delay: Span,
    /// Where the node says whether it is alive and ready.
    pub health: HealthSettings,
    /// The S3 door.
    pub s3: S3Settings,
    /// The Lambda door.
    pub lambda: LambdaSettings,
    /// The admin API and the page over TCP.
    pub admin: AdminSettings,
    /// TLS of all doors.
    pub tls: TlsSettings,
    /// The cache of objects.
    pub cache: CacheSettings,
    /// The store: the system of record.
    pub store: StoreSettings,
    /// When writes are acknowledged, and how they are pushed to the store.
    pub writes: WritesSettings,
    /// The door at which a store reports outside reads and writes.
    pub outside: OutsideSettings,
    /// Settings of single namespaces.
    pub namespaces: BTreeMap<Namespace, NamespaceSettings>,
    /// Functions and their sandboxes.
    pub functions: FunctionSettings,
    /// How sandboxes and the cache share the node's memory.
    pub memory: MemorySettings,
    /// Asynchronous invocations.
    pub events: EventSettings,
    /// Executions of state machines.
    pub workflows: WorkflowSettings,
    /// The last-level cache.
    pub llc: LlcSettings,
    /// Limits of each namespace at OpenWhisk's API.
    pub openwhisk: OpenWhiskLimits,
    /// The activation records.
    pub activations: ActivationSettings,
    /// The log.
    pub log: LogSettings,
    /// The audit trail.
    pub audit: AuditSettings,
    /// The metrics.
    pub metrics: MetricsSettings,
    /// Traces.
    pub traces: TraceSettings,
    /// The cluster that this node belongs to; if absent, the node is alone.
    pub cluster: Option<ClusterSettings>,
}

/// The S3 door.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct S3Settings {
    /// The address of its listener; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The path of the door's Unix socket.
    pub socket: PathBuf,
    /// The most bytes of an object that it accepts.
    pub object_max: ByteSize,
    /// How many bytes the parts of unfinished multipart uploads of one namespace may have; further ones are rejected with
    /// `SlowDown`. Eight times `object_max` if absent.
    pub uploads_bytes: Option<ByteSize>,
    /// The most connections at a time; further ones wait to be accepted.
    pub connections_max: usize,
    /// Whether clients get objects without HTTP, over a Unix socket and in sandboxes (docs/design/fast-path.md).
    pub fast_path: Switch,
}

impl S3Settings {
    /// How many bytes the parts of unfinished uploads of one namespace may have.
    #[must_use]
    pub fn uploads_bytes(&self) -> ByteSize {
        /// With no setting: so many of the largest objects.
        const OBJECTS: u64 = 8;
        self.uploads_bytes.unwrap_or(ByteSize(self.object_max.bytes().saturating_mul(OBJECTS)))
    }
}

/// A setting that is on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Switch {
    /// The setting is on.
    On,
    /// The setting is off.
    Off,
}

/// The Lambda door.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LambdaSettings {
    /// The address of its listener; port 0 takes a free one.
    pub listen: SocketAddr,
}

/// The admin API and the page over TCP, for keys with a role. The Unix socket `admin.sock` is always there.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdminSettings {
    /// The address of its listener; port 0 takes a free one.
    pub listen: Option<SocketAddr>,
    /// Whether its clients need a certificate beside their key.
    pub client_certificate: ClientCertificate,
}

/// The cache of objects.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheSettings {
    /// The most bytes of all cached objects.
    pub bytes: ByteSize,
    /// Larger objects are not cached (OFC keeps objects of up to 10 MB).
    pub object_max: ByteSize,
    /// The most bytes of that memory that one sandbox, or one key outside of sandboxes, may hold over the fast path.
    pub held_max: ByteSize,
}

/// Settings of one namespace.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamespaceSettings {
    /// The namespace's own store; values that the file does not name are the node's. If absent, the node's store.
    pub store: Option<StoreSettings>,
    /// The write mode of its buckets without their own. If absent, the node's mode.
    pub write_mode: Option<WriteMode>,
    /// The namespace's share of the sandboxes' time while other namespaces wait too: 2 is twice as much as 1, the
    /// default.
    pub share: Option<std::num::NonZeroU32>,
}

/// Limits of each namespace at a node's OpenWhisk API; an absent one is no limit.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenWhiskLimits {
    /// The most invocations of actions in a minute.
    pub invocations_per_minute: Option<u32>,
    /// The most trigger firings in a minute.
    pub fires_per_minute: Option<u32>,
    /// The most concurrent invocations.
    pub concurrent_invocations: Option<u32>,
}

/// The activation records.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActivationSettings {
    /// The most records; the oldest are removed first.
    pub records_max: u64,
    /// How many bytes they may take together. Beyond that, the oldest of the namespace with the most bytes are removed.
    pub bytes_max: ByteSize,
    /// How many bytes those of one namespace may take. Beyond that, its oldest are removed.
    pub namespace_bytes: ByteSize,
}

impl Default for ActivationSettings {
    fn default() -> Self {
        let Retention { records_max, bytes_max, namespace_bytes_max } = Retention::default();
        Self { records_max, bytes_max, namespace_bytes: namespace_bytes_max }
    }
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text for people.
    Text,
    /// One JSON object a line.
    Json,
}

/// The log.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogSettings {
    /// `error`, `warn`, `info`, `debug`, `trace`, or a filter of tracing-subscriber's `EnvFilter`.
    pub level: String,
    /// The format of lines.
    pub format: LogFormat,
}

/// The port of the admin API where none is set.
const ADMIN_PORT: u16 = 9403;

const fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

impl Settings {
    /// Where the admin API listens.
    #[must_use]
    pub fn admin_listen(&self) -> SocketAddr {
        // As with `health_listen`: who starts several nodes on one machine has given the S3 door a free port.
        let port = if self.s3.listen.port() == 0 { 0 } else { ADMIN_PORT };
        self.admin.listen.unwrap_or(loopback(port))
    }

    /// The defaults: a quarter of this machine's memory caches objects, half of it is for sandboxes, the rest for Nigh
    /// and the system.
    #[must_use]
    pub fn defaults(state: &Path, machine: &Machine) -> Self {
        Self {
            state: state.to_owned(),
            node: machine.hostname.clone(),
            namespace: default_namespace(),
            region: "us-east-1".to_owned(),
            allow_plain: false,
            drain: Span::seconds(30),
            drain_delay: Span::seconds(0),
            health: HealthSettings::default(),
            s3: S3Settings {
                listen: loopback(9400),
                socket: state.join("s3.sock"),
                object_max: ByteSize::gib(5),
                uploads_bytes: None,
                connections_max: 1024,
                fast_path: Switch::On,
            },
            lambda: LambdaSettings { listen: loopback(9401) },
            admin: AdminSettings::default(),
            tls: TlsSettings::default(),
            cache: CacheSettings {
                bytes: ByteSize(machine.memory.bytes() / 4),
                object_max: ByteSize::mib(10),
                held_max: ByteSize::mib(128),
            },
            store: StoreSettings::directory(&state.join("objects")),
            writes: WritesSettings::defaults(state),
            outside: OutsideSettings::default(),
            namespaces: BTreeMap::new(),
            functions: FunctionSettings::defaults(machine),
            memory: MemorySettings::default(),
            events: EventSettings::default(),
            workflows: WorkflowSettings::default(),
            llc: LlcSettings::default(),
            openwhisk: OpenWhiskLimits::default(),
            activations: ActivationSettings::default(),
            log: LogSettings { level: "info".to_owned(), format: LogFormat::Text },
            audit: AuditSettings::default(),
            metrics: MetricsSettings::default(),
            traces: TraceSettings::default(),
            cluster: None,
        }
    }
}

#[expect(clippy::expect_used, reason = "the text is constant and follows the rule")]
fn default_namespace() -> Namespace {
    Namespace::new("default").expect("a legal name")
}
