//! All settings, their units and their defaults.
//!
//! A value comes from, weakest first: the default, the configuration file, a `NIGH_*` variable, a flag (`layers`).
//! Names here are the names in the file; in a variable two underscores stand between section and name:
//! `functions.keep_alive` is `NIGH_FUNCTIONS__KEEP_ALIVE`. Sizes are written `64 MiB`, spans of time `600 s`.

mod check;
mod cluster;
mod error;
mod functions;
mod layers;
mod lists;
mod llc;
mod memory;
mod places;
mod shown;
mod span;
mod store;
mod workflows;
mod writes;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use nigh_engine::Retention;
use nigh_objects::WriteMode;
use nigh_terms::{ByteSize, Namespace};
use serde::{Deserialize, Serialize};

pub use cluster::{ClusterSettings, Roles};
pub use error::ConfigError;
pub use functions::{EventSettings, FunctionSettings, Network, PrewarmMode};
pub use layers::{Configuration, Flag, Layers};
pub use lists::ListSetting;
pub use llc::{LlcBind, LlcPolicy, LlcSettings};
pub use memory::{MemoryLearner, MemorySettings, Sizing};
pub use shown::ShownSetting;
pub use span::{ParseSpanError, Span};
pub use store::{StoreKind, StoreSettings, SwiftAuth};
pub use workflows::WorkflowSettings;
pub use writes::{DamagedJournal, OutsideSettings, WritesSettings};

use crate::machine::Machine;

/// All settings of a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The folder that holds everything Nigh keeps on this machine.
    pub state: PathBuf,
    /// The stable name of this machine.
    pub node: String,
    /// The tenant made at the first start.
    pub namespace: Namespace,
    /// The AWS region that clients and functions see.
    pub region: String,
    /// Permits doors to listen on addresses beyond loopback.
    pub allow_remote: bool,
    /// How long running requests and invocations may take to finish after the first signal.
    pub drain: Span,
    /// The S3 door.
    pub s3: S3Settings,
    /// The Lambda door.
    pub lambda: LambdaSettings,
    /// The memory kept for objects.
    pub cache: CacheSettings,
    /// The system of record.
    pub store: StoreSettings,
    /// When writes count as done, and how they come to the store.
    pub writes: WritesSettings,
    /// The door by which a store tells this node of outsiders.
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
    /// The cluster that this node belongs to; none on one machine.
    pub cluster: Option<ClusterSettings>,
}

/// The S3 door.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct S3Settings {
    /// Where it listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Its Unix socket.
    pub socket: PathBuf,
    /// The largest object it takes.
    pub object_max: ByteSize,
    /// How many bytes the parts of unfinished multipart uploads of one namespace may have; further ones are rejected with
    /// `SlowDown`. Eight times `object_max` if absent.
    pub uploads_bytes: Option<ByteSize>,
    /// Connections at a time; further ones wait to be accepted.
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

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

/// The Lambda door.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LambdaSettings {
    /// Where it listens; port 0 takes a free one.
    pub listen: SocketAddr,
}

/// The memory kept for objects.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheSettings {
    /// What all cached objects together may take.
    pub bytes: ByteSize,
    /// Larger objects are not cached (OFC keeps objects of up to 10 MB).
    pub object_max: ByteSize,
    /// How much of that memory one sandbox, or one key outside of sandboxes, may hold over the fast path.
    pub held_max: ByteSize,
}

/// Settings of one namespace.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamespaceSettings {
    /// Its store; values that the file does not name are the node's. The node's store if absent.
    pub store: Option<StoreSettings>,
    /// The write mode of its buckets that have none. The node's mode if absent.
    pub write_mode: Option<WriteMode>,
    /// Its share of the sandboxes' time while other namespaces wait too: 2 is twice as much as 1, the default.
    pub share: Option<std::num::NonZeroU32>,
}

/// Limits of each namespace at a node's OpenWhisk API; no limit if absent.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenWhiskLimits {
    /// Invocations of actions a minute.
    pub invocations_per_minute: Option<u32>,
    /// Triggers fired a minute.
    pub fires_per_minute: Option<u32>,
    /// Invocations at once.
    pub concurrent_invocations: Option<u32>,
}

/// The activation records.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActivationSettings {
    /// How many are kept. Beyond that, the oldest of the namespace with the most are removed.
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

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
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
    /// How lines look.
    pub format: LogFormat,
}

impl Settings {
    /// The defaults: a quarter of this machine's memory caches objects, half of it is for sandboxes, the rest for Nigh and
    /// the system.
    #[must_use]
    pub fn defaults(state: &Path, machine: &Machine) -> Self {
        let loopback = |port| SocketAddr::from(([127, 0, 0, 1], port));
        Self {
            state: state.to_owned(),
            node: machine.hostname.clone(),
            namespace: default_namespace(),
            region: "us-east-1".to_owned(),
            allow_remote: false,
            drain: Span::seconds(30),
            s3: S3Settings {
                listen: loopback(9400),
                socket: state.join("s3.sock"),
                object_max: ByteSize::gib(5),
                uploads_bytes: None,
                connections_max: 1024,
                fast_path: Switch::On,
            },
            lambda: LambdaSettings { listen: loopback(9401) },
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
            cluster: None,
        }
    }
}

#[expect(clippy::expect_used, reason = "the text is constant and follows the rule")]
fn default_namespace() -> Namespace {
    Namespace::new("default").expect("a legal name")
}
