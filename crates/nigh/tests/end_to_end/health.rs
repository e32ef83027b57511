//! What probes are told of a node in each state, and what it does meanwhile: start, drain, a full or broken disk, threads that
//! stand still, a store or NATS servers that are away, another reading of its settings.

mod expelled;
mod failed_journal;
mod reloads;
mod stopped_threads;

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cluster_workflows::Nodes;
use crate::platform::{Node, PATIENCE, command, python, wait_for};
use crate::small_disk::SmallDisk;
use crate::store_down::{World, object, refuse};

const LIVE: &str = "/health/live";
const READY: &str = "/health/ready";
const READS: &str = "/health/ready?reads=1";
const WRITES: &str = "/health/ready?writes=1";

/// An answer of an HTTP listener.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// The status, and the word that says why.
    fn told(&self) -> (u16, String) {
        (self.status, self.json()["status"].as_str().unwrap().to_owned())
    }
}

/// Asks the listener at `address`; None if nobody listens or the connection ends without an answer.
fn ask(address: &str, method: &str, path: &str) -> Option<Answer> {
    let mut stream = TcpStream::connect(address.trim_start_matches("http://")).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream
        .write_all(format!("{method} {path} HTTP/1.1\r\nhost: health\r\nconnection: close\r\n\r\n").as_bytes())
        .ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() })
}

fn get(address: &str, path: &str) -> Answer {
    ask(address, "GET", path).unwrap_or_else(|| panic!("{path} is not answered"))
}

/// Where a node with this state tells of its health.
fn health(state: &Path) -> String {
    let endpoints: Value = serde_json::from_slice(&std::fs::read(state.join("endpoints.json")).unwrap()).unwrap();
    endpoints["health"].as_str().unwrap().to_owned()
}

/// What the four probes are told.
fn probes(address: &str) -> [(u16, String); 4] {
    [LIVE, READY, READS, WRITES].map(|path| get(address, path).told())
}

fn told(expected: [(u16, &str); 4]) -> [(u16, String); 4] {
    expected.map(|(status, word)| (status, word.to_owned()))
}

/// The check of this name.
fn check(answer: &Value, name: &str) -> Value {
    answer["checks"].as_array().unwrap().iter().find(|check| check["name"] == name).unwrap().clone()
}

fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

#[test]
fn a_node_is_live_from_the_first_moment_and_ready_when_it_has_started() {
    let Some(python) = python("a_node_is_live_from_the_first_moment_and_ready_when_it_has_started") else { return };
    let (address, has_started) = (free_address(), Arc::new(AtomicBool::new(false)));
    let (watched, until) = (address.clone(), Arc::clone(&has_started));
    let watcher = std::thread::spawn(move || {
        let mut before = Vec::new();
        while !until.load(Ordering::Relaxed) {
            if let (Some(live), Some(ready), Some(scrape)) =
                (ask(&watched, "GET", LIVE), ask(&watched, "GET", READY), ask(&watched, "GET", "/metrics"))
            {
                assert!([200, 503].contains(&scrape.status), "{}", scrape.body);
                assert_eq!(live.told(), (200, "ok".to_owned()));
                if ready.status == 200 {
                    return before;
                }
                before.push(ready.json());
            }
        }
        before
    });
    let set = format!("health.listen={address}");
    let node = Node::start_with(&python, &["--set", &set]);
    wait_for("the node to be ready", || get(&address, READY).status == 200);
    has_started.store(true, Ordering::Relaxed);
    let before = watcher.join().unwrap();
    assert!(!before.is_empty(), "a start takes a while");
    for answer in before {
        assert_eq!(answer["status"], "starting", "{answer}");
        let start = check(&answer, "start");
        assert_eq!(start["ok"], false);
        assert!(start["why"].as_str().unwrap().starts_with("the node starts: it "), "{start}");
    }

    assert_eq!(health(&node.state), format!("http://{address}"));
    assert_eq!(probes(&address), told([(200, "ok"); 4]));
    let ready = get(&address, READY);
    assert!(
        ready.head.contains("cache-control: no-store") && ready.head.contains("application/json"),
        "{}",
        ready.head
    );
    let store = check(&ready.json(), "store");
    assert_eq!((&store["ok"], &store["why"]), (&Value::from(true), &Value::Null));
    assert!(store["since"].as_str().unwrap().ends_with('Z'));
    let head = ask(&address, "HEAD", READY).unwrap();
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert_eq!(ask(&address, "POST", READY).unwrap().status, 405);
    assert_eq!(get(&address, "/status").status, 404);
    let metrics = get(&address, "/metrics");
    assert!(metrics.head.contains("text/plain; version=0.0.4") && metrics.body.contains("process_threads"));
    // A node that is alone cannot be taken away.
    let name = node.json(["status"])["node"].as_str().unwrap().to_owned();
    assert_eq!(get(&address, "/health/cluster").status, 200);
    assert_eq!(get(&address, &format!("/health/cluster?without={name}")).status, 412);
    assert_eq!(get(&address, "/health/cluster?without=nobody").status, 404);

    let second = node.state.with_file_name("second");
    let up = ["up", "--s3-listen", "127.0.0.1:0", "--lambda-listen", "127.0.0.1:0", "--set", &set];
    let refused = command(&second).args(up).output().unwrap();
    let words = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{words}");
    assert!(words.contains(&address) && words.contains("--health-listen"), "{words}");
}

#[test]
fn a_node_that_drains_is_not_ready_at_once_and_keeps_its_doors_open_for_the_delay() {
    let test = "a_node_that_drains_is_not_ready_at_once_and_keeps_its_doors_open_for_the_delay";
    let Some(python) = python(test) else { return };
    let delay = Duration::from_secs(6);
    let mut node = Node::start_with(&python, &["--set", "drain_delay=6 s"]);
    node.deploy("sleeper");
    let (address, s3) = (health(&node.state), node.endpoints()["s3"].as_str().unwrap().to_owned());
    let closes = |answer: &Answer| answer.head.contains("connection: close");
    let mut kept = TcpStream::connect(s3.trim_start_matches("http://")).unwrap();
    let mut on_kept_connection = || {
        kept.write_all(b"GET / HTTP/1.1\r\nhost: s3\r\n\r\n").unwrap();
        let mut buffer = [0; 4096];
        let length = kept.read(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).to_ascii_lowercase()
    };
    assert!(!on_kept_connection().contains("connection: close"));
    let running = node.begin(["invoke", "sleeper", r#"{"sleep": 15}"#]);
    wait_for("the invocation to run", || node.json(["status"])["sandboxes"]["running"] == 1);

    let began = Instant::now();
    node.terminate();
    wait_for("the node to drain", || get(&address, READY).status == 503);
    assert_eq!(probes(&address), told([(200, "ok"), (503, "draining"), (503, "draining"), (503, "draining")]));
    assert!(get(&address, "/metrics").body.contains("nigh_invocations_running 1\n"), "a scrape is answered");
    assert!(on_kept_connection().contains("connection: close"), "its client is asked to leave");
    // A supervisor that repeats itself.
    node.terminate();
    assert_eq!(node.json(["invoke", "sleeper", "{}"])["payload"]["echo"], serde_json::json!({}));
    // A client that goes on: each connection is answered until none is taken any more.
    let mut answered = 0;
    while let Ok(mut stream) = TcpStream::connect(s3.trim_start_matches("http://")) {
        let mut text = String::new();
        if stream
            .write_all(b"GET / HTTP/1.1\r\nhost: s3\r\n\r\n")
            .and_then(|()| stream.read_to_string(&mut text))
            .is_err()
        {
            // The listener has closed since.
            assert!(began.elapsed() >= delay, "after {:?}", began.elapsed());
            continue;
        }
        if !text.is_empty() {
            let status = text.split(' ').nth(1).unwrap().parse().unwrap();
            let answer = Answer { status, head: text.to_ascii_lowercase(), body: String::new() };
            assert!(answer.status == 403 && closes(&answer), "{text}");
            answered += 1;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(began.elapsed() >= delay && answered > 0, "after {:?}, {answered} answers", began.elapsed());
    // What ran is answered, and health is told to the end.
    assert_eq!(get(&address, READY).told(), (503, "draining".to_owned()));
    let done = running.wait_with_output().unwrap();
    assert!(done.status.success(), "{done:?}");
    assert_eq!(node.exit_code(), Some(0));
    assert!(ask(&address, "GET", LIVE).is_none());
}

#[test]
fn a_store_that_is_away_degrades_a_node_and_a_full_journal_lets_it_refuse_writes_alone() {
    let test = "a_store_that_is_away_degrades_a_node_and_a_full_journal_lets_it_refuse_writes_alone";
    // A journal of which a part only finds room.
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(test, folder.path(), 40) else { return };
    let Some(world) = World::start_on(test, "lazy", 256, Some(&disk)) else { return };
    world.put_in_time("first", b"first");
    let address = health(&world.node.state);
    wait_for("the store to have it", || world.stored("first").is_ok());
    wait_for("the node to be well", || probes(&address) == told([(200, "ok"); 4]));

    world.fails_with(refuse(503));
    world.put("second", b"second").unwrap();
    wait_for("the store to be missed", || get(&address, READY).told() == (200, "degraded".to_owned()));
    assert_eq!(probes(&address), told([(200, "ok"), (200, "degraded"), (200, "degraded"), (200, "degraded")]));
    let ready = get(&address, READY).json();
    assert!(check(&ready, "store")["why"].as_str().unwrap().contains("the store"), "{ready}");

    let mut taken = 0;
    while world.put(&format!("{taken}"), &object(taken)).is_ok() {
        taken += 1;
        assert!(taken < 200, "nothing bounds what waits");
    }
    wait_for("the journal to be full", || {
        let _refused = world.put("more", &object(1));
        get(&address, WRITES).status == 503
    });
    assert_eq!(probes(&address), told([(200, "ok"), (200, "degraded"), (200, "degraded"), (503, "journal_full")]));
    assert_eq!(world.get("first").unwrap(), b"first", "reads are answered");
    // Room on the disk is room, though the store is still away.
    disk.resize(80);
    wait_for("room for writes", || get(&address, WRITES).status == 200);
    wait_for("a write to be taken", || world.put("third", b"third").is_ok());

    world.is_well();
    wait_for("the node to be well again", || probes(&address) == told([(200, "ok"); 4]));
}

#[test]
fn a_store_that_refuses_writes_through_degrades_a_node_until_it_answers() {
    let test = "a_store_that_refuses_writes_through_degrades_a_node_until_it_answers";
    let Some(world) = World::start_on(test, "through", 48, None) else { return };
    world.put_in_time("first", b"first");
    let address = health(&world.node.state);
    assert_eq!(probes(&address), told([(200, "ok"); 4]));
    world.fails_with(refuse(503));
    world.put("first", b"second").unwrap_err();
    assert_eq!(probes(&address), told([(200, "ok"), (200, "degraded"), (200, "degraded"), (200, "degraded")]));
    let ready = get(&address, READY).json();
    assert!(check(&ready, "store")["why"].as_str().unwrap().contains("requests to the store failed"), "{ready}");
    world.is_well();
    world.put_in_time("first", b"third");
    assert_eq!(probes(&address), told([(200, "ok"); 4]));
}

#[test]
fn nodes_that_are_cut_off_from_their_servers_are_live_and_take_no_work() {
    let test = "nodes_that_are_cut_off_from_their_servers_are_live_and_take_no_work";
    let Some(mut nodes) = Nodes::start(test, 2) else { return };
    let addresses: Vec<String> = nodes.states.iter().map(|state| health(state)).collect();
    let are_well = |addresses: &[String]| addresses.iter().all(|address| probes(address) == told([(200, "ok"); 4]));
    wait_for("all homes", || are_well(&addresses));
    assert_eq!(get(&addresses[0], "/health/cluster").told(), (200, "ok".to_owned()));
    assert_eq!(get(&addresses[0], "/health/cluster?without=node-1").told(), (200, "ok".to_owned()));
    assert_eq!(get(&addresses[0], "/health/cluster?without=node-3").status, 404);
    let file = nodes.states[0].with_file_name("object");
    std::fs::write(&file, "known").unwrap();
    nodes.ok(0, &["objects", "cp", file.to_str().unwrap(), "nigh://marks/known"]);
    assert_eq!(nodes.ok(0, &["objects", "cp", "nigh://marks/known", "-"]), "known");

    nodes.ok(0, &["cluster", "cordon", "node-2"]);
    wait_for("the cordon", || get(&addresses[1], READY).status == 503);
    let out_of_work = told([(200, "ok"), (503, "cordoned"), (200, "degraded"), (200, "degraded")]);
    assert_eq!(probes(&addresses[1]), out_of_work, "its doors hand on what they get");
    assert_eq!(probes(&addresses[0]), told([(200, "ok"); 4]));
    nodes.ok(0, &["cluster", "uncordon", "node-2"]);
    wait_for("the node to be back in work", || are_well(&addresses));

    for server in nodes.cluster.servers().servers() {
        server.stop().unwrap();
    }
    for address in &addresses {
        wait_for("the servers to be missed", || get(address, READY).status == 503);
        assert_eq!(probes(address), told([(200, "ok"), (503, "cut_off"), (503, "cut_off"), (503, "cut_off")]));
        let servers = check(&get(address, READY).json(), "servers");
        assert!(servers["why"].as_str().unwrap().contains("confirmed nothing since"), "{servers}");
        // Nothing can move now.
        assert_eq!(get(address, "/health/cluster?without=node-1").status, 412);
    }
    // No home knows that it is still the home.
    let read = command(&nodes.states[0]).args(["objects", "cp", "nigh://marks/known", "-"]).output().unwrap();
    assert!(!read.status.success(), "{read:?}");
    for server in nodes.cluster.servers().servers() {
        server.go_on().unwrap();
    }
    wait_for("the nodes to be well again", || are_well(&addresses));

    // One that drains is not ready, and the other is.
    nodes.cluster.nodes()[1].process().ask_to_end().unwrap();
    wait_for("the drain", || ask(&addresses[1], "GET", READY).is_none_or(|answer| answer.status == 503));
    wait_for("the other to have all homes", || get(&addresses[0], "/health/cluster").status == 200);
    wait_for("it to be alone", || get(&addresses[0], "/health/cluster?without=node-1").status == 412);
    assert_eq!(get(&addresses[0], READY).status, 200);
}

#[test]
fn a_log_of_json_names_requests_and_invocations_by_their_ids() {
    let Some(python) = python("a_log_of_json_names_requests_and_invocations_by_their_ids") else { return };
    let node = Node::start_with(
        &python,
        &["--set", "log.format=json", "--set", "log.level=info,nigh_invoke=debug,nigh_s3=debug"],
    );
    node.deploy("f");
    let id = node.json(["invoke", "f", "{}"])["id"].as_str().unwrap().to_owned();
    let s3 = node.endpoints()["s3"].as_str().unwrap().to_owned();
    let answer = get(&s3, "/");
    let request = answer.head.lines().find_map(|line| line.strip_prefix("x-amz-request-id: ")).unwrap().to_uppercase();
    let lines = || -> Vec<Value> {
        let log = std::fs::read_to_string(node.state.with_extension("log")).unwrap();
        // What `nigh up` prints for people stands in the same file here.
        log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    let names = |field: &str, id: &str| lines().iter().any(|line| line["fields"][field] == id);
    wait_for("the invocation in the log", || names("invocation", &id));
    wait_for("the request in the log", || names("request", &request));
    assert!(lines().iter().all(|line| line["timestamp"].is_string() && line["level"].is_string()));
}

#[test]
fn a_service_manager_is_told_of_ready_life_and_end() {
    let Some(python) = python("a_service_manager_is_told_of_ready_life_and_end") else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let variables = [format!("NOTIFY_SOCKET={}", path.display()), "WATCHDOG_USEC=30000000".to_owned()];
    let way_in = [OsString::from("env")].into_iter().chain(variables.map(OsString::from)).collect();
    let mut node = Node::start_by(way_in, &python, &[]);
    let mut said = String::new();
    let mut hear = |line: &str| {
        let mut buffer = [0; 4096];
        while !said.lines().any(|known| known == line) {
            let length = socket.recv(&mut buffer).unwrap_or_else(|error| panic!("{line}: {error}: {said}"));
            said += &(String::from_utf8(buffer[..length].to_vec()).unwrap() + "\n");
        }
        said.clone()
    };
    let before = hear("READY=1");
    assert!(before.contains("STATUS=") && before.contains("WATCHDOG=1"), "{before}");
    assert!(!before.contains("STOPPING=1"));
    // What it starts does not speak for it.
    node.deploy("f");
    node.ok(["invoke", "f", "{}"]);
    node.terminate();
    hear("STOPPING=1");
    assert_eq!(node.exit_code(), Some(0));
}
