//! Chooses the kind of sizing model for a function: each of its rows is left out in turn and predicted by the others.
//!
//! Too few ways slow the function and count double; too many only crowd its neighbours. A wrong class sends the
//! function to the wrong chunk. A tie goes to the simpler kind, so a function with a constant need keeps CASY's model;
//! then to a class by the nearest rows, which is CASY's first model; then to the function's features in their order
//! before the size. Rows with one kind of content cannot tell features apart. When the content changes, the work
//! follows pixels or seconds rather than compressed bytes.

use serde::Serialize;

use crate::sizing_model::{ClassFrom, ModelKind, SizingModel, SizingRule};
use crate::training_rows::{Axis, TrainingRow, TrainingRows};
use crate::way_loads::PredictedNeed;

/// A form of the model and its score on left-out rows.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ModelScore {
    /// The kind of model.
    pub kind: ModelKind,
    /// The quantity that the model goes by.
    pub axis: Axis,
    /// The source of the class.
    pub class_from: ClassFrom,
    /// Mean over the rows of: surplus ways, twice the missing ways, and [`WRONG_CLASS`] for a wrong class.
    pub score: f64,
}

/// The score of a wrong class, in ways.
pub const WRONG_CLASS: f64 = 2.0;

impl SizingModel {
    /// The model that predicts left-out rows best; `None` without rows.
    #[must_use]
    pub fn choose(rows: TrainingRows, rule: SizingRule) -> Option<Self> {
        let best = Self::scores(&rows, rule).into_iter().reduce(|best, next| {
            // A tie, or a difference below noise, keeps the earlier and simpler model.
            if next.score < best.score - 1e-9 { next } else { best }
        })?;
        Some(Self::fit(rows, rule, best.kind, best.axis)?.with_class(best.class_from).careful())
    }

    /// The scores of every kind, along every quantity that all rows have, with each source of the class; simpler ones
    /// first.
    #[must_use]
    pub fn scores(rows: &TrainingRows, rule: SizingRule) -> Vec<ModelScore> {
        let features = rows.iter().map(|row| row.input.features.len()).min().unwrap_or(0);
        let axes = || (0..features).map(|at| Axis::Feature(at as u8)).chain(std::iter::once(Axis::Size));
        let kinds = [ModelKind::Nearest, ModelKind::Rising, ModelKind::Interpolated, ModelKind::Curves];
        let all = kinds.into_iter().flat_map(|kind| axes().map(move |axis| (kind, axis)));
        let fitting = all.filter(|&(kind, axis)| Self::fit(rows.clone(), rule, kind, axis).is_some());
        let classes = [ClassFrom::NearestRows, ClassFrom::Ways];
        let forms = fitting.flat_map(|(kind, axis)| classes.map(|class_from| (kind, axis, class_from)));
        let scored = forms.map(|(kind, axis, class_from)| {
            let score = leave_one_out(rows, |others| Some(Self::fit(others, rule, kind, axis)?.with_class(class_from)));
            ModelScore { kind, axis, class_from, score }
        });
        scored.collect()
    }
}

/// The mean score over rows left out one by one; zero with a single row.
fn leave_one_out(rows: &TrainingRows, fit: impl Fn(TrainingRows) -> Option<SizingModel>) -> f64 {
    let mut scores = Vec::new();
    for (row, others) in rows.left_out() {
        let Some(prediction) = fit(others).and_then(|model| model.predict(rows.version(), &row.input)) else {
            continue;
        };
        scores.push(miss(&prediction.predicted, row));
    }
    if scores.is_empty() { 0.0 } else { scores.iter().sum::<f64>() / scores.len() as f64 }
}

fn miss(predicted: &PredictedNeed, row: &TrainingRow) -> f64 {
    let off = f64::from(predicted.ways.0) - f64::from(row.ways.0);
    let ways = if off < 0.0 { -2.0 * off } else { off };
    let same_class = predicted.class.is_insensitive() == row.class.is_insensitive();
    ways + if same_class { 0.0 } else { WRONG_CLASS }
}

#[cfg(test)]
mod tests {
    use nigh_terms::{ByteSize, Ways};

    use super::*;
    use crate::sizing_model::tests::{BLUR, EFFECT, RULE, ask};
    use crate::training_rows::SizingInput;
    use crate::training_rows::tests::{row, rows, version};

    #[test]
    fn a_need_that_never_changes_keeps_the_papers_model() {
        assert_eq!(SizingModel::choose(rows(&EFFECT), RULE).unwrap().kind(), ModelKind::Nearest);
    }

    #[test]
    fn a_need_that_grows_is_interpolated() {
        let model = SizingModel::choose(rows(&BLUR), RULE).unwrap();
        assert_ne!(model.kind(), ModelKind::Nearest);
        assert_eq!(ask(&model, 1000).predicted.ways, Ways(6));
    }

    #[test]
    fn the_feature_that_explains_the_need_is_found() {
        // The need follows the pixels; the size of the file says little.
        let mut set = TrainingRows::new(version());
        for (kib, megapixels, ways) in [(900, 0.1, 1), (300, 0.3, 2), (800, 0.6, 4), (350, 1.2, 6), (700, 2.4, 8)] {
            let mut one = row(kib, ways);
            one.input.features = vec![megapixels * 1e6];
            set.add(&version(), one).unwrap();
        }
        let model = SizingModel::choose(set, RULE).unwrap();
        assert_eq!(model.axis(), Axis::Feature(0));
        let lacking = SizingInput { size: ByteSize::kib(500), features: vec![] };
        assert!(model.predict(&version(), &lacking).is_none(), "an input without it has no prediction");
    }
}
