//! `nigh llc guard`: keeps a latency-critical service within its objective with the fewest cache ways.
//!
//! The service and the batch work beside it are processes or cgroups of this machine, each put into a group of its own;
//! what is named nowhere stays where it is. Unless told to act it only reports. `nigh_llc::TailGuard` decides.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use nigh_llc::resctrl::{GroupName, Members, ProcTasks, Resctrl, TaskTarget, Tid, WantedGroup, WantedLayout};
use nigh_llc::{
    CacheShape, GuardDecision, GuardMasks, GuardMode, GuardSettings, GuardWindow, LatencyHistogram, Objective,
    Percentile, TailGuard,
};
use nigh_terms::{CacheDomain, WayMask, Ways};
use serde::Serialize;

use crate::context::Globals;
use crate::error::CliError;
use crate::output;

const SERVICE: &str = "nigh-guard-service";
const BATCH: &str = "nigh-guard-batch";
/// Bytes of one window's latencies that are read.
const PROBE_BYTES_MAX: usize = 64 << 20;

/// Options of `nigh llc guard`.
#[derive(Args)]
#[command(
    after_help = "Example:\n  nigh llc guard --pid 4711 --batch-cgroup /sys/fs/cgroup/batch --slo-us 70 \\\n      \
--probe 'measure-latency --seconds 5' --act\n\n\
The probe is run once a window; it prints latencies in microseconds, one a line. Groups are removed at the end."
)]
pub(crate) struct GuardArgs {
    /// The service: a process, with its threads and descendants
    #[arg(long, value_name = "PID", required_unless_present_any = ["cgroup"], conflicts_with = "cgroup")]
    pid: Option<u32>,
    /// The service: a cgroup's folder
    #[arg(long, value_name = "FOLDER")]
    cgroup: Option<PathBuf>,
    /// Batch work to keep out of the service's ways: a process; may be given more than once
    #[arg(long, value_name = "PID")]
    batch_pid: Vec<u32>,
    /// Batch work to keep out of the service's ways: a cgroup's folder; may be given more than once
    #[arg(long, value_name = "FOLDER")]
    batch_cgroup: Vec<PathBuf>,
    /// The latency that the percentile must stay below, in microseconds
    #[arg(long, value_name = "MICROSECONDS")]
    slo_us: u64,
    /// Which percentile
    #[arg(long, default_value_t = 99.9)]
    percentile: f64,
    /// A shell command that measures the service and prints latencies in microseconds, one a line
    #[arg(long, value_name = "COMMAND")]
    probe: String,
    /// End after so many windows; without it, when interrupted
    #[arg(long, value_name = "N")]
    windows: Option<u64>,
    /// Change the partition; without it, say what would be done
    #[arg(long)]
    act: bool,
}

/// One window, as it is reported.
#[derive(Serialize)]
struct Reported {
    window: u64,
    ways: Ways,
    requests: u64,
    tail_us: Option<u64>,
    #[serde(flatten)]
    decision: GuardDecision,
}

/// The machine's partition of service and batch.
struct Partition {
    resctrl: Resctrl,
    domains: Vec<CacheDomain>,
    service: Members,
    batch: Vec<Members>,
}

/// Guards.
pub(super) async fn run(args: GuardArgs, globals: &Globals) -> Result<(), CliError> {
    let usage = |reason: String| CliError::Usage(reason);
    let percentile = Percentile::try_from(args.percentile).map_err(|error| usage(error.to_string()))?;
    let objective = Objective { percentile, limit: Duration::from_micros(args.slo_us) };
    let (partition, shape) = Partition::open(&args)?;
    let mode = if args.act { GuardMode::Act } else { GuardMode::ReportOnly };
    let settings = GuardSettings { mode, ..GuardSettings::of(objective, shape) };
    let mut guard = TailGuard::new(settings).map_err(|refusal| usage(refusal.to_string()))?;
    let mut ways = settings.start;
    if args.act {
        partition.set(settings.masks(ways))?;
    }
    let guarded = async {
        let mut window = 0;
        while args.windows.is_none_or(|most| window < most) {
            window += 1;
            let measured = measure(&args.probe).await?;
            // Report-only judges the machine as it is: nobody set the size that the guard speaks of.
            let decision = guard.observe(&GuardWindow { applied: ways, ..measured.clone() });
            let tail = measured.latency.quantile(percentile).map(|tail| tail.as_micros() as u64);
            report(globals, &Reported { window, ways, requests: measured.latency.total(), tail_us: tail, decision })?;
            if let GuardDecision::Resize { to, act: true, .. } = decision {
                partition.set(settings.masks(to))?;
                ways = to;
            }
        }
        Ok(())
    };
    let ended = tokio::select! {
        ended = guarded => ended,
        _ = tokio::signal::ctrl_c() => Ok(()),
    };
    partition.release()?;
    ended
}

fn report(globals: &Globals, reported: &Reported) -> Result<(), CliError> {
    if globals.json {
        return output::line(serde_json::to_string(reported)?);
    }
    let tail = reported.tail_us.map_or_else(|| "no requests".to_owned(), |tail| format!("{tail} us"));
    output::line(format!(
        "window {}: {} ways, {} requests, tail {tail}: {:?}",
        reported.window, reported.ways, reported.requests, reported.decision
    ))
}

/// One window: what the probe prints, and how fast requests came.
async fn measure(probe: &str) -> Result<GuardWindow, CliError> {
    let command = probe.to_owned();
    let run = move || {
        let began = Instant::now();
        let output = Command::new("sh").args(["-c", &command]).stdin(Stdio::null()).stderr(Stdio::inherit()).output();
        output.map(|output| (output, began.elapsed()))
    };
    let ran = tokio::task::spawn_blocking(run).await.map_err(|error| CliError::Failed(error.to_string()))?;
    let (output, took) = ran.map_err(CliError::local("the probe"))?;
    if !output.status.success() {
        return Err(CliError::Failed(format!("the probe failed: {}", output.status)));
    }
    let latency = latencies(&output.stdout)?;
    let load = latency.total() as f64 / took.as_secs_f64();
    Ok(GuardWindow { applied: Ways(0), latency, load, batch_progress: None })
}

/// Microseconds, one a line.
fn latencies(printed: &[u8]) -> Result<LatencyHistogram, CliError> {
    let text = String::from_utf8_lossy(&printed[..printed.len().min(PROBE_BYTES_MAX)]);
    let mut histogram = LatencyHistogram::default();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let micros = line.parse().ok().filter(|micros: &f64| micros.is_finite() && *micros >= 0.0);
        let micros =
            micros.ok_or_else(|| CliError::Failed(format!("the probe printed {line:?}, which is no latency")))?;
        histogram.record(Duration::from_secs_f64(micros / 1e6));
    }
    Ok(histogram)
}

impl Partition {
    fn open(args: &GuardArgs) -> Result<(Self, CacheShape), CliError> {
        let unavailable = |reason: String| CliError::Failed(format!("no cache can be allocated here: {reason}"));
        let resctrl = Resctrl::open_kernel().map_err(|error| unavailable(error.to_string()))?;
        let probe = resctrl.probe().map_err(|error| unavailable(error.to_string()))?;
        let others: Vec<_> =
            probe.closids.owned.iter().map(GroupName::as_str).filter(|name| ![SERVICE, BATCH].contains(name)).collect();
        if !others.is_empty() {
            return Err(CliError::Failed(format!(
                "a node of Nigh's has its classes here ({}): end it, or set its llc.policy to off",
                others.join(", ")
            )));
        }
        let shape = nigh_node::llc::cache_shape(&probe).ok_or_else(|| unavailable("no L3".to_owned()))?;
        let service = match (&args.pid, &args.cgroup) {
            (Some(pid), _) => process(*pid)?,
            (None, Some(folder)) => cgroup(folder)?,
            (None, None) => return Err(CliError::Usage("name the service: --pid or --cgroup".to_owned())),
        };
        let batch = args
            .batch_pid
            .iter()
            .map(|pid| process(*pid))
            .chain(args.batch_cgroup.iter().map(|folder| cgroup(folder)))
            .collect::<Result<_, _>>()?;
        let domains = probe.l3.map_or_else(Vec::new, |l3| l3.domains);
        Ok((Self { resctrl, domains, service, batch }, shape))
    }

    /// Gives both sides their ways, and puts what they started meanwhile in its place.
    fn set(&self, masks: GuardMasks) -> Result<(), CliError> {
        let failed = |error: String| CliError::Failed(format!("the partition cannot be set: {error}"));
        let group = |name: &str, mask: WayMask| {
            let name = GroupName::new(name).map_err(|error| failed(error.to_string()))?;
            let masks: BTreeMap<_, _> = self.domains.iter().map(|domain| (*domain, mask)).collect();
            Ok::<_, CliError>(WantedGroup { name, masks, bandwidth: BTreeMap::new() })
        };
        let groups = vec![group(SERVICE, masks.service)?, group(BATCH, masks.batch)?];
        self.resctrl.apply(&WantedLayout { groups }).map_err(|error| failed(error.to_string()))?;
        let members = std::iter::once((SERVICE, &self.service)).chain(self.batch.iter().map(|batch| (BATCH, batch)));
        for (name, members) in members {
            let group = GroupName::new(name).map_err(|error| failed(error.to_string()))?;
            let target = TaskTarget { group: Some(group), monitor: None };
            self.resctrl.bind_tasks(members, &target).map_err(|error| failed(error.to_string()))?;
        }
        Ok(())
    }

    fn release(&self) -> Result<(), CliError> {
        let released = self.resctrl.apply(&WantedLayout { groups: Vec::new() });
        released.map(drop).map_err(|error| CliError::Failed(format!("the guard's groups stay: {error}")))
    }
}

fn process(pid: u32) -> Result<Members, CliError> {
    let found = ProcTasks::default().process(Tid(pid));
    found.map(Members::Tree).map_err(CliError::local(format!("process {pid}")))
}

fn cgroup(folder: &Path) -> Result<Members, CliError> {
    if !folder.is_dir() {
        return Err(CliError::Usage(format!("{} is no cgroup's folder", folder.display())));
    }
    Ok(Members::Cgroup(folder.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probes_lines_are_latencies_and_anything_else_is_an_error() {
        let histogram = latencies(b"10\n 20.5 \n\n30\n").unwrap();
        assert_eq!(histogram.total(), 3);
        for wrong in [&b"ten\n"[..], b"-1\n", b"nan\n", b"inf\n"] {
            assert!(latencies(wrong).is_err());
        }
    }

    #[tokio::test]
    async fn a_probe_that_fails_is_told() {
        assert_eq!(measure("printf '5\\n6\\n'").await.unwrap().latency.total(), 2);
        assert!(measure("exit 3").await.unwrap_err().to_string().contains("exit status: 3"));
    }
}
