use nigh_terms::ByteSize;

use super::*;
use crate::miss_curve::MissCurve;
use crate::time_curve::TimeCurve;
use crate::training_rows::TrainingRow;
use crate::training_rows::tests::{row, rows, version};

pub(crate) const RULE: SizingRule = SizingRule { threshold: Tolerance::FIVE_PERCENT, lines_per_way: 20_480.0 };
pub(crate) const BLUR: [(u64, u8); 4] = [(124, 1), (361, 1), (699, 4), (1434, 7)];
const SPEECH: [(u64, u8); 4] = [(40 << 10, 10), (79 << 10, 11), (118 << 10, 11), (157 << 10, 11)];
pub(crate) const EFFECT: [(u64, u8); 4] = [(26 << 10, 1), (51 << 10, 1), (76 << 10, 1), (100 << 10, 1)];

pub(crate) fn ask(model: &SizingModel, kib: u64) -> Prediction {
    model.predict(&version(), &SizingInput { size: ByteSize::kib(kib), features: vec![] }).unwrap()
}

#[test]
fn table_3_is_given_back_by_every_kind_and_by_the_chosen_one() {
    for table in [BLUR, SPEECH, EFFECT] {
        let fitted = [ModelKind::Nearest, ModelKind::Rising, ModelKind::Interpolated]
            .map(|kind| SizingModel::fit(rows(&table), RULE, kind, Axis::Size).unwrap());
        let chosen = SizingModel::choose(rows(&table), RULE).unwrap();
        for model in fitted.iter().chain([&chosen]) {
            for (kib, ways) in table {
                let prediction = ask(model, kib);
                assert_eq!(prediction.predicted.ways, Ways(ways), "{:?}", model.kind());
                assert_eq!(prediction.predicted.class.is_insensitive(), ways == 1);
                assert_eq!(prediction.range, TrainedRange::Trained);
            }
        }
    }
}

#[test]
fn blur_at_the_papers_test_sizes_is_marked() {
    // Trained to 1.4 MB, evaluated at 4.6 to 9.5 MB.
    let model = SizingModel::choose(rows(&BLUR), RULE).unwrap();
    for kib in [4700, 6550, 9700, 60] {
        assert_eq!(ask(&model, kib).range, TrainedRange::Extrapolated, "{kib} KiB");
    }
}

#[test]
fn no_rows_or_other_code_predict_nothing() {
    assert!(SizingModel::choose(rows(&[]), RULE).is_none());
    let model = SizingModel::choose(rows(&BLUR), RULE).unwrap();
    let input = SizingInput { size: ByteSize::kib(700), features: vec![] };
    assert!(model.predict(&CodeVersion("other".to_owned()), &input).is_none());
}

/// Rows with curves: below a knee that grows with the size a run is slower, until it has outgrown the cache.
fn with_curves() -> TrainingRows {
    let mut set = TrainingRows::new(version());
    for (kib, slow) in [(100, 0.04), (200, 0.08), (400, 0.16), (800, 0.30), (1600, 0.40)] {
        let knee = kib as f64 / 200.0;
        let slowdown = |ways: u8| 1.0 + slow * (-f64::from(ways - 1) / knee).exp();
        let micros: Vec<_> = (1..=11).map(|ways| slowdown(ways) * kib as f64 * 1e3).collect();
        let misses: Vec<_> = (1..=11).map(|ways| (slowdown(ways) - 1.0) * kib as f64 * 1e3).collect();
        let curves = RunCurves {
            misses: MissCurve::new(kib as f64 * 1e3, misses).unwrap(),
            times: TimeCurve::new(micros).unwrap(),
        };
        let ways = curves.times.ways_needed(RULE.threshold);
        let class = curves.times.class(RULE.threshold, None);
        set.add(&version(), TrainingRow { ways, class, curves: Some(curves), ..row(kib, 1) }).unwrap();
    }
    set
}

#[test]
fn curves_give_a_need_and_what_sharing_is_weighed_by() {
    let model = SizingModel::fit(with_curves(), RULE, ModelKind::Curves, Axis::Size).unwrap();
    for row in with_curves().iter() {
        assert_eq!(ask(&model, row.input.size.0 / 1024).predicted.ways, row.ways);
    }
    let between = ask(&model, 560);
    assert!(between.curves.is_some());
    let nearest = SizingModel::fit(with_curves(), RULE, ModelKind::Nearest, Axis::Size).unwrap();
    assert!(ask(&nearest, 560).curves.is_some(), "curves are known whoever names the ways");
    assert!(SizingModel::fit(rows(&BLUR), RULE, ModelKind::Curves, Axis::Size).is_none());
}

#[test]
fn a_model_is_stored_and_read_back() {
    for set in [rows(&BLUR), with_curves()] {
        let model = SizingModel::choose(set, RULE).unwrap();
        let read = SizingModel::decode(&model.encode().unwrap()).unwrap();
        assert_eq!((read.kind(), read.axis(), read.rows()), (model.kind(), model.axis(), model.rows()));
        for kib in [100, 333, 700, 5000] {
            assert_eq!(ask(&read, kib), ask(&model, kib));
        }
    }
}

#[test]
fn a_model_of_the_first_form_predicts_as_it_did() {
    let stored = include_bytes!("../../tests/fixtures/sizing-model-1.json");
    let model = SizingModel::decode(stored).unwrap();
    assert_eq!(
        (model.kind(), model.class_from(), model.rows().iter().count()),
        (ModelKind::Rising, ClassFrom::Ways, 4)
    );
    let version = CodeVersion("v1".to_owned());
    for (kib, ways) in BLUR {
        let input = SizingInput { size: ByteSize::kib(kib), features: vec![] };
        assert_eq!(model.predict(&version, &input).unwrap().predicted.ways, Ways(ways));
    }
}

#[test]
fn a_broken_store_is_refused_with_its_reason() {
    let stored = SizingModel::choose(rows(&BLUR), RULE).unwrap().encode().unwrap();
    let text = String::from_utf8(stored.clone()).unwrap();
    let other = text.replace("\"format\":1", "\"format\":2");
    assert!(matches!(SizingModel::decode(other.as_bytes()), Err(ModelError::OtherFormat { format: 2 })));
    assert!(matches!(SizingModel::decode(&stored[..stored.len() / 2]), Err(ModelError::Broken(_))));
    let bad = text.replace("\"ways\":7", "\"ways\":0");
    assert!(matches!(SizingModel::decode(bad.as_bytes()), Err(ModelError::BadRow(_))));
    let unfit = text.replace("\"kind\":\"", "\"kind\":\"curves\",\"was\":\"");
    assert!(matches!(SizingModel::decode(unfit.as_bytes()), Err(ModelError::Unfit { kind: ModelKind::Curves })));
    assert!(matches!(SizingModel::decode(&vec![b' '; STORED_MAX + 1]), Err(ModelError::TooLarge { .. })));
}
