//! `nigh experiment macro`: OFC's section 7.2.2, scaled to this machine. Tenants invoke functions for some minutes; the very
//! same load is played against Nigh, against Nigh with all off, and by bare processes against Redis (the ceiling) and
//! against Swift (the floor).
//!
//! The load is cut into stretches, and the sides take turns, stretch by stretch, so that what the machine does beside meets
//! all alike. What is done is kept, so that a run which is cut off goes on; its servers then begin anew.

mod bare_pool;
mod node_look;
mod page;
mod report;
mod side;
mod stage;
mod verdict;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use indicatif::ProgressBar;
use nigh_terms::ByteSize;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;

use self::report::{MixedLoadReport, PlayedLoad};
use self::side::Side;
use self::stage::{Cast, Stage, Stretch, folder_of};
use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::kept_progress::KeptProgress;
use crate::instrument::machine::Machine;
use crate::instrument::node_under_test::python;
use crate::instrument::progress;
use crate::instrument::report::{print_report, write_page};
use crate::instrument::sample_function::SampleFunction;
use crate::load::arrivals::{Arrival, schedule};
use crate::load::booking::BookingProfile;
use crate::load::open_loop::Pace;
use crate::load::run::Run;
use crate::load::settings::LoadSettings;
use crate::load::stage::offered;
use crate::load::tenants::tenants;

/// Of a load, this many stretches, within bounds of their length.
const STRETCHES: f64 = 12.0;
const STRETCH_S: std::ops::RangeInclusive<f64> = 15.0..=150.0;
/// The short form: functions that start fast, a second or two for each stretch.
const QUICK_FUNCTIONS: [&str; 3] = ["wand_edge", "thumbnail", "wordcount"];
const QUICK_SECONDS: f64 = 4.0;
const QUICK_STRETCH_S: f64 = 2.0;
const QUICK_INPUT_BYTES: u64 = 300_000;

/// What `nigh experiment macro` takes.
#[derive(Clone, Debug, Args)]
pub(super) struct MacroArgs {
    /// Tenants, each with one function: 8 and 24 in OFC's paper
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=96))]
    tenants: u16,
    /// What they book: 2 GB, the most ever used, or 1.7 times that
    // A text, as the option of all commands that has this name: here there is no namespace to choose.
    #[arg(long, default_value = BookingProfile::Normal.name(), value_parser = BookingProfile::ALL.map(BookingProfile::name))]
    profile: String,
    /// How long the load is, for each side
    #[arg(long, default_value_t = 3.0, value_name = "MINUTES")]
    minutes: f64,
    /// Seconds between two invocations of a tenant, in the mean; a minute in the paper
    #[arg(long, default_value_t = 5.0, value_name = "S")]
    interval: f64,
    /// Inputs of each tenant
    #[arg(long, default_value_t = 3, value_name = "N")]
    inputs: usize,
    /// Times that each tenant's function runs before the load, on other objects: models learn from it
    #[arg(long, default_value_t = 40, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    training: u16,
    /// Invocations under way at most
    #[arg(long, default_value_t = 16, value_name = "N")]
    clients: usize,
    /// Decides inputs and times: the same seed, the same load
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Only these functions
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<String>,
    /// Where all servers have their files: one disk for all sides [default: the folder of temporary files]
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// Three tenants for some seconds
    #[arg(long)]
    quick: bool,
    /// Write the page with the figures to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Keeps what is done in this file, so that a run that is cut off goes on; beside the page if that is written
    #[arg(long, value_name = "FILE")]
    progress: Option<PathBuf>,
}

/// What decides the outcome of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct MixedLoadParameters {
    load: LoadSettings,
    stretch_s: f64,
    training: usize,
    sides: Vec<Side>,
    folder: PathBuf,
    /// By tenant.
    booked_mb: Vec<u64>,
}

/// What is asked, before anything is started.
struct Plan {
    load: LoadSettings,
    stretch_s: f64,
    training: usize,
    folder: PathBuf,
}

/// A load that was played to its end, and where what is done was kept.
struct FinishedLoad {
    played: PlayedLoad,
    stretches: Vec<Stretch>,
    kept: Option<KeptProgress<MixedLoadParameters, Stretch>>,
}

impl MacroArgs {
    pub(super) async fn run(self, mut machine: Machine, json: bool) -> Result<(), LabError> {
        let plan = self.plan()?;
        let project = std::env::current_dir().at(".")?;
        let (python, inputs) = (python()?, project.join(".deps/inputs"));
        let all = SampleFunction::read_all(&project.join("functions"))?;
        let (functions, offered): (Vec<_>, Vec<_>) =
            offered(&all, &plan.load.functions, &inputs, plan.load.input_bytes_max)?.into_iter().unzip();
        let tenants = tenants(&offered, plan.load.tenants, plan.load.inputs, plan.load.seed);
        let cast = Cast { tenants, functions, offered };
        let stop = progress::stop_on_interrupt();
        let handle = Handle::current();
        let whole = move || {
            let progress = progress::bar(0);
            progress.enable_steady_tick(Duration::from_millis(500));
            progress.set_message("starting Swift, Redis and two nodes");
            let say = |said| progress.println(said);
            let stage = handle.block_on(Stage::set(cast, &plan.folder, &python, &mut machine, say))?;
            let FinishedLoad { played, stretches, kept } =
                self.play(&plan, &stage, &inputs, &stop, &progress, &handle)?;
            progress.finish_and_clear();
            let report = MixedLoadReport::new(machine, played, &stretches);
            if let Some(path) = &self.html {
                write_page(path, &page::page(&report)?)?;
            }
            print_report(&report, || report.text(), json)?;
            kept.map_or(Ok(()), KeptProgress::finish)
        };
        let ended = tokio::task::spawn_blocking(whole).await;
        ended.of_node()?
    }

    fn plan(&self) -> Result<Plan, LabError> {
        let profile = BookingProfile::ALL.into_iter().find(|profile| profile.name() == self.profile);
        let mut load = LoadSettings {
            tenants: self.tenants.into(),
            interval_s: self.interval,
            seconds: self.minutes * 60.0,
            booking: profile.unwrap_or(BookingProfile::Normal),
            inputs: self.inputs,
            clients: self.clients,
            seed: self.seed,
            ..LoadSettings::default()
        };
        let mut training = self.training.into();
        let mut stretch_s = (load.seconds / STRETCHES).clamp(*STRETCH_S.start(), *STRETCH_S.end());
        if self.quick {
            let functions = QUICK_FUNCTIONS.map(str::to_owned).into();
            (load.tenants, load.seconds, load.interval_s, load.inputs) = (3, QUICK_SECONDS, 0.5, 2);
            (load.functions, load.input_bytes_max) = (functions, QUICK_INPUT_BYTES);
            (training, stretch_s) = (2, QUICK_STRETCH_S);
        }
        if !self.only.is_empty() {
            load.functions.clone_from(&self.only);
        }
        load.check()?;
        Ok(Plan { load, stretch_s, training, folder: folder_of(self.folder.as_ref()) })
    }

    /// Everything before the load, and the load.
    fn play(
        &self,
        plan: &Plan,
        stage: &Stage,
        inputs: &Path,
        stop: &AtomicBool,
        progress: &ProgressBar,
        handle: &Handle,
    ) -> Result<FinishedLoad, LabError> {
        progress.set_message("putting inputs and functions");
        handle.block_on(stage.furnish(inputs))?;
        let tenants = stage.tenants();
        progress.set_length((plan.training * tenants.len()) as u64);
        progress.set_message("runs before the load");
        let step = |_: &Run| progress.inc(1);
        let most = stage.train(plan.training, handle, stop, &step)?;
        interrupted(stop, "nothing is kept")?;
        measured(plan.load.booking, &most)?;
        progress.set_message("warming up");
        let booked_mb = stage.book(plan.load.booking, &most, handle)?;
        let sides = stage.sides();
        let asked = MixedLoadParameters {
            load: plan.load.clone(),
            stretch_s: plan.stretch_s,
            training: plan.training,
            sides: sides.clone(),
            folder: plan.folder.clone(),
            booked_mb: if plan.load.booking == BookingProfile::Naive { booked_mb.clone() } else { Vec::new() },
        };
        let kept = self.kept(asked)?;
        let counts: Vec<usize> = tenants.iter().map(|tenant| tenant.inputs.len()).collect();
        let arrivals = schedule(&counts, &plan.load.wanted(&[]));
        progress.reset();
        progress.set_length((arrivals.len() * sides.len()) as u64);
        let mut random = StdRng::seed_from_u64(plan.load.seed);
        let (mut stretches, mut again) = (Vec::new(), 0);
        for (number, arrivals) in cut(&arrivals, plan.stretch_s).into_iter().enumerate() {
            let mut order = sides.clone();
            order.shuffle(&mut random);
            for side in order {
                let part = format!("{number} {}", side.name());
                let stretch = match kept.as_ref().and_then(|kept| kept.done(&part)) {
                    Some(stretch) => {
                        again += 1;
                        progress.inc(arrivals.len() as u64);
                        stretch
                    }
                    None => {
                        progress.set_message(format!("stretch {} {}", number + 1, side.name()));
                        let from_s = number as f64 * plan.stretch_s;
                        let pace = Pace { clients: plan.load.clients, from_s, stop, ended: &step };
                        let stretch = stage.play(side, arrivals, &pace, handle)?;
                        let kept_so =
                            "what is done is kept if --html or --progress was given: run the same command again";
                        interrupted(stop, kept_so)?;
                        kept.as_ref().map_or(Ok(()), |kept| kept.add(&part, &stretch))?;
                        stretch
                    }
                };
                stretches.push(stretch);
            }
        }
        let conditions = conditions(plan, stage, again);
        let played = PlayedLoad { settings: plan.load.clone(), conditions, tenants: tenants.to_vec(), booked_mb };
        Ok(FinishedLoad { played, stretches, kept })
    }

    fn kept(&self, asked: MixedLoadParameters) -> Result<Option<KeptProgress<MixedLoadParameters, Stretch>>, LabError> {
        let beside_the_page = || Some(self.html.as_ref()?.with_extension("state"));
        let Some(path) = self.progress.clone().or_else(beside_the_page) else { return Ok(None) };
        KeptProgress::open(&path, asked).map(Some)
    }
}

/// Who books by what is used must know it.
fn measured(profile: BookingProfile, most: &[ByteSize]) -> Result<(), LabError> {
    if profile == BookingProfile::Naive || most.iter().all(|most| *most > ByteSize::ZERO) {
        return Ok(());
    }
    let hint = "no cgroup says it here; take --profile naive";
    Err(LabError::Missing { missing: "what functions use at most".to_owned(), hint })
}

fn interrupted(stop: &AtomicBool, kept: &'static str) -> Result<(), LabError> {
    if stop.load(Ordering::Relaxed) { Err(LabError::Interrupted { kept }) } else { Ok(()) }
}

/// The arrivals of each stretch; none is left out.
fn cut(arrivals: &[Arrival], stretch_s: f64) -> Vec<&[Arrival]> {
    let of = |arrival: &Arrival| (arrival.due_s / stretch_s) as usize;
    let count = arrivals.last().map_or(0, |last| of(last) + 1);
    let begins = |stretch: usize| arrivals.partition_point(|arrival| of(arrival) < stretch);
    (0..count).map(|stretch| &arrivals[begins(stretch)..begins(stretch + 1)]).collect()
}

/// The same for all, or said here.
fn conditions(plan: &Plan, stage: &Stage, again: usize) -> Vec<String> {
    let load = &plan.load;
    let off = if stage.switched_off.is_empty() {
        "this node has no setting that sizes or lends memory".to_owned()
    } else {
        format!("{} off", stage.switched_off.join(" and "))
    };
    let mut all = vec![
        format!(
            "{} tenants, one function and {} inputs of at most {} KB each; arrivals by the exponential law, one in {} s of \
             each tenant in the mean, for {} s (OFC: one a minute for 30 minutes, on servers of a cluster); {} clients",
            load.tenants,
            load.inputs,
            load.input_bytes_max / 1000,
            load.interval_s,
            load.seconds,
            load.clients
        ),
        format!("the sides take turns every {} s of the load, in an order drawn anew each time", plan.stretch_s),
        "the handlers as they are; their client's calls are timed in their own process, in the same way for all".to_owned(),
        format!(
            "before the load each tenant's function ran {} times on Nigh, on other objects of the same kind, and once \
             on every side: handlers are warm, objects of the load have been read by nobody",
            plan.training
        ),
        "nigh and nigh_off: deployed on a node, in sandboxes, through the Lambda door; swift and redis: processes under the \
         vendor's runtime client without a sandbox, all servers over loopback"
            .to_owned(),
        format!(
            "nigh: 64 MiB of cache of its own, what sandboxes book at most {}, writes acknowledged from the journal; \
             nigh_off: no object kept, writes through, {off}",
            stage.functions_memory
        ),
        "Swift: proxy with s3api, one replica, one folder; Redis: in memory only, acknowledges what no crash would leave"
            .to_owned(),
        format!("all files of all sides, the journal's too, are below {}, on one disk", plan.folder.display()),
    ];
    if again > 0 {
        all.push(format!("{again} stretches were played before the run was cut off; caches then began empty again"));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_cut_into_stretches_and_none_of_it_is_lost() {
        let at = |due_s: f64| Arrival { number: 0, due_s, tenant: 0, input: 0 };
        let arrivals: Vec<Arrival> = [0.0, 1.9, 2.0, 6.5, 7.9].map(at).into();
        let parts = cut(&arrivals, 2.0);
        assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [2, 1, 0, 2]);
        assert!(cut(&[], 2.0).is_empty());
    }
}
