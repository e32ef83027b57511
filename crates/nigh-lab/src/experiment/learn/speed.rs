//! How long predictions and fits take on this machine.

use std::hint::black_box;
use std::time::Instant;

use nigh_learn::{Interval, J48, LinTree, PeakModel};
use nigh_terms::ByteSize;
use serde::Serialize;

use super::data_set::FunctionRows;
use crate::instrument::stats::Sample as Measured;

/// Predictions timed of a function.
const PREDICTIONS: usize = 20_000;
/// Rows of the fit that is timed.
const FIT_ROWS: usize = 500;
const FITS: usize = 9;

/// Times of the default model, all functions together.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Speed {
    /// Reading the clock; all other times include it.
    pub(super) clock_ns: f64,
    pub(super) predict_p50_ns: f64,
    pub(super) predict_p99_ns: f64,
    /// With the features' encoding.
    pub(super) with_features_p50_ns: f64,
    pub(super) with_features_p99_ns: f64,
    /// A fit of 500 rows with its calibration: the median over functions of the median of nine.
    pub(super) train500_ms: f64,
    /// The slowest function's.
    pub(super) train500_ms_most: f64,
    /// The paper's tree by width of interval (figure 6).
    pub(super) j48: Vec<TreeSpeed>,
}

/// A prediction of the paper's tree, ours, all functions together.
#[derive(Debug, Clone, Serialize)]
pub(super) struct TreeSpeed {
    pub(super) interval_mb: u64,
    pub(super) predict_p50_ns: f64,
    pub(super) predict_p99_ns: f64,
}

/// Times the default model on every function, and the paper's at these widths.
pub(super) fn measure(functions: &[FunctionRows], widths: &[Interval]) -> Speed {
    let (mut model_ns, mut whole_ns, mut fits) = (Vec::new(), Vec::new(), Vec::new());
    for function in functions {
        let all: Vec<usize> = (0..function.rows.len()).collect();
        let (schema, samples) = function.samples(&all);
        let model = LinTree::fit(&schema, &samples);
        for at in 0..PREDICTIONS {
            let row = at % samples.len();
            model_ns.push(nanoseconds(|| PeakModel::predict(&model, black_box(&samples[row].features))));
            let features = black_box(&function.rows[row].features);
            whole_ns.push(nanoseconds(|| model.predict(&schema.encode(features))));
        }
        // The rows repeat until there are enough, each time with one more byte, so that no two are the same.
        let many: Vec<_> = (0..FIT_ROWS)
            .map(|at| {
                let mut sample = samples[at % samples.len()];
                sample.peak = ByteSize(sample.peak.bytes() + (at / samples.len()) as u64);
                sample
            })
            .collect();
        let fit = |_| nanoseconds(|| LinTree::fit(black_box(&schema), black_box(&many))) / 1e6;
        fits.push(Measured::new((0..FITS).map(fit).collect()).median());
    }
    let clock = Measured::new((0..PREDICTIONS).map(|_| nanoseconds(|| ())).collect());
    let (model_ns, whole_ns, fits) = (Measured::new(model_ns), Measured::new(whole_ns), Measured::new(fits));
    Speed {
        clock_ns: clock.median(),
        predict_p50_ns: model_ns.median(),
        predict_p99_ns: model_ns.percentile(0.99),
        with_features_p50_ns: whole_ns.median(),
        with_features_p99_ns: whole_ns.percentile(0.99),
        train500_ms: fits.median(),
        train500_ms_most: fits.percentile(1.0),
        j48: widths.iter().map(|width| tree_speed(functions, *width)).collect(),
    }
}

fn tree_speed(functions: &[FunctionRows], width: Interval) -> TreeSpeed {
    let mut took_ns = Vec::new();
    for function in functions {
        let all: Vec<usize> = (0..function.rows.len()).collect();
        let (schema, samples) = function.samples(&all);
        let tree = J48::fit(&schema, &samples, width);
        for at in 0..PREDICTIONS {
            took_ns.push(nanoseconds(|| tree.predict(black_box(&samples[at % samples.len()].features))));
        }
    }
    let took_ns = Measured::new(took_ns);
    TreeSpeed {
        interval_mb: width.width().bytes() / 1_000_000,
        predict_p50_ns: took_ns.median(),
        predict_p99_ns: took_ns.percentile(0.99),
    }
}

fn nanoseconds<T>(work: impl FnOnce() -> T) -> f64 {
    let begun = Instant::now();
    black_box(work());
    begun.elapsed().as_nanos() as f64
}
