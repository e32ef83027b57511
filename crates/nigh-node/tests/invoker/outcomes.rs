//! How single invocations end.

use std::time::Duration;

use nigh_data::DataOperation;
use nigh_invoke::invocation::InvokeError;
use nigh_sandbox::log_capture::TAIL_BYTES;
use nigh_schedule::activation::{ExceededLimit, Outcome as Recorded};
use nigh_terms::ByteSize;
use serde_json::json;

use crate::node::{Node, settings};

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_the_handlers_and_its_record_tells_how_it_came() {
    let node = Node::start(settings()).await;
    node.deploy("f", |_| {});
    let cold = node.invoke("f", json!({"n": 1})).await;
    assert_eq!((cold.payload, cold.is_error), (json!({"n": 1}), false));
    assert!(cold.tail.starts_with(&format!("START RequestId: {} Version: $LATEST\n", cold.id)), "{}", cold.tail);
    assert!(cold.tail.contains("Memory Size: 128 MB") && cold.tail.contains("Init Duration: "), "{}", cold.tail);
    let warm = node.invoke("f", json!({"do": "print", "lines": 2})).await;
    assert!(warm.tail.contains("\nline 0\nline 1\nEND RequestId"), "{}", warm.tail);

    let (first, second) = (node.record(cold.id).await, node.record(warm.id).await);
    assert!(first.cold && first.init_us > 0 && !second.cold && second.init_us == 0);
    assert_eq!(first.sandbox, second.sandbox);
    assert_eq!((second.outcome, second.log_omitted), (Recorded::Answered, 0));
    assert!(second.log.contains("line 1") && second.duration_us > 0);
    assert_eq!(second.phases.transform_us, second.duration_us);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_a_handler_does_not_finish_stays_in_its_own_log() {
    let node = Node::start(settings()).await;
    node.deploy("f", |_| {});
    let first = node.invoke("f", json!({"do": "print unfinished", "text": "of the first"})).await;
    assert!(first.tail.contains("\nof the first\nEND"), "{}", first.tail);
    let second = node.invoke("f", json!({"do": "print unfinished", "text": "of the second"})).await;
    assert!(second.tail.contains("$LATEST\nof the second\nEND"), "{}", second.tail);
    assert!(!second.tail.contains("of the first"), "{}", second.tail);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_sees_lambdas_headers_and_environment_and_no_reserved_name_of_its_own() {
    let node = Node::start(settings()).await;
    node.deploy("f", |function| {
        function.environment.insert("MINE".to_owned(), "yes".to_owned());
        function.environment.insert("AWS_REGION".to_owned(), "mars".to_owned());
    });
    let headers = node.invoke("f", json!({"do": "headers"})).await;
    assert_eq!(headers.payload["lambda-runtime-aws-request-id"], headers.id.to_string());
    let environment = node.invoke("f", json!({"do": "environment"})).await.payload;
    assert_eq!((&environment["MINE"], &environment["AWS_REGION"]), (&json!("yes"), &json!("us-east-1")));
    assert_eq!(environment["AWS_ENDPOINT_URL_S3"], "http://127.0.0.1:9000");
    assert!(environment["AWS_ACCESS_KEY_ID"].as_str().unwrap().starts_with("NIGH"));
    let sandbox = node.record(headers.id).await.sandbox.unwrap();
    assert_eq!(environment["AWS_SESSION_TOKEN"], sandbox.to_string());
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn data_calls_are_the_invocations_and_their_time_is_told_apart() {
    let node = Node::start(settings()).await;
    node.deploy("f", |function| drop(function.environment.insert("INIT".to_owned(), "data".to_owned())));
    let words = json!({"do": "data", "words": ["read", "write", "read"]});
    let outcome = node.invoke("f", words).await;
    let heard: Vec<_> = outcome.payload.as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
    assert!(heard.len() == 3 && heard.iter().all(|id| *id == outcome.id.to_string()), "{heard:?}");
    let record = node.record(outcome.id).await;
    let served: Vec<_> = record.data_calls.iter().map(|call| call.served.as_str()).collect();
    assert_eq!((served.as_slice(), record.hits), (&["hit", "write", "hit"][..], 2));
    assert!(record.phases.extract_us >= 10_000 && record.phases.load_us >= 5_000, "{:?}", record.phases);
    let sum = record.phases.extract_us + record.phases.transform_us + record.phases.load_us;
    assert_eq!(sum, record.duration_us);
    assert_eq!(record.init_data_calls.len(), 1);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_is_told_when_the_writes_under_way_are_over_and_they_are_in_the_record() {
    let node = Node::start(settings()).await;
    node.deploy("f", |_| {});
    let outcome = node.invoke("f", json!({"do": "write on"})).await;
    assert_eq!(outcome.payload, "going on");
    let record = node.record(outcome.id).await;
    let served: Vec<_> = record.data_calls.iter().map(|call| call.served.as_str()).collect();
    assert_eq!(served, ["write"]);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_is_no_want_of_memory_because_an_earlier_invocation_had_that() {
    let node = Node::start(settings()).await;
    node.deploy("f", |_| {});
    let child = node.invoke("f", json!({"do": "child hoards", "mib": 400})).await;
    let killed = node.invoke("f", json!({"do": "kill", "signal": 9})).await;
    let (child, killed) = (node.record(child.id).await, node.record(killed.id).await);
    assert_eq!(child.sandbox, killed.sandbox);
    assert!(matches!(killed.outcome, Recorded::Crashed { .. }), "{:?}", killed.outcome);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handlers_error_is_told_with_type_message_and_trace() {
    let node = Node::start(settings()).await;
    node.deploy("f", |_| {});
    let outcome = node.invoke("f", json!({"do": "raise"})).await;
    assert_eq!(outcome.error_type(), "ValueError");
    assert_eq!(outcome.payload["stackTrace"], json!(["bootstrap.py"]));
    let recorded = Recorded::HandlerError { error_type: "ValueError".to_owned(), message: "as asked".to_owned() };
    assert_eq!(node.record(outcome.id).await.outcome, recorded);
    // The sandbox is as good as before.
    assert!(!node.record(node.invoke("f", json!({})).await.id).await.cold);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invocation_over_its_time_ends_with_its_sandbox() {
    let node = Node::start(settings()).await;
    node.deploy("f", |function| function.timeout = Duration::from_secs(1));
    let outcome = node.invoke("f", json!({"do": "sleep", "s": 100})).await;
    assert_eq!(outcome.error_type(), "Sandbox.Timedout");
    let message = format!("RequestId: {} Error: Task timed out after 1.00 seconds", outcome.id);
    assert_eq!(outcome.payload["errorMessage"], message);
    assert!(outcome.tail.contains("Task timed out after 1.00 seconds"), "{}", outcome.tail);
    assert_eq!(node.invoker.in_use().sandboxes, 0);
    let record = node.record(outcome.id).await;
    assert_eq!((record.outcome, record.duration_us), (Recorded::TimedOut, 1_000_000));
    assert!(node.record(node.invoke("f", json!({})).await.id).await.cold);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_names_the_data_call_that_a_handler_waited_for_when_its_time_was_up() {
    let node = Node::start(settings()).await;
    node.deploy("f", |function| function.timeout = Duration::from_secs(1));
    let outcome = node.invoke("f", json!({"do": "data", "words": ["first", "stuck read"]})).await;
    assert_eq!(outcome.error_type(), "Sandbox.Timedout");
    let record = node.record(outcome.id).await;
    let calls: Vec<_> = record.data_calls.iter().map(|call| (call.key.as_deref(), call.under_way)).collect();
    assert_eq!(calls, [(Some("first"), None), (Some("stuck read"), Some(DataOperation::Read))]);
    assert_eq!(record.exceeded, Some(ExceededLimit::Timeout { limit_us: 1_000_000 }));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_goes_without_an_answer_is_told_with_how_it_went() {
    let node = Node::start(settings()).await;
    node.deploy("f", |_| {});
    for (event, expected, recorded) in [
        (json!({"do": "exit", "code": 3}), "Runtime exited with error: exit status 3", "exited with status 3"),
        (json!({"do": "exit", "code": 0}), "Runtime exited without providing a reason", "exited without an answer"),
        (
            json!({"do": "kill", "signal": 9}),
            "Runtime exited with error: signal: killed",
            "was ended by signal 9 (killed)",
        ),
        (
            json!({"do": "kill", "signal": 11}),
            "Runtime exited with error: signal: segmentation fault",
            "was ended by signal 11 (segmentation fault)",
        ),
    ] {
        let prints = event["do"] == "exit";
        let outcome = node.invoke("f", event).await;
        assert_eq!(outcome.error_type(), "Runtime.ExitError");
        assert_eq!(outcome.payload["errorMessage"], format!("RequestId: {} Error: {expected}", outcome.id));
        let record = node.record(outcome.id).await;
        assert_eq!(record.outcome, Recorded::Crashed { reason: recorded.to_owned() });
        assert_eq!(outcome.tail.contains("last words\nEND"), prints, "{}", outcome.tail);
    }
    assert!(!node.invoke("f", json!({})).await.is_error);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_in_the_initialisation_is_told_to_the_caller() {
    let node = Node::start(settings()).await;
    for (name, mode) in [("says", "error"), ("exits", "exit")] {
        node.deploy(name, |function| drop(function.environment.insert("INIT".to_owned(), mode.to_owned())));
    }
    let said = node.invoke("says", json!({})).await;
    assert_eq!((said.error_type(), &said.payload["stackTrace"]), ("ImportError", &json!(["line 1"])));
    assert!(!said.tail.contains("Traceback"), "it got no answer to its report: {}", said.tail);
    assert_eq!(node.record(said.id).await.stack_trace, ["line 1"]);
    let exited = node.invoke("exits", json!({})).await;
    assert_eq!(exited.error_type(), "Runtime.ExitError");
    assert!(exited.tail.contains("cannot begin"), "{}", exited.tail);
    for outcome in [said, exited] {
        let record = node.record(outcome.id).await;
        assert!(matches!(record.outcome, Recorded::InitError { .. }) && record.cold && record.duration_us == 0);
    }
    assert_eq!(node.invoker.in_use().sandboxes, 0);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_cannot_be_executed_is_the_functions_error_and_not_the_nodes() {
    let node = Node::start(settings()).await;
    let cases = [
        ("empty", None, "Couldn't find valid bootstrap(s): [/var/task/bootstrap]", "/var/task/bootstrap is missing"),
        (
            "astray",
            Some("#!/nowhere\n"),
            "fork/exec /var/task/bootstrap: no such file or directory",
            "/var/task/bootstrap cannot be executed: No such file",
        ),
        (
            "formless",
            Some("neither a program nor a script\n"),
            "fork/exec /var/task/bootstrap: exec format error",
            "/var/task/bootstrap cannot be executed: Exec format error",
        ),
    ];
    for (name, bootstrap, message, advice) in cases {
        let files: Vec<_> = bootstrap.map(|text| ("bootstrap", text)).into_iter().collect();
        node.deploy_files(name, &files, |_| {});
        let outcome = node.invoke(name, json!({})).await;
        assert_eq!(outcome.error_type(), "Runtime.InvalidEntrypoint");
        assert_eq!(outcome.payload["errorMessage"], format!("RequestId: {} Error: {message}", outcome.id));
        assert!(outcome.tail.contains(advice), "{}", outcome.tail);
        let record = node.record(outcome.id).await;
        let error_type = "Runtime.InvalidEntrypoint".to_owned();
        assert_eq!(record.outcome, Recorded::InitError { error_type, message: message.to_owned() });
        assert!(record.cold && record.sandbox.is_none() && record.duration_us == 0);
        // What was repaired runs.
        node.deploy(name, |function| function.code_sha256.push_str("-repaired"));
        assert!(!node.invoke(name, json!({})).await.is_error);
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_that_hoards_memory_ends_alone_and_it_is_called_that() {
    let node = Node::start(settings()).await;
    for name in ["f", "neighbour"] {
        node.deploy(name, |_| {});
        assert!(!node.invoke(name, json!({})).await.is_error);
    }
    let modest = node.invoke("f", json!({"do": "hoard", "mib": 40})).await;
    let peak = node.record(modest.id).await.peak_memory;
    assert!(peak > Some(ByteSize::mib(40)), "{peak:?}");
    let outcome = node.invoke("f", json!({"do": "hoard", "mib": 200})).await;
    assert_eq!(outcome.error_type(), "Runtime.OutOfMemory");
    let record = node.record(outcome.id).await;
    assert_eq!((record.outcome, record.cold), (Recorded::OutOfMemory, false));
    assert!(!node.record(node.invoke("neighbour", json!({})).await.id).await.cold);
    assert!(node.record(node.invoke("f", json!({})).await.id).await.cold);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_memory_was_taken_from_is_noted_and_the_handler_lives() {
    let node = Node::start(settings()).await;
    node.deploy("f", |_| {});
    let outcome = node.invoke("f", json!({"do": "child hoards", "mib": 200})).await;
    assert_eq!(outcome.payload, json!(-9));
    let record = node.record(outcome.id).await;
    assert_eq!(record.notes, ["memory: the kernel ended 1 processes of the handler for want of it"]);
    let next = node.record(node.invoke("f", json!({})).await.id).await;
    assert!(!next.cold && next.notes.is_empty());
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_keeps_its_end_and_counts_what_it_omits() {
    let node = Node::start(settings()).await;
    node.deploy("f", |_| {});
    let outcome = node.invoke("f", json!({"do": "print", "lines": 50_000})).await;
    assert_eq!(outcome.tail.len(), TAIL_BYTES);
    assert!(outcome.tail.contains("line 49999\nEND RequestId"), "{}", outcome.tail);
    let record = node.record(outcome.id).await;
    assert_eq!(record.log.len() as u64, ByteSize::kib(64).bytes());
    assert!(record.log_omitted > 400_000);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_to_the_runtime_interface_has_no_effect() {
    let node = Node::start(settings()).await;
    node.deploy("f", |_| {});
    let outcome = node.invoke("f", json!({"do": "disturb"})).await;
    assert_eq!(outcome.payload, json!([400, 400, 403, 403, 404]));
    assert!(!node.record(node.invoke("f", json!({})).await.id).await.cold);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_too_large_is_refused_and_told() {
    let node = Node::start(settings()).await;
    node.deploy("f", |_| {});
    let outcome = node.invoke("f", json!({"do": "large", "bytes": 7 << 20})).await;
    assert_eq!(outcome.error_type(), "Function.ResponseSizeTooLarge");
    let fits = node.invoke("f", json!({"do": "large", "bytes": 6 << 20})).await;
    assert_eq!(fits.payload.as_str().map(str::len), Some(6 << 20));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_run_is_refused_before_anything_does() {
    let node = Node::start(settings()).await;
    node.deploy("f", |_| {});
    node.deploy("huge", |function| function.memory = ByteSize::gib(10));
    assert!(matches!(node.try_invoke("absent", json!({})).await, Err(InvokeError::NotFound(_))));
    let refused = node.try_invoke("huge", json!({})).await;
    assert!(matches!(refused, Err(InvokeError::TooManyRequests(why)) if why.contains("memory")));
    let large = "x".repeat(6 << 20);
    assert!(matches!(node.try_invoke("f", json!(large)).await, Err(InvokeError::PayloadTooLarge { .. })));
    assert_eq!(node.invoker.in_use().sandboxes, 0);
    node.stop().await;
}
