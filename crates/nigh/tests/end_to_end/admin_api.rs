//! The admin API over TCP: who gets in, what a hostile page in the same browser can do, and what many open pages cost.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use crate::platform::{Node, PATIENCE, wait_for};

/// Live views that a node serves at a time.
const STREAMS_MAX: usize = 200;

/// An answer.
#[derive(Debug)]
struct Answer {
    status: u16,
    headers: BTreeMap<String, String>,
    body: String,
}

/// Reads the head of an answer.
fn head(from: &mut impl BufRead) -> Answer {
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    let status = line.split(' ').nth(1).unwrap_or_else(|| panic!("no status in {line:?}")).parse().unwrap();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        from.read_line(&mut line).unwrap();
        match line.trim().split_once(": ") {
            Some((name, value)) => drop(headers.insert(name.to_ascii_lowercase(), value.to_owned())),
            None => return Answer { status, headers, body: String::new() },
        }
    }
}

/// Sends a request and reads the whole answer.
fn ask(mut connection: impl Read + Write, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    write!(connection, "{method} {path} HTTP/1.1\r\nconnection: close\r\ncontent-length: 0\r\n{lines}\r\n").unwrap();
    let mut from = BufReader::new(connection);
    let mut answer = head(&mut from);
    let mut body = Vec::new();
    from.read_to_end(&mut body).unwrap();
    answer.body = String::from_utf8_lossy(&body).into_owned();
    answer
}

fn basic(key: &str, secret: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(format!("{key}:{secret}")))
}

/// The admin API of a node, as a client with a key of its own sees it.
struct Door {
    authority: String,
    key: String,
    basic: String,
}

impl Door {
    /// A client that may do everything.
    fn of(node: &Node) -> Self {
        Self::with_role(node, "operate")
    }

    fn with_role(node: &Node, role: &str) -> Self {
        let endpoints = node.endpoints();
        let authority = endpoints["admin"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned();
        let made = node.json(["keys", "create", "--role", role]);
        let key = made["key"]["id"].as_str().unwrap().to_owned();
        Self { authority, basic: basic(&key, made["secret"].as_str().unwrap()), key }
    }

    fn connect(&self) -> TcpStream {
        let connection = TcpStream::connect(&self.authority).unwrap();
        connection.set_read_timeout(Some(PATIENCE)).unwrap();
        connection
    }

    /// Asks under the door's own name.
    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        ask(self.connect(), method, path, &[&[("host", self.authority.as_str())][..], headers].concat())
    }

    /// Asks with the key.
    fn with_key(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.ask(method, path, &[&[("authorization", self.basic.as_str())][..], headers].concat())
    }

    /// Opens a live view. Returns the head of the answer and what follows.
    fn live(&self) -> (Answer, BufReader<TcpStream>) {
        let mut connection = self.connect();
        let (authority, basic) = (&self.authority, &self.basic);
        write!(
            connection,
            "GET /v1/live?view=hierarchy HTTP/1.1\r\nhost: {authority}\r\nauthorization: {basic}\r\n\r\n"
        )
        .unwrap();
        let mut from = BufReader::new(connection);
        (head(&mut from), from)
    }
}

fn node() -> Node {
    Node::start(Path::new("/bin/false"))
}

/// `name=token` of `Set-Cookie`.
fn cookie(answer: &Answer) -> String {
    let set = &answer.headers["set-cookie"];
    assert!(set.contains("HttpOnly") && set.contains("SameSite=Strict") && set.contains("Path=/"), "{set}");
    set.split(';').next().unwrap().to_owned()
}

#[test]
fn a_key_gets_in_and_nobody_else() {
    let node = node();
    let door = Door::of(&node);
    let status = door.with_key("GET", "/v1/status", &[]);
    assert_eq!(status.status, 200, "{status:?}");
    assert_eq!(status.headers["x-content-type-options"], "nosniff");
    assert!(status.headers["content-security-policy"].starts_with("default-src 'none'"));
    let nobody = door.ask("GET", "/v1/status", &[]);
    assert_eq!(nobody.status, 401);
    assert!(nobody.body.contains("nigh page") && nobody.headers["www-authenticate"].starts_with("Basic"), "{nobody:?}");
    // The socket asks for no key; the page asks for none to load.
    let socket = || UnixStream::connect(node.state.join("admin.sock")).unwrap();
    assert_eq!(ask(socket(), "GET", "/v1/status", &[("host", "nigh")]).status, 200);
    let old = ask(socket(), "GET", "/status", &[("host", "nigh")]);
    assert_eq!((old.status, old.body.trim()), (404, "/status is /v1/status now"));
    assert_eq!(door.ask("GET", "/", &[("accept-encoding", "gzip")]).status, 200);

    // The keys of applications have no role here.
    let own: BTreeMap<_, _> = node.sdk_environment().into_iter().collect();
    let without = basic(&own["AWS_ACCESS_KEY_ID"], &own["AWS_SECRET_ACCESS_KEY"]);
    for wrong in std::iter::once(without).chain((0..9).map(|number| basic("NIGHWRONG", &number.to_string()))) {
        assert_eq!(door.ask("GET", "/v1/status", &[("authorization", wrong.as_str())]).status, 401);
    }
    let limited = door.with_key("GET", "/v1/status", &[]);
    assert_eq!(limited.status, 429, "{limited:?}");
    assert!(limited.headers["retry-after"].parse::<u64>().unwrap() <= 61);
}

#[test]
fn a_hostile_page_in_the_same_browser_neither_reads_nor_changes_anything() {
    let node = node();
    let door = Door::of(&node);
    // Its name leads to this machine (DNS rebinding).
    let rebound = ask(
        door.connect(),
        "GET",
        "/v1/status",
        &[("host", "evil.example:9403"), ("authorization", door.basic.as_str())],
    );
    assert_eq!(rebound.status, 421, "{rebound:?}");

    let signed_in = door.with_key("POST", "/v1/session", &[("sec-fetch-site", "same-origin")]);
    assert_eq!(signed_in.status, 200, "{signed_in:?}");
    let cookie = cookie(&signed_in);
    let with = |method, path, headers: &[(&str, &str)]| {
        door.ask(method, path, &[&[("cookie", cookie.as_str())][..], headers].concat()).status
    };
    let own = format!("http://{}", door.authority);
    assert_eq!(with("GET", "/v1/status", &[]), 200);
    assert_eq!(with("GET", "/v1/status", &[("sec-fetch-site", "same-origin")]), 200);
    assert_eq!(with("POST", "/v1/sign-in-links", &[("origin", own.as_str())]), 200);
    assert_eq!(with("POST", "/v1/sign-in-links", &[("sec-fetch-site", "same-origin")]), 200);
    for hostile in [
        &[("sec-fetch-site", "cross-site")][..],
        &[("sec-fetch-site", "same-site")],
        &[("origin", "http://evil.example")],
        &[("origin", "http://127.0.0.1:1")],
        &[("origin", "null")],
    ] {
        assert_eq!(with("POST", "/v1/shutdown", hostile), 403, "{hostile:?}");
        assert_eq!(with("GET", "/v1/status", hostile), 401, "{hostile:?}");
        assert_eq!(door.with_key("POST", "/v1/shutdown", hostile).status, 403, "{hostile:?}");
    }
    // A form of an old browser tells no origin.
    assert_eq!(with("POST", "/v1/shutdown", &[]), 401);
    assert!(node.nigh(["status"]).status.success());

    let out = door.ask("DELETE", "/v1/session", &[("cookie", cookie.as_str()), ("sec-fetch-site", "same-origin")]);
    assert_eq!(out.status, 204, "{out:?}");
    assert_eq!(with("GET", "/v1/status", &[]), 401);
}

#[test]
fn a_key_does_what_its_role_permits_and_its_sessions_end_with_it() {
    let node = node();
    let viewer = Door::with_role(&node, "view");
    assert_eq!(viewer.with_key("GET", "/v1/status", &[]).status, 200);
    assert_eq!(viewer.with_key("GET", "/v1/backup?keys=true&objects=false", &[]).status, 403);
    let refused = viewer.with_key("POST", "/v1/shutdown", &[]);
    assert_eq!((refused.status, refused.body.contains("operate")), (403, true), "{refused:?}");
    let cookie = cookie(&viewer.with_key("POST", "/v1/session", &[]));
    let status = || viewer.ask("GET", "/v1/status", &[("cookie", cookie.as_str())]).status;
    assert_eq!(status(), 200);
    // What tenants have stored is more than status.
    for data in [
        "/v1/objects/default/data?key=k",
        "/v1/functions/default/f/code",
        "/v1/layers/default/l/1/code",
        "/v1/events/default/00000000-0000-7000-8000-000000000000",
    ] {
        assert_eq!(viewer.with_key("GET", data, &[]).status, 403, "{data}");
    }
    // A link of the key permits no more than the key, and its session ends with the key.
    assert_eq!(viewer.with_key("POST", "/v1/sign-in-links?role=operate", &[]).status, 403);
    let operator = Door::with_role(&node, "operate");
    let made: Value =
        serde_json::from_str(&operator.with_key("POST", "/v1/sign-in-links?role=view", &[]).body).unwrap();
    let path = made["url"].as_str().unwrap().strip_prefix(&format!("http://{}", operator.authority)).unwrap();
    let linked = self::cookie(&operator.ask("GET", path, &[]));
    let of_link = || operator.ask("GET", "/v1/status", &[("cookie", linked.as_str())]).status;
    assert_eq!(of_link(), 200);

    let (open, watched) = viewer.live();
    assert_eq!(open.status, 200);
    for key in [&viewer.key, &operator.key] {
        node.ok(["keys", "disable", key.as_str()]);
    }
    assert_eq!((status(), of_link()), (401, 401));
    // Its open views end, too: a chunk without bytes ends the answer.
    assert!(watched.lines().map_while(Result::ok).any(|line| line == "0"), "the live view goes on");
    for key in [&viewer.key, &operator.key] {
        node.ok(["keys", "enable", key.as_str()]);
    }
    assert_eq!((status(), of_link()), (200, 200));
    assert!(node.nigh(["status"]).status.success());
}

#[test]
fn a_link_signs_in_one_browser_with_its_role() {
    let node = node();
    let door = Door::of(&node);
    let printed = node.ok(["page", "--role", "view"]);
    let path = printed.trim().strip_prefix(&format!("http://{}", door.authority)).unwrap();
    assert_eq!(door.ask("HEAD", path, &[]).status, 410, "a look does not use it up");
    let followed = door.ask("GET", path, &[]);
    assert_eq!((followed.status, followed.headers["location"].as_str()), (303, "/"), "{followed:?}");
    let cookie = cookie(&followed);
    let session = door.ask("GET", "/v1/session", &[("cookie", cookie.as_str())]);
    let session: Value = serde_json::from_str(&session.body).unwrap();
    assert_eq!((&session["role"], &session["access_key"]), (&Value::from("view"), &Value::Null));
    assert!(session["expires_in_s"].as_u64().unwrap() > 11 * 3600);
    let own = ("sec-fetch-site", "same-origin");
    let changes = door.ask("POST", "/v1/shutdown", &[("cookie", cookie.as_str()), own]);
    assert_eq!(changes.status, 403);
    assert!(changes.body.contains("operate"), "{changes:?}");
    let again = door.ask("GET", path, &[]);
    assert_eq!(again.status, 410);
    assert!(again.body.contains("nigh page"), "{again:?}");
    let link = node.json(["page"]);
    assert!(link["url"].as_str().unwrap().contains("/sign-in?token=") && link["expires_in_s"] == 60, "{link}");
}

#[test]
fn a_live_view_too_many_is_refused_and_all_end_with_the_node() {
    let mut node = node();
    let door = Door::of(&node);
    let mut open: Vec<_> = (0..STREAMS_MAX).map(|_| door.live()).collect();
    assert!(open.iter().all(|(answer, _)| answer.status == 200));
    assert_eq!(open[0].0.headers["content-type"], "text/event-stream");
    let (refused, _) = door.live();
    assert_eq!(refused.status, 503, "{refused:?}");
    // One place is free again when the node has noticed.
    drop(open.pop());
    let mut found = None;
    wait_for("a place for a live view", || {
        let (answer, lines) = door.live();
        let is_open = answer.status == 200;
        found = is_open.then_some(lines);
        is_open
    });
    let mut lines = found.unwrap().lines().map(Result::unwrap);
    assert!(lines.any(|line| line.starts_with("data: {\"snapshot\":")), "the view is sent");

    // The answers end, so that the node need not wait for the pages that are open.
    assert_eq!(door.with_key("POST", "/v1/shutdown", &[]).status, 202);
    assert_eq!(lines.last().as_deref(), Some(""), "the last chunk ends the answer");
    assert_eq!(node.exit_code(), Some(0));
}
