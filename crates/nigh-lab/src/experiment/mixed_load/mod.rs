//! `nigh experiment macro`: OFC's section 7.2.2, scaled to this machine. Tenants invoke functions for some minutes; the very
//! same load is played against Nigh, against Nigh with all off, and by bare processes against Redis (the ceiling) and
//! against Swift (the floor).
//!
//! The load is cut into stretches, and the sides take turns, stretch by stretch, so that other work of the machine slows all sides
//! alike. Finished stretches are kept, so that an interrupted run continues, with new servers.

mod node_look;
mod page;
mod paper;
mod report;
mod stage;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use clap::{Args, ValueEnum as _};
use indicatif::ProgressBar;
use nigh_terms::ByteSize;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use serde::{Deserialize, Serialize};

use self::report::{MixedLoadReport, PlayedLoad};
use self::stage::{Stage, Stretch};
use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::kept_progress::KeptProgress;
use crate::instrument::machine::Machine;
use crate::instrument::node_under_test::python;
use crate::instrument::progress::{self, PARTS_KEPT, unless_stopped};
use crate::instrument::report::{OutputArgs, name_of, publish};
use crate::load::arrivals::{Arrival, schedule};
use crate::load::booking::BookingProfile;
use crate::load::open_loop::Pace;
use crate::load::run::Run;
use crate::load::settings::LoadSettings;
use crate::load::stage::Cast;

/// Stretches of a load, unless they are shorter or longer than these bounds.
const STRETCHES: f64 = 12.0;
const STRETCH_S: std::ops::RangeInclusive<f64> = 15.0..=150.0;
/// Inputs of each tenant.
const INPUTS: usize = 3;
/// Each tenant's function runs so often before the load, on other objects: models learn from these runs.
const TRAINING: usize = 40;
/// The short form: functions that start fast, a second or two for each stretch.
const QUICK_FUNCTIONS: [&str; 3] = ["wand_edge", "thumbnail", "wordcount"];
const QUICK_SECONDS: f64 = 4.0;
const QUICK_STRETCH_S: f64 = 2.0;
const QUICK_INPUT_BYTES: u64 = 300_000;

#[derive(Clone, Debug, Args)]
pub(super) struct MacroArgs {
    /// How many tenants, each with one function; OFC's paper has 8 and 24
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=96))]
    tenants: u16,
    /// How much memory tenants book: naive (2 GB), advanced (the most that the function ever used), or normal (1.7 times
    /// advanced)
    // A text, as the option of this name that all commands have; here there is no namespace to choose.
    #[arg(long, default_value = "normal", value_parser = ["naive", "advanced", "normal"])]
    profile: String,
    /// How long the load of each contender lasts, in minutes
    #[arg(long, default_value_t = 3.0, value_name = "MINUTES")]
    minutes: f64,
    /// Mean time between two invocations of a tenant, in seconds; OFC's paper has a minute
    #[arg(long, default_value_t = 5.0, value_name = "S")]
    interval: f64,
    /// Run only three tenants for some seconds
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// Who plays the load, and where its functions' objects are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Side {
    /// Nigh in front of Swift, as it is.
    Nigh,
    /// Nigh in front of the same Swift; it caches nothing, writes through, sizes nothing and lends nothing.
    NighOff,
    /// The functions as bare processes, directly against Swift by its S3 API: the floor (OFC's OWK-Swift).
    Swift,
    /// The functions as bare processes, directly against Redis: the ceiling (OFC's OWK-Redis).
    Redis,
}

/// What decides the outcome of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct MixedLoadParameters {
    load: LoadSettings,
    stretch_s: f64,
    training: usize,
    folder: PathBuf,
    /// Known when the servers run.
    sides: Vec<Side>,
    /// By tenant, where no measurement decides it; known after the runs before the load.
    booked_mb: Vec<u64>,
}

impl MacroArgs {
    pub(super) async fn run(self, mut machine: Machine, json: bool) -> Result<(), LabError> {
        let plan = self.plan()?;
        let cast = Cast::read(&std::env::current_dir().at(".")?, &plan.load)?;
        let stop = progress::stop_on_interrupt();
        let progress = progress::ticking_bar(0, "starting Swift, Redis and two nodes");
        let say = |said| progress.println(said);
        let stage = Stage::set(cast, &plan.folder, &python()?, &mut machine, say)?;
        let (played, stretches, kept) = self.play(&plan, &stage, &stop, &progress).await?;
        progress.finish_and_clear();
        let report = MixedLoadReport::new(machine, played, &stretches);
        publish(&report, self.output.html.as_deref(), page::page, MixedLoadReport::text, json)?;
        kept.finish()
    }

    fn plan(&self) -> Result<MixedLoadParameters, LabError> {
        let profile = BookingProfile::from_str(&self.profile, true);
        let mut load = LoadSettings {
            tenants: self.tenants.into(),
            interval_s: self.interval,
            seconds: self.minutes * 60.0,
            booking: profile.unwrap_or(BookingProfile::Normal),
            inputs: INPUTS,
            ..LoadSettings::default()
        };
        let mut training = TRAINING;
        let mut stretch_s = (load.seconds / STRETCHES).clamp(*STRETCH_S.start(), *STRETCH_S.end());
        if self.quick {
            let functions = QUICK_FUNCTIONS.map(str::to_owned).into();
            (load.tenants, load.seconds, load.interval_s, load.inputs) = (3, QUICK_SECONDS, 0.5, 2);
            (load.functions, load.input_bytes_max) = (functions, QUICK_INPUT_BYTES);
            (training, stretch_s) = (2, QUICK_STRETCH_S);
        }
        load.check()?;
        let (folder, sides, booked_mb) = (std::env::temp_dir(), Vec::new(), Vec::new());
        Ok(MixedLoadParameters { load, stretch_s, training, folder, sides, booked_mb })
    }

    /// Everything before the load, and the load.
    async fn play(
        &self,
        plan: &MixedLoadParameters,
        stage: &Stage,
        stop: &AtomicBool,
        progress: &ProgressBar,
    ) -> Result<(PlayedLoad, Vec<Stretch>, KeptProgress<MixedLoadParameters, Stretch>), LabError> {
        progress.set_message("putting inputs and functions");
        stage.furnish().await?;
        let tenants = stage.tenants();
        progress.set_length((plan.training * tenants.len()) as u64);
        progress.set_message("runs before the load");
        let step = |_: &Run| progress.inc(1);
        let most = stage.train(plan.training, stop, &step)?;
        unless_stopped(stop, "nothing is kept")?;
        is_measured(plan.load.booking, &most)?;
        progress.set_message("warming up");
        let booked_mb = stage.book(plan.load.booking, &most).await?;
        let sides = stage.sides();
        let certain = if plan.load.booking == BookingProfile::Naive { booked_mb.clone() } else { Vec::new() };
        let kept =
            self.output.kept(MixedLoadParameters { sides: sides.clone(), booked_mb: certain, ..plan.clone() })?;
        let counts: Vec<usize> = tenants.iter().map(|tenant| tenant.inputs.len()).collect();
        let arrivals = schedule(&counts, &plan.load, &[]);
        progress.reset();
        progress.set_length((arrivals.len() * sides.len()) as u64);
        let mut random = StdRng::seed_from_u64(plan.load.seed);
        let (mut stretches, mut again) = (Vec::new(), 0);
        for (number, arrivals) in cut(&arrivals, plan.stretch_s).into_iter().enumerate() {
            let mut order = sides.clone();
            order.shuffle(&mut random);
            for side in order {
                let part = format!("{number} {}", name_of(&side));
                if kept.done(&part).is_some() {
                    again += 1;
                    progress.inc(arrivals.len() as u64);
                }
                let play = async || {
                    progress.set_message(format!("stretch {} {}", number + 1, name_of(&side)));
                    let from_s = number as f64 * plan.stretch_s;
                    let pace = Pace { clients: plan.load.clients, from_s, stop, ended: &step };
                    let stretch = stage.play(side, arrivals, &pace)?;
                    unless_stopped(stop, PARTS_KEPT)?;
                    Ok(stretch)
                };
                stretches.push(kept.part(&part, play).await?);
            }
        }
        let conditions = conditions(plan, stage, again);
        let played = PlayedLoad { settings: plan.load.clone(), conditions, tenants: tenants.to_vec(), booked_mb };
        Ok((played, stretches, kept))
    }
}

/// Only the naive profile books without a measurement.
fn is_measured(profile: BookingProfile, most: &[ByteSize]) -> Result<(), LabError> {
    if profile == BookingProfile::Naive || most.iter().all(|most| *most > ByteSize::ZERO) {
        return Ok(());
    }
    let hint = "no cgroup measures it on this machine; take --profile naive";
    Err(LabError::Missing { missing: "the memory that functions use".to_owned(), hint })
}

/// The arrivals of each stretch; none is left out.
fn cut(arrivals: &[Arrival], stretch_s: f64) -> Vec<&[Arrival]> {
    let of = |arrival: &Arrival| (arrival.due_s / stretch_s) as usize;
    let count = arrivals.last().map_or(0, |last| of(last) + 1);
    let begins = |stretch: usize| arrivals.partition_point(|arrival| of(arrival) < stretch);
    (0..count).map(|stretch| &arrivals[begins(stretch)..begins(stretch + 1)]).collect()
}

fn conditions(plan: &MixedLoadParameters, stage: &Stage, again: usize) -> Vec<String> {
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
