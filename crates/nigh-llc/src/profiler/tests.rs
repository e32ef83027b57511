use super::*;
use crate::time_curve::Tolerance;
use crate::way_search::SearchExit;

fn settings(form: SearchForm) -> ProfilerSettings {
    ProfilerSettings::of(SearchRule { form, whole: Ways(11), fewest: Ways(1), threshold: Tolerance::FIVE_PERCENT })
}

fn inputs(kib: &[u64]) -> Vec<ProfileInput> {
    let input = |&kib: &u64| ProfileInput { name: format!("{kib}.png"), size: ByteSize::kib(kib), features: vec![] };
    kib.iter().map(input).collect()
}

fn profile(mut profiler: Profiler, run: impl Fn(&Measure, u32) -> Observation) -> Profiler {
    while let Some(measure) = profiler.next() {
        let runs = profiler.cost().runs;
        profiler.record(run(&measure, runs)).unwrap();
        assert!(runs < 2000, "it does not end");
    }
    profiler
}

fn took(millis: f64) -> Observation {
    Observation::Took(Duration::from_secs_f64(millis / 1e3))
}

/// Table III's blur: needs of 1, 1, 4 and 7 ways.
fn blur(measure: &Measure, run: u32) -> Observation {
    let need = [1, 1, 4, 7][measure.input];
    let noise = 1.0 + f64::from(run % 3) * 0.002;
    took(if measure.ways.0 < need { 116.0 } else { 100.0 } * noise)
}

#[test]
fn table_3_is_found_by_both_forms_and_bisection_runs_less() {
    let mut runs = Vec::new();
    for form in [SearchForm::Linear, SearchForm::Bisection] {
        let done = profile(Profiler::new(settings(form), inputs(&[124, 361, 699, 1434])).unwrap(), blur);
        let ways: Vec<_> = done
            .outcomes()
            .map(|(_, outcome)| match outcome {
                Some(InputOutcome::Found { found, .. }) => found.ways.0,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(ways, [1, 1, 4, 7], "{form:?}");
        let classes: Vec<_> = (0..4).map(|input| done.class(input).unwrap()).collect();
        assert_eq!(classes[1..3], [CacheClass::Insensitive, CacheClass::Sensitive]);
        let curve = done.time_curve(3).unwrap().unwrap();
        assert!(curve.micros(Ways(6)) > curve.micros(Ways(7)) * 1.1);
        assert_eq!(done.training_rows().map(|row| row.ways.0).collect::<Vec<_>>(), ways);
        // Two of four inputs take 16 ms less with their ways than with one.
        let saved = done.saved_per_invocation().as_secs_f64() * 1e3;
        assert!((saved - 8.0).abs() < 0.3, "{saved}");
        runs.push(done.cost().runs);
    }
    assert!(runs[1] * 2 < runs[0], "{runs:?}");
}

#[test]
fn the_printed_form_runs_once_each_and_finds_two() {
    let done = profile(Profiler::new(settings(SearchForm::Literal), inputs(&[1434])).unwrap(), |measure, _| {
        took(if measure.ways.0 < 7 { 116.0 } else { 100.0 })
    });
    let (_, outcome) = done.outcomes().next().unwrap();
    assert!(matches!(outcome, Some(InputOutcome::Found { found, .. }) if found.ways == Ways(2)), "{outcome:?}");
    assert_eq!(done.cost().runs, 12, "the reference and eleven steps");
}

#[test]
fn counted_misses_become_curves_of_every_row_those_that_need_one_way_too() {
    let mut profiler = Profiler::new(settings(SearchForm::Bisection), inputs(&[124, 361, 699, 1434])).unwrap();
    let mut tried = std::collections::BTreeMap::<usize, std::collections::BTreeSet<u8>>::new();
    while let Some(measure) = profiler.next() {
        tried.entry(measure.input).or_default().insert(measure.ways.0);
        let runs = profiler.cost().runs;
        let misses = 1e6 / f64::from(measure.ways.0);
        profiler.record_counted(blur(&measure, runs), Some(misses)).unwrap();
    }
    // The first input needs one way: with the whole cache and one way its need is known, the middle is for the
    // curve.
    assert_eq!(tried[&0], std::collections::BTreeSet::from([1, 6, 11]));
    let rows: Vec<_> = profiler.training_rows().collect();
    assert_eq!(rows.iter().map(|row| row.ways.0).collect::<Vec<_>>(), [1, 1, 4, 7]);
    for row in &rows {
        let curves = row.curves.as_ref().unwrap();
        assert_eq!(curves.misses.misses(Ways(1)), 1e6);
        assert!((curves.misses.misses(Ways(11)) - 1e6 / 11.0).abs() < 1.0);
        assert_eq!(curves.times.ways(), Ways(11));
    }
}

#[test]
fn a_need_that_is_found_stands_whatever_becomes_of_the_run_for_the_curve() {
    for (end, kept) in
        [(Observation::StillRunning(Duration::from_secs(1)), true), (Observation::Failed("killed".to_owned()), false)]
    {
        let mut profiler = Profiler::new(settings(SearchForm::Bisection), inputs(&[1])).unwrap();
        while profiler.next().unwrap().ways != Ways(6) {
            profiler.record_counted(took(100.0), Some(1e6)).unwrap();
        }
        // One failure fails only its run; after three the input is skipped.
        profiler.record(end.clone()).unwrap();
        assert_eq!(profiler.next().is_none(), kept, "{end:?}");
        while profiler.next().is_some() {
            profiler.record(end.clone()).unwrap();
        }
        let row = profiler.training_rows().next().unwrap();
        assert!(row.ways == Ways(1) && row.curves.is_none());
    }
}

#[test]
fn what_fails_swings_or_never_ends_gets_its_outcome_and_the_rest_goes_on() {
    let done =
        profile(Profiler::new(settings(SearchForm::Bisection), inputs(&[1, 2, 3, 4])).unwrap(), |measure, run| {
            match measure.input {
                0 => Observation::Failed("ValueError: not a picture".to_owned()),
                1 => Observation::StillRunning(measure.limit),
                2 => took(if run % 2 == 0 { 100.0 } else { 150.0 }),
                _ => took(100.0),
            }
        });
    let outcomes: Vec<_> = done.outcomes().map(|(_, outcome)| outcome.unwrap().clone()).collect();
    assert!(matches!(&outcomes[0], InputOutcome::Failed { failures: 3, reason } if reason.contains("picture")));
    assert!(matches!(outcomes[1], InputOutcome::NeverEnds { ways: Ways(11), after } if after.as_secs() == 60));
    assert!(matches!(outcomes[2], InputOutcome::Unstable { ways: Ways(11), spread } if spread > 0.3));
    assert!(matches!(&outcomes[3], InputOutcome::Found { found, .. } if found.exit == SearchExit::ReachedFewest));
    assert!(done.class(0).is_none() && done.time_curve(1).is_none());
    assert_eq!(done.training_rows().count(), 1, "no row without a finding");
}

#[test]
fn a_run_with_fewer_ways_is_ended_by_the_time_it_took_with_all() {
    let mut profiler = Profiler::new(settings(SearchForm::Bisection), inputs(&[1])).unwrap();
    assert_eq!(profiler.next().unwrap().limit, Duration::from_secs(60));
    for _ in 0..3 {
        profiler.record(took(100.0)).unwrap();
    }
    let next = profiler.next().unwrap();
    assert_eq!((next.ways, next.limit), (Ways(1), Duration::from_secs(2)));
}

#[test]
fn a_close_call_is_repeated_until_it_is_decided() {
    let close = |measure: &Measure, run: u32| {
        let noise = [0.985, 1.0, 1.015][run as usize % 3];
        took(100.0 * if measure.ways.0 < 11 { 1.055 * noise } else { 1.0 })
    };
    let done = profile(Profiler::new(settings(SearchForm::Bisection), inputs(&[1])).unwrap(), close);
    assert!(done.cost().runs > 5 * 3, "{:?}", done.cost());
}

#[test]
fn the_runs_are_bounded() {
    let tight = ProfilerSettings { runs_max: 4, ..settings(SearchForm::Linear) };
    let done = profile(Profiler::new(tight, inputs(&[1, 2])).unwrap(), |_, _| took(100.0));
    assert_eq!(done.cost().runs, 4);
    assert!(done.outcomes().all(|(_, outcome)| outcome == Some(&InputOutcome::NotReached)));
    assert_eq!(done.clone().record(took(1.0)), Err(ProfileError::NothingAsked));
}

#[test]
fn a_stored_profile_goes_on_where_it_was() {
    let mut profiler = Profiler::new(settings(SearchForm::Linear), inputs(&[124, 361, 699, 1434])).unwrap();
    let whole = profile(profiler.clone(), blur);
    while let Some(measure) = profiler.next() {
        let runs = profiler.cost().runs;
        profiler.record(blur(&measure, runs)).unwrap();
        profiler = Profiler::resume(&profiler.store()).unwrap();
    }
    assert_eq!(profiler, whole);
    assert!(matches!(Profiler::resume("{"), Err(ProfileError::NotResumable { .. })));
    let other = whole.store().replace("\"format\":1", "\"format\":9");
    assert!(Profiler::resume(&other).unwrap_err().to_string().contains("format 9"));
}

#[test]
fn a_profile_of_the_first_form_goes_on_where_it_was() {
    let mut profiler = Profiler::resume(include_str!("../../tests/fixtures/profile-1.json")).unwrap();
    assert_eq!(profiler.cost().runs, 6);
    assert_eq!(profiler.next().unwrap().ways, Ways(1), "the whole cache was timed before");
    profiler.record(took(130.0)).unwrap();
    assert_eq!(profiler.cost().runs, 7);
}

#[test]
fn what_cannot_be_profiled_is_refused() {
    assert!(matches!(Profiler::new(settings(SearchForm::Linear), vec![]), Err(ProfileError::WrongInputs { .. })));
    let mut wrong = settings(SearchForm::Linear);
    wrong.rule.fewest = Ways(12);
    assert!(matches!(Profiler::new(wrong, inputs(&[1])), Err(ProfileError::WrongRule { .. })));
}
