//! The stores that Nigh is compared with: Swift, and Redis where it and its Python client are installed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use http::Method;

use crate::LabError;
use crate::instrument::machine::Machine;
use crate::instrument::node_under_test::socket_address;
use crate::instrument::peer::if_installed;
use crate::instrument::peer::installed::{client_version, python_clients};
use crate::instrument::peer::redis::Redis;
use crate::instrument::peer::swift::{AccessLog, Swift};
use crate::instrument::platform::runtime_name;
use crate::instrument::s3_door::S3Door;

/// Stands in for boto3 in functions whose objects are in Redis.
pub(crate) const REDIS_CLIENT: &str = include_str!("../../peers/redis_client.py");

/// Redis, and the Python packages of the peers' clients; both are absent where they are not installed.
pub(crate) struct RedisAndClients {
    pub(crate) redis: Option<Redis>,
    clients: Option<PathBuf>,
}

impl RedisAndClients {
    /// Starts Redis in `folder` and notes it in `machine`, with the versions of `packages` that take part. `say` is told what is
    /// left out.
    pub(crate) fn start(
        folder: &Path,
        packages: &[&str],
        machine: &mut Machine,
        say: impl Fn(String),
    ) -> Result<Self, LabError> {
        let left_out = |reason: String| say(format!("left out: {reason}"));
        let clients = if_installed(python_clients(&runtime_name()?), left_out)?;
        let redis = clients.is_some().then(|| if_installed(Redis::start(folder), left_out)).transpose()?.flatten();
        if let Some(redis) = &redis {
            machine.add_peer(redis);
        }
        let takes_part = |package: &&&str| clients.is_some() && (redis.is_some() || !package.contains("redis"));
        for package in packages.iter().filter(takes_part) {
            machine.peers.insert((*package).to_owned(), client_version(package).to_owned());
        }
        Ok(Self { redis, clients })
    }

    /// Neither.
    pub(crate) const fn none() -> Self {
        Self { redis: None, clients: None }
    }

    pub(crate) const fn has_clients(&self) -> bool {
        self.clients.is_some()
    }

    /// The environment of functions whose objects are in Redis.
    pub(crate) fn redis_environment(&self) -> BTreeMap<String, String> {
        self.with_clients(self.redis.iter().flat_map(Redis::environment).collect())
    }

    /// `environment` with the search path of the clients: the same for all, whether they use one or not.
    pub(crate) fn with_clients(&self, mut environment: BTreeMap<String, String>) -> BTreeMap<String, String> {
        environment.extend(self.clients.iter().map(|path| ("PYTHONPATH".to_owned(), path.display().to_string())));
        environment
    }
}

/// Swift, and what is compared with it.
pub(crate) struct ComparedStores {
    pub(crate) swift: Swift,
    pub(crate) others: RedisAndClients,
    door: S3Door,
}

impl ComparedStores {
    /// Starts both with their files in `folder`; Swift must be installed.
    pub(crate) fn start(
        folder: &Path,
        log: Option<&AccessLog>,
        packages: &[&str],
        machine: &mut Machine,
        say: impl Fn(String),
    ) -> Result<Self, LabError> {
        let swift = match log {
            Some(log) => Swift::start_with_log(&folder.join("swift"), log)?,
            None => Swift::start(&folder.join("swift"))?,
        };
        machine.add_peer(&swift);
        let others = RedisAndClients::start(&folder.join("redis"), packages, machine, say)?;
        let door = S3Door { signer: swift.s3().signer(), address: socket_address(swift.endpoint())? };
        Ok(Self { swift, others, door })
    }

    /// Makes a bucket in Swift.
    pub(crate) async fn create_bucket(&self, bucket: &str) -> Result<(), LabError> {
        self.door.send(Method::PUT, &format!("/{bucket}"), b"").await
    }

    /// Puts an object into Swift, behind Nigh's back.
    pub(crate) async fn put_into_swift(&self, bucket: &str, key: &str, body: &[u8]) -> Result<(), LabError> {
        self.door.send(Method::PUT, &format!("/{bucket}/{key}"), body).await
    }

    /// Puts an object into Redis, if it takes part.
    pub(crate) fn put_into_redis(&self, bucket: &str, key: &str, body: &[u8]) -> Result<(), LabError> {
        Ok(self.others.redis.as_ref().map_or(Ok(()), |redis| redis.set(&format!("{bucket}/{key}"), body))?)
    }

    /// The environment of functions whose objects are in Swift, by its S3 API.
    pub(crate) fn swift_environment(&self) -> BTreeMap<String, String> {
        self.others.with_clients(self.swift.s3().environment())
    }
}
