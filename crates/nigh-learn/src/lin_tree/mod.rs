//! The default model of peak memory: a line, a tree on what it leaves, and a margin from what both missed.
//!
//! Memory is mostly proportional to what is held decoded, which a tree of intervals has to learn step by step and a
//! line has at once; what is not proportional the tree takes. The margin is one-sided: the quantile of what rows
//! exceeded the prediction of a model that had not seen them (five folds by input), in units of a scale that grows
//! with the prediction, so that a needless gigabyte is not granted to a small run because of a large one. Which parts
//! serve a function, and how many terms, is settled by the same folds. Nothing is random: the same rows give the same
//! model.

mod fit;
mod linear;
mod moments;
mod terms;
mod tree;

use nigh_terms::ByteSize;
use serde::{Deserialize, Serialize};

use self::linear::LinearModel;
use self::terms::Basis;
use self::tree::Tree;
use crate::sample::of_megabytes;
use crate::schema::EncodedRow;

/// The most residuals kept for margins.
const RESIDUALS_MAX: usize = 4096;
/// The unit of a margin: a fixed part in megabytes, as page cache and allocators err, and a share of the prediction.
const SCALE_MEGABYTES: f64 = 2.0;
const SCALE_SHARE: f64 = 0.05;
/// A prediction is at most this many times the largest seen peak.
const EXTRAPOLATION_MAX: f64 = 8.0;

/// A fitted model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinTree {
    basis: Basis,
    linear: LinearModel,
    tree: Tree,
    /// The smallest and the largest peak seen, in megabytes.
    seen: (f64, f64),
    /// The excess of each row over the prediction of a model without it, in units of the scale, sorted.
    residuals: Vec<f64>,
    /// The margin granted, in units of the scale.
    margin: f64,
}

impl LinTree {
    /// The default share of invocations whose need the grant should cover.
    pub const MARGIN_SHARE: f64 = 0.85;

    /// The need that is predicted, as likely too low as too high.
    #[must_use]
    pub fn predict_point(&self, features: &EncodedRow) -> ByteSize {
        of_megabytes(self.point(features))
    }

    /// The need with its margin.
    #[must_use]
    pub fn predict(&self, features: &EncodedRow) -> ByteSize {
        let point = self.point(features);
        of_megabytes(point + self.margin * scale(point))
    }

    /// The same model with the margin that this share (0 to 1) of invocations should not exceed.
    #[must_use]
    pub fn with_margin(mut self, share: f64) -> Self {
        self.margin = self.margin_of(share);
        self
    }

    /// The same model without a margin.
    #[must_use]
    pub fn without_margin(mut self) -> Self {
        self.margin = 0.0;
        self
    }

    /// The same model with its present margin fixed, without the residuals.
    #[must_use]
    pub(crate) fn lean(mut self) -> Self {
        self.residuals = Vec::new();
        self
    }

    /// The residual that a share of rows does not exceed, one standard error of that rank higher: with few rows a
    /// quantile is itself a guess, and the error that costs less is upward.
    fn margin_of(&self, share: f64) -> f64 {
        let (rows, share) = (self.residuals.len() as f64, share.clamp(0.0, 1.0));
        let rank = (rows + 1.0) * share + (rows * share * (1.0 - share)).sqrt();
        let at = (rank.ceil() as usize).clamp(1, self.residuals.len().max(1)) - 1;
        self.residuals.get(at).copied().unwrap_or(0.0).max(0.0)
    }

    #[inline]
    fn point(&self, features: &EncodedRow) -> f64 {
        let values = self.basis.values(features);
        let linear = self.linear.of(&values);
        believable(linear + self.tree.of(&values, linear), self.seen)
    }

    /// True if what was read from a store can be worked with.
    pub(crate) fn is_sound(&self, columns: usize) -> bool {
        let ordered = self.residuals.iter().all(|residual| residual.is_finite()) && self.residuals.is_sorted();
        self.basis.is_sound(columns)
            && self.linear.is_sound(&self.basis)
            && self.tree.is_sound()
            && (0.0..=self.seen.1).contains(&self.seen.0)
            && self.seen.1.is_finite()
            && (0.0..f64::MAX).contains(&self.margin)
            && self.residuals.len() <= RESIDUALS_MAX
            && ordered
    }
}

/// The prediction `point`, limited to between the least seen peak and a multiple of the largest. If extreme features
/// give NaN, the largest seen peak.
fn believable(point: f64, seen: (f64, f64)) -> f64 {
    if point.is_nan() { seen.1 } else { point.clamp(seen.0, seen.1 * EXTRAPOLATION_MAX) }
}

/// What an error is measured in at a prediction, in megabytes.
fn scale(point: f64) -> f64 {
    SCALE_MEGABYTES + SCALE_SHARE * point.max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feature::FeatureRow;
    use crate::sample::Sample;
    use crate::schema::Schema;

    /// A made-up image function: twelve megabytes and eight bytes a pixel, four more where it is a PNG, and a step at
    /// an argument.
    fn picture(at: u64) -> (FeatureRow, u64) {
        let (width, height) = (100 + at * 7919 % 1500, 100 + at * 104_729 % 1500);
        let (format, radius) = (["png", "jpeg"][(at % 2) as usize], at % 5);
        let mut row = FeatureRow::default();
        for (name, value) in [("in_width", width), ("in_height", height), ("arg_radius", radius)] {
            row.set_number(name, value as f64).unwrap();
        }
        row.set_word("in_format", format).unwrap();
        let a_pixel = if format == "png" { 12 } else { 8 };
        let step = if radius == 4 { 30_000_000 } else { 0 };
        (row, 12_000_000 + a_pixel * width * height + step)
    }

    fn samples(count: u64, peak: impl Fn(u64, u64) -> u64) -> (Schema, Vec<Sample>) {
        let rows: Vec<_> = (0..count).map(picture).collect();
        let schema = Schema::learn(rows.iter().map(|(row, _)| row));
        let sample = |(at, (row, known)): (usize, &(FeatureRow, u64))| Sample {
            features: schema.encode(row),
            peak: ByteSize(peak(at as u64, *known)),
            bound: false,
            weight: 1.0,
            group: at as u64,
        };
        let samples = rows.iter().enumerate().map(sample).collect();
        (schema, samples)
    }

    #[test]
    fn memory_by_the_pixel_is_foretold_for_pictures_never_seen() {
        let (schema, rows) = samples(60, |_, peak| peak);
        let model = LinTree::fit(&schema, &rows);
        for at in 1000..1100 {
            let (row, peak) = picture(at);
            let said = model.predict_point(&schema.encode(&row)).bytes();
            assert!(said.abs_diff(peak) < 200_000, "{said} for {peak} of {row:?}");
        }
        assert!(model.is_sound(schema.columns.len()));
    }

    #[test]
    fn the_same_rows_give_the_same_model() {
        let (schema, rows) = samples(50, |at, peak| peak + at * 31 % 1000 * 2000);
        assert_eq!(LinTree::fit(&schema, &rows), LinTree::fit(&schema, &rows));
    }

    #[test]
    fn a_margin_holds_the_share_it_is_for_and_grows_with_it() {
        let noisy = |at: u64, peak: u64| peak + at * 7919 % 1009 * 10_000;
        let (schema, rows) = samples(300, noisy);
        let model = LinTree::fit(&schema, &rows);
        let mut held = Vec::new();
        for share in [0.8, 0.9, 0.95] {
            let model = model.clone().with_margin(share);
            let test = 1000..1500_u64;
            let holds = |at: &u64| {
                let (row, peak) = picture(*at);
                model.predict(&schema.encode(&row)) >= ByteSize(noisy(*at, peak))
            };
            held.push(test.clone().filter(holds).count() as f64 / test.count() as f64);
            assert!(held[held.len() - 1] > share - 0.05, "{share}: {held:?}");
        }
        assert!(held.is_sorted(), "{held:?}");
    }

    #[test]
    fn a_row_at_its_limit_raises_what_is_predicted_and_never_lowers_it() {
        let (schema, mut rows) = samples(100, |_, peak| peak);
        let known = LinTree::fit(&schema, &rows);
        for row in rows.iter_mut().step_by(3) {
            row.bound = true;
            row.peak = ByteSize(row.peak.0 / 2);
        }
        let bounded = LinTree::fit(&schema, &rows);
        let (row, peak) = picture(2000);
        let [with, without] = [&bounded, &known].map(|model| model.predict_point(&schema.encode(&row)).0 as f64);
        assert!((with / without - 1.0).abs() < 0.05, "{with} {without} {peak}");
        for row in rows.iter_mut().step_by(3) {
            row.peak = ByteSize(row.peak.0 * 4);
        }
        let raised = LinTree::fit(&schema, &rows).predict_point(&schema.encode(&row)).0 as f64;
        assert!(raised > without, "{raised} {without}");
    }

    #[test]
    fn absurd_features_neither_break_a_fit_nor_a_prediction() {
        let mut features = Vec::new();
        for at in 0..40_u32 {
            let mut row = FeatureRow::default();
            let absurd = [0.0, 1e18, -1e18, 1e-300, 5e-324][at as usize % 5];
            row.set_number("in_width", absurd).unwrap();
            row.set_number("in_height", f64::from(at)).unwrap();
            row.set_number("arg_width", 1e18).unwrap();
            features.push(row);
        }
        let schema = Schema::learn(features.iter());
        let sample = |(at, row): (usize, &FeatureRow)| Sample {
            features: schema.encode(row),
            peak: ByteSize(if at == 0 { u64::MAX } else { at as u64 * 1_000_000 }),
            bound: at % 7 == 3,
            weight: 1.0,
            group: at as u64,
        };
        let rows: Vec<Sample> = features.iter().enumerate().map(sample).collect();
        let model = LinTree::fit(&schema, &rows);
        assert!(model.is_sound(schema.columns.len()), "{model:?}");
        for row in &rows {
            assert!(model.predict_point(&row.features) >= ByteSize(0));
        }
    }

    #[test]
    fn few_rows_or_none_or_all_equal_are_no_trouble() {
        for count in [0, 1, 2, 3, 5, 9] {
            let (schema, rows) = samples(count, |_, peak| peak);
            let model = LinTree::fit(&schema, &rows);
            assert!(model.is_sound(schema.columns.len()), "{count}");
            let most = rows.iter().map(|row| row.peak.0).max().unwrap_or(0);
            let said = model.predict(&schema.encode(&picture(77).0)).0;
            assert!(said <= most * 16, "{count}: {said}");
        }
        let (schema, rows) = samples(40, |_, _| 64_000_000);
        let model = LinTree::fit(&schema, &rows);
        assert!(model.predict(&rows[0].features).0.abs_diff(64_000_000) < 10_000);
    }
}
