//! `nigh load`: tenants that invoke functions on a node, as OFC's FaaSLoad does (EuroSys 2021, section 7.2.2).
//!
//! What is asked for, by whom and when is settled beforehand and depends on the seed alone (`tenants`, `arrivals`);
//! `open_loop` sends it in time. Inputs and functions are put on the platform before, and removed after. The mixed load of
//! `nigh experiment macro` is made of the same parts.

pub(crate) mod arrivals;
pub(crate) mod booking;
pub(crate) mod door_client;
pub(crate) mod doors;
pub(crate) mod open_loop;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod settings;
pub(crate) mod stage;
pub(crate) mod tenants;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use tokio::runtime::Handle;

use self::arrivals::{ArrivalLaw, schedule};
use self::door_client::{DoorClient, Events};
use self::doors::Doors;
use self::open_loop::Pace;
use self::report::LoadReport;
use self::run::Run;
use self::settings::{LoadFlags, LoadSettings};
use self::stage::{LoadStage, offered};
use self::tenants::{Tenant, tenants};
use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::machine::Machine;
use crate::instrument::platform::{LambdaClient, activations_while};
use crate::instrument::progress;
use crate::instrument::recorded_invocations;
use crate::instrument::sample_function::SampleFunction;

/// Records of one load that are read at the end.
const RECORDS_MAX: usize = 200_000;
/// Records are written behind the answers.
const RECORDS_WITHIN: Duration = Duration::from_secs(3);

/// What `nigh load` takes.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  nigh load --tenants 8 --booking naive --seconds 180
  nigh load --file load.toml --arrivals recorded --json

The file has tenants, functions, arrivals, interval_s, seconds, booking, inputs, input_bytes_max, clients and seed (TOML).
Run it in the project's folder: functions and inputs are those of functions/ and .deps/inputs.")]
pub struct LoadArgs {
    /// Settings in a file; flags go over them
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    flags: LoadFlags,
    /// Recorded invocations, for that law
    #[arg(long, value_name = "FILE", default_value = recorded_invocations::STORED)]
    trace: PathBuf,
    /// The S3 door, where --endpoint names a Lambda door that is not of a node on this machine
    #[arg(long, value_name = "URL", env = "AWS_ENDPOINT_URL_S3", hide_env = true)]
    s3_endpoint: Option<String>,
    /// The bucket that is made for the inputs and outputs, and removed
    #[arg(long, value_name = "NAME", default_value = "nigh-load")]
    bucket: String,
}

impl LoadArgs {
    /// Plays the load on the platform that the environment names and prints what came of it.
    ///
    /// # Errors
    /// If the platform refuses what a load needs, or the load was interrupted: then what had been done is printed.
    pub async fn run(self, json: bool) -> Result<(), LabError> {
        let doors = Doors::of_environment(self.s3_endpoint.as_deref())?;
        let machine = Machine::of_this_command();
        let settings = LoadSettings::read(self.file.as_ref(), &self.flags)?;
        let project = std::env::current_dir().at(".")?;
        let inputs = project.join(".deps/inputs");
        let all = SampleFunction::read_all(&project.join("functions"))?;
        let (functions, offered): (Vec<_>, Vec<_>) =
            offered(&all, &settings.functions, &inputs, settings.input_bytes_max)?.into_iter().unzip();
        let tenants = tenants(&offered, settings.tenants, settings.inputs, settings.seed);
        let recorded = match settings.arrivals {
            ArrivalLaw::Recorded => recorded_invocations::read_trace(&self.trace)?,
            _ => Vec::new(),
        };
        let stop = progress::stop_on_interrupt();
        let lambda = LambdaClient::to(doors.lambda, doors.lambda_signer.clone())?;
        let handle = Handle::current();
        let load = move || {
            let mut stage =
                LoadStage { doors: &doors, tenants: &tenants, functions: &functions, bucket: &self.bucket, lambda };
            let played = play(&mut stage, &inputs, &settings, &recorded, &stop, &handle);
            let removed = handle.block_on(stage.remove());
            let (scheduled, booked, runs) = played?;
            let rows: Vec<(Tenant, u64)> = tenants.iter().cloned().zip(booked).collect();
            let interrupted = stop.load(Ordering::Relaxed);
            let report = LoadReport::new(machine, settings, scheduled, interrupted, &rows, &runs);
            crate::instrument::report::print_report(&report, || report.text(), json)?;
            removed?;
            if interrupted { Err(LabError::Interrupted { kept: "what had been done is told" }) } else { Ok(()) }
        };
        let ended = tokio::task::spawn_blocking(load).await;
        ended.of_node()?
    }
}

/// Sets the stage and plays the load; how many were scheduled, what each tenant books, and the runs.
fn play(
    stage: &mut LoadStage<'_>,
    inputs: &Path,
    settings: &LoadSettings,
    recorded: &[Vec<u32>],
    stop: &AtomicBool,
    handle: &Handle,
) -> Result<(usize, Vec<u64>, Vec<Run>), LabError> {
    let progress = progress::bar(stage.tenants.len() as u64);
    progress.enable_steady_tick(Duration::from_millis(500));
    progress.set_message("putting inputs and functions");
    handle.block_on(stage.set(inputs))?;
    let booked = stage.book(settings.booking, handle, |tenant| {
        progress.set_message(format!("what {} needs", tenant.name));
        progress.inc(1);
        !stop.load(Ordering::Relaxed)
    })?;
    let counts: Vec<usize> = stage.tenants.iter().map(|tenant| tenant.inputs.len()).collect();
    let arrivals = schedule(&counts, &settings.wanted(recorded));
    progress.reset();
    progress.set_length(arrivals.len() as u64);
    progress.set_message("load");
    let events = Events { tenants: stage.tenants, functions: stage.functions, bucket: stage.bucket, side: "load" };
    let pace = Pace { clients: settings.clients, from_s: 0.0, stop, ended: &|_| progress.inc(1) };
    let client = || {
        let lambda = LambdaClient::to(stage.doors.lambda, stage.doors.lambda_signer.clone())?;
        Ok(DoorClient::new(lambda, &events, handle.clone()))
    };
    let mut runs = open_loop::play(&arrivals, &pace, client)?;
    progress.finish_and_clear();
    if let Some(admin) = &stage.doors.admin {
        take_records(&mut runs, admin)?;
    }
    Ok((arrivals.len(), booked, runs))
}

/// Takes over what the node has recorded of `runs`, as far as it has within a while.
pub(crate) fn take_records(runs: &mut [Run], admin: &Path) -> Result<(), LabError> {
    let begin = std::time::Instant::now();
    loop {
        let missing: std::collections::BTreeMap<String, usize> = runs
            .iter()
            .enumerate()
            .filter_map(|(at, run)| {
                let answered = run.answered.as_ref().ok().filter(|answered| answered.record.is_none())?;
                Some((answered.id.clone()?, at))
            })
            .collect();
        if missing.is_empty() || begin.elapsed() > RECORDS_WITHIN {
            return Ok(());
        }
        let left = std::cell::Cell::new(missing.len());
        let wanted = |activation: &nigh_node::Activation| {
            let more = left.get() > 0;
            if missing.contains_key(&activation.id.to_string()) {
                left.set(left.get().saturating_sub(1));
            }
            more
        };
        for activation in activations_while(admin, RECORDS_MAX, wanted)? {
            if let Some(&at) = missing.get(&activation.id.to_string()) {
                runs[at].take_record(&activation);
            }
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
