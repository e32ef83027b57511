//! A store that is down, as clients of a whole node meet it: a real Swift, by its S3 API, behind a proxy that answers in
//! its place. Minutes become seconds by the settings.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::{Duration, Instant};

use http::Method;
use nigh_lab::fault_proxy::FaultProxy;
use nigh_lab::fault_proxy::plan::{Fault, Plan, Rule};
use nigh_lab::http_load::Connection;
use nigh_lab::node_under_test::settings_of_store;
use nigh_lab::peer::swift::Swift;
use nigh_lab::peer::{PeerError, S3Access};
use nigh_terms::SecretKey;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::platform::{Node, python, wait_for};

/// The answer to a write may take what two attempts at the store take, and a busy machine.
const BOUND: Duration = Duration::from_secs(20);
const OBJECT: usize = 1 << 20;
/// What may wait for the store: half of the journal.
const JOURNAL_MIB: usize = 48;

/// A node, and the store behind it.
struct World {
    node: Node,
    swift: Swift,
    proxy: FaultProxy,
    runtime: Runtime,
    _folder: TempDir,
}

fn refuse(status: u16) -> Fault {
    Fault::Refuse { status, retry_after_s: None }
}

impl World {
    /// With writes of this mode, and a bucket. None where a part of it is not installed, which is said.
    fn start(test: &str, mode: &str) -> Option<Self> {
        let python = python(test)?;
        let folder = tempfile::tempdir().unwrap();
        let swift = match Swift::start(&folder.path().join("swift")) {
            Ok(swift) => swift,
            Err(missing @ PeerError::NotInstalled { .. }) => {
                println!("SKIPPED: {test}: {missing}");
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let runtime = Runtime::new().unwrap();
        let proxy = runtime.block_on(FaultProxy::start(swift.endpoint(), Plan::default())).unwrap();
        let mut settings = settings_of_store(&S3Access { endpoint: proxy.endpoint(), ..swift.s3() });
        let store = settings["store"].as_table_mut().unwrap();
        store.insert("attempts".to_owned(), 2.into());
        for (name, span) in [("backoff", "50 ms"), ("backoff_max", "200 ms"), ("answer_timeout", "3 s")] {
            store.insert(name.to_owned(), span.into());
        }
        let more = format!(
            "[cache]\nobject_max = \"1 MiB\"\n[writes]\nmode = \"{mode}\"\njournal_max = \"{JOURNAL_MIB} MiB\"\n\
             delay = \"50 ms\"\nwait = \"500 ms\"\nback_off = \"50 ms\"\nback_off_max = \"500 ms\"\n"
        );
        let config = folder.path().join("nigh.toml");
        // It holds the store's secret.
        let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&config);
        file.unwrap().write_all(format!("{settings}{more}").as_bytes()).unwrap();
        let node = Node::start_with(&python, &["--config", config.to_str().unwrap()]);
        node.ok(["objects", "mb", "nigh://data"]);
        Some(Self { node, swift, proxy, runtime, _folder: folder })
    }

    fn fails_with(&self, fault: Fault) {
        self.proxy.set_plan(Plan { rules: vec![Rule::of_all(1.0, fault)], ..Plan::default() });
    }

    fn is_well(&self) {
        self.proxy.set_plan(Plan::default());
    }

    fn call(&self, access: &S3Access, method: Method, key: &str, body: &[u8]) -> Result<Vec<u8>, String> {
        let server = access.endpoint.trim_start_matches("http://").parse().unwrap();
        let signed = access.signer();
        let path = format!("/data/{key}");
        let request = self.runtime.block_on(signed.signed(method, server, &path, &[], body)).unwrap();
        let answer = Connection::open(server).and_then(|mut connection| connection.fetch(&request));
        answer.map(|(_, body)| body).map_err(|error| error.to_string())
    }

    fn door(&self) -> S3Access {
        let all = self.node.sdk_environment();
        let of = |name: &str| all.iter().find(|(variable, _)| variable == name).unwrap().1.clone();
        S3Access {
            endpoint: of("AWS_ENDPOINT_URL_S3"),
            access_key: of("AWS_ACCESS_KEY_ID"),
            secret_key: SecretKey::new(of("AWS_SECRET_ACCESS_KEY")),
            region: of("AWS_REGION"),
        }
    }

    /// Writes by the node's door.
    fn put(&self, key: &str, body: &[u8]) -> Result<(), String> {
        self.call(&self.door(), Method::PUT, key, body).map(drop)
    }

    /// The same, until the store, which is well and may be slow, has it.
    fn put_in_time(&self, key: &str, body: &[u8]) {
        wait_for("a write to be taken", || self.put(key, body).is_ok());
    }

    /// Reads by it.
    fn get(&self, key: &str) -> Result<Vec<u8>, String> {
        self.call(&self.door(), Method::GET, key, b"")
    }

    /// Reads past Nigh.
    fn stored(&self, key: &str) -> Result<Vec<u8>, String> {
        self.call(&self.swift.s3(), Method::GET, key, b"")
    }
}

fn object(n: usize) -> Vec<u8> {
    format!("object {n};").into_bytes().into_iter().cycle().take(OBJECT).collect()
}

#[test]
fn a_write_through_to_a_store_that_is_down_is_refused_within_a_bound_and_goes_on_when_it_is_back() {
    let test = "a_write_through_to_a_store_that_is_down_is_refused_within_a_bound_and_goes_on_when_it_is_back";
    let Some(world) = World::start(test, "through") else { return };
    world.put_in_time("hot", b"hot");
    assert_eq!(world.get("hot").unwrap(), b"hot");
    // A store that is busy says that nothing happened; of one that is broken or silent nobody knows.
    for (n, (fault, said)) in [(refuse(503), "503"), (refuse(500), "500"), (Fault::Hang, "500")].into_iter().enumerate()
    {
        let (before, after) = (format!("before {n}"), format!("after {n}"));
        world.put_in_time("key", before.as_bytes());
        world.fails_with(fault);
        for attempt in 0..3 {
            let began = Instant::now();
            let refused = world.put("key", b"while it is down").unwrap_err();
            assert!(refused.starts_with(&format!("HTTP/1.1 {said}")), "{refused}");
            assert_eq!(said == "503", refused.contains("<Code>SlowDown</Code>"), "{refused}");
            assert!(began.elapsed() < BOUND, "attempt {attempt}: {:?}", began.elapsed());
            // What is in memory needs no store.
            assert_eq!(world.get("hot").unwrap(), b"hot");
        }
        world.is_well();
        // Nothing of what was refused with 503 is there; of the others the store never heard either.
        assert_eq!(world.get("key").unwrap(), before.as_bytes());
        world.put_in_time("key", after.as_bytes());
        assert_eq!((world.get("key").unwrap(), world.stored("key").unwrap()), (after.clone().into(), after.into()));
    }
}

#[test]
fn lazy_writes_to_a_store_that_is_down_are_taken_to_the_limit_survive_a_kill_and_all_are_pushed() {
    let test = "lazy_writes_to_a_store_that_is_down_are_taken_to_the_limit_survive_a_kill_and_all_are_pushed";
    let Some(mut world) = World::start(test, "lazy") else { return };
    world.fails_with(refuse(503));
    // More than the journal holds, of one object: what was written over takes no room.
    for n in 0..JOURNAL_MIB + 12 {
        world.put("same", &object(n)).unwrap();
    }
    let last = object(JOURNAL_MIB + 11);
    let mut taken = 0;
    let refused = loop {
        assert!(taken < JOURNAL_MIB, "nothing bounds what waits");
        match world.put(&format!("{taken}"), &object(taken)) {
            Ok(()) => taken += 1,
            Err(refused) => break refused,
        }
    };
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("<Code>SlowDown</Code>"), "{refused}");
    assert!(taken >= JOURNAL_MIB / 2 - 2, "{taken} MiB were taken");
    let all_are_there = |world: &World| {
        assert_eq!(world.get("same").unwrap(), last);
        for n in 0..taken {
            assert_eq!(world.get(&format!("{n}")).unwrap(), object(n), "{n}");
        }
        assert!(world.get("refused").unwrap_err().starts_with("HTTP/1.1 "), "what was refused is nowhere");
    };
    all_are_there(&world);
    world.node.kill();
    world.node.restart();
    all_are_there(&world);
    let refused = world.put("refused", &object(0)).unwrap_err();
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");

    world.is_well();
    wait_for("everything to be in the store", || {
        let right = |n| world.stored(&format!("{n}")).is_ok_and(|stored| stored == object(n));
        (0..taken).all(right) && world.stored("same").is_ok_and(|stored| stored == last)
    });
    wait_for("writes to be taken again", || world.put("refused", &object(7)).is_ok());
    wait_for("that one to be in the store", || world.stored("refused").is_ok_and(|stored| stored == object(7)));
}
