//! What may be set, its units and its defaults.
//!
//! A value comes from, weakest first: the default, the configuration file, a `NIGH_*` variable, a flag (`layers`).
//! Names here are the names in the file; in a variable two underscores stand between section and name:
//! `functions.keep_alive` is `NIGH_FUNCTIONS__KEEP_ALIVE`. Sizes are written `64 MiB`, spans of time `600 s`.

mod cluster;
mod layers;
mod memory;
mod places;
mod span;
mod store;
mod workflows;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use nigh_objects::WriteMode;
use nigh_sandbox::sandbox::local::EngineChoice;
use nigh_terms::{ByteSize, Namespace};
use serde::{Deserialize, Serialize};

pub use cluster::{ClusterSettings, Roles, Servers};
pub use layers::{ConfigError, Configuration, Flag, Layers, ShownSetting};
pub use memory::{MemoryLearner, MemorySettings, Sizing};
pub use span::{ParseSpanError, Span};
pub use store::{StoreKind, StoreSettings, SwiftAuth};
pub use workflows::WorkflowSettings;

use self::places::Place;

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
    /// Listen on addresses beyond loopback, if one is set.
    pub allow_remote: bool,
    /// How long running requests and invocations may take to end after the first signal.
    pub drain: Span,
    /// The S3 door.
    pub s3: S3Settings,
    /// The Lambda door.
    pub lambda: LambdaSettings,
    /// The memory kept for objects.
    pub cache: CacheSettings,
    /// The system of record.
    pub store: StoreSettings,
    /// When writes are done, and how they come to the store.
    pub writes: WritesSettings,
    /// The door by which a store tells this node of others.
    pub outside: OutsideSettings,
    /// What namespaces have of their own.
    pub namespaces: BTreeMap<Namespace, NamespaceSettings>,
    /// Functions and their sandboxes.
    pub functions: FunctionSettings,
    /// The node's memory: shared, and sized to what invocations need.
    pub memory: MemorySettings,
    /// Asynchronous invocations.
    pub events: EventSettings,
    /// Executions of state machines.
    pub workflows: WorkflowSettings,
    /// The last-level cache.
    pub llc: LlcSettings,
    /// What each namespace may have of OpenWhisk's API.
    pub openwhisk: OpenWhiskLimits,
    /// The records of what ran.
    pub activations: ActivationSettings,
    /// What Nigh prints.
    pub log: LogSettings,
    /// The cluster that this node belongs to; it is alone if absent.
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
    /// Connections at a time; further ones wait to be accepted.
    pub connections_max: usize,
    /// Whether objects can be had without HTTP, by a Unix socket and in sandboxes (docs/design/fast-path.md).
    pub fast_path: Switch,
}

/// Something that is had or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Switch {
    /// It is.
    On,
    /// It is not.
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
    /// What one sandbox, or one key outside, may hold of that memory by the fast path.
    pub held_max: ByteSize,
}

/// What one namespace has of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamespaceSettings {
    /// Its system of record: whole, with the node's values where the file has none. The node's if absent.
    pub store: Option<StoreSettings>,
    /// When its writes are done, where a bucket does not say otherwise. The node's mode if absent.
    pub write_mode: Option<WriteMode>,
    /// Its share of the sandboxes' time while others wait too: one with 2 has twice as much as one with 1, which all have
    /// that say nothing.
    pub share: Option<std::num::NonZeroU32>,
}

/// When writes are done, and how they come to the store.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WritesSettings {
    /// When a write is acknowledged: `through` in the store, `shadow` in the journal and announced to the store, `lazy`
    /// in the journal, `ephemeral` in memory.
    pub mode: WriteMode,
    /// The folder of the journal.
    pub journal: PathBuf,
    /// What the journal may take on its disk. Half of it may wait for the store; then writes wait, and are refused.
    pub journal_max: ByteSize,
    /// How many objects may wait for the store.
    pub objects_max: usize,
    /// How long a write waits for a newer one of its object before it goes to the store.
    pub delay: Span,
    /// How long a write waits for room before it is refused (`SlowDown`).
    pub wait: Span,
    /// The wait after the store has failed to take a write; it doubles up to `back_off_max`.
    pub back_off: Span,
    /// The longest such wait.
    pub back_off_max: Span,
    /// Writes that go to the store at a time.
    pub pushes_max: usize,
    /// What to do at the start when acknowledged writes in the journal are damaged.
    pub on_damage: DamagedJournal,
}

/// The door by which a store tells this node of others that read and write it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutsideSettings {
    /// Where it listens; there is none if absent. Port 0 takes a free one.
    pub listen: Option<SocketAddr>,
    /// The file with the token that S3 events come with; none are taken if absent.
    pub events_token_file: Option<PathBuf>,
    /// How far the clock of Swift's proxies may be from this node's.
    pub clock_skew: Span,
}

/// What to do with a damaged journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DamagedJournal {
    /// Do not start; `nigh journal verify` says what is damaged.
    Refuse,
    /// Keep the damaged files aside and go on with what is whole; reads of an object whose last write is damaged fail
    /// until it is written anew.
    KeepAside,
}

/// Functions and their sandboxes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionSettings {
    /// What is set aside for sandboxes: no function books more. The cache has what they do not use, and lends them more.
    pub memory: ByteSize,
    /// How many sandboxes there may be.
    pub sandboxes_max: usize,
    /// How long an idle sandbox is kept.
    pub keep_alive: Span,
    /// How long after its answer a sandbox is frozen.
    pub freeze_grace: Span,
    /// How long an invocation may wait for its sandbox, whatever that waits for.
    pub queue: Span,
    /// How many invocations may wait.
    pub queue_max: usize,
    /// The interpreter of `python3.x` functions; its packages must have `awslambdaric`.
    pub python: PathBuf,
    /// The Node.js of OpenWhisk's `nodejs` actions.
    pub node: PathBuf,
    /// Further folders that functions may read, at the same path; in a variable separated by `:`.
    pub runtime_folders: Folders,
    /// Who makes the sandboxes: `auto` takes runc where it works.
    pub engine: EngineChoice,
    /// The program runc; looked for in `PATH` if absent.
    pub runc: Option<PathBuf>,
    /// Run functions though they cannot be kept apart from this machine's files.
    pub trust_functions: bool,
    /// As root: the first of the user ids that sandboxes run under.
    pub uid_base: u32,
    /// Whether boto3 in Python sandboxes goes without HTTP where it can, if `s3.fast_path` is on.
    pub fast_path: Switch,
    /// Keep sandboxes in which a runtime waits with its imports done.
    pub prewarm: PrewarmMode,
    /// What these may book together, within `memory`.
    pub prewarm_memory: ByteSize,
    /// How many of them there may be, within `sandboxes_max`.
    pub prewarm_max: usize,
    /// Modules that a waiting Python has imported; in a variable separated by `,`.
    pub prewarm_imports: Modules,
    /// The program that becomes a sandbox's first process; beside `nigh` if absent.
    pub sandbox_program: Option<PathBuf>,
    /// Whether a function that asks for it gets a way out to the network.
    pub network: Network,
    /// Whose functions may; in a variable separated by `,`. All, if it is empty.
    pub network_namespaces: Namespaces,
    /// The name servers that they ask, IPv4; in a variable separated by `,`. This machine's own, if it is empty.
    pub network_resolvers: Resolvers,
    /// The program slirp4netns; looked for in `PATH` if absent.
    pub network_tool: Option<PathBuf>,
}

/// Asynchronous invocations.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventSettings {
    /// How many of one namespace may be accepted and not done; further ones are refused.
    pub queue_max: usize,
    /// What their payloads may take together, and those of its dead letters.
    pub queue_bytes: ByteSize,
    /// How many run at once, of all namespaces.
    pub running_max: usize,
    /// How many that failed for good are kept of one namespace; the oldest goes first.
    pub dead_max: usize,
    /// The wait before a function's error is retried; before the second retry it is twice as long.
    pub retry_wait: Span,
    /// The first wait after a throttle; it doubles up to 300 times this.
    pub back_off: Span,
}

/// Whether sandboxes are prewarmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PrewarmMode {
    /// As many as cold starts ask for, within bounds.
    On,
    /// None.
    Off,
}

/// Whether functions may have a way out to the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// None has.
    None,
    /// Those have that ask for it.
    Permitted,
}

/// Who decides which cache ways an invocation gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LlcPolicy {
    /// The least predicted loss of all that run; CASY's rule where there are no curves.
    Nigh,
    /// CASY's algorithm 2.
    Casy,
    /// Nobody: the level is off.
    Off,
}

impl std::fmt::Display for LlcPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Nigh => "nigh",
            Self::Casy => "casy",
            Self::Off => "off",
        })
    }
}

/// How an invocation is bound to its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LlcBind {
    /// Its sandbox's tasks are moved into the class.
    Tasks,
    /// It has a core of its own, and that is in the class (CASY).
    Cpus,
}

/// The last-level cache.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LlcSettings {
    /// Who decides.
    pub policy: LlcPolicy,
    /// Ways for functions that need no cache, at the start; 3 of 11 if absent.
    pub insensitive_ways: Option<u8>,
    /// Profile functions without a model in the background, when nothing runs.
    pub profile: bool,
    /// How invocations are bound.
    pub bind: LlcBind,
    /// Memory bandwidth of the classes of insensitive functions, in the machine's own unit; no limit if absent.
    pub insensitive_bandwidth: Option<u32>,
}

/// What each namespace may have of OpenWhisk's API at a node; no limit if absent.
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

/// The records of what ran.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActivationSettings {
    /// How many are kept; the oldest goes first.
    pub records_max: u64,
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

/// What Nigh prints.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogSettings {
    /// `error`, `warn`, `info`, `debug`, `trace`, or a filter of tracing-subscriber's `EnvFilter`.
    pub level: String,
    /// How lines look.
    pub format: LogFormat,
}

/// A list of folders: a list in the file, or one text with `:` between them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Folders(pub Vec<PathBuf>);

impl<'de> Deserialize<'de> for Folders {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(listed(deserializer, ':')?.into_iter().map(PathBuf::from).collect()))
    }
}

/// A list of Python modules: a list in the file, or one text with `,` between them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Modules(pub Vec<String>);

impl<'de> Deserialize<'de> for Modules {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(listed(deserializer, ',')?))
    }
}

/// A list of namespaces: a list in the file, or one text with `,` between them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Namespaces(pub Vec<Namespace>);

impl<'de> Deserialize<'de> for Namespaces {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let names = listed(deserializer, ',')?.into_iter();
        names.map(|name| Namespace::new(&name)).collect::<Result<_, _>>().map(Self).map_err(serde::de::Error::custom)
    }
}

/// A list of addresses: a list in the file, or one text with `,` between them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Resolvers(pub Vec<IpAddr>);

impl<'de> Deserialize<'de> for Resolvers {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let addresses = listed(deserializer, ',')?.into_iter();
        let parse = |text: String| text.parse().map_err(|_| format!("{text:?} is no address"));
        addresses.map(parse).collect::<Result<_, _>>().map(Self).map_err(serde::de::Error::custom)
    }
}

/// A list, or one text with `between` between its parts.
fn listed<'de, D: serde::Deserializer<'de>>(deserializer: D, between: char) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        List(Vec<String>),
        Text(String),
    }
    Ok(match Form::deserialize(deserializer)? {
        Form::List(list) => list,
        Form::Text(text) => {
            text.split(between).map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
        }
    })
}

impl Settings {
    /// What holds where nothing is set: a quarter of this machine's memory caches objects, half of it is for
    /// sandboxes, the rest for Nigh and the system.
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
            writes: WritesSettings {
                mode: WriteMode::Lazy,
                journal: state.join("journal"),
                journal_max: ByteSize::gib(2),
                objects_max: 100_000,
                delay: Span::seconds(1),
                wait: Span::seconds(10),
                back_off: Span::millis(500),
                back_off_max: Span::seconds(60),
                pushes_max: 8,
                on_damage: DamagedJournal::Refuse,
            },
            outside: OutsideSettings { listen: None, events_token_file: None, clock_skew: Span::seconds(60) },
            namespaces: BTreeMap::new(),
            functions: FunctionSettings {
                memory: ByteSize(machine.memory.bytes() / 2),
                sandboxes_max: 256,
                keep_alive: Span::seconds(3600),
                freeze_grace: Span::millis(50),
                queue: Span::seconds(10),
                queue_max: 1000,
                python: machine.python.clone(),
                node: PathBuf::from("node"),
                runtime_folders: Folders::default(),
                engine: EngineChoice::Auto,
                runc: None,
                trust_functions: false,
                uid_base: 2_000_000_000,
                fast_path: Switch::On,
                prewarm: PrewarmMode::On,
                prewarm_memory: ByteSize(machine.memory.bytes() / 16),
                prewarm_max: 8,
                prewarm_imports: Modules(vec!["boto3".to_owned()]),
                sandbox_program: None,
                network: Network::None,
                network_namespaces: Namespaces::default(),
                network_resolvers: Resolvers::default(),
                network_tool: None,
            },
            memory: MemorySettings::default(),
            events: EventSettings {
                queue_max: 10_000,
                queue_bytes: ByteSize::mib(256),
                running_max: 100,
                dead_max: 1000,
                retry_wait: Span::seconds(60),
                back_off: Span::seconds(1),
            },
            workflows: WorkflowSettings::default(),
            llc: LlcSettings {
                policy: LlcPolicy::Nigh,
                insensitive_ways: None,
                profile: true,
                bind: LlcBind::Tasks,
                insensitive_bandwidth: None,
            },
            openwhisk: OpenWhiskLimits::default(),
            activations: ActivationSettings { records_max: 100_000 },
            log: LogSettings { level: "info".to_owned(), format: LogFormat::Text },
            cluster: None,
        }
    }

    /// What single values cannot say of themselves.
    ///
    /// # Errors
    /// The first rule that is broken, and how to mend it.
    pub fn check(&self) -> Result<(), ConfigError> {
        let broken = |key: &str, why: String| Err(ConfigError::Rule { key: key.to_owned(), why });
        let outside = self.outside.listen.map(|address| ("outside.listen", address));
        let doors = [("s3.listen", self.s3.listen), ("lambda.listen", self.lambda.listen)];
        for (key, address) in doors.into_iter().chain(outside) {
            if !address.ip().is_loopback() && !self.allow_remote {
                return broken(key, format!("{address} is beyond loopback; set allow_remote = true if that is meant"));
            }
        }
        if self.cache.object_max > self.cache.bytes {
            return broken("cache.object_max", format!("{} is more than cache.bytes", self.cache.object_max));
        }
        if self.functions.sandboxes_max == 0 {
            return broken("functions.sandboxes_max", "at least one sandbox is needed".to_owned());
        }
        let functions = &self.functions;
        let is_name = |module: &String| {
            module.split('.').all(|part| !part.is_empty() && part.chars().all(|c| c == '_' || c.is_alphanumeric()))
        };
        if let Some(module) = functions.prewarm_imports.0.iter().find(|module| !is_name(module)) {
            return broken("functions.prewarm_imports", format!("{module:?} is no name of a module"));
        }
        if self.memory.slack_min > self.memory.slack_max {
            return broken("memory.slack_min", format!("{} is more than memory.slack_max", self.memory.slack_min));
        }
        if self.s3.connections_max == 0 {
            return broken("s3.connections_max", "at least one connection is needed".to_owned());
        }
        if self.events.running_max == 0 {
            return broken("events.running_max", "at least one event must be allowed to run".to_owned());
        }
        if self.workflows.running_max == 0 {
            return broken("workflows.running_max", "at least one execution must be allowed to run".to_owned());
        }
        if self.activations.records_max == 0 {
            return broken("activations.records_max", "at least one record is needed".to_owned());
        }
        if self.writes.pushes_max == 0 {
            return broken(
                "writes.pushes_max",
                "at least one write must be allowed on its way to the store".to_owned(),
            );
        }
        // An object that may be kept in memory may be the only one that waits.
        if self.writes.journal_max.bytes() / 4 < self.cache.object_max.bytes() {
            let why = format!("{} is less than four times cache.object_max", self.writes.journal_max);
            return broken("writes.journal_max", why);
        }
        if let Some(cluster) = &self.cluster {
            cluster.check(self.allow_remote, self.cache.object_max)?;
        }
        self.store.check("store")?;
        for (name, store) in self.own_stores() {
            store.check(&format!("namespaces.{name}.store"))?;
        }
        self.check_shadows()?;
        self.check_places()
    }

    /// Refuses shadows where no store can have them, or cannot tell this node of readers and writers.
    fn check_shadows(&self) -> Result<(), ConfigError> {
        let broken = |key: String, why: &str| Err(ConfigError::Rule { key, why: why.to_owned() });
        let own = self.own_stores().map(|(name, store)| (format!("namespaces.{name}.store"), store));
        for (section, store) in std::iter::once(("store".to_owned(), &self.store)).chain(own) {
            if store.shadow_secret_file.is_some() && self.outside.listen.is_none() {
                let why =
                    "Swift's middleware tells this node of outside writes: set outside.listen, and the address there";
                return broken(format!("{section}.shadow_secret_file"), why);
            }
        }
        let why =
            "the mode shadow needs Swift with Nigh's middleware: kind = \"swift\" and shadow_secret_file in its store";
        let of = |name: &Namespace| self.namespaces.get(name).and_then(|own| own.store.as_ref()).unwrap_or(&self.store);
        if self.writes.mode == WriteMode::Shadow && of(&self.namespace).shadow_secret_file.is_none() {
            return broken("writes.mode".to_owned(), why);
        }
        for (name, own) in &self.namespaces {
            if own.write_mode.unwrap_or(self.writes.mode) == WriteMode::Shadow && of(name).shadow_secret_file.is_none()
            {
                return broken(format!("namespaces.{name}.write_mode"), why);
            }
        }
        Ok(())
    }

    /// The namespaces with a store of their own.
    pub fn own_stores(&self) -> impl Iterator<Item = (&Namespace, &StoreSettings)> {
        self.namespaces.iter().filter_map(|(name, own)| Some((name, own.store.as_ref()?)))
    }

    /// Refuses namespaces that could reach each other's buckets. A directory that several use is one store, which
    /// keeps them apart.
    fn check_places(&self) -> Result<(), ConfigError> {
        let own: Vec<_> = self.own_stores().map(|(name, store)| (name.as_str(), Place::of(store))).collect();
        let nodes = ("the node's own store", Place::of(&self.store));
        for (at, (name, place)) in own.iter().enumerate() {
            let mut others = own[..at].iter().chain([&nodes]);
            let shared = |other: &Place| matches!(other, Place::Folder(_)) && place == other;
            if let Some((other, _)) = others.find(|(_, other)| place.meets(other) && !shared(other)) {
                let key = format!("namespaces.{name}.store");
                let why = format!(
                    "its buckets and those of {other} could be the same; give both a bucket_prefix of which none \
                     begins with the other, other accounts, or folders apart"
                );
                return Err(ConfigError::Rule { key, why });
            }
        }
        Ok(())
    }
}

#[expect(clippy::expect_used, reason = "the text is constant and follows the rule")]
fn default_namespace() -> Namespace {
    Namespace::new("default").expect("a legal name")
}
