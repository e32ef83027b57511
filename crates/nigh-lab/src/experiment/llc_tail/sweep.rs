//! The sweep: every configuration at every load, and the tail guard at work on the same machine.
//!
//! A configuration's loads run on from each other on one machine, lowest first; configurations run side by side on this
//! host's processors. A point lasts until its 99.9th percentile has ten requests beyond it, and one close to what the store
//! can serve, whose queue is slow to come to rest, several times as long.

use std::time::Duration;

use nigh_llc::{CacheShape, GuardDecision, GuardMode, GuardSettings, GuardWindow, Objective, Percentile, TailGuard};
use nigh_terms::Ways;
use serde::{Deserialize, Serialize};

use super::recorded_streams::Streams;
use super::server_machine::{CLASSES, DEVICE_WAYS, GEOMETRY, PARTITIONS};
use super::simulated_server::{SimulatedServer, Stretch};
use crate::LabError;
use crate::instrument::kept_progress::KeptProgress;
use crate::instrument::made_up::failed;
use crate::instrument::parallel::in_parallel;

/// Further loads, as parts of what the store serves without a partition.
const NEAR_CAPACITY: [f64; 4] = [0.9, 0.95, 0.98, 0.99];
/// From this part of it on a queue takes thousands of requests to come to rest ...
const SLOW_TO_REST: f64 = 0.97;
/// ... and a point lasts so many times as long.
const SLOW_POINT: u32 = 5;
/// Windows without a change after which the guard is at rest.
const REST_WINDOWS: usize = 20;

#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Loads in requests a second, lowest first.
    pub(super) loads: Vec<f64>,
    /// What the store serves beside the batch side without a partition; infinite until it was measured.
    pub(super) capacity: f64,
    pub(super) partitions: Vec<Ways>,
    /// A point counts at least so many requests ...
    pub(super) requests: u64,
    /// ... and lasts at least so long.
    pub(super) point: Duration,
    /// Before the first point.
    pub(super) warming: Duration,
    /// Before each further point.
    pub(super) settling: Duration,
    /// Windows of the guard at most.
    pub(super) guard_windows: usize,
}

impl Plan {
    /// The paper's axis, 0.4 to 4.0 million requests a second, and its 1 to 10 ways.
    pub(super) fn whole() -> Self {
        Self {
            loads: (1..=10).map(|step| f64::from(step) * 4e5).collect(),
            capacity: f64::INFINITY,
            partitions: PARTITIONS.to_vec(),
            requests: 11_000,
            point: Duration::from_millis(6),
            warming: Duration::from_millis(6),
            settling: Duration::from_micros(500),
            guard_windows: 160,
        }
    }

    /// Seconds instead of minutes: three loads, four partitions, points too short for more than their order of size.
    pub(super) fn quick() -> Self {
        Self {
            loads: vec![1e6, 2e6, 4e6],
            partitions: [1, 2, 5, 9].map(Ways).to_vec(),
            requests: 0,
            point: Duration::from_millis(3),
            warming: Duration::from_millis(3),
            guard_windows: 60,
            ..Self::whole()
        }
    }

    /// The same with loads close below what the store serves without a partition, where its tail is longest.
    pub(super) fn with_loads_near_capacity(&self, streams: &Streams) -> Result<Self, LabError> {
        let low = self.loads.first().copied().unwrap_or(1e6);
        let mut server = SimulatedServer::new(streams, true, None)?;
        // Requests that come seldom find fewer of their lines: once more at a load near what the first look gives.
        let (mut load, mut capacity) = (low, f64::INFINITY);
        for _look in 0..2 {
            server.run(load, self.warming);
            let stretch = server.run(load, self.point * 4);
            capacity = stretch.latency.total() as f64 / stretch.serving.as_secs_f64();
            load = capacity * NEAR_CAPACITY[0];
        }
        let mut loads = self.loads.clone();
        if capacity.is_finite() {
            // In steps of 10,000, as a client would be set.
            loads.extend(NEAR_CAPACITY.map(|part| (capacity * part / 1e4).round() * 1e4));
        }
        loads.sort_by(f64::total_cmp);
        Ok(Self { loads, capacity, ..self.clone() })
    }

    fn length(&self, load: f64) -> Duration {
        // Beyond its capacity the queue is as long as the ring at once.
        let times = if (SLOW_TO_REST..1.0).contains(&(load / self.capacity)) { SLOW_POINT } else { 1 };
        self.point.max(Duration::from_secs_f64(self.requests as f64 / load)) * times
    }
}

/// How cores share the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "ways")]
pub(super) enum Configuration {
    /// The store has the machine to itself.
    NoContention,
    /// All beside each other, nothing partitioned.
    NoCat,
    /// The store has so many ways, the batch side the others.
    Partition(Ways),
}

impl std::fmt::Display for Configuration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoContention => f.write_str("no contention"),
            Self::NoCat => f.write_str("no CAT"),
            Self::Partition(Ways(1)) => f.write_str("1 way"),
            Self::Partition(ways) => write!(f, "{ways} ways"),
        }
    }
}

/// One configuration at one load; latencies include the network's 10 us.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Point {
    pub(super) load_mops: f64,
    pub(super) p50_us: f64,
    pub(super) p95_us: f64,
    pub(super) p99_us: f64,
    pub(super) p999_us: f64,
    /// The part of requests that found the ring full.
    pub(super) dropped: f64,
    /// Mean time of serving a request, without waiting for it.
    pub(super) service_ns: f64,
    /// The part of the store's lines, as its core asks for them, that come from memory.
    pub(super) misses: f64,
    pub(super) memory_load: f64,
    /// Training work a core and second, as a part of what a core can do.
    pub(super) batch_progress: f64,
    /// The part of it that is lost against no CAT at the same load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) batch_loss: Option<f64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) configuration: Configuration,
    pub(super) points: Vec<Point>,
}

fn percentile(percent: f64) -> Result<Percentile, LabError> {
    Percentile::try_from(percent).map_err(|error| failed("a percentile", &error))
}

fn point(load: f64, stretch: &Stretch) -> Result<Point, LabError> {
    let micros = |percent| -> Result<f64, LabError> {
        let found = stretch.latency.quantile(percentile(percent)?);
        Ok(found.map_or(f64::NAN, |latency| latency.as_secs_f64() * 1e6))
    };
    let served = stretch.latency.total().max(1) as f64;
    Ok(Point {
        load_mops: load / 1e6,
        p50_us: micros(50.0)?,
        p95_us: micros(95.0)?,
        p99_us: micros(99.0)?,
        p999_us: micros(99.9)?,
        dropped: stretch.dropped as f64 / stretch.arrived.max(1) as f64,
        service_ns: stretch.serving.as_secs_f64() * 1e9 / served,
        misses: stretch.service_misses as f64 / stretch.service_lines.max(1) as f64,
        memory_load: stretch.memory_load,
        batch_progress: stretch.batch_progress(),
        batch_loss: None,
    })
}

pub(super) fn guard_settings(limit: Duration, slack: f64) -> Result<GuardSettings, LabError> {
    let shape = CacheShape { ways: GEOMETRY.ways(), classes: CLASSES, min_ways: Ways(1), shareable: DEVICE_WAYS };
    let objective = Objective { percentile: percentile(99.9)?, limit };
    // Windows are milliseconds here, and a partition fills only as fast as requests ask for its lines.
    Ok(GuardSettings {
        slack,
        mode: GuardMode::Act,
        slack_windows: 3,
        settle_windows: 6,
        ..GuardSettings::of(objective, shape)
    })
}

/// A part of a long run, as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Part {
    Row(Row),
    Guard(GuardRun),
}

/// Of the quick form or of the whole one.
pub(super) type TailProgress = KeptProgress<bool, Part>;

fn run_row(plan: &Plan, streams: &Streams, configuration: Configuration) -> Result<Row, LabError> {
    let is_shared = configuration != Configuration::NoContention;
    let masks = match configuration {
        Configuration::NoContention | Configuration::NoCat => None,
        Configuration::Partition(ways) => Some(guard_settings(Duration::from_micros(1), 1.0)?.masks(ways)),
    };
    let mut server = SimulatedServer::new(streams, is_shared, masks)?;
    let mut points = Vec::with_capacity(plan.loads.len());
    for (at, &load) in plan.loads.iter().enumerate() {
        server.run(load, if at == 0 { plan.warming } else { plan.settling });
        points.push(point(load, &server.run(load, plan.length(load)))?);
    }
    Ok(Row { configuration, points })
}

/// All rows of one working set, those that are kept not simulated again; `done` is told of each.
pub(super) fn sweep(
    plan: &Plan,
    streams: &Streams,
    (kept, set): (&TailProgress, &str),
    done: impl Fn(&Row) + Sync,
) -> Result<Vec<Row>, LabError> {
    let mut configurations = vec![Configuration::NoCat, Configuration::NoContention];
    configurations.extend(plan.partitions.iter().map(|&ways| Configuration::Partition(ways)));
    let row = |&configuration: &Configuration| {
        let part = format!("{set}, {configuration}");
        let row = match kept.done(&part) {
            Some(Part::Row(row)) => row,
            Some(Part::Guard(_)) | None => {
                let row = run_row(plan, streams, configuration)?;
                kept.add(&part, &Part::Row(row.clone()))?;
                row
            }
        };
        done(&row);
        Ok(row)
    };
    let mut rows = in_parallel(&configurations, row)?;
    rows.swap(0, 1);
    add_losses(&mut rows);
    Ok(rows)
}

/// Adds the row of a partition that the plan has not, where a guard chose one.
pub(super) fn add_partition(plan: &Plan, streams: &Streams, rows: &mut Vec<Row>, ways: Ways) -> Result<(), LabError> {
    let configuration = Configuration::Partition(ways);
    if rows.iter().all(|row| row.configuration != configuration) {
        rows.push(run_row(plan, streams, configuration)?);
        add_losses(rows);
    }
    Ok(())
}

/// What each partition costs the batch side against no CAT at the same load.
fn add_losses(rows: &mut [Row]) {
    let Some(shared) = rows.iter().find(|row| row.configuration == Configuration::NoCat) else { return };
    let free: Vec<f64> = shared.points.iter().map(|point| point.batch_progress).collect();
    for row in rows.iter_mut().filter(|row| matches!(row.configuration, Configuration::Partition(_))) {
        for (point, free) in row.points.iter_mut().zip(&free) {
            point.batch_loss = Some(1.0 - point.batch_progress / free);
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct GuardRun {
    /// 99.9 % of the latencies are to be at most this.
    pub(super) limit_us: f64,
    /// A tail at or below this part of the limit lets it try a smaller partition.
    pub(super) slack: f64,
    pub(super) load_mops: f64,
    pub(super) sizes: Vec<Ways>,
    /// Where it came to rest.
    pub(super) ways: Ways,
    /// Windows until its last change; none if it was still moving at the end.
    pub(super) windows: Option<usize>,
    /// Whether the objective is met there.
    pub(super) met: bool,
}

/// Lets the guard find its partition for one load, by windows of `samples` times the requests its percentile takes.
pub(super) fn guard(
    plan: &Plan,
    streams: &Streams,
    settings: GuardSettings,
    samples: f64,
    load: f64,
) -> Result<GuardRun, LabError> {
    let mut guard = TailGuard::new(settings).map_err(|error| failed("the guard", &error))?;
    let mut server = SimulatedServer::new(streams, true, Some(settings.masks(settings.start)))?;
    server.run(load, plan.warming);
    let length = Duration::from_secs_f64(settings.objective.percentile.samples_needed() as f64 * samples / load);
    let (mut ways, mut sizes, mut changed, mut rest) = (settings.start, vec![settings.start], 0, None);
    for window in 1..=plan.guard_windows {
        let stretch = server.run(load, length);
        let batch_progress = Some(stretch.batch_progress());
        let seen = GuardWindow { applied: ways, latency: stretch.latency, load, batch_progress };
        if let GuardDecision::Resize { to, .. } = guard.observe(&seen) {
            (ways, changed) = (to, window);
            sizes.push(to);
            server.apply(Some(settings.masks(to)))?;
        } else if window - changed >= REST_WINDOWS {
            rest = Some(changed);
            break;
        }
    }
    let met = guard.memory().any(|(size, seen)| size == ways && seen.tail <= settings.objective.limit);
    Ok(GuardRun {
        limit_us: settings.objective.limit.as_secs_f64() * 1e6,
        slack: settings.slack,
        load_mops: load / 1e6,
        sizes,
        ways,
        windows: rest,
        met,
    })
}

#[cfg(test)]
mod tests {
    use super::super::kv_store::Entries;
    use super::super::recorded_streams::{ServiceStream, TrainingStream};
    use super::super::training_job::HIDDEN;
    use super::*;

    fn streams() -> Streams {
        Streams {
            service: ServiceStream::record(Entries::SMALL, 30_000).unwrap(),
            training: TrainingStream::record(4, HIDDEN, 64).unwrap(),
        }
    }

    #[test]
    fn contention_lengthens_the_tail_and_a_partition_mends_it() {
        let streams = streams();
        let plan = Plan {
            loads: vec![3.2e6],
            partitions: vec![Ways(3)],
            requests: 0,
            point: Duration::from_micros(1500),
            warming: Duration::from_micros(1500),
            ..Plan::whole()
        };
        let kept = TailProgress::open_if(None, true).unwrap();
        let rows = sweep(&plan, &streams, (&kept, "2 MB"), |_| ()).unwrap();
        let [alone, shared, three] = [0, 1, 2].map(|row| &rows[row].points[0]);
        assert!(alone.service_ns < three.service_ns && three.service_ns < shared.service_ns, "{rows:#?}");
        assert!(alone.misses < 0.1 && shared.misses > 2.0 * three.misses, "{rows:#?}");
        assert!(shared.p999_us > three.p999_us && three.batch_loss.unwrap() < 0.3, "{rows:#?}");
        assert_eq!(alone.batch_progress, 0.0);
    }

    #[test]
    fn rows_that_are_kept_are_not_simulated_again() {
        let folder = tempfile::tempdir().unwrap();
        let kept = TailProgress::open(&folder.path().join("tail.state"), true).unwrap();
        let row = |configuration| Row { configuration, points: Vec::new() };
        for configuration in [Configuration::NoCat, Configuration::NoContention] {
            kept.add(&format!("2 MB, {configuration}"), &Part::Row(row(configuration))).unwrap();
        }
        // Simulated, they would have a point for each load.
        let plan = Plan { partitions: Vec::new(), ..Plan::whole() };
        let rows = sweep(&plan, &streams(), (&kept, "2 MB"), |_| ()).unwrap();
        assert!(rows.len() == 2 && rows.iter().all(|row| row.points.is_empty()), "{rows:?}");
    }
}
