//! `nigh load`: tenants that invoke functions on a node, as OFC's FaaSLoad does (EuroSys 2021, section 7.2.2).
//!
//! The seed alone decides who invokes what and when (`tenants`, `arrivals`); `open_loop` sends the invocations in time. Inputs
//! and functions are put on the platform before the load, and removed after it. `nigh experiment macro` uses the same parts.

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
use self::door_client::{Events, door_client};
use self::doors::Doors;
use self::open_loop::Pace;
use self::report::LoadReport;
use self::run::Run;
use self::settings::{LoadFlags, LoadSettings};
use self::stage::{Cast, LoadStage};
use self::tenants::Tenant;
use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::machine::Machine;
use crate::instrument::platform::{LambdaClient, activations_while};
use crate::instrument::progress::{self, unless_stopped};
use crate::instrument::recorded_invocations::{self, STORED};
use crate::instrument::report::print_report;

/// Made for the inputs and outputs, and removed.
const BUCKET: &str = "nigh-load";
/// Records of one load that are read.
const RECORDS_MAX: usize = 200_000;
/// Records are written after the answers.
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
    /// A TOML file with the settings of the load; flags override them
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    flags: LoadFlags,
    /// The URL of the S3 door; needed if --endpoint names a Lambda door of a node on another machine
    #[arg(long, value_name = "URL", env = "AWS_ENDPOINT_URL_S3", hide_env = true)]
    s3_endpoint: Option<String>,
}

impl LoadArgs {
    /// Plays the load on the platform that the environment names, and prints the result.
    ///
    /// # Errors
    /// If the platform refuses a request, or Ctrl-C ended the load; what had been done until then is printed.
    pub async fn run(self, json: bool) -> Result<(), LabError> {
        let doors = Doors::of_environment(self.s3_endpoint.as_deref())?;
        let machine = Machine::of_this_command();
        let settings = LoadSettings::read(self.file.as_ref(), &self.flags)?;
        let cast = Cast::read(&std::env::current_dir().at(".")?, &settings)?;
        let recorded = match settings.arrivals {
            ArrivalLaw::Recorded => recorded_invocations::read_trace(STORED.as_ref())?,
            _ => Vec::new(),
        };
        let stop = progress::stop_on_interrupt();
        let lambda = LambdaClient::to(doors.lambda, doors.lambda_signer.clone())?;
        let mut stage = LoadStage { doors: &doors, cast: &cast, lambda };
        let played = play(&mut stage, &settings, &recorded, &stop).await;
        let removed = stage.remove().await;
        let (scheduled, booked, runs) = played?;
        let rows: Vec<(Tenant, u64)> = cast.tenants.into_iter().zip(booked).collect();
        let interrupted = stop.load(Ordering::Relaxed);
        let report = LoadReport::new(machine, settings, scheduled, interrupted, &rows, &runs);
        print_report(&report, || report.text(), json)?;
        removed?;
        unless_stopped(&stop, "the report has the invocations that ended")
    }
}

/// Sets the stage and plays the load. Returns how many invocations were scheduled, what each tenant books, and the runs.
async fn play(
    stage: &mut LoadStage<'_>,
    settings: &LoadSettings,
    recorded: &[Vec<u32>],
    stop: &AtomicBool,
) -> Result<(usize, Vec<u64>, Vec<Run>), LabError> {
    let progress = progress::ticking_bar(stage.cast.tenants.len() as u64, "putting inputs and functions");
    stage.set().await?;
    let step = |tenant: &Tenant| {
        progress.set_message(format!("what {} needs", tenant.name));
        progress.inc(1);
        !stop.load(Ordering::Relaxed)
    };
    let booked = stage.book(settings.booking, step).await?;
    let counts: Vec<usize> = stage.cast.tenants.iter().map(|tenant| tenant.inputs.len()).collect();
    let arrivals = schedule(&counts, settings, recorded);
    progress.reset();
    progress.set_length(arrivals.len() as u64);
    progress.set_message("load");
    let events = Events { cast: stage.cast, bucket: BUCKET, side: "load" };
    let pace = Pace { clients: settings.clients, from_s: 0.0, stop, ended: &|_| progress.inc(1) };
    let handle = Handle::current();
    let client = || {
        let lambda = LambdaClient::to(stage.doors.lambda, stage.doors.lambda_signer.clone())?;
        Ok(door_client(lambda, &events, &handle))
    };
    let mut runs = tokio::task::block_in_place(|| open_loop::play(&arrivals, &pace, client))?;
    progress.finish_and_clear();
    if let Some(admin) = &stage.doors.admin {
        take_records(&mut runs, admin)?;
    }
    Ok((arrivals.len(), booked, runs))
}

/// Takes over the node's records of `runs`, as far as they come in time.
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
