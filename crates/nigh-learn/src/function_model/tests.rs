use super::*;
use crate::benefit::PhaseTimes;
use crate::maturity::MaturityChange;
use crate::training_set::{RowDecision, Start};

const BOOKED: ByteSize = ByteSize(2_000_000_000);
const FLOOR: ByteSize = ByteSize(5_000_000);

fn features(at: u64) -> FeatureRow {
    let mut row = FeatureRow::default();
    row.set_number("in_width", (100 + at * 7919 % 900) as f64).unwrap();
    row.set_number("in_height", (100 + at * 104_729 % 900) as f64).unwrap();
    row.set_word("in_format", ["png", "jpeg"][(at % 2) as usize]).unwrap();
    row.set_start(Start::Warm).unwrap();
    row
}

fn peak(at: u64) -> ByteSize {
    ByteSize(12_000_000 + 8 * (100 + at * 7919 % 900) * (100 + at * 104_729 % 900))
}

fn run(mut model: FunctionModel, rows: std::ops::Range<u64>) -> FunctionModel {
    for at in rows {
        let row = TrainingRow::new(features(at), peak(at), Start::Warm).unwrap();
        if model.ended("1", row).unwrap().refit {
            model = model.refitted();
        }
    }
    model
}

fn new(learner: Learner) -> FunctionModel {
    FunctionModel::new("1", learner, Interval::OFC).unwrap()
}

#[test]
fn until_it_is_mature_all_that_is_booked_is_granted_and_then_what_is_needed() {
    let young = run(new(Learner::default()), 0..10);
    assert_eq!(young.need("1", &features(77), FLOOR, BOOKED), Need::Booked(BOOKED));
    let old = run(young, 10..60);
    let Need::Learned(grant) = old.need("1", &features(77), FLOOR, BOOKED) else { panic!("not mature") };
    assert!(grant >= peak(77) && grant.0 < peak(77).0 + 2_000_000, "{grant} for {}", peak(77));
    assert_eq!(old.need("2", &features(77), FLOOR, BOOKED), Need::Booked(BOOKED), "other code");
    let small = ByteSize(13_000_000);
    assert!(matches!(old.need("1", &features(77), small, small), Need::Beyond { needed, .. } if needed > small));
}

#[test]
fn after_a_miss_equal_features_get_the_peak_before_any_retraining() {
    let mut model = run(new(Learner::default()), 0..60);
    let high = ByteSize(peak(77).0 * 3);
    let row = TrainingRow::new(features(77), high, Start::Warm).unwrap();
    assert_eq!(model.ended("1", row).unwrap().kept, RowDecision::Miss);
    assert_eq!(model.need("1", &features(77), FLOOR, BOOKED).grant(), high);
}

#[test]
fn a_function_that_changes_is_unlearned() {
    let mut model = run(new(Learner::default()), 0..60);
    let doubled = |at: u64| TrainingRow::new(features(at), ByteSize(peak(at).0 * 10), Start::Warm).unwrap();
    let unmatured = (100..200).any(|at| model.ended("1", doubled(at)).unwrap().maturity == MaturityChange::Unmatured);
    assert!(unmatured && !model.maturity().is_mature());
}

#[test]
fn it_is_stored_and_predicts_as_before_and_what_is_broken_is_refused() {
    for learner in ["j48", "lintree"] {
        let model = run(new(learner.parse().unwrap()), 0..60);
        let stored = model.encode().unwrap();
        assert_eq!(FunctionModel::decode(&stored).unwrap(), model);
        let text = String::from_utf8(stored).unwrap();
        let other = text.replacen("\"format\":3", "\"format\":4", 1);
        assert!(matches!(FunctionModel::decode(other.as_bytes()), Err(ModelError::OtherFormat { format: 4 })));
        let half = &text.as_bytes()[..text.len() / 2];
        assert!(matches!(FunctionModel::decode(half), Err(ModelError::Broken(_))));
    }
    let large = vec![b' '; STORED_MAX + 1];
    assert!(matches!(FunctionModel::decode(&large), Err(ModelError::TooLarge { .. })));
    let model = run(new("j48".parse().unwrap()), 0..60);
    let text = String::from_utf8(model.encode().unwrap()).unwrap();
    let endless = text.replace("\"below\":1,", "\"below\":0,");
    assert_ne!(endless, text);
    assert!(matches!(FunctionModel::decode(endless.as_bytes()), Err(ModelError::Unsound { part: "model" })));
}

#[test]
fn what_stands_in_the_path_has_no_rows_and_comes_together_with_them_again() {
    let whole = run(new(Learner::default()), 0..60);
    let mut predictor = whole.predictor();
    assert_eq!(predictor.predict(&features(77)), whole.predict(&features(77)));
    let (mut kept, mut missed) = (Vec::new(), 0);
    let mut beside = whole.clone();
    for at in 60..90 {
        let high = ByteSize(peak(at).0 * if at % 10 == 0 { 3 } else { 1 });
        let row = TrainingRow::new(features(at), high, Start::Warm).unwrap();
        let (learned, row) = predictor.ended("1", row.clone()).unwrap();
        missed += usize::from(learned.missed && high > peak(at));
        kept.extend(row);
        beside.ended("1", TrainingRow::new(features(at), high, Start::Warm).unwrap()).unwrap();
    }
    assert_eq!(missed, 3);
    assert_eq!(whole.resumed(&predictor, kept), beside);
    let newer = beside.refitted();
    predictor.take_model_of(&newer.predictor(), 0);
    assert_eq!(predictor.predict(&features(77)), newer.predict(&features(77)));
    assert!(newer.predictor().bytes() < 32 << 10, "{}", newer.predictor().bytes());
}

#[test]
fn rows_that_are_gone_through_again_teach_what_they_taught() {
    let model = run(new(Learner::default()), 0..60);
    let again = FunctionModel::replayed(model.training_set(), Learner::default(), Interval::OFC).unwrap();
    assert!(again.maturity().is_mature());
    assert_eq!(again.maturity().matured_at(), model.maturity().matured_at());
    let other = again.with_learner("j48-next".parse().unwrap()).unwrap();
    assert_eq!((other.learner().to_string().as_str(), other.training_set().rows().len()), ("j48-next", 60));
    assert!(other.predict(&features(77)).is_some());
}

#[test]
fn whether_caching_pays_is_told_once_the_model_is_mature_and_times_are_known() {
    let mut model = new(Learner::default());
    let said = |model: &FunctionModel, at| model.predictor().foresee("1", &features(at), FLOOR, BOOKED).benefits;
    for at in 0..60 {
        let mut row = TrainingRow::new(features(at), peak(at), Start::Warm).unwrap();
        // Small pictures are mostly fetched, large ones mostly worked on.
        let transform_us = (peak(at).0 / 1000) as f64;
        row.times = Some(PhaseTimes { extract_us: 7000.0, transform_us, load_us: 7000.0 });
        assert_eq!(said(&model, at).filter(|_| at < 20), None);
        if model.ended("1", row).unwrap().refit {
            model = model.refitted();
        }
    }
    let right = (100..200).filter(|at| said(&model, *at) == Some(peak(*at).0 < 14_000_000)).count();
    assert!(right > 70, "{right}");
    assert_eq!(FunctionModel::decode(&model.encode().unwrap()).unwrap(), model);
}

#[test]
fn a_set_too_large_to_be_stored_is_stored_by_its_newer_rows() {
    let mut model = new(Learner::default());
    for at in 0..TRAINING_ROWS_MAX as u64 {
        let mut row = features(at);
        for word in 0..26 {
            let name = format!("arg_{word:02}{}", "n".repeat(58));
            row.set_word(&name, &format!("{at:04}{}", "\"".repeat(60))).unwrap();
        }
        model.ended("1", TrainingRow::new(row, peak(at), Start::Warm).unwrap()).unwrap();
    }
    let stored = FunctionModel::decode(&model.encode().unwrap()).unwrap();
    let (all, kept) = (model.training_set().rows(), stored.training_set().rows());
    assert!(kept.len() < all.len() && kept.len() > 100 && kept.last() == all.last(), "{}", kept.len());
}

#[test]
fn models_of_earlier_forms_predict_as_they_did() {
    let first = &include_bytes!("../../tests/fixtures/function-model-1.json")[..];
    let second = &include_bytes!("../../tests/fixtures/function-model-2.json")[..];
    for stored in [first, second] {
        let model = FunctionModel::decode(stored).unwrap();
        assert_eq!((model.version(), model.training_set().rows().len()), ("1", 30));
        // What each said when it was stored.
        assert_eq!(model.predict(&features(77)), Some(ByteSize(13_049_433)));
    }
}
