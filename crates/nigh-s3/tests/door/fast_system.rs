//! The fast path and the system's own limits: each test is a program of its own, begun again with what it needs.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use nigh_client::{Address, Client, Conditions, Headers};
use nigh_s3::FastPathLimits;
use nigh_terms::ByteSize;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::fast_path::{LARGE, aside, client, limits, serve};
use crate::running::Running;
use crate::skipped::skip;

/// Says which part a program plays that a test has begun.
const PART: &str = "NIGH_TEST_FAST_PART";

/// This test program again, for the one test that plays `part`.
fn play(test: &str, part: &str, group: Option<&Path>) -> Child {
    let program = std::env::current_exe().unwrap();
    // It joins its group before it takes any memory.
    let join = group.map_or("true".to_owned(), |group| format!("echo $$ > {}/cgroup.procs", group.display()));
    Command::new("sh")
        .args(["-c", &format!("{join} && exec \"$0\" \"$@\""), program.to_str().unwrap()])
        .args(["--exact", &format!("fast_system::{test}"), "--nocapture", "--test-threads=1"])
        .env(PART, part)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn part() -> Option<String> {
    std::env::var(PART).ok()
}

/// The first line of `child` that begins with `word`, without it.
fn hear(output: &mut impl BufRead, word: &str) -> String {
    for line in output.lines() {
        if let Some((_, said)) = line.unwrap().split_once(word) {
            return said.trim().to_owned();
        }
    }
    panic!("it ended without {word:?}");
}

fn go_on(input: &mut ChildStdin) {
    writeln!(input, "go on").unwrap();
}

fn await_word() {
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

#[tokio::test]
async fn without_a_descriptor_left_bytes_come_by_copy_or_by_http_and_nothing_breaks() {
    if part().is_none() {
        let child = play("without_a_descriptor_left_bytes_come_by_copy_or_by_http_and_nothing_breaks", "all", None);
        let done = child.wait_with_output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
        return;
    }
    let door = Running::with_bucket().await;
    let address = serve(&door, "fast.sock", limits(), None);
    for n in 0..2u8 {
        door.put(&format!("/bucket/{n}"), vec![n; 100_000]).await;
    }
    door.put("/bucket/long", vec![9; LARGE]).await;
    let signer = door.signer.clone();
    aside(move || {
        let mut client = client(&address, &signer);
        assert!(client.get("bucket", "0", &Conditions::default()).unwrap().is_mapped());
        let before = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(256), maximum: before.maximum }).unwrap();
        let all: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
        let copied = client.get("bucket", "1", &Conditions::default()).unwrap();
        assert!(!copied.is_mapped() && copied[..] == [1; 100_000]);
        assert!(client.get("bucket", "long", &Conditions::default()).is_err());
        assert!(client.create("bucket", "k", LARGE as u64).is_err());
        drop(all);
        setrlimit(Resource::Nofile, before).unwrap();
        assert!(client.get("bucket", "1", &Conditions::default()).unwrap().is_mapped());
        client.put("bucket", "k", &[3; LARGE], &Headers::new()).unwrap();
    })
    .await;
}

/// A memory cgroup of this test's own, removed at the end.
struct Group(PathBuf);

impl Group {
    fn make(name: &str) -> Result<Self, String> {
        let v1 = Path::new("/sys/fs/cgroup/memory");
        let tree = if v1.is_dir() { v1 } else { Path::new("/sys/fs/cgroup") };
        let group = tree.join(format!("nigh-test-{name}-{}", std::process::id()));
        std::fs::create_dir(&group).map_err(|error| format!("{}: {error}", group.display()))?;
        let group = Self(group);
        match group.bytes() {
            Some(_) => Ok(group),
            None => Err("no memory controller for groups below the root".to_owned()),
        }
    }

    fn bytes(&self) -> Option<u64> {
        let read = |name: &str| std::fs::read_to_string(self.0.join(name)).ok()?.trim().parse().ok();
        read("memory.usage_in_bytes").or_else(|| read("memory.current"))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its processes have ended; the kernel may need a moment to see it.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

#[tokio::test]
async fn memory_that_a_client_fills_and_reads_is_paid_by_the_node() {
    const TEST: &str = "memory_that_a_client_fills_and_reads_is_paid_by_the_node";
    const BYTES: usize = 12 << 20;
    match part().as_deref() {
        Some("node") => return be_node().await,
        Some(client) => return be_client(client, BYTES),
        None => {}
    }
    let groups = Group::make("node").and_then(|node| Ok((node, Group::make("client")?)));
    let (node_group, client_group) = match groups {
        Ok(groups) => groups,
        Err(why) => return skip(TEST, format_args!("cgroups cannot be made here: {why}")),
    };
    let mut node = play(TEST, "node", Some(&node_group.0));
    let mut node_says = BufReader::new(node.stdout.take().unwrap());
    let address = hear(&mut node_says, "address:");
    let mut client = play(TEST, &address, Some(&client_group.0));
    let (mut client_says, mut client_hears) =
        (BufReader::new(client.stdout.take().unwrap()), client.stdin.take().unwrap());
    hear(&mut client_says, "connected");
    let before = (node_group.bytes().unwrap(), client_group.bytes().unwrap());
    go_on(&mut client_hears);
    hear(&mut client_says, "committed and mapped");
    let after = (node_group.bytes().unwrap(), client_group.bytes().unwrap());
    go_on(&mut client_hears);
    assert!(client.wait().unwrap().success());
    drop(node.stdin.take());
    assert!(node.wait().unwrap().success());
    let (node_paid, client_paid) = (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
    println!("the node paid {node_paid} bytes and the client {client_paid} for an object of {BYTES}");
    assert!(node_paid >= BYTES as u64, "the node paid {node_paid}");
    assert!(client_paid < BYTES as u64 / 4, "the client paid {client_paid}");
}

async fn be_node() {
    let door = Running::with_bucket().await;
    let roomy = FastPathLimits { held: ByteSize::mib(64), ..limits() };
    let Address::File(path) = serve(&door, "fast.sock", roomy, None) else { panic!() };
    println!("address:{} {} {}", path.display(), door.signer.key, door.signer.secret);
    aside(await_word).await;
}

fn be_client(address: &str, bytes: usize) {
    let parts: Vec<_> = address.split(' ').collect();
    let mut client = Client::connect(&Address::parse(parts[0]), parts[1], parts[2]).unwrap();
    println!("connected");
    await_word();
    let mut created = client.create("bucket", "k", bytes as u64).unwrap();
    created.fill(7);
    created.commit(&mut client, &Headers::new()).unwrap();
    let view = client.get("bucket", "k", &Conditions::default()).unwrap();
    assert!(view.is_mapped() && view.iter().all(|&byte| byte == 7));
    println!("committed and mapped");
    await_word();
}
