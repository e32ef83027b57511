//! What the page shows, as the admin API gives it: documents of a node with functions and objects, and their changes.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nigh_node::state_folder::StatePaths;
use serde_json::{Value, json};

use crate::platform::{Node, PATIENCE, python, wait_for};

const MODULE: &str = r#"
import time
import boto3

s3 = boto3.client("s3")

def handler(event, context):
    print("<b>seen</b>")
    if "fail" in event:
        raise ValueError(event["fail"])
    body = s3.get_object(Bucket="inbox", Key="a.txt")["Body"].read()
    s3.put_object(Bucket="results", Key="a.txt", Body=body)
    time.sleep(event.get("sleep", 0))
    return len(body)
"#;

/// Sends a request to the admin API and gives the connection, to be read. In HTTP/1.0 an answer comes in one piece.
pub(crate) fn send(socket: &Path, head: &str, body: &[u8]) -> BufReader<UnixStream> {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = body.len();
    write!(stream, "{head} HTTP/1.0\r\nhost: node\r\ncontent-length: {length}\r\n\r\n").unwrap();
    stream.write_all(body).unwrap();
    BufReader::new(stream)
}

fn socket(node: &Node) -> PathBuf {
    PathBuf::from(node.endpoints()["admin_socket"].as_str().unwrap())
}

/// The status and the body of an answer.
pub(crate) fn answer(mut sent: BufReader<UnixStream>) -> (u16, Vec<u8>) {
    let mut answer = Vec::new();
    sent.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    let status = std::str::from_utf8(&answer[..end]).unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer[end..].to_vec())
}

fn request(node: &Node, head: &str, body: &[u8]) -> (u16, Vec<u8>) {
    answer(send(&socket(node), head, body))
}

fn view_at(socket: &Path, what: &str) -> Value {
    let (status, body) = answer(send(socket, &format!("GET /v1/views/{what}"), b""));
    assert_eq!(status, 200, "{what}: {}", String::from_utf8_lossy(&body));
    serde_json::from_slice(&body).unwrap()
}

/// A view of the node with this state folder.
pub(crate) fn view_of(state: &Path, what: &str) -> Value {
    view_at(&StatePaths::new(state).admin_socket(), what)
}

fn view(node: &Node, what: &str) -> Value {
    view_at(&socket(node), what)
}

/// The data of the next server-sent event.
pub(crate) fn next_event(stream: &mut BufReader<UnixStream>) -> Value {
    let mut line = String::new();
    loop {
        line.clear();
        assert!(stream.read_line(&mut line).unwrap() > 0, "the stream has ended");
        if let Some(data) = line.strip_prefix("data: ") {
            return serde_json::from_str(data).unwrap();
        }
    }
}

#[test]
fn the_views_of_a_node_show_what_ran_where_objects_are_and_what_changes() {
    let test = "the_views_of_a_node_show_what_ran_where_objects_are_and_what_changes";
    let Some(python) = python(test) else { return };
    let node = Node::start(&python);
    for bucket in ["inbox", "results"] {
        node.ok(["objects", "mb", bucket]);
    }
    let (status, body) = request(&node, "PUT /v1/objects/default/inbox?key=a.txt", b"twelve bytes");
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
    node.deploy_code("reader", MODULE, "256MiB");

    let mut live = send(&socket(&node), "GET /v1/live?view=function&function=reader", b"");
    let first = next_event(&mut live);
    assert_eq!(
        (&first["snapshot"]["name"], &first["snapshot"]["last_runs"]),
        (&json!("reader"), &json!({})),
        "{first}"
    );
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let sent = Duration::from_millis(first["time"].as_u64().unwrap());
    assert!(since_1970.abs_diff(sent) < PATIENCE, "{first}");

    let (status, body) = request(&node, "POST /v1/functions/default/reader/invoke", b"{}");
    let answer: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((status, &answer["payload"], &answer["function_error"]), (200, &json!(12), &Value::Null), "{answer}");
    let id = answer["id"].as_str().unwrap();
    // A change in between may show that it runs.
    let change = loop {
        let change = next_event(&mut live);
        if change["patch"]["last_runs"].is_object() {
            break change;
        }
    };
    assert!(change["patch"]["last_runs"][format!("{id}-1")]["duration_us"].is_u64(), "{change}");
    assert_eq!(change["patch"].get("handler"), None, "what has not changed is not sent: {change}");
    drop(live);

    let (_, body) = request(&node, "POST /v1/functions/default/reader/invoke", br#"{"fail": "<i>why</i>"}"#);
    let failed: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(failed["function_error"], "Unhandled", "{failed}");
    let functions = view(&node, "functions?sort=errors");
    let reader = &functions["functions"]["reader"];
    assert_eq!((&functions["order"][0], &reader["runs"], &reader["errors"]), (&json!("reader"), &json!(2), &json!(1)));
    assert_eq!((&functions["total"], &functions["next"]), (&json!(1), &Value::Null));

    let hierarchy = view(&node, "hierarchy");
    assert_eq!((&hierarchy["time"]["runs"], &hierarchy["members"]), (&json!(2), &json!({})), "{hierarchy}");
    let memory = &hierarchy["status"]["memory"];
    let [granted, cache, room] = ["granted", "cache", "room"].map(|part| memory[part].as_u64().unwrap());
    let whole = memory["booked"].as_u64().unwrap() + memory["cache_own"].as_u64().unwrap();
    assert!(granted + cache + room <= whole, "{memory}");

    let objects = view(&node, "objects?bucket=inbox");
    let name = node.json(["status"])["node"].as_str().unwrap().to_owned();
    let copy = &objects["objects"]["a.txt"];
    assert!(copy["cached"][&name].is_object() && copy["home"] == name.as_str() && copy["size"] == 12, "{objects}");
    let object = view(&node, "objects?bucket=inbox&key=a.txt");
    assert_eq!(object["users"][id]["function"], "reader", "{object}");
    let (status, body) = request(&node, "GET /v1/objects/default/inbox?key=a.txt&bytes=6", b"");
    assert_eq!((status, body.as_slice()), (200, &b"twelve"[..]));
    let largest = view(&node, "cached");
    let first = largest["objects"].as_array().unwrap().iter().find(|one| one["bucket"] == "inbox").unwrap();
    assert!(first["key"] == "a.txt" && first["cached"][&name].is_object(), "{largest}");
    assert!(first["bytes"].as_u64().unwrap() >= 12 && largest["node"] == name.as_str(), "{largest}");
    let cluster = view(&node, "cluster");
    assert_eq!((&cluster["members"][&name]["running"], &cluster["table"]), (&json!(0), &Value::Null));
    top_shows_all_views(&node);

    for wrong in ["function?function=nothing", "objects?bucket=inbox&key=none", "workflows?workflow=none"] {
        assert_eq!(request(&node, &format!("GET /v1/views/{wrong}"), b"").0, 404, "{wrong}");
    }
    assert_eq!(request(&node, "GET /v1/views/hierarchy?unknown=1", b"").0, 400);
}

/// `nigh top` prints all views once, as text and as a line of JSON, and shows the line again.
fn top_shows_all_views(node: &Node) {
    let text = node.ok(["top", "--once"]);
    for part in ["memory", "FUNCTION", "reader", "OBJECT", "inbox/a.txt", "EVENT"] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    let look = node.ok(["--json", "top", "-n", "1"]);
    let read: Value = serde_json::from_str(&look).unwrap();
    assert_eq!(read["functions"]["order"][0], "reader", "{look}");
    assert!(read["objects"]["objects"].is_array() && read["events"]["dead"] == 0, "{look}");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &look).unwrap();
    let replayed = node.ok(["top", "--once", "--replay", file.path().to_str().unwrap()]);
    assert!(replayed.contains("inbox/a.txt") && replayed.contains("reader"), "{replayed}");
}

#[test]
fn a_running_invocation_is_in_the_hierarchy_with_its_memory_until_it_ends() {
    let test = "a_running_invocation_is_in_the_hierarchy_with_its_memory_until_it_ends";
    let Some(python) = python(test) else { return };
    let node = Node::start(&python);
    for bucket in ["inbox", "results"] {
        node.ok(["objects", "mb", bucket]);
    }
    request(&node, "PUT /v1/objects/default/inbox?key=a.txt", b"1");
    node.deploy_code("reader", MODULE, "256MiB");
    let mut running = node.begin(["invoke", "reader", r#"{"sleep": 3}"#]);
    let of = |hierarchy: &Value| hierarchy["running"].as_object().unwrap().values().cloned().collect::<Vec<_>>();
    wait_for("the invocation to run", || of(&view(&node, "hierarchy")).len() == 1);
    std::thread::sleep(Duration::from_millis(500));
    let run = of(&view(&node, "hierarchy")).remove(0);
    assert_eq!((&run["function"], &run["booked"]), (&json!("reader"), &json!(256 << 20)), "{run}");
    if !run["limit"].is_null() {
        assert!(run["used"].as_u64().unwrap() <= run["booked"].as_u64().unwrap(), "{run}");
    }
    assert!(running.wait().unwrap().success());
    wait_for("it to be gone", || of(&view(&node, "hierarchy")).is_empty());
}
