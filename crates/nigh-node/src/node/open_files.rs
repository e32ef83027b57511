//! What a node may have at a time, so that it never has more files open than the system allows.
//!
//! Each sandbox, connection and cached object of its own segment takes file descriptors. Where the hard limit is low
//! (1,024 in some shells and containers), the node has fewer sandboxes and connections, in proportion, and says so;
//! those who find no place wait. With the limits of `nigh_data::account` the cache takes a quarter to a half.

use std::thread::available_parallelism;

use nigh_data::account::segments_of_files;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::NodeError;
use crate::config::Settings;
use crate::status::Level;

/// A node with fewer files does not start.
const LEAST: u64 = 512;
/// What is not counted one by one: state file, journal, store, logs, listeners.
const OTHERS: u64 = 128;
/// Each processor has an event loop of each door.
const OF_PROCESSOR: u64 = 4;
/// Calls between the nodes of a cluster, and its connections to NATS.
const OF_CLUSTER: u64 = 128;
/// Control files, pipes and sockets of a sandbox, with the connections that it usually has.
const OF_SANDBOX: u64 = 24;
/// A connection to the S3 door with the file that it reads or writes; and one of the fast path.
const OF_S3_CONNECTION: u64 = 3;
const OF_LAMBDA_CONNECTION: u64 = 1;
/// The connections of the Lambda door, and of one sandbox to its doors, where files are plenty: the doors' own defaults.
const LAMBDA_CONNECTIONS: usize = 1024;
const SANDBOX_CONNECTIONS: usize = 128;
/// However few files there are: SDKs open several connections.
const CONNECTIONS_LEAST: usize = 8;

/// The most sandboxes and connections of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileShares {
    pub(super) sandboxes: usize,
    /// At the S3 door, and on the fast path.
    pub(super) s3_connections: usize,
    pub(super) lambda_connections: usize,
    /// From one sandbox, at each door that it has.
    pub(super) sandbox_connections: usize,
}

impl FileShares {
    /// What the settings ask for.
    fn wanted(settings: &Settings) -> Self {
        Self {
            sandboxes: settings.functions.sandboxes_max,
            s3_connections: settings.s3.connections_max,
            lambda_connections: LAMBDA_CONNECTIONS,
            sandbox_connections: SANDBOX_CONNECTIONS,
        }
    }

    fn files(&self) -> u64 {
        (self.sandboxes as u64)
            .saturating_mul(OF_SANDBOX)
            .saturating_add((self.s3_connections as u64).saturating_mul(OF_S3_CONNECTION))
            .saturating_add((self.lambda_connections as u64).saturating_mul(OF_LAMBDA_CONNECTION))
    }

    /// As many of these as `files` descriptors suffice for.
    fn within(self, files: u64) -> Self {
        let needed = self.files();
        if needed <= files {
            return self;
        }
        let part = |of: usize, least: usize| {
            let share = u128::from(files) * of as u128 / u128::from(needed);
            usize::try_from(share).unwrap_or(of).max(least).min(of)
        };
        Self {
            sandboxes: part(self.sandboxes, 1),
            s3_connections: part(self.s3_connections, CONNECTIONS_LEAST),
            lambda_connections: part(self.lambda_connections, CONNECTIONS_LEAST),
            sandbox_connections: part(self.sandbox_connections, CONNECTIONS_LEAST),
        }
    }
}

/// Raises the limit of open files to the hard limit, because the soft one of 1,024 exists only for `select`. Returns the
/// limit then.
pub(super) fn raise_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    if let Err(errno) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        tracing::warn!(%errno, current = ?limit.current, "the limit of open files cannot be raised");
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Lowers the settings to what `limit` open files suffice for; then the level says so. Returns also the limits that no
/// setting has.
pub(super) fn fit(settings: &mut Settings, limit: u64) -> Result<(FileShares, Option<Level>), NodeError> {
    let processors = available_parallelism().map_or(1, |processors| processors.get() as u64);
    fit_on(settings, limit, processors)
}

/// What a node lacks with `limit` open files; none if it lacks nothing.
pub(crate) fn few_files(settings: &Settings, limit: u64) -> Option<String> {
    match fit(&mut settings.clone(), limit) {
        Ok((_, level)) => level.map(|level| level.detail),
        Err(error) => Some(error.to_string()),
    }
}

fn fit_on(settings: &mut Settings, limit: u64, processors: u64) -> Result<(FileShares, Option<Level>), NodeError> {
    let of_cluster = if settings.cluster.is_some() { OF_CLUSTER } else { 0 };
    let others = OTHERS + OF_PROCESSOR * processors + of_cluster;
    let left = limit.saturating_sub(segments_of_files(limit)).saturating_sub(others);
    // One sandbox and the least connections, beside a quarter for the cache.
    let bare = OF_SANDBOX + CONNECTIONS_LEAST as u64 * (OF_S3_CONNECTION + OF_LAMBDA_CONNECTION);
    let least = LEAST.max((others + bare).div_ceil(3) * 4);
    if limit < least {
        return Err(NodeError::FewFiles { limit, least });
    }
    let wanted = FileShares::wanted(settings);
    let shares = wanted.within(left);
    if shares == wanted {
        return Ok((shares, None));
    }
    settings.functions.sandboxes_max = shares.sandboxes;
    settings.s3.connections_max = shares.s3_connections;
    let FileShares { sandboxes, s3_connections, lambda_connections, .. } = shares;
    let detail = format!(
        "this process may open {limit} files: room for {sandboxes} sandboxes, {s3_connections} connections to S3 and \
         {lambda_connections} to Lambda, others wait; for all that the settings permit run `ulimit -n 65536` before \
         `nigh up`, or set LimitNOFILE=65536 in its systemd unit"
    );
    tracing::warn!("{detail}");
    Ok((shares, Some(Level { name: "open files".to_owned(), on: false, detail })))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use nigh_terms::ByteSize;

    use super::*;
    use crate::machine::Machine;

    fn settings() -> Settings {
        let memory = ByteSize::gib(8);
        let machine = Machine { hostname: "here".to_owned(), memory, cpus: 2 };
        Settings::defaults(Path::new("/state"), &machine)
    }

    #[test]
    fn where_files_are_plenty_the_settings_hold() {
        let mut settings = settings();
        let (sandboxes, connections) = (settings.functions.sandboxes_max, settings.s3.connections_max);
        let (shares, level) = fit_on(&mut settings, 65_536, 8).unwrap();
        assert!(level.is_none(), "{level:?}");
        assert_eq!((settings.functions.sandboxes_max, settings.s3.connections_max), (sandboxes, connections));
        assert_eq!((shares.lambda_connections, shares.sandbox_connections), (1024, 128));
    }

    #[test]
    fn where_files_are_few_sandboxes_and_connections_are_and_a_level_says_so() {
        for limit in [512, 1024, 4096, 10_000] {
            let mut settings = settings();
            let (shares, level) = fit_on(&mut settings, limit, 2).unwrap();
            assert_eq!(settings.functions.sandboxes_max, shares.sandboxes);
            assert_eq!(settings.s3.connections_max, shares.s3_connections);
            let all = shares.files() + segments_of_files(limit) + OTHERS;
            assert!(shares.sandboxes >= 1 && all <= limit, "{shares:?} of {limit}");
            let detail = level.filter(|level| !level.on).unwrap().detail;
            let says = [format!("{limit} files"), format!("{} sandboxes", shares.sandboxes), "LimitNOFILE=".to_owned()];
            assert!(says.iter().all(|word| detail.contains(word)), "{detail}");
        }
    }

    #[test]
    fn a_node_that_could_do_nothing_does_not_start() {
        let refused = fit_on(&mut settings(), 511, 2).unwrap_err().to_string();
        assert!(refused.contains("511 files") && refused.contains("ulimit -n"), "{refused}");
        assert!(fit_on(&mut settings(), 512, 128).is_err(), "the event loops of its processors take all");
    }
}
