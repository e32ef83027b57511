//! Pages of made-up documents.

use serde_json::json;

use super::*;

const ID: &str = "01a2180f-147f-7000-a2d8-6b0795a07500";

fn texts(rows: &[Row]) -> String {
    rows.iter().map(|row| row.text.as_str()).collect::<Vec<_>>().join("\n")
}

fn explained() -> Value {
    json!({
        "total_us": 1000,
        "steps": [
            {"kind": "wait", "at_us": 0, "took_us": 500, "what": "waiting for a sandbox", "bytes": 0},
            {"kind": "run", "at_us": 500, "took_us": 500, "what": "answered", "bytes": 0},
            {"kind": "read", "at_us": 900, "took_us": 100, "what": "miss inbox/a.txt", "bytes": 2048},
        ],
        "activation": {
            "function": "blur", "start": 1_790_000_000_000_u64, "attempt": 2, "granted": 2048, "booked": 4096, "hits": 1,
            "misses": 1, "outcome": {"kind": "handler_error", "error_type": "KeyError", "message": "'a'\nb"},
            "placement": "an idle sandbox of the function", "notes": ["sizing: all booked"], "trace_id": "4bf9",
            "exceeded": {"setting": "timeout", "limit_us": 3_000_000}, "log": "one\rtwo\n", "log_omitted": 2048,
            "stack_trace": ["app.py:4"],
        },
    })
}

#[test]
fn an_invocation_is_told_on_a_line_of_time_with_the_reasons() {
    let rows = explanation(&explained(), 78);
    let all = texts(&rows);
    for part in [
        "blur, requested 2026-",
        "attempt 2",
        "1.0 ms in all: handler error: KeyError: 'a' b",
        "exceeded: timeout, 3.00 s",
        "reads from memory 50 %",
        "miss inbox/a.txt, 2 KiB",
        "placed: an idle sandbox",
        "note: sizing: all booked",
        "trace: 4bf9",
        "app.py:4",
    ] {
        assert!(all.contains(part), "{part} in\n{all}");
    }
    assert_eq!(rows[0].target, Some(Target::Function("blur".to_owned())));
    let step =
        |kind, at_us, took_us| line_of_time(&json!({"kind": kind, "at_us": at_us, "took_us": took_us}), 1000, 10);
    assert_eq!(step("wait", 0, 500), ".....     ");
    assert_eq!(step("read", 900, 100), "         R");
    assert_eq!(step("write", 1000, 0), "         W", "always seen");
    assert_eq!(line_of_time(&json!({"at_us": u64::MAX, "took_us": u64::MAX}), 0, 10), "         ?");
}

#[test]
fn a_function_lists_its_last_runs_newest_first_and_each_can_be_opened() {
    let document = json!({
        "runtime": "python3.12", "handler": "app.handle", "memory": 1024, "timeout_ms": 2500, "modified": 0, "runs": 2,
        "errors": 1, "hits": 3, "misses": 1, "window_s": 300,
        "last_runs": {
            (format!("{ID}-1")): {"ended_ms": 1000, "duration_us": 5000, "failed": true},
            "01a2180f-147f-7000-a2d8-00000000000b-1": {"ended_ms": 2000, "duration_us": 700, "failed": false},
        },
    });
    let rows = function(&document);
    assert!(rows[1].text.contains("2 runs, 1 failed") && rows[1].text.contains("from memory 75 %"), "{rows:#?}");
    assert!(rows[4].text.starts_with("0000000b") && rows[4].text.ends_with("answered"), "{rows:#?}");
    assert!(rows[5].text.ends_with("failed"), "{rows:#?}");
    assert_eq!(rows[5].target, Some(Target::Invocation(ID.to_owned())));
}

#[test]
fn an_object_is_told_with_its_copies_its_store_and_its_users() {
    let version = json!({"epoch": 2, "sequence": 40});
    let document = json!({
        "size": 2048, "version": version, "modified": 0, "cached": {"node-1": version}, "home": "node-2", "pending": [3],
        "unpushed": {"mode": "lazy", "failures": 2}, "content_type": null,
        "users": {ID: {"function": "blur", "ended": 1000, "served": "hit", "bytes": 9, "took_us": 5}},
    });
    let rows = object(&document);
    let all = texts(&rows);
    for part in [
        "version 2.40",
        "no type",
        "node-1 (version 2.40)",
        "home: node-2",
        "lazy, 2 attempts failed",
        "1 nodes have not",
    ] {
        assert!(all.contains(part), "{part} in\n{all}");
    }
    assert_eq!(rows.last().unwrap().target, Some(Target::Invocation(ID.to_owned())));
    assert!(texts(&object(&json!({"cached": {}}))).contains("copies in memory: none"));
}

#[test]
fn an_event_has_its_reason_and_its_input() {
    let rows = event(&json!({
        "state": "dead", "attempts": 3, "accepted": "2026-11-26T10:00:05.123Z", "reason": "timed out",
        "payload": {"key": "a"},
    }));
    let all = texts(&rows);
    assert!(
        all.starts_with("failed after 3 tries, accepted 2026-11-26 10:00:05\nwhy: timed out\ninput: {\"key\":\"a\"}")
    );
}

#[test]
fn logs_are_told_by_invocation_line_by_line_and_silence_in_words() {
    assert_eq!(texts(&log(&explained())), "2 KiB before this are not kept\none\ntwo");
    let entries = [
        json!({"id": ID, "start": "2026-11-26T10:00:05.123Z", "outcome": "answered", "duration_us": 900, "log": ""}),
        json!({"unanswered": ["node-3"]}),
    ];
    let rows = logs(&entries);
    assert_eq!(texts(&rows), "== 95a07500 2026-11-26 10:00:05, answered, 900 us\nIt printed nothing.");
    assert_eq!(rows[0].target, Some(Target::Invocation(ID.to_owned())));
    assert_eq!(texts(&logs(&[])), "No invocation has printed anything.");
}

#[test]
fn what_the_node_refuses_is_the_page() {
    let refused = json!({"refused": "there is no record of an invocation"});
    assert_eq!(texts(&explanation(&refused, 80)), "there is no record of an invocation");
    assert_eq!(texts(&function(&refused)), "there is no record of an invocation");
}
