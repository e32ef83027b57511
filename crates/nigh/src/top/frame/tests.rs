//! Frames of made-up looks.

use serde_json::json;

use super::super::row::Target;
use super::*;

const GIB: u64 = 1 << 30;

fn look(at: u64, hits: u64) -> Look {
    Look {
        hierarchy: json!({
            "at": at,
            "status": {
                "node": "node-1", "version": "0.1.0", "uptime_s": 90, "draining": null,
                "cluster": {"name": "lab"},
                "cache": {"hits": hits, "misses": 0, "objects": 7},
                "writes": {"waiting": 2, "waiting_bytes": 1024, "oldest_ms": 3000, "commits": hits},
                "sandboxes": {"idle_held": GIB, "waiting": 1},
                "memory": {"booked": 6 * GIB, "cache_own": 2 * GIB, "granted": 2 * GIB, "cache": 5 * GIB,
                    "cache_takes": 4 * GIB, "room": GIB, "yielded": 0},
            },
            "llc": {"level": {"on": true, "detail": "policy nigh"}, "shape": {"ways": 4}, "classes": [
                {"clos": 0, "kind": "default", "mask": 15, "running": 0},
                {"clos": 1, "kind": "sensitive", "mask": 3, "running": 1},
            ]},
            "running": {"id": {"function": "blur", "since": at - 2000, "used": 1024, "limit": 2048, "booked": 4096}},
            "running_more": 0,
            "time": {"runs": 4, "errors": 1, "p50_us": 1200, "p99_us": 5000, "transform_us": 3000, "extract_us": 1000},
            "time_window_s": 300,
            "invalidations": 3,
            "members": {"node-2": {"copies": 5, "homes": 9}, "node-3": {"unanswered": "timed out"}},
        }),
        functions: json!({
            "namespace": "default", "window_s": 300, "total": 2, "order": ["blur", "idle"],
            "functions": {"blur": {"runs": 10, "hits": 3, "misses": 1, "p50_us": 900, "errors": 2}, "idle": {}},
        }),
        objects: json!({
            "namespace": "default", "node": "node-1", "copies": 9, "cached_bytes": GIB,
            "unanswered": {"node-3": "timed out"},
            "objects": [
                {"bucket": "inbox", "key": "large", "bytes": 4096, "home": "node-1", "pending": [],
                    "cached": {"node-1": {"epoch": 1, "sequence": 7}}},
                {"bucket": "inbox", "key": "shared", "bytes": 1024, "home": "node-2", "pending": [3],
                    "cached": {"node-1": {"epoch": 1, "sequence": 9}, "node-2": {"epoch": 1, "sequence": 9}}},
            ],
        }),
        events: json!({"pending": 4, "dead": 1, "events": [
            {"id": "01a2180f-147f-7000-a2d8-6b0795a07500", "function": "blur", "state": "dead", "attempts": 3,
                "reason": "handler raised\nKeyError", "died": "2026-11-26T10:00:05.123Z"},
        ]}),
    }
}

fn frame<'a>(look: &'a Look, earlier: Option<&'a Look>, view: TopView) -> Frame<'a> {
    Frame {
        look,
        earlier,
        view,
        sort: Sort::Time,
        object_order: ObjectOrder::Bytes,
        filter: Filter::default(),
        is_frozen: false,
        cut: None,
    }
}

#[test]
fn the_hierarchy_fits_a_terminal_of_80_by_24() {
    let (before, now) = (look(10_000, 100), look(12_000, 300));
    let lines = frame(&now, Some(&before), TopView::Hierarchy).lines(80, 24);
    assert!(lines.len() <= 24 && lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
    let all = lines.join("\n");
    for part in [
        "node-1  nigh 0.1.0",
        "cluster lab, 2 others",
        "T transform 75 %",
        "SS..  class 1 sensitive, 1 run",
        "100.0/s from memory",
        "blur",
        "node-3: no answer: timed out",
        "2 unpushed",
    ] {
        assert!(all.contains(part), "{part} in\n{all}");
    }
    let memory = lines.iter().find(|line| line.starts_with("memory")).unwrap();
    let of = |letter: char| memory.chars().filter(|c| *c == letter).count();
    assert!(of('C') > of('U') && of('U').abs_diff(of('G')) <= 1, "{memory}");
}

#[test]
fn functions_are_listed_in_the_nodes_order_and_one_that_never_ran_has_no_shares() {
    let look = look(10_000, 0);
    let lines = frame(&look, None, TopView::Functions).lines(120, 24);
    assert!(lines[3].starts_with("blur") && lines[3].contains("75 %"), "{lines:#?}");
    assert!(lines[4].starts_with("idle") && lines[4].contains(" - "), "{lines:#?}");
}

#[test]
fn a_node_that_does_not_answer_is_said_in_place_of_looking_well() {
    let look = look(10_000, 0);
    let cut = Frame { cut: Some((12, "refused")), ..frame(&look, None, TopView::Hierarchy) };
    assert!(cut.lines(120, 5)[0].contains("CUT OFF 12 s: refused"));
    assert_eq!(cut.lines(20, 3).len(), 3);
}

#[test]
fn rates_need_two_looks_and_a_counter_that_went_back_has_none() {
    let (before, now) = (look(10_000, 300), look(12_000, 100));
    assert_eq!(frame(&now, Some(&before), TopView::Hierarchy).rate("/status/cache/hits"), None);
    assert_eq!(frame(&now, None, TopView::Hierarchy).rate("/status/cache/hits"), None);
    assert_eq!(frame(&before, Some(&now), TopView::Hierarchy).rate("/status/cache/hits"), None, "time went back");
}

#[test]
fn every_view_fits_a_terminal_of_80_columns_with_the_mark_of_the_cursor() {
    let look = look(10_000, 0);
    for view in TopView::ALL {
        let Body { head, rows } = frame(&look, None, view).body(78);
        let tables = head.iter().skip(1).chain(rows.iter().map(|row| &row.text));
        let wide: Vec<_> = tables.filter(|line| line.chars().count() > 78).collect();
        assert!(view == TopView::Hierarchy || wide.is_empty(), "{view:?}: {wide:#?}");
    }
}

#[test]
fn the_largest_objects_are_listed_by_bytes_or_by_copies_with_what_is_wrong_with_their_copies() {
    let look = look(10_000, 0);
    let by_bytes = frame(&look, None, TopView::Objects);
    let lines = by_bytes.lines(120, 24);
    assert!(lines[1].starts_with("node-3 did not say"), "{lines:#?}");
    assert!(lines[3].starts_with("inbox/large") && lines[3].contains("4 KiB"), "{lines:#?}");
    assert!(lines[4].contains("invalidating 1"), "{lines:#?}");
    let by_copies = Frame { object_order: ObjectOrder::Copies, ..frame(&look, None, TopView::Objects) };
    let target = Target::Object { bucket: "inbox".to_owned(), key: "shared".to_owned() };
    assert_eq!(by_copies.body(78).rows[0].target, Some(target));
    let older = Look { objects: json!({"refused": "there is no such view"}), ..look.clone() };
    assert!(frame(&older, None, TopView::Objects).lines(80, 24)[1].contains("there is no such view"));
    let recorded = Look { objects: Value::Null, ..look };
    assert!(frame(&recorded, None, TopView::Objects).lines(80, 24)[1].contains("Not in this look"));
}

#[test]
fn a_failed_event_is_a_row_with_its_reason_in_one_line() {
    let look = look(10_000, 0);
    let lines = frame(&look, None, TopView::Events).lines(100, 24);
    assert!(lines[1].starts_with("Failed events: 1;") && lines[1].contains("4 wait or run"), "{lines:#?}");
    assert!(lines[3].starts_with("95a07500 2026-11-26 10:00:05 blur"), "{lines:#?}");
    assert!(lines[3].ends_with("handler raised KeyError"), "{lines:#?}");
}

#[test]
fn a_filter_and_faults_only_leave_out_rows_and_are_said_in_the_title() {
    let look = look(10_000, 0);
    let filtered = |view, text, faults_only| {
        let filter = Filter { text, faults_only };
        let frame = Frame { filter, ..frame(&look, None, view) };
        (frame.body(78).rows.len(), frame.title())
    };
    assert_eq!(filtered(TopView::Functions, "", false).0, 2);
    assert_eq!(filtered(TopView::Functions, "idle", false).0, 1);
    assert_eq!(filtered(TopView::Functions, "", true).0, 1, "one has errors");
    assert_eq!(filtered(TopView::Objects, "", true).0, 1, "one has an invalidation on its way");
    assert_eq!(filtered(TopView::Events, "keyerror", true).0, 1);
    assert_eq!(filtered(TopView::Events, "!blur", false).0, 0);
    let title = filtered(TopView::Functions, "blur", true).1;
    assert!(title.contains("FAULTS ONLY") && title.ends_with("/blur"), "{title}");
    let nodes = Frame { filter: Filter { text: "", faults_only: true }, ..frame(&look, None, TopView::Hierarchy) };
    let all = nodes.lines(120, 40).join("\n");
    assert!(!all.contains("node-2:") && all.contains("node-3: no answer"), "{all}");
}
