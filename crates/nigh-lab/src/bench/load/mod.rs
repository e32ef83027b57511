//! `nigh bench load`: latency at fixed rates, from a tenth to nine tenths of what the node sustains, beside its peers.
//!
//! Each kind of request has servers of its own (`stage`). `measure` finds what each side sustains, by connections that send again
//! at once, and then has all sides take turns at each rate, by the open loop of `instrument::open_loop`. What is measured
//! (`rates`), what came of a turn (`round`) and what is told of it (`report`) are pure.

mod contestant;
mod measure;
mod rates;
mod report;
mod round;
mod stage;

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

use self::measure::Player;
use self::rates::{QUICK_SHARES, REQUESTS, SHARES};
use self::report::LoadReport;
use crate::LabError;
use crate::instrument::choice::chosen;
use crate::instrument::machine::Machine;
use crate::instrument::progress;
use crate::instrument::report::{OutputArgs, publish};

/// The closed loop's rounds are no longer than this.
const SUSTAINED_S_MAX: f64 = 1.0;
const QUICK_ROUNDS: u16 = 1;
const QUICK_SECONDS: f64 = 0.3;
const SECONDS_MIN: f64 = 0.1;
/// All requests of a turn are in memory.
const SECONDS_MAX: f64 = 30.0;

pub(super) const HELP: &str = "\
Examples:
  nigh bench load --html load.html              all requests, about half an hour
  nigh bench load --only get-1kib,fast-get-1kib

Requests:
  get-1kib, get-128kib   signed GETs of an object in memory; beside bare s3s and MinIO (else versitygw)
  put-1kib               signed, durable PUTs; beside bare s3s (memory only), MinIO, and Redis that syncs
  fast-get-1kib          reads over the fast path; beside Redis by its Unix socket
  invoke                 a warm function; beside awslambdaric on a bare server

First a closed loop finds what each side sustains. Then each side is measured at 10, 30, 50, 70, 80
and 90 % of what Nigh sustains, and each peer also at these shares of what it sustains itself.
Requests come as a Poisson process and wait for no answer; whichever connection is free sends the
next one. Latency counts from when a request was due, so what could not be sent in time is late.

mark
  overloaded      The backlog grows without end; no percentile is told.
  generator-late  The generator itself was more than 500 us late at the 99th percentile
                  (generator_p99_us); the figure is the generator's as much as the server's.";

#[derive(Clone, Debug, Args)]
pub(super) struct OpenLoadArgs {
    /// Only these requests
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<String>,
    /// How many rounds each rate has; the sides take turns within a round
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// How long each side is measured in a round, in seconds
    #[arg(long, default_value_t = 2.0, value_name = "S", value_parser = seconds)]
    seconds: f64,
    /// Run only one short round at two rates, to test that the benchmark works
    #[arg(long, conflicts_with_all = ["rounds", "seconds"])]
    quick: bool,
    /// A folder on the disk that the stores should use [default: the folder for temporary files]
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (SECONDS_MIN..=SECONDS_MAX).contains(&seconds) => Ok(seconds),
        _ => Err(format!("expected {SECONDS_MIN} to {SECONDS_MAX} seconds")),
    }
}

/// What decides the outcome of a kind of request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Parameters {
    rounds: u16,
    seconds: f64,
    shares: Vec<f64>,
    folder: PathBuf,
}

impl OpenLoadArgs {
    fn parameters(&self) -> Parameters {
        let folder = self.folder.clone().unwrap_or_else(std::env::temp_dir);
        if self.quick {
            return Parameters { rounds: QUICK_ROUNDS, seconds: QUICK_SECONDS, shares: QUICK_SHARES.to_vec(), folder };
        }
        Parameters { rounds: self.rounds, seconds: self.seconds, shares: SHARES.to_vec(), folder }
    }
}

pub(super) async fn run(args: &OpenLoadArgs, machine: Machine, json: bool) -> Result<(), LabError> {
    let requests = chosen("request", &args.only, &REQUESTS, |request| request.name)?;
    let parameters = args.parameters();
    let kept = args.output.kept(parameters.clone())?;
    let stop = progress::stop_on_interrupt();
    // What each side sustains, and each share.
    let steps = 1 + parameters.shares.len() as u64;
    let progress = progress::ticking_bar(steps * requests.len() as u64, "starting servers");
    let mut outcomes = Vec::new();
    for (done, request) in (1..).zip(requests) {
        let player = Player { request, parameters: &parameters, stop: &stop, progress: &progress };
        let outcome = kept.part(request.name, async || Box::pin(player.measure()).await).await?;
        outcomes.push(outcome);
        progress.set_position(steps * done);
    }
    progress.finish_and_clear();
    let report = LoadReport::new(machine, parameters.rounds, parameters.seconds, outcomes);
    publish(&report, args.output.html.as_deref(), LoadReport::page, LoadReport::text, json)?;
    kept.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quick_run_is_one_short_round_and_times_have_bounds() {
        let args = OpenLoadArgs {
            only: Vec::new(),
            rounds: 5,
            seconds: 2.0,
            quick: false,
            folder: None,
            output: OutputArgs::default(),
        };
        assert_eq!((args.parameters().rounds, args.parameters().shares), (5, SHARES.to_vec()));
        let quick = OpenLoadArgs { quick: true, ..args }.parameters();
        assert_eq!((quick.rounds, quick.seconds, quick.shares), (1, QUICK_SECONDS, QUICK_SHARES.to_vec()));
        assert_eq!(seconds("0.5"), Ok(0.5));
        assert!(seconds("31").is_err() && seconds("0").is_err() && seconds("x").is_err());
    }

    #[test]
    fn the_help_names_every_request() {
        for request in REQUESTS {
            assert!(HELP.contains(request.name), "{}", request.name);
        }
    }
}
