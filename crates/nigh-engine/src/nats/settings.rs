//! The settings of the connection, the streams and the servers of a cluster.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType};
use nigh_terms::{ByteSize, SecretKey, ShardId};

use super::ClusterError;

/// The most bytes of a message: a chunk of a body with its head, or the longest record.
pub const MESSAGE_MAX_BYTES: usize = 1 << 20;
/// How long servers remember the ids of messages: longer than any message is repeated.
pub(super) const REMEMBERED: Duration = Duration::from_secs(600);

/// The settings of the connection to a cluster.
#[derive(Clone, Debug)]
pub struct ClusterSettings {
    /// Addresses of some of its servers, `nats://host:port` or `tls://host:port`.
    pub servers: Vec<String>,
    /// The token for the servers; none if they need none.
    pub token: Option<SecretKey>,
    /// The file of the authorities that sign the servers' certificates; if given, TLS is required.
    pub root_certificates: Option<PathBuf>,
    /// The files of this client's certificate and its key; none if the servers need none.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
    /// The prefix of this cluster's streams and subjects: letters, digits and hyphens.
    pub name: String,
    /// The number of copies of each stream, each on another server.
    pub replicas: usize,
    /// How long an answer may take, including repeats; then the outcome counts as unknown.
    pub answer_within: Duration,
}

impl ClusterSettings {
    pub(super) fn check(&self) -> Result<(), ClusterError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if (1..=32).contains(&self.name.len()) && self.name.bytes().all(allowed) {
            return Ok(());
        }
        Err(ClusterError::Name { name: self.name.clone() })
    }

    /// The stream of a shard's journal.
    pub(super) fn ledger_stream(&self, shard: ShardId) -> String {
        format!("{}-ledger-{shard}", self.name)
    }

    /// The subjects of a shard's journal: that of epoch records, and that of all others.
    pub(super) fn ledger_subjects(&self, shard: ShardId) -> [String; 2] {
        ["epoch", "record"].map(|kind| format!("{}.ledger.{shard}.{kind}", self.name))
    }

    /// The stream of a shard's journal, whose places begin at `first`.
    pub(super) fn ledger_config(&self, shard: ShardId, max_bytes: u64, first: u64) -> Config {
        Config {
            subjects: self.ledger_subjects(shard).to_vec(),
            max_bytes: i64::try_from(max_bytes).unwrap_or(i64::MAX),
            max_messages_per_subject: -1,
            first_sequence: Some(first),
            ..self.kept(self.ledger_stream(shard))
        }
    }

    /// A stream that keeps the newest message of each document, for `max_age` after its last write.
    pub(super) fn documents_config(&self, bucket: &str, max_age: Duration) -> Config {
        Config {
            subjects: vec![format!("$KV.{bucket}.>")],
            max_messages_per_subject: 1,
            max_bytes: -1,
            max_age,
            // Servers do not remember an id for longer than messages stay.
            duplicate_window: if max_age.is_zero() { REMEMBERED } else { max_age.min(REMEMBERED) },
            allow_atomic_publish: true,
            ..self.kept(format!("KV_{bucket}"))
        }
    }

    /// A stream that never drops messages by itself, and whose leader answers all reads.
    fn kept(&self, name: String) -> Config {
        Config {
            name,
            retention: RetentionPolicy::Limits,
            storage: StorageType::File,
            discard: DiscardPolicy::New,
            num_replicas: self.replicas,
            duplicate_window: REMEMBERED,
            allow_direct: false,
            max_messages: -1,
            max_consumers: -1,
            ..Config::default()
        }
    }
}

/// The settings of a shard's journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerSettings {
    /// The most bytes of a shard's messages, with their heads; above this writes are rejected. The stream accepts a little
    /// more, so that a full journal can record which writes are stored.
    pub limit: ByteSize,
    /// The most writes of a shard that wait or are being sent.
    pub under_way_max: usize,
    /// The most pieces of bodies, of up to 1 MiB each, that wait or are being sent.
    pub pieces_under_way_max: usize,
    /// How long a write waits for its turn before it fails.
    pub wait: Duration,
    /// How often stored writes are recorded, and the stream is trimmed.
    pub settle_every: Duration,
    /// A folder for the damaged messages of a taken shard. With none, a damaged shard is not taken.
    pub keep_damaged: Option<PathBuf>,
    /// The place of the first message of a new stream: higher than any epoch of earlier versions elsewhere.
    pub first_place: u64,
}

impl Default for LedgerSettings {
    fn default() -> Self {
        Self {
            limit: ByteSize::gib(1),
            under_way_max: 256,
            pieces_under_way_max: 16,
            wait: Duration::from_secs(2),
            settle_every: Duration::from_secs(1),
            keep_damaged: None,
            first_place: 1,
        }
    }
}

impl LedgerSettings {
    /// The limit of the stream, with room for the records of stored writes.
    pub(super) fn stream_bytes(&self) -> u64 {
        self.limit.bytes() + self.limit.bytes() / 16 + 4 * MESSAGE_MAX_BYTES as u64
    }
}

/// One server of a cluster, for its configuration.
#[derive(Clone, Debug)]
pub struct ServerSettings<'a> {
    /// The server's name, which no other server has.
    pub name: &'a str,
    /// The address for clients, `host:port`.
    pub listen: &'a str,
    /// The address for health checks, `host:port`; none: it has none.
    pub monitor: Option<&'a str>,
    /// The cluster's name, and the address for the other servers, `host:port`; none for a single server.
    pub cluster: Option<(&'a str, &'a str)>,
    /// The addresses of all servers, maybe including this one.
    pub routes: &'a [String],
    /// The folder of the server's streams.
    pub folder: &'a Path,
    /// The token that clients must give; none if they need none.
    pub token: Option<&'a SecretKey>,
}

/// The configuration of a server with all that this engine relies on: each write is on the disk before it is
/// acknowledged, and a message may be as long as the longest of ours.
#[must_use]
pub fn server_configuration(server: &ServerSettings<'_>) -> String {
    let ServerSettings { name, listen, monitor, cluster, routes, folder, token } = server;
    let mut text = format!("server_name: \"{name}\"\nlisten: \"{listen}\"\nmax_payload: {}\n", 2 * MESSAGE_MAX_BYTES);
    // Writing to a string cannot fail.
    if let Some(monitor) = monitor {
        let _ = writeln!(text, "http: \"{monitor}\"");
    }
    if let Some(token) = token {
        let _ = writeln!(text, "authorization {{ token: \"{}\" }}", token.reveal());
    }
    let _ = writeln!(text, "jetstream {{ store_dir: \"{}\", sync_interval: always }}", folder.display());
    if let Some((cluster, listen)) = cluster {
        let routes: Vec<String> = routes.iter().map(|route| format!("\"nats://{route}\"")).collect();
        let _ =
            writeln!(text, "cluster {{ name: \"{cluster}\", listen: \"{listen}\", routes: [{}] }}", routes.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> ClusterSettings {
        ClusterSettings {
            servers: vec!["nats://127.0.0.1:4222".to_owned()],
            token: None,
            root_certificates: None,
            client_certificate: None,
            name: "nigh".to_owned(),
            replicas: 3,
            answer_within: Duration::from_secs(1),
        }
    }

    #[test]
    fn a_server_listens_where_it_is_told_and_syncs_each_write() {
        let (token, routes) = (SecretKey::new("hush"), ["h2:6".to_owned(), "h3:6".to_owned()]);
        let text = server_configuration(&ServerSettings {
            name: "n1",
            listen: "127.0.0.1:7",
            monitor: Some("127.0.0.1:8"),
            cluster: Some(("c", "127.0.0.1:6")),
            routes: &routes,
            folder: Path::new("/d"),
            token: Some(&token),
        });
        for part in [
            "\"127.0.0.1:7\"",
            "\"127.0.0.1:8\"",
            "token: \"hush\"",
            "store_dir: \"/d\", sync_interval: always",
            "routes: [\"nats://h2:6\", \"nats://h3:6\"]",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn a_name_that_would_be_several_parts_of_a_subject_is_refused() {
        assert!(settings().check().is_ok());
        for name in ["", "a.b", "a*", "a b", &"n".repeat(33)] {
            let named = ClusterSettings { name: name.to_owned(), ..settings() };
            assert!(matches!(named.check(), Err(ClusterError::Name { .. })), "{name}");
        }
    }

    #[test]
    fn streams_refuse_what_they_have_no_room_for_and_only_leaders_answer() {
        let ledger = settings().ledger_config(ShardId(3), 1 << 30, 5);
        assert_eq!((ledger.discard, ledger.storage), (DiscardPolicy::New, StorageType::File));
        assert_eq!((ledger.max_age, ledger.max_bytes, ledger.num_replicas), (Duration::ZERO, 1 << 30, 3));
        assert!(!ledger.allow_direct && !settings().documents_config("b", Duration::ZERO).allow_direct);
        assert_eq!(ledger.subjects, ["nigh.ledger.3.epoch", "nigh.ledger.3.record"]);
    }
}
