//! Real S3 servers on this machine, each onto one folder: MinIO, and versitygw with metadata in extended attributes.

use std::path::{Path, PathBuf};

use nigh_terms::SecretKey;

use super::installed::built;
use super::servers::{PeerFolder, Program, Servers, http_health};
use super::{Peer, PeerError, S3Access};

const ACCESS_KEY: &str = "nigh-lab";
/// The name of MinIO's webhook in a bucket's notifications.
pub(crate) const WEBHOOK: &str = "arn:minio:sqs::NIGH:webhook";

/// How a server is found, configured and asked.
#[derive(Debug)]
struct Kind {
    peer: &'static str,
    program: &'static str,
    /// The folder of its objects, below its own.
    objects: &'static str,
    /// The environment's names of its access key and its secret.
    keys: [&'static str; 2],
    /// The arguments for its address, a second one, and the folder of its objects.
    arguments: fn(&str, &str, &str) -> Vec<String>,
    health: &'static str,
}

const MINIO: Kind = Kind {
    peer: "MinIO",
    program: "minio",
    objects: "drive",
    keys: ["MINIO_ROOT_USER", "MINIO_ROOT_PASSWORD"],
    arguments: |address, console, folder| {
        ["server", "--quiet", "--address", address, "--console-address", console, folder].map(str::to_owned).into()
    },
    // `ready` says so before objects can be written.
    health: "/minio/health/cluster",
};

const VERSITYGW: Kind = Kind {
    peer: "versitygw",
    program: "versitygw",
    objects: "objects",
    keys: ["ROOT_ACCESS_KEY", "ROOT_SECRET_KEY"],
    arguments: |address, _, folder| {
        ["--quiet", "--keep-alive", "--health", VERSITYGW.health, "--port", address, "posix", folder]
            .map(str::to_owned)
            .into()
    },
    health: "/nigh-lab-health",
};

/// A running S3 server.
#[derive(Debug)]
pub struct S3Server {
    kind: &'static Kind,
    /// Absent after a kill.
    servers: Option<Servers>,
    folder: PathBuf,
    ports: [u16; 2],
    s3: S3Access,
    version: &'static str,
    environment: Vec<(&'static str, String)>,
}

impl S3Server {
    /// Starts a MinIO whose files go into `folder`, made if absent. Returns when it answers.
    ///
    /// # Errors
    /// `NotInstalled` if it is not there; else what could not be written, started or reached.
    pub fn minio(folder: &Path) -> Result<Self, PeerError> {
        // MinIO would look for a newer version of itself.
        Self::start(&MINIO, folder, vec![("MINIO_UPDATE", "off".to_owned())])
    }

    /// The same. Its buckets can tell `endpoint` of changes (`WEBHOOK`), with `token`, before the writer gets an answer.
    pub(crate) fn minio_with_webhook(folder: &Path, endpoint: &str, token: &SecretKey) -> Result<Self, PeerError> {
        let environment = [
            ("MINIO_UPDATE", "off"),
            ("MINIO_NOTIFY_WEBHOOK_ENABLE_NIGH", "on"),
            ("MINIO_NOTIFY_WEBHOOK_ENDPOINT_NIGH", endpoint),
            ("MINIO_NOTIFY_WEBHOOK_AUTH_TOKEN_NIGH", token.reveal()),
            ("MINIO_API_SYNC_EVENTS", "on"),
        ];
        Self::start(&MINIO, folder, environment.map(|(name, value)| (name, value.to_owned())).into())
    }

    /// Starts a versitygw likewise.
    pub fn versitygw(folder: &Path) -> Result<Self, PeerError> {
        Self::start(&VERSITYGW, folder, Vec::new())
    }

    fn start(kind: &'static Kind, folder: &Path, environment: Vec<(&'static str, String)>) -> Result<Self, PeerError> {
        let version = built(kind.peer, kind.program)?.version;
        let place = PeerFolder { peer: kind.peer, folder };
        place.folder(kind.objects)?;
        let ports: [u16; 2] = place.free_ports()?;
        let s3 = S3Access::on_loopback(ports[0], ACCESS_KEY, SecretKey::random());
        let mut stopped = Self { kind, servers: None, folder: folder.to_owned(), ports, s3, version, environment };
        stopped.start_again()?;
        Ok(stopped)
    }

    /// Ends it at once, as a crash does.
    pub(crate) fn kill(&mut self) {
        self.servers.take().into_iter().for_each(Servers::kill);
    }

    /// Starts it again after a kill, with its files, on its ports. Returns when it answers.
    pub(crate) fn start_again(&mut self) -> Result<(), PeerError> {
        let Kind { peer, program, objects, keys, arguments, health } = *self.kind;
        let [address, second] = self.ports.map(|port| format!("127.0.0.1:{port}"));
        let values = [ACCESS_KEY.to_owned(), self.s3.secret_key.reveal().to_owned()];
        let server = Program {
            name: program,
            path: built(peer, program)?.program,
            arguments: arguments(&address, &second, &self.folder.join(objects).to_string_lossy()),
            environment: keys.into_iter().zip(values).chain(self.environment.clone()).collect(),
            health: Some(http_health(self.ports[0], health)),
        };
        self.servers = Some(Servers::start(peer, &self.folder, vec![server])?);
        Ok(())
    }

    /// Where its S3 API is.
    #[must_use]
    pub const fn s3(&self) -> &S3Access {
        &self.s3
    }
}

impl Peer for S3Server {
    fn name(&self) -> &'static str {
        self.kind.peer
    }

    fn version(&self) -> String {
        self.version.to_owned()
    }

    fn processes(&self) -> Vec<u32> {
        self.servers.as_ref().map(Servers::processes).unwrap_or_default()
    }
}
