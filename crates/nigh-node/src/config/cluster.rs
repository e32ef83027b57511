//! Settings of a cluster: which one this node belongs to, how it is reached, and what this node does for it. Without the
//! table a node is alone on its machine.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use nigh_engine::NodeRole;
use nigh_engine::nats;
use nigh_objects::cluster::CoherenceProtocol;
use nigh_terms::{ByteSize, SecretKey};
use serde::{Deserialize, Serialize};

use super::lists::{Servers, listed};
use super::{ConfigError, Span};

/// The most shards of a cluster: each is a stream of the servers.
const SHARDS_MAX: u16 = 1024;
/// The longest name of a cluster.
const NAME_MAX_BYTES: usize = 32;

/// A set of roles: a list in the file, or one text separated by `,`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Roles(pub BTreeSet<NodeRole>);

impl<'de> Deserialize<'de> for Roles {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let roles = listed(deserializer, ',')?.into_iter();
        let parse = |text: String| {
            let known = [NodeRole::Run, NodeRole::Memory, NodeRole::Controller].into_iter();
            let mut named = known.filter(|role| role.to_string() == text);
            named.next().ok_or_else(|| format!("{text:?} is no role; there are run, memory and controller"))
        };
        roles.map(parse).collect::<Result<_, _>>().map(Self).map_err(serde::de::Error::custom)
    }
}

/// The cluster of a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterSettings {
    /// The cluster's name, which its streams in NATS and its certificates have.
    pub name: String,
    /// The addresses of its NATS servers, `nats://host:port` or `tls://host:port`; some of them are enough.
    pub servers: Servers,
    /// The servers' token, by file or variable only, because other users can read a command line.
    pub token: Option<SecretKey>,
    /// The file that holds the token.
    pub token_file: Option<PathBuf>,
    /// The file of the authorities that sign the servers' certificates; if given, TLS is required.
    pub tls_authority: Option<PathBuf>,
    /// The file of this client's certificate for the servers.
    pub tls_certificate: Option<PathBuf>,
    /// The file of the key of `tls_certificate`.
    pub tls_key: Option<PathBuf>,
    /// The number of servers that store each stream: 1, 3 or 5.
    pub replicas: usize,
    /// The number of shards of the key space. The cluster's first node fixes it for good.
    pub shards: u16,
    /// The coherence protocol. The cluster's first node fixes it for good. All but Nigh's own are for experiments.
    pub coherence: CoherenceProtocol,
    /// The most bytes of a shard's journal on the servers, at least four times `cache.object_max`. The first start fixes it
    /// for good.
    pub journal_max: ByteSize,
    /// How long a request waits for the servers' answer, retries included.
    pub answer: Span,
    /// The address at which other nodes call this one; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The address that other nodes use, `host:port`; if absent, `listen`.
    pub advertise: Option<String>,
    /// The folder of the cluster's certificates (`nigh certificates`): `authority.crt`, and `NODE.crt` and `NODE.key`.
    pub certificates: Option<PathBuf>,
    /// Call other nodes without TLS, so that nobody's identity is checked.
    pub plain: bool,
    /// The roles of this node: `run`, `memory`, `controller`; some member needs `controller`.
    pub roles: Roles,
}

impl Default for ClusterSettings {
    fn default() -> Self {
        Self {
            name: "nigh".to_owned(),
            servers: Servers::default(),
            token: None,
            token_file: None,
            tls_authority: None,
            tls_certificate: None,
            tls_key: None,
            replicas: 3,
            shards: 32,
            coherence: CoherenceProtocol::default(),
            journal_max: ByteSize::mib(256),
            answer: Span::seconds(5),
            listen: SocketAddr::from(([127, 0, 0, 1], 9410)),
            advertise: None,
            certificates: None,
            plain: false,
            roles: Roles(BTreeSet::from([NodeRole::Run, NodeRole::Memory])),
        }
    }
}

impl ClusterSettings {
    /// The connection settings for the servers, with `token`.
    #[must_use]
    pub fn servers(&self, token: Option<SecretKey>) -> nats::ClusterSettings {
        nats::ClusterSettings {
            servers: self.servers.0.clone(),
            token,
            root_certificates: self.tls_authority.clone(),
            client_certificate: self.tls_certificate.clone().zip(self.tls_key.clone()),
            name: self.name.clone(),
            replicas: self.replicas,
            answer_within: self.answer.duration(),
        }
    }

    /// The settings of shards' journals. Damaged messages are copied to `keep_damaged`, if it is given.
    #[must_use]
    pub fn ledger(&self, wait: Span, keep_damaged: Option<&Path>) -> nats::LedgerSettings {
        nats::LedgerSettings {
            limit: self.journal_max,
            wait: wait.duration(),
            keep_damaged: keep_damaged.map(Path::to_owned),
            ..nats::LedgerSettings::default()
        }
    }

    /// The broken rules of the table. Objects of up to `object_max` go through a shard's journal.
    pub(super) fn faults(&self, object_max: ByteSize) -> Vec<ConfigError> {
        let mut faults = Vec::new();
        let mut broken = |key: &str, why: String| faults.push(ConfigError::rule(&format!("cluster.{key}"), why));
        let letters = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if !(1..=NAME_MAX_BYTES).contains(&self.name.len()) || !self.name.bytes().all(letters) {
            broken("name", format!("{:?} is no name: 1 to 32 letters, digits and hyphens", self.name));
        }
        if self.servers.0.is_empty() {
            broken("servers", "name the NATS servers, for example [\"nats://host:4222\"]".to_owned());
        }
        let known = |server: &&String| !["nats://", "tls://"].iter().any(|scheme| server.starts_with(scheme));
        if let Some(server) = self.servers.0.iter().find(known) {
            broken("servers", format!("{server:?} is no server; write nats://host:port or tls://host:port"));
        }
        if self.token.is_some() && self.token_file.is_some() {
            broken("token_file", "cluster.token is set too; set only one of the two".to_owned());
        }
        if self.tls_certificate.is_some() != self.tls_key.is_some() {
            broken("tls_certificate", "set both tls_certificate and tls_key, or none".to_owned());
        }
        if ![1, 3, 5].contains(&self.replicas) {
            let why = format!(
                "{} is not 1, 3 or 5: 3 or 5 copies survive the loss of a server, 1 is for trials",
                self.replicas
            );
            broken("replicas", why);
        }
        if !(1..=SHARDS_MAX).contains(&self.shards) {
            broken("shards", format!("{} is not between 1 and {SHARDS_MAX}", self.shards));
        }
        // One unpushed object may be as large as a cached object can be.
        if self.journal_max.bytes() / 4 < object_max.bytes() {
            broken("journal_max", format!("{} is less than four times cache.object_max", self.journal_max));
        }
        if self.answer.duration().is_zero() {
            broken("answer", "it must be longer than zero".to_owned());
        }
        match &self.advertise {
            None if self.listen.ip().is_unspecified() => {
                let why = format!(
                    "{} means every address; set cluster.advertise to the one that other nodes reach",
                    self.listen
                );
                broken("listen", why);
            }
            Some(address)
                if !address
                    .rsplit_once(':')
                    .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)) =>
            {
                broken("advertise", format!("{address:?} is no host:port"));
            }
            _ => {}
        }
        match (&self.certificates, self.plain) {
            (None, false) => {
                let why = "set it to the folder of the cluster's certificates, which `nigh certificates init` makes; or set \
                           cluster.plain = true, for trials on a network that only the cluster uses";
                broken("certificates", why.to_owned());
            }
            (Some(_), true) => {
                broken("plain", "cluster.certificates is set too; set only one of the two".to_owned());
            }
            _ => {}
        }
        if self.roles.0.is_empty() {
            broken("roles", "a node without a role does nothing; the default is run and memory".to_owned());
        }
        faults
    }
}
