//! The Lambda door over real HTTP: the vendor's clients, and what no client of good will sends.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test ends by panicking")]

#[path = "lambda_door_support/hostile.rs"]
mod hostile;
mod lambda_door_support;
#[path = "lambda_door_support/openwhisk.rs"]
mod openwhisk;
#[path = "lambda_door_support/openwhisk_conductors.rs"]
mod openwhisk_conductors;
#[path = "lambda_door_support/openwhisk_limits.rs"]
mod openwhisk_limits;
#[path = "../../../tests/skipped.rs"]
mod skipped;

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use lambda_door_support::{Client, Door, archive, create_body};
use nigh_terms::{AccessKeyId, FunctionName, InvocationId, Namespace, SandboxId, SecretKey};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;

use self::skipped::skip;

const FUNCTIONS: &str = "/2015-03-31/functions";

/// A program of the project's own Python environment if it is installed there, else the machine's.
fn program(name: &str) -> String {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.deps/python/bin").join(name);
    if own.exists() { own.to_string_lossy().into_owned() } else { name.to_owned() }
}

async fn can_run(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().await.is_ok_and(|output| output.status.success())
}

async fn run_sdk(door: &Door, interpreter: &str, script: &str) -> Output {
    Command::new(interpreter)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/sdk").join(script))
        .env("AWS_ENDPOINT_URL_LAMBDA", format!("http://{}", door.address))
        .env("AWS_ENDPOINT_URL_SCHEDULER", format!("http://{}", door.address))
        .env("AWS_ACCESS_KEY_ID", door.key.0.as_str())
        .env("AWS_SECRET_ACCESS_KEY", door.key.1.reveal())
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .env("AWS_CLI", program("aws"))
        .env_remove("NIGH_SDK_REAL")
        .env_remove("NIGH_SDK_RUNTIME")
        .output()
        .await
        .unwrap()
}

fn assert_all_held(output: &Output) {
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{said}");
    assert!(output.status.success() && said.contains("all checks hold"));
}

#[tokio::test(flavor = "multi_thread")]
async fn boto3_manages_and_invokes_functions_unmodified() {
    let python = program("python3");
    if !can_run(&python, &["-c", "import boto3"]).await {
        skip("boto3_manages_and_invokes_functions_unmodified", format_args!("{python} has no boto3"));
        return;
    }
    let door = Door::open().await;
    assert_all_held(&run_sdk(&door, &python, "boto3_lambda.py").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn aws_cli_manages_and_invokes_functions_unmodified() {
    let aws = program("aws");
    if !can_run(&aws, &["--version"]).await {
        skip("aws_cli_manages_and_invokes_functions_unmodified", "there is no aws-cli");
        return;
    }
    let door = Door::open().await;
    assert_all_held(&run_sdk(&door, "sh", "aws_cli_lambda.sh").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn boto3_manages_schedules_unmodified() {
    let python = program("python3");
    if !can_run(&python, &["-c", "import boto3"]).await {
        skip("boto3_manages_schedules_unmodified", format_args!("{python} has no boto3"));
        return;
    }
    let door = Door::open().await;
    assert_all_held(&run_sdk(&door, &python, "boto3_schedules.py").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn aws_cli_manages_schedules_unmodified() {
    let aws = program("aws");
    if !can_run(&aws, &["--version"]).await {
        skip("aws_cli_manages_schedules_unmodified", "there is no aws-cli");
        return;
    }
    let door = Door::open().await;
    assert_all_held(&run_sdk(&door, "sh", "aws_cli_scheduler.sh").await);
}

#[tokio::test]
async fn a_schedule_is_its_namespaces_and_a_sandbox_manages_none() {
    let door = Door::open().await;
    door.create("f").await;
    let body = json!({
        "ScheduleExpression": "rate(1 hour)",
        "FlexibleTimeWindow": { "Mode": "OFF" },
        "Target": { "Arn": "arn:aws:lambda:us-east-1:000000000000:function:f", "RoleArn": "r" },
    });
    let body = body.to_string();
    let client = door.client();
    let for_lambda = client.send("POST", "/schedules/s", &[], body.as_bytes()).await;
    assert_eq!(for_lambda.kind(), Some("InvalidSignatureException"), "it is signed for another service");
    let own = Client { service: "scheduler", ..door.client() };
    assert_eq!(own.send("POST", "/schedules/s", &[], body.as_bytes()).await.status, 200);
    let stranger = door.keys.issue(&*door.registry, &Namespace::new("stranger").unwrap()).await.unwrap();
    let stranger = Client { key: stranger, service: "scheduler", ..door.client() };
    for (method, path) in [("GET", "/schedules/s"), ("DELETE", "/schedules/s")] {
        assert_eq!(stranger.send(method, path, &[], b"").await.kind(), Some("ResourceNotFoundException"));
    }
    assert_eq!(stranger.send("GET", "/schedules", &[], b"").await.json(), json!({ "Schedules": [] }));
    let made = stranger.send("POST", "/schedules/s", &[], body.as_bytes()).await;
    assert_eq!(made.kind(), Some("ValidationException"), "the function is another namespace's");
    let (namespace, caller) = (Namespace::new("tenant").unwrap(), FunctionName::new("caller").unwrap());
    let sandbox = door.keys.issue_sandbox(namespace, caller, SandboxId::random());
    door.keys.set_invocation(&sandbox.0, Some(InvocationId::now()));
    let inside = Client { key: sandbox, service: "scheduler", ..door.client() };
    assert_eq!(inside.send("GET", "/schedules", &[], b"").await.kind(), Some("AccessDeniedException"));
    assert_eq!(own.send("GET", "/schedules/s", &[], b"").await.json()["State"], "ENABLED");
}

#[tokio::test]
async fn nothing_is_done_without_a_signature_that_holds_now() {
    let door = Door::open().await;
    let client = door.client();
    let body = create_body("f", &archive("app.py", b"")).to_string();
    let unsigned = format!("POST {FUNCTIONS} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    assert_eq!(client.raw(unsigned.as_bytes(), b"").await.kind(), Some("MissingAuthenticationTokenException"));
    let garbage = unsigned.replace("host: x", "host: x\r\nauthorization: AWS4-HMAC-SHA256 Credential=\u{1}");
    assert_eq!(client.raw(garbage.as_bytes(), b"").await.status, 400);
    let basic = unsigned.replace("host: x", "host: x\r\nauthorization: Basic eDp5");
    assert_eq!(client.raw(basic.as_bytes(), b"").await.kind(), Some("IncompleteSignatureException"));

    let head = client.sign("POST", FUNCTIONS, &[], body.as_bytes());
    let changed = body.replace("\"f\"", "\"g\"");
    assert_eq!(client.raw(head.as_bytes(), changed.as_bytes()).await.kind(), Some("InvalidSignatureException"));
    for (seconds_off, said) in [(-301, "Signature expired"), (310, "not yet current")] {
        let late = Client { seconds_off, ..door.client() };
        let answer = late.send("POST", FUNCTIONS, &[], body.as_bytes()).await;
        assert_eq!((answer.status, answer.kind()), (403, Some("InvalidSignatureException")));
        assert!(answer.json()["Message"].as_str().unwrap().contains(said), "{answer:?}");
    }
    let nobody = Client { key: (AccessKeyId::random(), SecretKey::random()), ..door.client() };
    assert_eq!(nobody.send("GET", FUNCTIONS, &[], b"").await.kind(), Some("UnrecognizedClientException"));

    let listed = client.send("GET", FUNCTIONS, &[], b"").await;
    assert_eq!(listed.json(), json!({ "Functions": [] }));
}

#[tokio::test]
async fn a_sandbox_may_invoke_in_its_namespace_while_it_runs_and_nothing_else() {
    let door = Door::open().await;
    door.create("f").await;
    let sandboxed = |namespace: &str| {
        let namespace = Namespace::new(namespace).unwrap();
        door.keys.issue_sandbox(namespace, FunctionName::new("caller").unwrap(), SandboxId::random())
    };
    let inside = Client { key: sandboxed("tenant"), ..door.client() };
    let invoke = format!("{FUNCTIONS}/f/invocations");
    assert_eq!(inside.send("POST", &invoke, &[], b"{}").await.kind(), Some("AccessDeniedException"));
    door.keys.set_invocation(&inside.key.0, Some(InvocationId::now()));
    assert_eq!(inside.send("POST", &invoke, &[], b"{}").await.json(), json!({ "echo": {} }));
    assert_eq!(door.client().send("POST", &invoke, &[], b"{}").await.json(), json!({ "echo": {} }));
    let began_with_something: Vec<bool> = door.invoke.tokens.lock().iter().map(|token| !token.is_empty()).collect();
    assert_eq!(began_with_something, [true, false], "with what its caller has seen, if that is an invocation");
    let dry = [("x-amz-invocation-type", "DryRun")];
    assert_eq!(inside.send("POST", &invoke, &dry, b"").await.status, 204);
    for (method, target) in [
        ("GET", FUNCTIONS.to_owned()),
        ("GET", format!("{FUNCTIONS}/f")),
        ("DELETE", format!("{FUNCTIONS}/f")),
        ("PUT", format!("{FUNCTIONS}/f/code")),
        ("GET", "/2016-08-19/account-settings".to_owned()),
    ] {
        let answer = inside.send(method, &target, &[], b"").await;
        assert_eq!((answer.status, answer.kind()), (403, Some("AccessDeniedException")), "{method} {target}");
    }
    let elsewhere = Client { key: sandboxed("other"), ..door.client() };
    door.keys.set_invocation(&elsewhere.key.0, Some(InvocationId::now()));
    assert_eq!(elsewhere.send("POST", &invoke, &[], b"{}").await.status, 404);
    door.keys.revoke(&inside.key.0);
    assert_eq!(inside.send("POST", &invoke, &[], b"{}").await.kind(), Some("UnrecognizedClientException"));
}

#[tokio::test]
async fn a_namespace_sees_and_changes_its_own_functions_only() {
    let door = Door::open().await;
    door.create("f").await;
    let key = door.keys.issue(&*door.registry, &Namespace::new("other").unwrap()).await.unwrap();
    let other = Client { key, ..door.client() };
    assert_eq!(other.send("GET", FUNCTIONS, &[], b"").await.json(), json!({ "Functions": [] }));
    for (method, path) in [("GET", ""), ("DELETE", ""), ("POST", "/invocations"), ("GET", "/configuration")] {
        let answer = other.send(method, &format!("{FUNCTIONS}/f{path}"), &[], b"").await;
        assert_eq!(answer.kind(), Some("ResourceNotFoundException"), "{method} {path}");
    }
    assert_eq!(door.client().send("GET", &format!("{FUNCTIONS}/f"), &[], b"").await.status, 200);
}

#[tokio::test]
async fn malformed_requests_get_the_error_that_says_what_is_wrong() {
    let door = Door::open().await;
    let client = door.client();
    let good = create_body("f", &archive("app.py", b""));
    let with = |name: &str, value: serde_json::Value| {
        let mut changed = good.clone();
        changed[name] = value;
        changed.to_string()
    };
    for (body, kind) in [
        ("{".to_owned(), "InvalidRequestContentException"),
        ("\u{0}".to_owned(), "InvalidRequestContentException"),
        (format!("{{\"Layers\":{}", "[".repeat(100_000)), "InvalidRequestContentException"),
        ("[]".to_owned(), "SerializationException"),
        (String::new(), "ValidationException"),
        (with("Timeout", json!("3")), "SerializationException"),
        (with("Timeout", json!(0)), "ValidationException"),
        (with("FunctionName", json!("a/b")), "ValidationException"),
        (with("FunctionName", json!("../../etc")), "ValidationException"),
        (with("Handler", json!("a b")), "ValidationException"),
        (with("Handler", json!(null)), "InvalidParameterValueException"),
        (with("Runtime", json!("python3.12")), "InvalidParameterValueException"),
        (with("Architectures", json!(["sparc"])), "InvalidParameterValueException"),
        (with("PackageType", json!("Image")), "InvalidParameterValueException"),
        (with("Environment", json!({ "Variables": { "A1": "x\u{0}y" } })), "InvalidParameterValueException"),
        (with("Environment", json!({ "Variables": { "A=B": "x" } })), "ValidationException"),
        (with("Code", json!({ "ZipFile": "not base64!" })), "InvalidParameterValueException"),
        (with("Code", json!({ "ZipFile": "" })), "InvalidParameterValueException"),
        (with("Code", json!({})), "InvalidParameterValueException"),
        (with("Code", json!({ "S3Bucket": "code", "S3Key": "none.zip" })), "InvalidParameterValueException"),
        (with("Code", json!({ "S3Bucket": "code", "S3Key": "large.zip" })), "InvalidParameterValueException"),
    ] {
        let answer = client.send("POST", FUNCTIONS, &[], body.as_bytes()).await;
        assert_eq!(answer.kind(), Some(kind), "{} {answer:?}", &body[..body.len().min(300)]);
        assert!(!answer.json()["Message"].as_str().unwrap().is_empty());
        assert!(answer.header("x-amzn-requestid").is_some());
    }
    for (method, target, status) in [
        ("GET", "/2015-03-31/functions/a%2Fb", 400),
        ("GET", "/2015-03-31/functions/%2e%2e", 400),
        ("GET", "/2015-03-31/functions/f?Qualifier=%24LATEST", 404),
        ("GET", "/2015-03-31/functions?MaxItems=0", 400),
        ("GET", "/2015-03-31/functions?Marker=a%2Fb", 400),
        ("POST", "/2014-11-13/functions/f/invoke-async", 501),
        ("GET", "/nothing", 404),
    ] {
        assert_eq!(client.send(method, target, &[], b"").await.status, status, "{method} {target}");
    }
    assert_eq!(client.send("GET", FUNCTIONS, &[], b"").await.json(), json!({ "Functions": [] }));
}

#[tokio::test]
async fn code_may_lie_in_an_object_of_the_namespace() {
    let door = Door::open().await;
    let mut body = create_body("f", b"");
    body["Code"] = json!({ "S3Bucket": "code", "S3Key": "app.zip" });
    let made = door.client().send("POST", FUNCTIONS, &[], body.to_string().as_bytes()).await;
    assert_eq!((made.status, &made.json()["CodeSize"]), (201, &json!(archive("app.py", b"x = 1\n").len())));
}

#[tokio::test]
async fn an_object_may_be_an_archive_that_is_too_large_for_a_request() {
    let door = Door::open().await;
    let mut body = create_body("f", b"");
    body["Code"] = json!({ "S3Bucket": "code", "S3Key": "beyond-a-request.zip" });
    let made = door.client().send("POST", FUNCTIONS, &[], body.to_string().as_bytes()).await;
    assert_eq!(made.status, 201, "{made:?}");
    assert!(made.json()["CodeSize"].as_u64().unwrap() > 60 << 20);
}

#[tokio::test]
async fn what_is_too_large_is_refused_at_a_bounded_cost() {
    let door = Door::open().await;
    door.create("f").await;
    let client = door.client();
    let invoke = format!("{FUNCTIONS}/f/invocations");
    let payload = |size: usize| [b"\"".as_slice(), &vec![b'x'; size - 2], b"\""].concat();
    assert_eq!(client.send("POST", &invoke, &[], &payload(6 << 20)).await.status, 200);
    let answer = client.send("POST", &invoke, &[], &payload((6 << 20) + 1)).await;
    assert_eq!((answer.status, answer.kind()), (413, Some("RequestTooLargeException")));
    // Without a length the body is counted as it comes.
    let head = client.sign("POST", &invoke, &[], b"");
    let head = head.replace("content-length: 0", "transfer-encoding: chunked");
    let chunk = [b"100000\r\n".as_slice(), &vec![b'x'; 1 << 20], b"\r\n"].concat();
    let chunks = [chunk.repeat(7).as_slice(), b"0\r\n\r\n"].concat();
    assert_eq!(client.raw(head.as_bytes(), &chunks).await.kind(), Some("RequestTooLargeException"));
    let configuration = format!("{FUNCTIONS}/f/configuration");
    let answer = client.send("PUT", &configuration, &[], &vec![b' '; (1 << 20) + 1]).await;
    assert_eq!((answer.status, answer.kind()), (413, Some("RequestEntityTooLargeException")));

    let long = "x".repeat(200 << 10);
    let huge = format!("GET {FUNCTIONS} HTTP/1.1\r\nhost: x\r\nx-long: {long}\r\n\r\n");
    assert_eq!(client.raw(huge.as_bytes(), b"").await.status, 431);
    let many: String = (0..500).map(|n| format!("x-{n}: 1\r\n")).collect();
    let many = format!("GET {FUNCTIONS} HTTP/1.1\r\nhost: x\r\n{many}\r\n");
    assert_eq!(client.raw(many.as_bytes(), b"").await.status, 431);
    assert_eq!(client.raw(b"\x16\x03\x01\x02\x00garbage\r\n\r\n", b"").await.status, 400);

    let context = [("x-amz-client-context", "bm8ganNvbg==")];
    assert_eq!(client.send("POST", &invoke, &context, b"{}").await.kind(), Some("InvalidRequestContentException"));
}

#[tokio::test]
async fn code_of_250_mib_unpacked_is_taken_and_one_byte_more_is_an_invalid_parameter_and_makes_no_function() {
    let door = Door::open().await;
    let client = door.client();
    let create = async |name: &str, bytes: usize| {
        let zip = archive("zeros", &vec![0; bytes]);
        assert!(zip.len() < 1 << 20);
        client.send("POST", FUNCTIONS, &[], create_body(name, &zip).to_string().as_bytes()).await
    };
    let answer = create("f", (250 << 20) + 1).await;
    assert_eq!(answer.kind(), Some("InvalidParameterValueException"), "{answer:?}");
    let message = answer.json()["Message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("Unzipped size must be smaller than 262144000 bytes"), "{message}");
    assert_eq!(client.send("GET", &format!("{FUNCTIONS}/f"), &[], b"").await.status, 404);
    assert_eq!(create("f", 250 << 20).await.status, 201);
}

#[tokio::test]
async fn the_client_context_reaches_the_function_as_json_in_ascii() {
    let door = Door::open().await;
    door.create("f").await;
    // {"custom": {"k": "ü\n😀"}}
    let context = [("x-amz-client-context", "eyJjdXN0b20iOiB7ImsiOiAiw7xcbvCfmIAifX0=")];
    let answer = door.client().send("POST", &format!("{FUNCTIONS}/f/invocations"), &context, b"{}").await;
    assert_eq!(answer.status, 200);
    let seen = door.invoke.client_contexts.lock().pop().unwrap().unwrap();
    assert_eq!(seen, r#"{"custom":{"k":"\u00fc\n\ud83d\ude00"}}"#);
}

#[tokio::test]
async fn a_body_that_breaks_off_costs_its_connection_only() {
    let door = Door::open().await;
    door.create("f").await;
    let client = door.client();
    let head = client.sign("POST", &format!("{FUNCTIONS}/f/invocations"), &[], &[b'x'; 1000]);
    let mut stream = TcpStream::connect(door.address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(b"half").await.unwrap();
    drop(stream);
    let answer = client.send("POST", &format!("{FUNCTIONS}/f/invocations"), &[], b"1").await;
    assert_eq!(answer.json(), json!({ "echo": 1 }));
}

#[tokio::test]
async fn a_door_that_closes_answers_what_it_began_and_takes_nothing_new() {
    let door = Door::open().await;
    door.create("f").await;
    let held = door.invoke.gate.acquire().await.unwrap();
    let client = door.client();
    let head = client.sign("POST", &format!("{FUNCTIONS}/f/invocations"), &[], b"7");
    let mut stream = TcpStream::connect(door.address).await.unwrap();
    stream.write_all([head.as_bytes(), b"7"].concat().as_slice()).await.unwrap();
    while door.invoke.client_contexts.lock().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    door.until.cancel();
    while TcpStream::connect(door.address).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(!door.served.is_finished());
    drop(held);
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains("200 OK") && answer.ends_with(r#"{"echo":7}"#), "{answer}");
    door.served.await.unwrap();
}
