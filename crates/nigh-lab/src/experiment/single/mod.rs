//! `nigh experiment single`: OFC's figure 7, upper half. Six image functions on inputs from 1 KB to 3 MB, each against
//! Swift (by two clients), against Redis, and through Nigh with the input cached and not.
//!
//! One invocation at a time. In each round every scenario runs once, in an order of the round's own, so that other work of the
//! machine slows all scenarios alike. All scenarios but one run the same handler in a bare process under the vendor's runtime
//! client; they differ in the store and its client alone. `nigh_hit_sandboxed` is the function as Nigh runs it: in a sandbox,
//! invoked by the Lambda door.

mod report;
mod rounds;
mod stage;

use clap::Args;
use serde::{Deserialize, Serialize};

use self::report::SingleReport;
use self::rounds::RoundLimits;
use self::stage::Stage;
use crate::LabError;
use crate::instrument::choice::chosen;
use crate::instrument::error::Tried;
use crate::instrument::machine::Machine;
use crate::instrument::node_under_test::python;
use crate::instrument::progress;
use crate::instrument::report::{OutputArgs, publish};
use crate::instrument::sample_function::SampleFunction;

/// OFC's own six functions on ImageMagick.
const FUNCTIONS: [&str; 6] = ["wand_blur", "wand_denoise", "wand_edge", "wand_resize", "wand_rotate", "wand_sepia"];
/// One picture in six sizes, as OFC has it.
const SIZES: [&str; 6] = ["1k", "16k", "128k", "512k", "1024k", "3072k"];
/// Functions, sizes and rounds of the short form.
const QUICK: usize = 2;
const ROUNDS_MAX: usize = 40;

#[derive(Clone, Debug, Args)]
pub(super) struct SingleArgs {
    /// Start no further round of a function and size after this many seconds
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// The least number of rounds of each function and size
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=40))]
    rounds: u8,
    /// Run only two functions, two sizes and two rounds: takes seconds instead of minutes
    #[arg(long)]
    quick: bool,
    /// Only these functions
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<String>,
    /// Only these sizes
    #[arg(long, value_delimiter = ',', value_name = "SIZE")]
    sizes: Vec<String>,
    #[command(flatten)]
    output: OutputArgs,
}

/// Where a function's objects are, and which client gets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Scenario {
    /// Nigh in front of Swift, by boto3; Nigh has cached the input. OFC's LH.
    NighHit,
    /// Nigh in front of Swift, by boto3; Nigh has never seen the input. OFC's M.
    NighMiss,
    /// `NighHit` with the function deployed on Nigh: in a sandbox, by the Lambda door.
    NighHitSandboxed,
    /// Swift by its S3 API and boto3. OFC's OWK-Swift, of which the ceiling is a share.
    SwiftS3api,
    /// Swift by its own API and python-swiftclient.
    SwiftClient,
    /// Redis by redis-py with hiredis. OFC's OWK-Redis.
    Redis,
}

impl Scenario {
    const ALL: [Self; 6] =
        [Self::NighHit, Self::NighMiss, Self::NighHitSandboxed, Self::SwiftS3api, Self::SwiftClient, Self::Redis];

    const fn is_nigh(self) -> bool {
        matches!(self, Self::NighHit | Self::NighMiss | Self::NighHitSandboxed)
    }
}

/// What decides the outcome of a function and size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct SingleParameters {
    limits: RoundLimits,
    scenarios: Vec<Scenario>,
}

impl SingleArgs {
    pub(super) async fn run(self, mut machine: Machine, json: bool) -> Result<(), LabError> {
        let project = std::env::current_dir().at(".")?;
        let all = SampleFunction::read_all(&project.join("functions"))?;
        let few = |named: &[String]| if self.quick && named.is_empty() { QUICK } else { usize::MAX };
        let functions = chosen("function", &self.only, &FUNCTIONS, |name| name)?;
        let sizes = chosen("size", &self.sizes, &SIZES, |name| name)?;
        let (functions, sizes) =
            (&functions[..functions.len().min(few(&self.only))], &sizes[..sizes.len().min(few(&self.sizes))]);
        let limits = self.limits();

        let progress = progress::ticking_bar((functions.len() * sizes.len()) as u64, "starting Swift, Redis and Nigh");
        let stage = Stage::set(&project, &python()?, &mut machine, |said| progress.println(said))?;
        let kept = self.output.kept(SingleParameters { limits, scenarios: stage.scenarios() })?;
        stage.upload(sizes).await?;

        let stop = progress::stop_on_interrupt();
        let mut cells = Vec::new();
        for function in functions {
            let function = SampleFunction::find(&all, function)?;
            let mut cast = None;
            for size in sizes {
                let part = format!("{} {size}", function.name);
                progress.set_message(part.clone());
                let play = async || {
                    let cast = match &mut cast {
                        Some(cast) => cast,
                        none => none.insert(stage.cast(function).await?),
                    };
                    rounds::play(cast, size, limits, &stop).await
                };
                cells.push(kept.part(&part, play).await?);
                progress.inc(1);
            }
        }
        progress.finish_and_clear();
        let report = SingleReport::new(machine, limits, &cells);
        publish(&report, self.output.html.as_deref(), SingleReport::page, SingleReport::text, json)?;
        kept.finish()
    }

    fn limits(&self) -> RoundLimits {
        if self.quick {
            return RoundLimits { rounds_min: QUICK, rounds_max: QUICK, seconds: 0.0 };
        }
        let seconds = self.seconds.clamp(0.0, 3600.0);
        RoundLimits { rounds_min: self.rounds.into(), rounds_max: ROUNDS_MAX, seconds }
    }
}
