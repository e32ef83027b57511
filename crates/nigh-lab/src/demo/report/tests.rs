use super::*;

/// A run that reads for a half of its time, works for a quarter and writes for a quarter.
fn run(input: &str, side: Side, round: usize, took_ms: f64) -> Run {
    let phases_ms = PhasesMs { extract: took_ms / 2.0, transform: took_ms / 4.0, load: took_ms / 4.0 };
    let processor_ms = Some(took_ms.min(600.0));
    Run { function: "f".to_owned(), input: input.to_owned(), side, round, took_ms, phases_ms, processor_ms }
}

/// A function whose phases are [reading, working, writing] on each side.
pub(in crate::demo) fn made_up(function: &str, direct: [f64; 3], nigh: [f64; 3], interval: [f64; 2]) -> Vec<Summary> {
    let summary = |side: Side, [extract, transform, load]: [f64; 3]| {
        let phases_ms = PhasesMs { extract, transform, load };
        let time_ms = phases_ms.total();
        Summary {
            function: function.to_owned(),
            side,
            runs: 12,
            p50_ms: time_ms,
            p95_ms: time_ms * 2.0,
            phases_ms,
            time_ms,
            extract: extract / time_ms,
            transform: transform / time_ms,
            load: load / time_ms,
            hit_ratio: None,
            ratio_to_direct: None,
            ratio_low: None,
            ratio_high: None,
            processor_ratio_to_direct: None,
        }
    };
    let (direct, nigh) = (summary(Side::Direct, direct), summary(Side::Nigh, nigh));
    let ratio_to_direct = Some(nigh.time_ms / direct.time_ms);
    let [low, high] = interval.map(Some);
    let processor_ratio_to_direct = Some(1.0);
    let compared = Summary { ratio_to_direct, ratio_low: low, ratio_high: high, processor_ratio_to_direct, ..nigh };
    vec![direct, Summary { hit_ratio: Some(0.95), ..compared }]
}

pub(in crate::demo) fn report(summaries: Vec<Summary>) -> DemoReport {
    DemoReport {
        machine: Machine::read("nigh experiment demo".to_owned()),
        store: "OpenStack Swift (s3api)",
        clients: 1,
        failed: 0,
        first_round: FirstRound { direct_s: 9.0, nigh_s: 8.0 },
        memory: Some(BookedMemory { booked_bytes: 4 << 30, granted_bytes: 1 << 30 }),
        node_processor_ms: 3.3,
        summaries,
        runs: vec![run("i", Side::Nigh, 0, 12.0)],
        page: Some("demo.html".into()),
    }
}

#[test]
fn a_summary_adds_up_what_each_input_typically_takes_and_leaves_the_cold_round_out() {
    let mut runs = vec![run("small", Side::Direct, 0, 5000.0), run("small", Side::Nigh, 0, 7000.0)];
    for round in 1..4 {
        runs.push(run("small", Side::Direct, round, 10.0));
        runs.push(run("large", Side::Direct, round, 1000.0));
        runs.push(run("small", Side::Nigh, round, 4.0));
        runs.push(run("large", Side::Nigh, round, 500.0));
    }
    let records = [serde_json::json!({"function": "f", "hits": 3, "misses": 1})];
    let [direct, nigh] = summarize("f", &runs, &records).try_into().ok().unwrap();
    assert_eq!((direct.side, direct.ratio_to_direct, direct.hit_ratio), (Side::Direct, None, None));
    assert_eq!((direct.runs, direct.time_ms, nigh.time_ms), (6, 505.0, 252.0));
    assert_eq!((direct.extract, direct.transform, direct.load), (0.5, 0.25, 0.25));
    let ratio = nigh.ratio_to_direct.unwrap();
    assert!((ratio - 252.0 / 505.0).abs() < 1e-9, "the picture's bars have this ratio: {ratio}");
    assert_eq!((nigh.ratio_low, nigh.ratio_high), (Some(ratio), Some(ratio)), "all rounds were alike");
    assert_eq!(nigh.processor_ratio_to_direct, Some(0.4), "the lower of 0.4 and 500/600");
    assert_eq!(nigh.hit_ratio, Some(0.75));
    let first = FirstRound::of(&runs);
    assert_eq!((first.direct_s, first.nigh_s), (5.0, 7.0));
}

#[test]
fn the_interval_is_that_of_pairs_and_one_side_alone_has_none() {
    let mut runs = Vec::new();
    for round in 1..30 {
        // What disturbs both sides of a pair alike does not widen the interval by much.
        let disturbed = if round % 3 == 0 { 100.0 } else { 10.0 };
        runs.push(run("i", Side::Direct, round, disturbed));
        runs.push(run("i", Side::Nigh, round, disturbed / 2.0));
    }
    let nigh = summarize("f", &runs, &[]).pop().unwrap();
    assert_eq!((nigh.ratio_low, nigh.ratio_to_direct, nigh.ratio_high), (Some(0.5), Some(0.5), Some(0.5)));

    runs.retain(|run| run.side == Side::Nigh);
    let alone = summarize("f", &runs, &[]);
    assert_eq!((alone.len(), alone[0].ratio_to_direct, alone[0].processor_ratio_to_direct), (1, None, None));
    assert_eq!(comparisons(&alone)[0].change(), None);
    assert!(summarize("other", &runs, &[]).is_empty());
}

#[test]
fn a_change_is_one_only_if_the_interval_is_on_one_side_of_1() {
    let change = |interval| {
        let summaries = made_up("f", [1.0, 8.0, 1.0], [1.0, 8.0, 0.5], interval);
        comparisons(&summaries)[0].change()
    };
    assert_eq!(change([0.8, 0.99]), Some(Change::Faster));
    assert_eq!(change([0.9, 1.1]), Some(Change::NotShown));
    assert_eq!(change([1.01, 1.1]), Some(Change::Slower));
    let work = made_up("f", [1.0, 8.0, 1.0], [1.0, 6.0, 0.5], [0.7, 0.8]);
    assert_eq!(comparisons(&work)[0].change(), Some(Change::WorkVaried));
}

#[test]
fn booked_memory_that_is_not_granted_is_the_caches() {
    let memory = |booked_bytes, granted_bytes| BookedMemory { booked_bytes, granted_bytes }.cache_bytes();
    assert_eq!((memory(10, 4), memory(4, 10)), (6, 0));
}
