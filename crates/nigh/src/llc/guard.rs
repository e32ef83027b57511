//! `nigh llc guard`: keeps a latency-critical service within its objective with the fewest cache ways.
//!
//! The service and the batch work are processes or cgroups of this machine. The guard moves each into a group of its own,
//! and leaves all others alone. Without `--act` it only reports. `nigh_llc::TailGuard` decides.

mod latency_source;
mod partition;

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args};
use nigh_llc::{
    GuardDecision, GuardMode, GuardSettings, GuardWindow, HistogramChoice, Objective, Percentile, TailGuard,
};
use nigh_terms::{FunctionName, Ways};
use serde::Serialize;

use self::latency_source::LatencySource;
use self::partition::{Partition, Sides, reported_shape};
use crate::context::Globals;
use crate::error::CliError;
use crate::output;

/// Options of `nigh llc guard`.
#[derive(Args)]
#[command(
    override_usage = "nigh llc guard [OPTIONS] --slo-us <MICROSECONDS> \\\n           \
<--probe <COMMAND>|--function <NAME>|--histogram <FILE|URL>>",
    group = ArgGroup::new("source").required(true).args(["probe", "function", "histogram"]),
    after_help = "Examples:\n  nigh llc guard --pid 4711 --batch-cgroup /sys/fs/cgroup/batch --slo-us 70 \\\n    \
--probe 'measure-latency --seconds 5' --act\n  nigh llc guard --function blur --slo-us 40000 --percentile 99\n  \
nigh llc guard --histogram http://127.0.0.1:9090/metrics --metric 'rpc_seconds{op=\"get\"}' --slo-us 70\n\n\
With --act the guard needs the cache's classes to itself: it refuses where a node of Nigh's has some (end the node, or\n\
set its llc.policy to off). Without, it only reports, beside whatever runs. Its groups are removed at the end."
)]
pub(crate) struct GuardArgs {
    /// The latency-critical service, as a process with its threads and descendants
    #[arg(long, value_name = "PID", conflicts_with = "cgroup")]
    pid: Option<u32>,
    /// The latency-critical service, as the folder of a cgroup
    #[arg(long, value_name = "FOLDER")]
    cgroup: Option<PathBuf>,
    /// A process of batch work to keep out of the service's cache ways; may be repeated
    #[arg(long, value_name = "PID")]
    batch_pid: Vec<u32>,
    /// The folder of a cgroup of batch work to keep out of the service's cache ways; may be repeated
    #[arg(long, value_name = "FOLDER")]
    batch_cgroup: Vec<PathBuf>,
    /// The service's latency objective, in microseconds: the latency at --percentile must stay below it
    #[arg(long, value_name = "MICROSECONDS")]
    slo_us: u64,
    /// The percentile of the service's latencies that --slo-us limits
    #[arg(long, default_value_t = 99.9)]
    percentile: f64,
    /// A shell command that measures the service and prints latencies in microseconds, one per line; runs once per window
    #[arg(long, value_name = "COMMAND")]
    probe: Option<String>,
    /// A function of the node on this machine, whose handler times are the latencies
    #[arg(long, value_name = "NAME")]
    function: Option<FunctionName>,
    /// A cumulative histogram that the service exports as Prometheus text: a file, or an http:// URL
    #[arg(long, value_name = "FILE|URL")]
    histogram: Option<String>,
    /// The histogram to read if the service exports several: NAME, or NAME{label="value"}
    #[arg(long, value_name = "NAME", requires = "histogram")]
    metric: Option<String>,
    /// How long a measurement window lasts, in seconds; with --probe, a window lasts as long as the command runs
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    window_seconds: u64,
    /// Stop after this many windows [default: when interrupted]
    #[arg(long, value_name = "N")]
    windows: Option<u64>,
    /// Change the partition of the cache [default: only report what would change]
    #[arg(long)]
    act: bool,
}

/// The report of one window.
#[derive(Serialize)]
struct WindowReport {
    window: u64,
    ways: Ways,
    requests: u64,
    tail_us: Option<u64>,
    #[serde(flatten)]
    decision: GuardDecision,
}

/// Guards.
pub(super) async fn run(args: GuardArgs, globals: &Globals) -> Result<(), CliError> {
    let usage = |reason: String| CliError::Usage(reason);
    let percentile = Percentile::try_from(args.percentile).map_err(|error| usage(error.to_string()))?;
    let objective = Objective { percentile, limit: Duration::from_micros(args.slo_us) };
    let (partition, shape) = if args.act {
        let (partition, shape) = Partition::open(&args.sides())?;
        (Some(partition), shape)
    } else {
        (None, reported_shape(globals).await?)
    };
    let mode = if args.act { GuardMode::Act } else { GuardMode::ReportOnly };
    let settings = GuardSettings { mode, ..GuardSettings::of(objective, shape) };
    let mut guard = TailGuard::new(settings).map_err(|refusal| usage(refusal.to_string()))?;
    let mut source = args.source(&objective, globals).await?;
    let mut ways = settings.start;
    let guarded = async {
        if let Some(partition) = &partition {
            partition.set(settings.masks(ways))?;
        }
        let mut window = 0;
        while args.windows.is_none_or(|most| window < most) {
            window += 1;
            // Without --act the guard reports on the machine as it is: nothing has set the reported size.
            let measured = GuardWindow { applied: ways, ..source.window().await? };
            let decision = guard.observe(&measured);
            let tail = measured.latency.quantile(percentile).map(|tail| tail.as_micros() as u64);
            report(
                globals,
                &WindowReport { window, ways, requests: measured.latency.total(), tail_us: tail, decision },
            )?;
            if let (Some(partition), GuardDecision::Resize { to, act: true, .. }) = (&partition, decision) {
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
    partition.map_or(Ok(()), |partition| partition.release())?;
    ended
}

impl GuardArgs {
    fn sides(&self) -> Sides<'_> {
        Sides {
            pid: self.pid,
            cgroup: self.cgroup.as_deref(),
            batch_pids: &self.batch_pid,
            batch_cgroups: &self.batch_cgroup,
        }
    }

    async fn source(&self, objective: &Objective, globals: &Globals) -> Result<LatencySource, CliError> {
        let window = Duration::from_secs(self.window_seconds);
        match (&self.probe, &self.function, &self.histogram) {
            (Some(command), ..) => Ok(LatencySource::Probe(command.clone())),
            (None, Some(function), _) => LatencySource::function(function, window, globals).await,
            (None, None, Some(place)) => {
                let choice =
                    self.metric.as_deref().map_or_else(|| Ok(HistogramChoice::default()), HistogramChoice::parse);
                let choice = choice.map_err(|error| CliError::Usage(error.to_string()))?;
                LatencySource::histogram(place, choice, window, objective.limit).await
            }
            (None, None, None) => {
                Err(CliError::Usage("name the source of latencies: --probe, --function or --histogram".to_owned()))
            }
        }
    }
}

fn report(globals: &Globals, reported: &WindowReport) -> Result<(), CliError> {
    if globals.json {
        return output::line(serde_json::to_string(reported)?);
    }
    let tail = reported.tail_us.map_or_else(|| "no requests".to_owned(), |tail| format!("{tail} us"));
    output::line(format!(
        "window {}: {} ways, {} requests, tail {tail}: {:?}",
        reported.window, reported.ways, reported.requests, reported.decision
    ))
}
