//! A store that is down, as clients of a whole node meet it: a real Swift, by its S3 API, behind a proxy that answers in
//! its place. Minutes become seconds by the settings.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::{Duration, Instant};

use http::Method;
use nigh_lab::instrument::fault_proxy::FaultProxy;
use nigh_lab::instrument::fault_proxy::plan::{Fault, Plan, Rule};
use nigh_lab::instrument::http_load::Connection;
use nigh_lab::instrument::node_under_test::settings_of_store;
use nigh_lab::instrument::peer::swift::Swift;
use nigh_lab::instrument::peer::{PeerError, S3Access};
use nigh_terms::SecretKey;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::platform::{Node, python, wait_for};
use crate::skipped::skip;
use crate::small_disk::SmallDisk;

/// The answer to a write may take what two attempts at the store take, and a busy machine.
const BOUND: Duration = Duration::from_secs(20);
const OBJECT: usize = 1 << 20;
/// What may wait for the store: half of the journal.
const JOURNAL_MIB: usize = 48;

/// A node, and the store behind it.
pub(crate) struct World {
    pub(crate) node: Node,
    swift: Swift,
    proxy: FaultProxy,
    runtime: Runtime,
    _folder: TempDir,
}

pub(crate) fn refuse(status: u16) -> Fault {
    Fault::Refuse { status, retry_after_s: None }
}

impl World {
    /// With writes of this mode, and a bucket. None where a part of it is not installed, which is said.
    fn start(test: &str, mode: &str) -> Option<Self> {
        Self::start_on(test, mode, JOURNAL_MIB, None)
    }

    /// The same, with a journal of so many MiB; on the file system given, if one is.
    pub(crate) fn start_on(test: &str, mode: &str, journal_mib: usize, disk: Option<&SmallDisk>) -> Option<Self> {
        let python = python(test)?;
        let folder = tempfile::tempdir().unwrap();
        let swift = match Swift::start(&folder.path().join("swift")) {
            Ok(swift) => swift,
            Err(missing @ PeerError::NotInstalled { .. }) => {
                skip(test, missing);
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let runtime = Runtime::new().unwrap();
        let proxy = runtime.block_on(FaultProxy::start(swift.endpoint(), Plan::default())).unwrap();
        let mut settings = settings_of_store(&S3Access { endpoint: proxy.endpoint(), ..swift.s3().clone() });
        let store = settings["store"].as_table_mut().unwrap();
        store.insert("attempts".to_owned(), 2.into());
        for (name, span) in [("backoff", "50 ms"), ("backoff_max", "200 ms"), ("answer_timeout", "5 s")] {
            store.insert(name.to_owned(), span.into());
        }
        let on = disk.map_or(String::new(), |disk| format!("journal = {:?}\n", disk.folder.join("journal")));
        let more = format!(
            "[cache]\nobject_max = \"1 MiB\"\n[writes]\nmode = \"{mode}\"\njournal_max = \"{journal_mib} MiB\"\n\
             delay = \"50 ms\"\nwait = \"500 ms\"\nback_off = \"50 ms\"\nback_off_max = \"500 ms\"\n{on}"
        );
        let config = folder.path().join("nigh.toml");
        // It holds the store's secret.
        let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&config);
        file.unwrap().write_all(format!("{settings}{more}").as_bytes()).unwrap();
        let way_in = disk.map_or(Vec::new(), SmallDisk::way_in);
        let node = Node::start_by(way_in, &python, &["--config", config.to_str().unwrap()]);
        // Swift may be slow to begin with; a bucket whose answer came too late is there.
        wait_for("the bucket", || {
            let made = node.nigh(["objects", "mb", "nigh://data"]);
            made.status.success() || String::from_utf8_lossy(&made.stderr).contains("BucketAlreadyOwnedByYou")
        });
        Some(Self { node, swift, proxy, runtime, _folder: folder })
    }

    pub(crate) fn fails_with(&self, fault: Fault) {
        self.proxy.set_plan(Plan { rules: vec![Rule::of_all(1.0, fault)], ..Plan::default() });
    }

    pub(crate) fn is_well(&self) {
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

    /// From now on nobody listens at the store's address.
    fn leaves(&mut self) {
        // On another port.
        self.proxy = self.runtime.block_on(FaultProxy::start(self.swift.endpoint(), Plan::default())).unwrap();
    }

    /// Writes by the node's door.
    pub(crate) fn put(&self, key: &str, body: &[u8]) -> Result<(), String> {
        self.call(&self.door(), Method::PUT, key, body).map(drop)
    }

    /// The same, until the store, which is well and may be slow, has it.
    pub(crate) fn put_in_time(&self, key: &str, body: &[u8]) {
        wait_for("a write to be taken", || self.put(key, body).is_ok());
    }

    /// Reads by it.
    pub(crate) fn get(&self, key: &str) -> Result<Vec<u8>, String> {
        self.call(&self.door(), Method::GET, key, b"")
    }

    /// Reads past Nigh.
    pub(crate) fn stored(&self, key: &str) -> Result<Vec<u8>, String> {
        self.call(self.swift.s3(), Method::GET, key, b"")
    }
}

pub(crate) fn object(n: usize) -> Vec<u8> {
    format!("object {n};").into_bytes().into_iter().cycle().take(OBJECT).collect()
}

#[test]
fn a_write_through_to_a_store_that_is_down_is_refused_within_a_bound_and_goes_on_when_it_is_back() {
    let test = "a_write_through_to_a_store_that_is_down_is_refused_within_a_bound_and_goes_on_when_it_is_back";
    let Some(mut world) = World::start(test, "through") else { return };
    world.put_in_time("hot", b"hot");
    assert_eq!(world.get("hot").unwrap(), b"hot");
    // A store that is busy says that nothing happened; of one that is broken or silent nobody knows.
    let faults = [
        (refuse(503), "503", "SlowDown"),
        (refuse(500), "500", "InternalError"),
        (Fault::Hang, "503", "ServiceUnavailable"),
        (Fault::Close, "503", "ServiceUnavailable"),
    ];
    for (n, (fault, status, code)) in faults.into_iter().enumerate() {
        let (before, after) = (format!("before {n}"), format!("after {n}"));
        world.put_in_time("key", before.as_bytes());
        world.fails_with(fault.clone());
        for attempt in 0..3 {
            let began = Instant::now();
            let refused = world.put("key", b"while it is down").unwrap_err();
            assert!(refused.starts_with(&format!("HTTP/1.1 {status}")), "{refused}");
            assert!(refused.contains(&format!("<Code>{code}</Code>")), "{refused}");
            assert!(began.elapsed() < BOUND, "attempt {attempt}: {:?}", began.elapsed());
            // What is in memory needs no store.
            assert_eq!(world.get("hot").unwrap(), b"hot");
        }
        world.is_well();
        // The store never heard of it; but for the last, which it has carried out without a word.
        let stands = if fault == Fault::Close { "while it is down" } else { &before };
        assert_eq!(world.get("key").unwrap(), stands.as_bytes());
        world.put_in_time("key", after.as_bytes());
        assert_eq!((world.get("key").unwrap(), world.stored("key").unwrap()), (after.clone().into(), after.into()));
    }
    world.leaves();
    // Connections that were open end first, without an answer.
    wait_for("the store to be found away", || {
        let refused = world.put("key", b"nobody hears it").unwrap_err();
        assert!(
            refused.starts_with("HTTP/1.1 503") && refused.contains("<Code>ServiceUnavailable</Code>"),
            "{refused}"
        );
        refused.contains("nothing was changed there")
    });
    assert_eq!(world.get("hot").unwrap(), b"hot");
}

#[test]
fn lazy_writes_to_a_store_that_is_down_are_taken_to_the_limit_survive_a_kill_and_all_are_pushed() {
    let test = "lazy_writes_to_a_store_that_is_down_are_taken_to_the_limit_survive_a_kill_and_all_are_pushed";
    let Some(mut world) = World::start(test, "lazy") else { return };
    // Whether a bucket is there is asked with the first write into it.
    world.put_in_time("first", b"first");
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
    assert_eq!(world.get("same").unwrap(), last);
    for n in 0..taken {
        assert_eq!(world.get(&format!("{n}")).unwrap(), object(n), "{n}");
    }
    world.is_well();
    wait_for("everything to be in the store", || {
        let right = |n| world.stored(&format!("{n}")).is_ok_and(|stored| stored == object(n));
        (0..taken).all(right) && world.stored("same").is_ok_and(|stored| stored == last)
    });
    wait_for("writes to be taken again", || world.put("again", &object(7)).is_ok());
    wait_for("that one to be in the store", || world.stored("again").is_ok_and(|stored| stored == object(7)));

    // Once more, and the node dies meanwhile.
    world.fails_with(refuse(503));
    for n in 0..5 {
        world.put(&format!("later/{n}"), &object(n + 1)).unwrap();
    }
    world.node.kill();
    world.node.restart();
    for n in 0..5 {
        assert_eq!(world.get(&format!("later/{n}")).unwrap(), object(n + 1), "{n}");
    }
    world.is_well();
    wait_for("all of these to be in the store", || {
        (0..5).all(|n| world.stored(&format!("later/{n}")).is_ok_and(|stored| stored == object(n + 1)))
    });
}

#[test]
fn a_full_disk_below_the_journal_refuses_writes_loses_none_and_goes_on_when_there_is_room() {
    let test = "a_full_disk_below_the_journal_refuses_writes_loses_none_and_goes_on_when_there_is_room";
    // A journal of which a part only finds room: what may wait is more than the disk has.
    let (disk_mib, journal_mib) = (40, 256);
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(test, folder.path(), disk_mib) else { return };
    let Some(mut world) = World::start_on(test, "lazy", journal_mib, Some(&disk)) else { return };
    world.put_in_time("first", b"first");
    let mut written = 0;
    let fill = |world: &World, written: &mut usize| {
        let before = *written;
        let refused = loop {
            assert!(*written < before + 2 * disk_mib, "nothing bounds what waits");
            match world.put(&format!("{written}"), &object(*written)) {
                Ok(()) => *written += 1,
                Err(refused) => break refused,
            }
        };
        assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("<Code>SlowDown</Code>"), "{refused}");
    };
    let all_are_read = |world: &World, from: usize, to: usize| {
        for n in from..to {
            assert_eq!(world.get(&format!("{n}")).unwrap(), object(n), "{n}");
        }
    };
    let all_are_stored = |world: &World, from: usize, to: usize| {
        for n in from..to {
            let is_stored = || world.stored(&format!("{n}")).is_ok_and(|stored| stored == object(n));
            wait_for("a write to be in the store", is_stored);
        }
    };

    // What makes room is the store.
    world.fails_with(refuse(503));
    fill(&world, &mut written);
    assert!(written >= disk_mib / 4, "{written} MiB were taken");
    let told = world.node.ok(["status"]);
    assert!(told.contains("writes are refused: "), "{told}");
    all_are_read(&world, 0, written);
    world.is_well();
    all_are_stored(&world, 0, written);
    wait_for("writes to be taken again", || world.put("again", &object(7)).is_ok());

    // A full journal opens, and a larger disk is room while the store is still down.
    world.fails_with(refuse(503));
    let first = written;
    fill(&world, &mut written);
    assert!(written > first, "nothing was taken the second time");
    world.node.kill();
    world.node.restart();
    all_are_read(&world, first, written);
    disk.resize(disk_mib + 20);
    wait_for("writes to be taken again", || world.put(&format!("{written}"), &object(written)).is_ok());
    written += 1;
    world.is_well();
    all_are_stored(&world, first, written);
}
