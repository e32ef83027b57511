//! The same store, client and training job on this machine, over loopback UDP: each configuration at each load.
//!
//! Where resctrl partitions the L3 there are rows by ways too; elsewhere only those without a partition, and the report says so.
//! Client, store and job share the cores, so tails hold the scheduler's part as well: the simulation has none.

use std::fmt::Write;
use std::io;
use std::net::UdpSocket;
use std::process::Command;
use std::time::{Duration, Instant};

use nigh_llc::Percentile;
use nigh_llc::resctrl::{KernelFs, MOUNTINFO};
use nigh_terms::Ways;
use serde::Serialize;

use super::kv_store::Entries;
use super::live_partition::LiveCache;
use super::open_loop::{self, ClientMeasurements};
use super::report::{micros, percent};
use super::request_mix::RequestMix;
use super::sweep::Configuration;
use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::peer::PeerProcess;
use crate::instrument::programs;
use crate::instrument::table::table_of;

const STORE: &str = "key-value store";
const JOB: &str = "training job";
/// Before each measurement.
const WARMING: Duration = Duration::from_millis(300);

/// What the run on this machine is to do.
#[derive(Clone, Debug)]
pub(super) struct LivePlan {
    pub(super) entries: Entries,
    /// Requests a second.
    pub(super) loads: Vec<f64>,
    /// Of each measurement.
    pub(super) length: Duration,
    pub(super) threads: usize,
    pub(super) seed: u64,
}

/// One configuration at one load.
#[derive(Clone, Debug, Serialize)]
pub(super) struct LivePoint {
    load_kops: f64,
    p50_us: f64,
    p95_us: f64,
    p99_us: f64,
    p999_us: f64,
    /// The part of requests that got no answer.
    lost: f64,
    /// Steps a second of the job.
    batch_steps_per_s: f64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct LiveRow {
    configuration: Configuration,
    points: Vec<LivePoint>,
}

/// What was measured here.
#[derive(Clone, Debug, Serialize)]
pub(super) struct LiveReport {
    entries: u32,
    batch_threads: usize,
    /// Why there are no rows by ways; none where there are.
    no_partition_because: Option<&'static str>,
    rows: Vec<LiveRow>,
}

impl LiveReport {
    /// The table and what it lacks.
    pub(super) fn text(&self) -> String {
        let mut table = table_of("on this machine | kops | p50 us | p95 | p99 | p99.9 | lost | job steps/s");
        for row in &self.rows {
            for point in &row.points {
                table.add_row([
                    row.configuration.to_string(),
                    format!("{:.0}", point.load_kops),
                    micros(point.p50_us),
                    micros(point.p95_us),
                    micros(point.p99_us),
                    micros(point.p999_us),
                    percent(point.lost),
                    format!("{:.0}", point.batch_steps_per_s),
                ]);
            }
        }
        let mut text = format!("{table}\n{} entries, {} training threads", self.entries, self.batch_threads);
        if let Some(because) = self.no_partition_because {
            // Writing to a string does not fail.
            let _ = write!(text, "; no rows by ways: {because}");
        }
        text
    }
}

fn failed(what: &str, error: &io::Error) -> LabError {
    LabError::Request { what: what.to_owned(), reason: error.to_string() }
}

/// The threads of a process now.
fn threads_of(pid: u32) -> Result<Vec<u32>, LabError> {
    let path = format!("/proc/{pid}/task");
    let folder = std::fs::read_dir(&path).at(&path)?;
    Ok(folder.filter_map(|thread| thread.ok()?.file_name().to_str()?.parse().ok()).collect())
}

/// The job's steps so far.
fn steps(job: &PeerProcess) -> Result<u64, LabError> {
    let asked = || -> io::Result<u64> {
        let socket = UdpSocket::bind(("127.0.0.1", 0))?;
        socket.set_read_timeout(Some(Duration::from_secs(5)))?;
        socket.send_to(&[0], job.address())?;
        let mut bytes = [0; 8];
        socket.recv_from(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    };
    asked().map_err(|error| failed("the training job's steps", &error))
}

fn live_point(load: f64, measured: &ClientMeasurements, steps_per_s: f64) -> Result<LivePoint, LabError> {
    let micros = |percent: f64| -> Result<f64, LabError> {
        let percentile = Percentile::try_from(percent)
            .map_err(|error| LabError::Request { what: "a percentile".to_owned(), reason: error.to_string() })?;
        Ok(measured.latency.quantile(percentile).map_or(f64::NAN, |latency| latency.as_secs_f64() * 1e6))
    };
    Ok(LivePoint {
        load_kops: load / 1e3,
        p50_us: micros(50.0)?,
        p95_us: micros(95.0)?,
        p99_us: micros(99.0)?,
        p999_us: micros(99.9)?,
        lost: 1.0 - measured.latency.total() as f64 / measured.sent.max(1) as f64,
        batch_steps_per_s: steps_per_s,
    })
}

impl LivePlan {
    /// Runs every configuration this machine has.
    pub(super) fn run(&self, done: impl Fn(Configuration)) -> Result<LiveReport, LabError> {
        let mount = KernelFs::find(MOUNTINFO).at(MOUNTINFO)?;
        let cache = mount.as_ref().and_then(|mount| LiveCache::probe(mount));
        let no_partition_because = match (&mount, &cache) {
            (None, _) => {
                Some("resctrl is not mounted here (no CAT, or `mount -t resctrl resctrl /sys/fs/resctrl` is due)")
            }
            (Some(_), None) => Some("resctrl has no L3 masks here"),
            (Some(_), Some(_)) => None,
        };
        let mut configurations = vec![Configuration::NoContention, Configuration::NoCat];
        configurations.extend(cache.iter().flat_map(LiveCache::sizes).map(Configuration::Partition));
        let mut rows = Vec::with_capacity(configurations.len());
        for configuration in configurations {
            rows.push(self.row(configuration, cache.as_ref())?);
            done(configuration);
        }
        Ok(LiveReport { entries: self.entries.get(), batch_threads: self.threads, no_partition_because, rows })
    }

    fn row(&self, configuration: Configuration, cache: Option<&LiveCache<'_>>) -> Result<LiveRow, LabError> {
        let program = programs::nigh_peer()?;
        let start = |peer: &'static str, arguments: [String; 2]| {
            PeerProcess::start(peer, Command::new(&program).args(arguments))
        };
        let store = start(STORE, ["kv".to_owned(), self.entries.get().to_string()])?;
        let job = match configuration {
            Configuration::NoContention => None,
            Configuration::NoCat | Configuration::Partition(_) => {
                Some(start(JOB, ["train".to_owned(), self.threads.to_string()])?)
            }
        };
        let partition = match (configuration, cache, &job) {
            (Configuration::Partition(ways), Some(cache), Some(job)) => Some(self.bind(cache, ways, &store, job)?),
            _ => None,
        };
        let mut mix = RequestMix::new(self.entries, self.seed)?;
        let mut points = Vec::with_capacity(self.loads.len());
        for &load in &self.loads {
            let (before, begin) = (job.as_ref().map(steps).transpose()?, Instant::now());
            let measured = open_loop::run(store.address(), &mut mix, load, WARMING, self.length, self.seed)
                .map_err(|error| failed("the client", &error))?;
            let after = job.as_ref().map(steps).transpose()?;
            let done = after.unwrap_or(0) - before.unwrap_or(0);
            points.push(live_point(load, &measured, done as f64 / begin.elapsed().as_secs_f64())?);
        }
        drop(partition);
        Ok(LiveRow { configuration, points })
    }

    fn bind<'f>(
        &self,
        cache: &LiveCache<'f>,
        ways: Ways,
        store: &PeerProcess,
        job: &PeerProcess,
    ) -> Result<super::live_partition::LivePartition<'f>, LabError> {
        cache.partition(ways, &threads_of(store.pid())?, &threads_of(job.pid())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_without_an_answer_are_lost_and_not_forgotten() {
        let mut measured = ClientMeasurements { sent: 4, ..ClientMeasurements::default() };
        measured.latency.record_many(Duration::from_micros(100), 3);
        let point = live_point(1e4, &measured, 7.0).unwrap();
        assert_eq!((point.lost, point.load_kops, point.batch_steps_per_s), (0.25, 10.0, 7.0));
        assert!((100.0..103.3).contains(&point.p50_us), "{}", point.p50_us);
    }
}
