use super::*;

#[test]
fn harm_is_what_fails_is_wrong_or_is_far_too_late() {
    let calls = [(10.0, Harm::None), (12.0, Harm::None), (2000.0, Harm::None), (5.0, Harm::Failed("x".to_owned()))];
    let seen = HonestOutcome::of(&calls, 1000.0);
    assert_eq!((seen.invocations, seen.failed, seen.wrong, seen.late), (4, 1, 0, 1));
    assert_eq!(seen.first.as_deref(), Some("took 2000 ms"));
    assert_eq!(HonestOutcome::of(&calls, f64::INFINITY).late, 0);
}

#[test]
fn a_node_gives_too_much_by_its_cache_or_by_what_it_lends() {
    let status = |kept: u64, granted: u64, cache_takes: u64| {
        json!({
            "cache": { "kept": kept, "budget": 10 },
            "memory": { "granted": granted << 20, "cache_takes": cache_takes << 20, "booked": 512 << 20, "cache_own": 64 << 20 },
        })
    };
    assert!(!gives_too_much(&status(10, 500, 76)));
    assert!(gives_too_much(&status(11, 500, 76)));
    assert!(gives_too_much(&status(10, 501, 76)));
    assert!(!gives_too_much(&json!({ "cache": { "kept": 1, "budget": 10 }, "memory": null })));
}

#[test]
fn strange_arguments_differ_and_other_lies_have_none() {
    let strange = |round| lying_event("strange_arguments", round).to_string();
    assert!(strange(0).len() > 1 << 20 && strange(5) != strange(11));
    assert!(lying_event("leak", 0).to_string().len() < 100);
}
