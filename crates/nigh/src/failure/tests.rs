//! The words for each kind of failure, whole.

use serde_json::json;

use super::*;

/// A record with this outcome and these further fields.
fn record(outcome: &Value, more: &Value) -> Activation {
    let mut record = json!({
        "id": "01a20ebd-0000-7000-8000-000000000001", "namespace": "default", "function": "hello", "code_sha256": "",
        "sandbox": null, "cold": false, "start": 1, "wait_us": 0, "init_us": 0, "duration_us": 5000,
        "phases": { "extract_us": 0, "transform_us": 5000, "load_us": 0 },
        "data_calls": [], "data_calls_omitted": 0, "hits": 0, "misses": 0,
        "booked": "128 MiB", "granted": "128 MiB", "peak_memory": null, "outcome": outcome, "notes": [],
        "placement": "", "token": {}, "log": "", "log_omitted": 0,
    });
    for (name, value) in more.as_object().into_iter().flatten() {
        record[name] = value.clone();
    }
    serde_json::from_value(record).unwrap()
}

fn failed(kind: &str, error_type: &str, message: &str) -> Value {
    json!({ "kind": kind, "error_type": error_type, "message": message })
}

fn call(served: &str, key: &str, began_us: u64, took_us: u64) -> Value {
    json!({ "served": served, "bucket": "sales", "key": key, "bytes": 0, "began_us": began_us, "took_us": took_us })
}

/// What is shown in 80 columns.
fn words(record: &Activation, error: &Value, log: &str) -> String {
    let text = shown(record, error, log, 80, false);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    text
}

/// What is shown of an error that the code could not be loaded with.
fn init(error_type: &str, message: &str, more: &Value) -> String {
    words(&record(&failed("init_error", error_type, message), more), &Value::Null, "")
}

const LOG: &str = "START RequestId: 1 Version: $LATEST\na line of mine\n[ERROR] KeyError: 'bucket'\rTraceback (most recent \
                   call last):\r\u{a0}\u{a0}File \"/var/task/main.py\", line 12, in handle\nEND RequestId: 1\nREPORT \
                   RequestId: 1\tDuration: 5.00 ms\n";

#[test]
fn an_error_is_told_with_its_place_and_three_frames_of_the_users_code() {
    let error = json!({
        "errorType": "KeyError", "errorMessage": "'bucket'",
        "stackTrace": [
            "  File \"/var/task/main.py\", line 12, in handle\n    return one(event)\n",
            "  File \"/var/task/main.py\", line 9, in one\n    return two(event)\n",
            "  File \"/var/task/own/parts.py\", line 7, in two\n    return read(event)\n",
            "  File \"/var/task/main.py\", line 4, in read\n    b, k = event[\"bucket\"], event[\"key\"]\n",
        ],
    });
    let one = record(&failed("handler_error", "KeyError", "'bucket'"), &json!({}));
    let expected = "\
main.py:4: KeyError: 'bucket'
  main.py:4 in read      b, k = event[\"bucket\"], event[\"key\"]
  own/parts.py:7 in two  return read(event)
  main.py:9 in one       return two(event)
  … 1 more
  the end of its output:
    a line of mine";
    assert_eq!(words(&one, &error, LOG), expected);
    // A record without the caller's error object says the same.
    let trace = stack_trace::lines(&error);
    let recorded = record(&failed("handler_error", "KeyError", "'bucket'"), &json!({ "stack_trace": trace }));
    assert_eq!(words(&recorded, &Value::Null, LOG), expected);
    let all = shown(&one, &error, LOG, 80, true);
    assert!(all.contains("in handle") && all.contains("REPORT RequestId: 1"), "{all}");
}

#[test]
fn an_error_in_a_package_is_told_at_the_users_call_of_it() {
    let trace = [
        "  File \"/var/task/main.py\", line 5, in handle",
        "    s3.get_object(Bucket=\"sales\", Key=\"in.csv\")",
        "  File \"/usr/lib/python3/botocore/client.py\", line 569, in _api_call",
    ];
    let message =
        "An error occurred (NoSuchBucket) when calling the GetObject operation: The specified bucket does not exist";
    let more = json!({ "stack_trace": trace, "data_calls": [call("failed", "in.csv", 0, 5)] });
    let one = record(&failed("handler_error", "NoSuchBucket", message), &more);
    assert_eq!(
        words(&one, &Value::Null, ""),
        "\
main.py:5: NoSuchBucket: An error occurred (NoSuchBucket) when calling the
    GetObject operation: The specified bucket does not exist
  main.py:5 in handle  s3.get_object(Bucket=\"sales\", Key=\"in.csv\")
  … 1 more
  help: the namespace default has no bucket sales; make it:
        `nigh objects mb nigh://sales`"
    );
}

#[test]
fn code_that_cannot_be_read_or_found_is_told_with_what_mends_it() {
    let trace = json!({ "stack_trace": ["  File \"/var/task/main.py\" Line 3", "    def handle(:"] });
    assert_eq!(
        init("Runtime.UserCodeSyntaxError", "Syntax error in module 'main': invalid syntax (main.py, line 3)", &trace),
        "main.py:3: syntax error: invalid syntax\n  main.py:3  def handle(:"
    );
    assert_eq!(
        init("Runtime.ImportModuleError", "Unable to import module 'main': No module named 'PIL'", &json!({})),
        "\
Unable to import module 'main': No module named 'PIL'
    (Runtime.ImportModuleError)
  help: add the line `pillow` to requirements.txt in the function's folder and
        deploy it again, or put the package into the folder:
        `pip install --target FOLDER pillow`"
    );
    let handlers = json!({ "handlers": ["main.handle", "main.other"] });
    assert_eq!(
        init("Runtime.HandlerNotFound", "Handler 'handel' missing on module 'main'", &handlers),
        "\
Handler 'handel' missing on module 'main' (Runtime.HandlerNotFound)
  help: did you mean main.handle? `nigh deploy hello --handler main.handle`"
    );
    let only = json!({ "handlers": ["main.handle"] });
    let import = init("Runtime.ImportModuleError", "Unable to import module 'app': No module named 'app'", &only);
    assert!(import.ends_with("the code has main.handle: `nigh deploy hello --handler main.handle`"), "{import}");
    let none = init("Runtime.ImportModuleError", "Unable to import module 'app': No module named 'app'", &json!({}));
    assert!(none.ends_with("the code has no file app.py at its top"), "{none}");
    let bootstrap =
        init("Runtime.InvalidEntrypoint", "Couldn't find valid bootstrap(s): [/var/task/bootstrap]", &json!({}));
    assert!(bootstrap.contains("put an executable file called bootstrap at the top"), "{bootstrap}");
    let node = init("Runtime.ImportModuleError", "Error: Cannot find module 'sharp'\nRequire stack:\n- /x", &json!({}));
    assert!(node.contains("`npm install sharp` in the function's folder"), "{node}");
}

#[test]
fn a_time_out_is_told_with_the_data_call_that_it_waited_for() {
    let mut open = call("failed", "in.csv", 400_000, 2_600_000);
    open["under_way"] = "read".into();
    let exceeded = json!({ "setting": "timeout", "limit_us": 3_000_000 });
    let more = json!({
        "duration_us": 3_000_000, "exceeded": exceeded, "data_calls": [call("hit", "small", 0, 100), open],
    });
    let timed_out = json!({ "kind": "timed_out" });
    let error = json!({ "errorType": "Sandbox.Timedout", "errorMessage": "RequestId: 1 Error: Task timed out after 3.00 seconds" });
    assert_eq!(
        words(&record(&timed_out, &more), &error, "2026-11-26T10:00:00.000Z 1 Task timed out after 3.00 seconds\n"),
        "\
hello timed out after 3.00 s
  it waited for the read of sales/in.csv: not finished after 2.60 s; begun 400.0
  ms after its start
  help: give it more time (its setting `timeout`):
        `nigh deploy hello --timeout 6s`"
    );
    let idle = json!({ "duration_us": 3_000_000, "exceeded": exceeded, "data_calls": [call("hit", "small", 0, 100)] });
    let text = words(&record(&timed_out, &idle), &Value::Null, "");
    assert!(text.contains("the last data call (hit sales/small) had ended\n  3.00 s before"), "{text}");
    let none = json!({ "duration_us": 3_000_000, "exceeded": exceeded });
    let text = words(&record(&timed_out, &none), &Value::Null, "");
    assert!(text.contains("it made no data call"), "{text}");
    let init = json!({ "duration_us": 0, "exceeded": { "setting": "init_timeout", "limit_us": 10_000_000 } });
    let text = words(&record(&timed_out, &init), &Value::Null, "");
    assert!(text.starts_with("hello timed out: its initialisation took longer than 10.00 s\n"), "{text}");
    assert!(text.contains("--timeout 20s`"), "{text}");
}

#[test]
fn a_lack_of_memory_is_told_with_peak_prediction_and_setting() {
    let more = json!({
        "peak_memory": "128 MiB", "granted": "112 MiB", "predicted_memory": "96 MiB",
        "exceeded": { "setting": "memory", "booked": "128 MiB" },
        "memory": { "page_cache": null, "grown": 1, "reached_booked": true },
    });
    let log = "mine\nmemory: it needed more than the 128 MiB that it booked; book 256 MiB or more\n";
    assert_eq!(
        words(&record(&json!({ "kind": "out_of_memory" }), &more), &Value::Null, log),
        "\
hello ran out of memory: it needed more than the 128 MiB that it booked
  memory: peak 128 MiB, 128 MiB booked (its setting `memory`), 112 MiB granted,
  96 MiB predicted by its model
  help: book more: `nigh deploy hello --memory 256MiB`
  the end of its output:
    mine"
    );
}

#[test]
fn a_process_that_ends_and_a_node_that_stops_are_told() {
    let crashed = json!({ "kind": "crashed", "reason": "was ended by signal 11 (segmentation fault)" });
    assert_eq!(
        words(&record(&crashed, &json!({})), &Value::Null, "one\ntwo\nthree\nfour\n"),
        "\
the process of hello was ended by signal 11 (segmentation fault), and gave no
    answer
  the end of its output:
    two
    three
    four"
    );
    let stopped = words(&record(&json!({ "kind": "stopped" }), &json!({})), &Value::Null, "");
    assert_eq!(stopped, "hello did not finish: its node was stopping\n  help: invoke it again when the node is back");
}

#[test]
fn what_a_function_may_not_do_is_told_with_what_it_may() {
    let of = |error_type: &str, message: &str| {
        words(&record(&failed("handler_error", error_type, message), &json!({})), &Value::Null, "")
    };
    for (error_type, message, help) in [
        (
            "ClientError",
            "An error occurred (InvalidAccessKeyId) when calling the PutObject operation",
            "in its environment",
        ),
        ("OSError", "[Errno 30] Read-only file system: '/var/task/out'", "can write below /tmp"),
        ("PermissionError", "[Errno 13] Permission denied: '/etc/x'", "can write below /tmp"),
        ("OSError", "[Errno 28] No space left on device", "nigh deploy hello --tmp 1GiB"),
        ("EndpointConnectionError", "Could not connect to the endpoint URL: \"https://x\"", "--network"),
        ("Function.ResponseSizeTooLarge", "Response payload size exceeded", "write a large result as an object"),
        ("Runtime.MarshalError", "Unable to marshal response: set is not JSON serializable", "what JSON can hold"),
    ] {
        let text = of(error_type, message);
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains("help: ") && flat.contains(help), "{text}");
    }
    assert_eq!(of("ValueError", ""), "ValueError");
    assert_eq!(of("ValueError", "no"), "ValueError: no");
}

#[test]
fn an_event_without_records_is_told_from_one_of_a_trigger() {
    let of =
        |message: &str| words(&record(&failed("handler_error", "KeyError", message), &json!({})), &Value::Null, "");
    assert_eq!(
        of("'Records'"),
        "\
KeyError: 'Records'
  help: an event of a trigger has Records, an event of a schedule has none: test
        `\"Records\" in event` first (docs/reference/lambda.md#schedules)"
    );
    assert_eq!(of("'bucket'"), "KeyError: 'bucket'");
}

#[test]
fn a_long_message_is_shortened_unless_all_is_asked_for() {
    let long = format!("{}\n{}", "word ".repeat(500), "line\n".repeat(100));
    let one = record(&failed("handler_error", "ValueError", &long), &json!({}));
    let short = words(&one, &Value::Null, "");
    assert!(short.lines().count() < 15 && short.ends_with('…'), "{short}");
    assert!(shown(&one, &Value::Null, "", 80, true).lines().count() > 100);
}

#[test]
fn an_error_object_has_the_whole_of_what_the_record_shortens() {
    let one = record(&failed("handler_error", "ValueError", "begi"), &json!({}));
    let error = json!({ "errorType": "ValueError", "errorMessage": "begin and end" });
    assert_eq!(words(&one, &error, ""), "ValueError: begin and end");
    let other = json!({ "errorType": "Other", "errorMessage": "of another invocation" });
    assert_eq!(words(&one, &other, ""), "ValueError: begi", "it is not this record's");
}
