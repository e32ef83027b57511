//! What foretelling an invocation takes: the model alone, with features from the payload, and a fit of 500 rows.
//!
//! The rows are made up after what image functions need: width, height, channels, format, arguments, how the sandbox begins.
//! The clock's own reading is in every time and told apart; `nigh experiment learn` times the same on recorded invocations.

use std::hint::black_box;
use std::time::Instant;

use clap::Args;
use nigh_learn::{FeatureRow, FunctionModel, Interval, Learner, Sample, Schema, Start, TrainingRow};
use nigh_schedule::inputs::payload_walk::PayloadWalk;
use nigh_terms::ByteSize;
use serde::Serialize;

use super::{Figures, RatioTarget};
use crate::LabError;
use crate::instrument::machine::Machine;
use crate::instrument::stats::Sample as Measured;

const ROWS: u64 = 500;
const PREDICTIONS: usize = 20_000;
/// What is booked, and no model foretells.
const BOOKED: ByteSize = ByteSize::gib(2);
const VERSION: &str = "1";

#[derive(Clone, Debug, Args)]
pub(super) struct PredictLength {
    /// How many rounds each measurement has; the report pools the predictions of all rounds and shows the median fit
    #[arg(long, default_value_t = 7)]
    rounds: usize,
}

#[derive(Debug, Serialize)]
struct LearnerTimes {
    learner: String,
    predict_p50_ns: f64,
    predict_p99_ns: f64,
    /// The payload walked through, the row put together, the model asked, its maturity and floors looked at.
    with_features_p50_ns: f64,
    with_features_p99_ns: f64,
    /// A fit of 500 rows with its calibration, the median.
    fit500_ms: f64,
    /// What the model takes in memory, about.
    model_bytes: usize,
}

#[derive(Debug, Serialize)]
pub(super) struct PredictReport {
    machine: Machine,
    /// Reading the clock, which is in every time.
    clock_ns: f64,
    payload_bytes: usize,
    learners: Vec<LearnerTimes>,
    /// Of the default learner.
    #[serde(flatten)]
    figures: Figures,
}

fn payload(at: u64) -> String {
    format!(
        "{{\"input\":{{\"bucket\":\"photos\",\"key\":\"in/{at}.png\"}},\"output\":{{\"bucket\":\"photos\",\
         \"key\":\"out/{at}.png\"}},\"width\":{},\"sharpen\":{}}}",
        100 + at * 31 % 900,
        at.is_multiple_of(3),
    )
}

fn object(at: u64) -> Vec<(&'static str, f64)> {
    let (width, height) = (100 + at * 7919 % 3000, 100 + at * 104_729 % 3000);
    let size = width * height / 5 + at * 7 % 1000;
    vec![("in_width", width as f64), ("in_height", height as f64), ("in_channels", 3.0), ("input_size", size as f64)]
}

fn features(walk: PayloadWalk, object: &[(&'static str, f64)], at: u64) -> FeatureRow {
    let mut row = walk.arguments;
    for (name, value) in object {
        // The names are legal and the row has room.
        let _ = row.set_number(name, *value);
    }
    let _ = row.set_word("in_format", ["png", "jpeg"][(at % 2) as usize]);
    let _ = row.set_start(Start::Warm);
    let _ = row.set_used_before(ByteSize::mib(30 + at % 5));
    row
}

fn row_of(at: u64) -> FeatureRow {
    features(PayloadWalk::of(payload(at).as_bytes()), &object(at), at)
}

/// Eight bytes a pixel in and out, and what nobody foretells.
fn peak(at: u64) -> ByteSize {
    let object = object(at);
    let pixels = (object[0].1 * object[1].1) as u64;
    let width = 100 + at * 31 % 900;
    ByteSize(25_000_000 + 8 * pixels + 4 * width * width + at * 7919 % 1009 * 2_000)
}

pub(super) fn run(length: &PredictLength, machine: Machine) -> Result<PredictReport, LabError> {
    let rounds = length.rounds.max(1);
    let clock = Measured::new((0..PREDICTIONS).map(|_| nanoseconds(|| ())).collect()).median();
    let learners = ["lintree", "j48", "j48-next"];
    let learners = learners.into_iter().map(|name| times(name, rounds)).collect::<Result<Vec<_>, _>>()?;
    let mut figures = Figures::default();
    if let Some(default) = learners.first() {
        figures.add("predict_p99_ns", default.predict_p99_ns, RatioTarget::AtMost(250.0));
        figures.add("with_features_p50_ns", default.with_features_p50_ns, RatioTarget::AtMost(1000.0));
        figures.add("fit500_ms", default.fit500_ms, RatioTarget::AtMost(5.0));
    }
    Ok(PredictReport { machine, clock_ns: clock, payload_bytes: payload(0).len(), learners, figures })
}

fn times(name: &str, rounds: usize) -> Result<LearnerTimes, LabError> {
    let failed = |error: &dyn std::fmt::Display| LabError::file(name, error);
    let learner: Learner = name.parse().map_err(|error| failed(&error))?;
    let mut model = FunctionModel::new(VERSION, learner, Interval::OFC).map_err(|error| failed(&error))?;
    for at in 0..ROWS {
        let row = TrainingRow::new(row_of(at), peak(at), Start::Warm).map_err(|error| failed(&error))?;
        if model.ended(VERSION, row).map_err(|error| failed(&error))?.refit && at < 60 {
            model = model.refitted();
        }
    }
    let fits = (0..rounds).map(|_| nanoseconds(|| black_box(&model).refitted()) / 1e6).collect();
    let model = model.refitted();
    let predictor = model.predictor();
    let rows: Vec<FeatureRow> = (0..ROWS).map(row_of).collect();
    let schema = Schema::learn(rows.iter());
    let samples: Vec<Sample> = (0..ROWS)
        .zip(&rows)
        .map(|(at, row)| Sample {
            features: schema.encode(row),
            peak: peak(at),
            bound: false,
            weight: 1.0,
            group: row.fingerprint(),
        })
        .collect();
    let alone = learner.fit(&schema, &samples);
    let (payloads, objects): (Vec<_>, Vec<_>) = (0..ROWS).map(|at| (payload(at), object(at))).unzip();
    let (mut model_ns, mut whole_ns) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        for at in 0..PREDICTIONS {
            let which = at % ROWS as usize;
            let encoded = &samples[which].features;
            model_ns.push(nanoseconds(|| nigh_learn::PeakModel::predict(&alone, black_box(encoded))));
        }
        for at in 0..PREDICTIONS {
            let which = at % ROWS as usize;
            let (payload, object) = (black_box(payloads[which].as_bytes()), black_box(&objects[which]));
            whole_ns.push(nanoseconds(|| {
                let row = features(PayloadWalk::of(payload), object, which as u64);
                predictor.foresee(VERSION, &row, ByteSize::mib(16), BOOKED)
            }));
        }
    }
    let (model_ns, whole_ns) = (Measured::new(model_ns), Measured::new(whole_ns));
    Ok(LearnerTimes {
        learner: name.to_owned(),
        predict_p50_ns: model_ns.median(),
        predict_p99_ns: model_ns.percentile(0.99),
        with_features_p50_ns: whole_ns.median(),
        with_features_p99_ns: whole_ns.percentile(0.99),
        fit500_ms: Measured::new(fits).median(),
        model_bytes: predictor.bytes(),
    })
}

/// How long `work` takes; what it made is dropped afterwards.
fn nanoseconds<T>(work: impl FnOnce() -> T) -> f64 {
    let begun = Instant::now();
    let made = black_box(work());
    let took = begun.elapsed().as_nanos() as f64;
    drop(made);
    took
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_made_up_function_is_learned_and_timed() {
        let times = times("lintree", 1).unwrap();
        assert!(times.predict_p50_ns > 0.0 && times.with_features_p50_ns > times.predict_p50_ns, "{times:?}");
        assert!(times.model_bytes > 1000 && times.model_bytes < 64 << 10, "{times:?}");
    }
}
