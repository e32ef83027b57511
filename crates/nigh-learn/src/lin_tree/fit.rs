//! The fit: moments by fold, a line of each strictness and its tree without each fold, the one that missed less, its
//! margin.

use super::linear::LinearModel;
use super::moments::Moments;
use super::terms::{Basis, Term, Values};
use super::tree::{BinnedTable, LINE_COLUMN, Tree, column};
use super::{LinTree, believable, scale};
use crate::quantities::QUANTITIES_MAX;
use crate::sample::{Sample, fold_of, megabytes};
use crate::schema::Schema;

const FOLDS: usize = 5;
/// The strictness of the choice of terms: a strict line leaves steps to the tree, a loose one takes all helpful terms.
/// The function's rows decide.
const STRICTNESSES: [f64; 2] = [50.0, 1.0];
const DEPTH: usize = 6;
/// A term that is never larger is none.
const SCALE_MIN: f64 = 1e-12;
/// Larger errors, in units of the scale, do not count more in a comparison of kinds: one unpredictable run must not
/// choose the model.
const LOSS_MAX: f64 = 8.0;

/// The rows as the fit works on them.
struct Rows<'s> {
    samples: &'s [Sample],
    values: Vec<Values>,
    targets: Vec<f64>,
    weights: Vec<f64>,
    folds: Vec<usize>,
    /// Row by row: one, the terms, the target.
    design: Vec<f64>,
    width: usize,
}

impl LinTree {
    /// Fits a model, with the margin of [`LinTree::MARGIN_SHARE`]; without rows it predicts nothing.
    ///
    /// A row that is only a lower bound is used if the model without it predicts less.
    #[must_use]
    pub fn fit(schema: &Schema, samples: &[Sample]) -> Self {
        let (known, bounds): (Vec<Sample>, Vec<Sample>) = samples.iter().partition(|sample| !sample.bound);
        if bounds.is_empty() {
            return Self::fit_exact(schema, samples);
        }
        if known.is_empty() {
            return Self::fit_exact(schema, &bounds);
        }
        let without = Self::fit_exact(schema, &known);
        let raising = bounds.into_iter().filter(|sample| without.predict_point(&sample.features) < sample.peak);
        let all: Vec<Sample> = known.iter().copied().chain(raising).collect();
        if all.len() == known.len() { without } else { Self::fit_exact(schema, &all) }
    }

    fn fit_exact(schema: &Schema, samples: &[Sample]) -> Self {
        let basis = Basis::learn(schema, samples);
        let terms = basis.terms(schema);
        let mut rows = Rows::new(&basis, samples, &terms);
        let scales = rows.scale_columns();
        let binned = rows.bin(&basis);
        let mut parts = vec![Moments::new(rows.width); FOLDS];
        for (at, row) in rows.design.chunks_exact(rows.width).enumerate() {
            parts[rows.folds[at]].add(row, rows.weights[at]);
        }
        let all = parts.iter().fold(Moments::new(rows.width), Moments::plus);
        let without: Vec<Moments> = parts.iter().map(|part| all.minus(part)).collect();
        let mut unseen = STRICTNESSES.map(|_| vec![0.0; samples.len()]);
        for (fold, moments) in without.iter().enumerate() {
            let lines = LinearModel::fit(moments, &terms, &scales, STRICTNESSES);
            for (linear, unseen) in lines.iter().zip(&mut unseen) {
                rows.predict_fold(&binned, linear, fold, unseen);
            }
        }
        let ([strict, free], [of_strict, of_free]) = (LinearModel::fit(&all, &terms, &scales, STRICTNESSES), unseen);
        let strict_missed_less = rows.loss(&of_strict) < rows.loss(&of_free);
        let (linear, unseen) = if strict_missed_less { (strict, of_strict) } else { (free, of_free) };
        let everything: Vec<usize> = (0..samples.len()).collect();
        let tree = rows.grow(&binned, &linear, &everything);
        let low = rows.targets.iter().copied().fold(f64::INFINITY, f64::min);
        let high = rows.targets.iter().copied().fold(0.0, f64::max);
        let seen = if low.is_finite() { (low, high) } else { (0.0, 0.0) };
        let residual = |(target, point): (&f64, &f64)| {
            let point = believable(*point, seen);
            (target - point) / scale(point)
        };
        let mut residuals: Vec<f64> = rows.targets.iter().zip(&unseen).map(residual).collect();
        residuals.sort_by(f64::total_cmp);
        Self { basis, linear, tree, seen, residuals, margin: 0.0 }.with_margin(Self::MARGIN_SHARE)
    }
}

impl<'s> Rows<'s> {
    fn new(basis: &Basis, samples: &'s [Sample], terms: &[Term]) -> Self {
        let values: Vec<Values> = samples.iter().map(|sample| basis.values(&sample.features)).collect();
        let targets: Vec<f64> = samples.iter().map(|sample| megabytes(sample.peak)).collect();
        let weights = samples.iter().zip(&targets).map(|(sample, target)| sample.weight / scale(*target).powi(2));
        let weights = weights.collect();
        let width = terms.len() + 2;
        let mut design = Vec::with_capacity(width * samples.len());
        for (values, target) in values.iter().zip(&targets) {
            design.push(1.0);
            design.extend(terms.iter().map(|term| term.of(values)));
            design.push(*target);
        }
        let folds = samples.iter().map(|sample| fold_of(sample.group, FOLDS)).collect();
        Self { samples, values, targets, weights, folds, design, width }
    }

    /// Brings every term to at most one; what by.
    fn scale_columns(&mut self) -> Vec<f64> {
        let mut scales = vec![0.0_f64; self.width - 2];
        for row in self.design.chunks_exact(self.width) {
            for (scale, value) in scales.iter_mut().zip(&row[1..]) {
                *scale = scale.max(value.abs());
            }
        }
        for scale in &mut scales {
            // Nothing, or as good as nothing: no coefficient of it could be told.
            if *scale < SCALE_MIN {
                *scale = 1.0;
            }
        }
        for row in self.design.chunks_exact_mut(self.width) {
            for (value, scale) in row[1..].iter_mut().zip(&scales) {
                *value /= scale;
            }
        }
        scales
    }

    /// The columns of trees but the line's own, which each fold has of its own.
    fn bin(&self, basis: &Basis) -> BinnedTable {
        let mut binned = BinnedTable::default();
        let indicators = QUANTITIES_MAX..QUANTITIES_MAX + basis.indicators.len();
        for which in (0..basis.quantities.len()).chain(indicators) {
            let values: Vec<f64> = self.values.iter().map(|values| column(values, 0.0, which)).collect();
            binned.add(which, &values);
        }
        binned
    }

    fn grow(&self, binned: &BinnedTable, linear: &LinearModel, rows: &[usize]) -> Tree {
        let lines: Vec<f64> = self.values.iter().map(|values| linear.of(values)).collect();
        let mut binned = binned.clone();
        binned.add(LINE_COLUMN, &lines);
        let left: Vec<f64> = self.targets.iter().zip(&lines).map(|(target, line)| target - line).collect();
        Tree::grow(&binned, rows, &left, &self.weights, DEPTH)
    }

    /// Predicts the rows of a fold by a line and a tree that have not seen them.
    fn predict_fold(&self, binned: &BinnedTable, linear: &LinearModel, fold: usize, into: &mut [f64]) {
        let (own, others): (Vec<usize>, Vec<usize>) = (0..self.samples.len()).partition(|row| self.folds[*row] == fold);
        let tree = self.grow(binned, linear, &others);
        for row in own {
            let line = linear.of(&self.values[row]);
            into[row] = line + tree.of(&self.values[row], line);
        }
    }

    /// What was missed in all, in units of the scale.
    fn loss(&self, unseen: &[f64]) -> f64 {
        let one = |row: usize| {
            let error = self.targets[row] - unseen[row];
            self.samples[row].weight * (error.abs() / scale(self.targets[row])).min(LOSS_MAX)
        };
        (0..unseen.len()).map(one).sum()
    }
}
