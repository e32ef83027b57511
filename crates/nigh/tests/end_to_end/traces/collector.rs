//! A collector of traces for tests: takes OTLP over HTTP as JSON, keeps the spans, and shows the tree of a trace.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::platform::wait_for;
use crate::skipped::skip;

/// The exit status with which `check_otlp.py` says that the definitions are not installed.
const NOT_HERE: i32 = 77;
pub(super) const SERVER: u64 = 2;
pub(super) const CLIENT: u64 = 3;

/// A span that was exported.
#[derive(Clone, Debug)]
pub(super) struct Span {
    pub(super) trace: String,
    pub(super) id: String,
    pub(super) parent: Option<String>,
    pub(super) name: String,
    pub(super) kind: u64,
    /// The node that exported it.
    pub(super) node: String,
    attributes: BTreeMap<String, Value>,
}

impl Span {
    /// An attribute as text; empty if absent.
    pub(super) fn text(&self, key: &str) -> String {
        let value = self.attributes.get(key).and_then(|value| value.as_object()?.values().next().cloned());
        value.map_or_else(String::new, |value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    }
}

/// A collector on this machine. It answers until the test ends.
pub(super) struct Collector {
    pub(super) endpoint: String,
    bodies: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Collector {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let bodies: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
        let kept = Arc::clone(&bodies);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let kept = Arc::clone(&kept);
                std::thread::spawn(move || serve(stream.unwrap(), &kept));
            }
        });
        Self { endpoint, bodies }
    }

    /// The flag that has a node send its traces here.
    pub(super) fn flag(&self) -> String {
        format!("traces.endpoint={}", self.endpoint)
    }

    /// All spans so far.
    pub(super) fn spans(&self) -> Vec<Span> {
        let bodies = self.bodies.lock().unwrap().clone();
        bodies.iter().flat_map(|body| spans_of(&serde_json::from_slice(body).unwrap())).collect()
    }

    /// The spans of the trace that a caller began with `parent`, a `traceparent`, once there is one of each name, and all
    /// hang together.
    pub(super) fn tree(&self, parent: &str, names: &[&str]) -> Tree {
        let mut fields = parent.split('-').skip(1);
        let (trace, caller) = (fields.next().unwrap().to_owned(), fields.next().unwrap().to_owned());
        let of_trace = || -> Vec<Span> { self.spans().into_iter().filter(|span| span.trace == trace).collect() };
        let lacks = |spans: &[Span]| -> Vec<String> {
            let known: BTreeSet<&str> = spans.iter().map(|span| span.id.as_str()).chain([caller.as_str()]).collect();
            let loose = spans.iter().filter(|span| span.parent.as_deref().is_none_or(|id| !known.contains(id)));
            let absent = names.iter().filter(|name| !spans.iter().any(|span| span.name == **name));
            loose.map(|span| format!("{} is loose", span.name)).chain(absent.map(|name| format!("no {name}"))).collect()
        };
        let mut last = Vec::new();
        let complete = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_for("the spans of a trace", || {
                last = of_trace();
                lacks(&last).is_empty()
            });
        }));
        assert!(complete.is_ok(), "{:?} in {last:#?}", lacks(&last));
        Tree { caller, spans: last }
    }

    /// OpenTelemetry's own protobuf definitions read every request.
    pub(super) fn is_read_by_the_definitions(&self, test: &str) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let python = root.join(".deps/test/bin/python3");
        let mut lines = Vec::new();
        for body in self.bodies.lock().unwrap().iter() {
            lines.extend_from_slice(body);
            lines.push(b'\n');
        }
        let checker = Command::new(&python)
            .arg(root.join("tests/traces/check_otlp.py"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(mut checker) = checker else {
            return skip(test, format_args!("there is no {}; `make deps` installs it", python.display()));
        };
        // It reads nothing if it cannot work.
        let _written = checker.stdin.take().unwrap().write_all(&lines);
        let output = checker.wait_with_output().unwrap();
        if output.status.code() == Some(NOT_HERE) {
            return skip(test, "opentelemetry-proto is not installed; `make deps` installs it");
        }
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_ne!(String::from_utf8_lossy(&output.stdout).trim(), "0", "no span was checked");
    }
}

/// A trace whose spans hang together.
pub(super) struct Tree {
    caller: String,
    pub(super) spans: Vec<Span>,
}

impl Tree {
    /// The span called `name`; the first of several.
    pub(super) fn span(&self, name: &str) -> &Span {
        self.spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("no {name} in {:#?}", self.spans))
    }

    /// The names of the spans above the one called `name`, the nearest first, up to `caller`.
    pub(super) fn above(&self, name: &str) -> Vec<&str> {
        let mut names = Vec::new();
        let mut next = self.span(name).parent.clone();
        while let Some(id) = next {
            if id == self.caller {
                names.push("caller");
                break;
            }
            let span = self.spans.iter().find(|span| span.id == id).unwrap();
            names.push(span.name.as_str());
            next = span.parent.clone();
        }
        names
    }
}

fn spans_of(request: &Value) -> Vec<Span> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let attributes = |value: &Value| -> BTreeMap<String, Value> {
        list(value).iter().map(|one| (one["key"].as_str().unwrap().to_owned(), one["value"].clone())).collect()
    };
    let mut found = Vec::new();
    for of_resource in list(&request["resourceSpans"]) {
        let resource = attributes(&of_resource["resource"]["attributes"]);
        let node = resource["service.instance.id"]["stringValue"].as_str().unwrap().to_owned();
        for span in list(&of_resource["scopeSpans"]).iter().flat_map(|scope| list(&scope["spans"])) {
            let text = |name: &str| span[name].as_str().map(str::to_owned);
            found.push(Span {
                trace: text("traceId").unwrap(),
                id: text("spanId").unwrap(),
                parent: text("parentSpanId"),
                name: text("name").unwrap(),
                kind: span["kind"].as_u64().unwrap(),
                node: node.clone(),
                attributes: attributes(&span["attributes"]),
            });
        }
    }
    found
}

/// Keeps the bodies of a connection's requests.
fn serve(mut stream: TcpStream, kept: &Mutex<Vec<Vec<u8>>>) {
    let (mut read, mut piece) = (Vec::new(), [0; 16 << 10]);
    loop {
        if let Some(end) = read.windows(4).position(|end| end == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&read[..end]).to_ascii_lowercase();
            assert!(head.starts_with("post /v1/traces "), "{head}");
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
            let whole = end + 4 + length.unwrap();
            if read.len() >= whole {
                kept.lock().unwrap().push(read[end + 4..whole].to_vec());
                read.drain(..whole);
                let answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
                if stream.write_all(answer).is_err() {
                    return;
                }
                continue;
            }
        }
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return,
            Ok(count) => read.extend_from_slice(&piece[..count]),
        }
    }
}
