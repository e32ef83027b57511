//! The way out to the network: what it reaches, what it does not, and that nothing of it is left.
//!
//! What shall be reached stands at an address of this machine that is not loopback, since tests have no other network.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nigh_functions::function_network::FunctionNetwork;
use nigh_sandbox::sandbox::local::{EngineSettings, LocalEngine};
use nigh_sandbox::sandbox::{DATA_PORT, OutboundSettings, RUNTIME_PORT, SandboxEnd, SandboxEngine as _};

use crate::harness::{
    Function, INIT_VARIABLE, PATIENCE, command, destroy, marker, processes_with, run, settings, start, until,
};
use crate::skipped::skip;

/// Names that the test's own name server knows end so.
const ZONE: &str = "sandbox.test";
/// An address among those of clouds' metadata, for a moment this machine's own.
const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 77, 77);
/// Set for the process that the test of Nigh's own death starts: what its sandboxes sleep for.
const CHILD_VARIABLE: &str = "NIGH_TEST_NETWORK_CHILD";

/// The address of this machine that others would use. Nothing is sent.
fn own_address() -> Option<Ipv4Addr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    match socket.local_addr().ok()?.ip() {
        IpAddr::V4(address) if !address.is_loopback() => Some(address),
        _ => None,
    }
}

fn with_outbound(resolvers: Vec<IpAddr>) -> EngineSettings {
    EngineSettings { outbound: Some(OutboundSettings { tool: None, resolvers }), ..settings() }
}

/// An engine that gives a way out, and the address to be reached; or nothing, and said so.
async fn equipped(test: &str, resolvers: Vec<IpAddr>) -> Option<(LocalEngine, Ipv4Addr)> {
    let engine = LocalEngine::open(with_outbound(resolvers)).await.unwrap();
    if let Err(why) = engine.outbound() {
        skip(test, why);
        return None;
    }
    let Some(address) = own_address() else {
        skip(test, "this machine has no address but loopback");
        return None;
    };
    Some((engine, address))
}

fn outbound(text: &str) -> Function {
    let mut function = command(&["/bin/bash", "-c", text]);
    function.spec.network = FunctionNetwork::Outbound;
    function
}

/// Says `hello` to whoever comes, until the test ends; returns its port.
fn greeter(address: Ipv4Addr) -> u16 {
    let listener = TcpListener::bind((address, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().filter_map(Result::ok) {
            let _gone = stream.write_all(b"hello\n");
        }
    });
    port
}

/// A name server for the zone, as long as it lives: each name in it has one address.
struct NameServer(Arc<AtomicBool>);

impl NameServer {
    /// None if its port is taken, and not by the same test under another engine.
    async fn start(address: Ipv4Addr) -> Option<Self> {
        let begin = Instant::now();
        let socket = loop {
            match UdpSocket::bind((address, 53)) {
                Ok(socket) => break socket,
                Err(_) if begin.elapsed() < PATIENCE / 3 => tokio::time::sleep(Duration::from_millis(50)).await,
                Err(_) => return None,
            }
        };
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let ends = Arc::new(AtomicBool::new(false));
        let asked_to = Arc::clone(&ends);
        std::thread::spawn(move || {
            let mut question = [0; 512];
            while !asked_to.load(Ordering::Relaxed) {
                let Ok((length, asker)) = socket.recv_from(&mut question) else { continue };
                if let Some(answer) = answer(&question[..length], address) {
                    let _gone = socket.send_to(&answer, asker);
                }
            }
        });
        Some(Self(ends))
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The answer to a question of one name (RFC 1035, section 4): the address, or nothing for any other type.
fn answer(question: &[u8], address: Ipv4Addr) -> Option<Vec<u8>> {
    let end = 12 + question.get(12..)?.iter().position(|byte| *byte == 0)? + 1;
    let kind = question.get(end..end + 2)?;
    let is_known = kind == [0, 1] && question[12..end].windows(4).any(|part| part == b"test");
    let mut answer = question.get(..end + 4)?.to_vec();
    answer[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, u8::from(is_known), 0, 0, 0, 0]);
    if is_known {
        answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        answer.extend_from_slice(&address.octets());
    }
    Some(answer)
}

/// A line of a script that says what answers at an address.
fn reach(name: &str, address: impl Into<IpAddr>, port: u16) -> String {
    let address = address.into();
    format!(
        "said=$(timeout 5 bash -c 'exec 3<>/dev/tcp/{address}/{port} && head -n 1 <&3' 2>/dev/null)
         echo {name}:${{said:-refused}}\n"
    )
}

/// An address of this machine as long as it lives.
struct OwnAddress(Ipv4Addr);

impl OwnAddress {
    fn add(address: Ipv4Addr) -> Option<Self> {
        let added = Command::new("ip").args(["address", "add", &format!("{address}/32"), "dev", "lo"]).output();
        added.is_ok_and(|output| output.status.success()).then_some(Self(address))
    }
}

impl Drop for OwnAddress {
    fn drop(&mut self) {
        let _gone = Command::new("ip").args(["address", "del", &format!("{}/32", self.0), "dev", "lo"]).status();
    }
}

/// The tools that carry packets for sandboxes of an engine, found by their cgroup.
fn tools_of(settings: &EngineSettings) -> Vec<i32> {
    let group = format!("/nigh-{}/", settings.instance);
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid: &i32| {
            let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
            read("comm").trim() == "slirp4netns" && read("cgroup").contains(&group)
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_with_a_way_out_reaches_others_by_name_and_one_without_reaches_nobody() {
    let test = "a_function_with_a_way_out_reaches_others_by_name_and_one_without_reaches_nobody";
    let resolver = own_address().into_iter().map(IpAddr::from).collect();
    let Some((engine, address)) = equipped(test, resolver).await else { return };
    let port = greeter(address);
    let names = NameServer::start(address).await;
    let text = format!(
        "{}getent ahostsv4 any.{ZONE} | head -n 1 | cut -d' ' -f1 | sed 's/^/name:/'",
        reach("host", address, port)
    );
    let (said, end) = run(&engine, outbound(&text)).await;
    assert_eq!(end, SandboxEnd::Exited(0), "{said}");
    assert!(said.starts_with("host:hello"), "{said}");
    if names.is_some() {
        assert_eq!(said, format!("host:hello\nname:{address}"));
    } else {
        skip(test, "its half about names: port 53 of this machine is taken");
    }
    // The same function, if it does not ask.
    let mut without = outbound(&text);
    without.spec.network = FunctionNetwork::None;
    assert_eq!(run(&engine, without).await.0, "host:refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_the_hosts_alone_and_metadata_and_other_sandboxes_are_out_of_reach_of_a_way_out() {
    let test = "what_is_the_hosts_alone_and_metadata_and_other_sandboxes_are_out_of_reach_of_a_way_out";
    let Some((engine, address)) = equipped(test, Vec::new()).await else { return };
    let loopback = greeter(Ipv4Addr::LOCALHOST);
    let mut text = String::new();
    for (name, address) in [
        ("loopback", Ipv4Addr::LOCALHOST),
        ("any", Ipv4Addr::UNSPECIFIED),
        ("gateway", Ipv4Addr::new(198, 18, 254, 2)),
        ("names", Ipv4Addr::new(198, 18, 254, 3)),
    ] {
        text += &reach(name, address, loopback);
    }
    let alias = OwnAddress::add(METADATA);
    if alias.is_some() {
        let port = greeter(METADATA);
        // It is there for whoever is not barred.
        assert!(std::net::TcpStream::connect(SocketAddr::from((METADATA, port))).is_ok());
        text += &reach("metadata", METADATA, port);
    }
    text += "grep -c '^[*].0000FEA9.*0000FFFF' /proc/net/route\n";
    // Another sandbox that listens, with a way out too: both have the same address in a network of their own.
    let listens = "import socket; s = socket.create_server(('0.0.0.0', 7777)); print('listens', flush=True)\n\
                   while True: s.accept()[0].send(b'other\\n')";
    let mut other = command(&["/usr/bin/python3", "-c", listens]);
    other.spec.network = FunctionNetwork::Outbound;
    let other = match Path::new("/usr/bin/python3").exists() {
        true => Some(start(&engine, other).await),
        false => None,
    };
    if let Some((_, lines, _)) = &other {
        lines.wait_for("listens").await;
        for (name, address) in [("other", Ipv4Addr::new(198, 18, 254, 100)), ("other", address)] {
            text += &reach(name, address, 7777);
        }
    }
    let (said, end) = run(&engine, outbound(&text)).await;
    assert_eq!(end, SandboxEnd::Exited(0), "{said}");
    let reached: Vec<&str> = said.lines().filter(|line| !line.ends_with(":refused")).collect();
    // The one route that says so.
    assert_eq!(reached, ["1"], "{said}");
    assert_eq!(said.lines().count(), 5 + usize::from(alias.is_some()) + 2 * usize::from(other.is_some()), "{said}");
    if let Some((other, ..)) = other {
        destroy(&*other.sandbox).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_with_a_way_out_has_its_doors_no_privilege_and_one_frozen_goes_on() {
    let test = "a_sandbox_with_a_way_out_has_its_doors_no_privilege_and_one_frozen_goes_on";
    let Some((engine, address)) = equipped(test, Vec::new()).await else { return };
    let port = greeter(address);
    let text = format!(
        "grep -c '^Cap.*0000000000000000' /proc/self/status
         for door in {RUNTIME_PORT} {DATA_PORT}; do (exec 3<>/dev/tcp/127.0.0.1/$door) && echo door; done
         ip route del unreachable 169.254.0.0/16 2>/dev/null && echo CHANGED
         cat /proc/net/dev | grep -c tap0
         while true; do {} sleep 0.02; done",
        reach("host", address, port)
    );
    let (started, lines, _code) = start(&engine, outbound(&text)).await;
    lines.wait_for("host:hello").await;
    assert!(lines.text().starts_with("5\ndoor\ndoor\n1\nhost:hello"), "{}", lines.text());
    started.sandbox.freeze().await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let before = lines.count();
    started.sandbox.thaw().await.unwrap();
    until("it reaches the host again", || lines.count() > before + 1).await;
    assert!(!lines.text().contains("refused") && !lines.text().contains("CHANGED"), "{}", lines.text());
    assert!(engine.outbound().unwrap().ends_with("sandboxes with it: 1"), "{:?}", engine.outbound());
    destroy(&*started.sandbox).await;
    assert!(engine.outbound().unwrap().ends_with("sandboxes with it: 0"), "{:?}", engine.outbound());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tool_stands_in_the_sandboxs_cgroup_without_privilege_and_both_end_together() {
    let test = "the_tool_stands_in_the_sandboxs_cgroup_without_privilege_and_both_end_together";
    let settings = with_outbound(Vec::new());
    let engine = LocalEngine::open(settings.clone()).await.unwrap();
    if let Err(why) = engine.outbound() {
        return skip(test, why);
    }
    if engine.probe().controls.freezer.is_err() {
        return skip(test, "without a cgroup it cannot be found");
    }
    let (first, ..) = start(&engine, outbound("sleep 1000")).await;
    let tools = tools_of(&settings);
    assert_eq!(tools.len(), 1);
    let status = std::fs::read_to_string(format!("/proc/{}/status", tools[0])).unwrap();
    // CAP_NET_BIND_SERVICE, and nothing else.
    assert!(status.contains("CapEff:\t0000000000000400") && status.contains("NoNewPrivs:\t1"), "{status}");
    let entries = |folder: &str| std::fs::read_dir(format!("/proc/{}/root/{folder}", tools[0])).unwrap().count();
    assert_eq!((entries("etc"), entries("run")), (0, 0));
    // A frozen one ends too.
    first.sandbox.freeze().await.unwrap();
    destroy(&*first.sandbox).await;
    assert!(tools_of(&settings).is_empty());
    // Without its tool a sandbox is not what was asked for.
    let (second, ..) = start(&engine, outbound("sleep 1000")).await;
    let tool = tools_of(&settings)[0];
    assert!(Command::new("/bin/kill").args(["-9", &tool.to_string()]).status().unwrap().success());
    let end = tokio::time::timeout(PATIENCE, second.sandbox.ended()).await.expect("it ends");
    assert_eq!(end, SandboxEnd::Signalled(9));
    destroy(&*second.sandbox).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_way_out_that_cannot_be_had_fails_its_function_alone_and_says_why() {
    let test = "a_way_out_that_cannot_be_had_fails_its_function_alone_and_says_why";
    let outbound_settings = OutboundSettings { tool: Some("/absent/slirp4netns".into()), resolvers: Vec::new() };
    let engine = LocalEngine::open(EngineSettings { outbound: Some(outbound_settings), ..settings() }).await.unwrap();
    let why = engine.outbound().unwrap_err();
    let Err(error) = engine.start(outbound("true").spec).await else { panic!("{test}") };
    assert!(error.to_string().contains(&why) && error.to_string().contains("way out"), "{error}");
    let (said, _) = run(&engine, command(&["/bin/echo", "here"])).await;
    assert_eq!(said, "here");
}

/// A process that is killed, at the latest when its test fails.
struct Killed(Child);

impl Killed {
    fn kill(&mut self) {
        let _ended_already = self.0.kill();
        let _reaped = self.0.wait();
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        self.kill();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it is the Nigh that the next test starts and kills"]
async fn the_nigh_with_a_way_out_that_is_killed() {
    let marker = std::env::var(CHILD_VARIABLE).unwrap();
    let engine = LocalEngine::open(with_outbound(Vec::new())).await.unwrap();
    let sleeping = || {
        let mut function = command(&["/usr/bin/sleep", &marker]);
        function.spec.network = FunctionNetwork::Outbound;
        function
    };
    let (running, _lines, _code) = start(&engine, sleeping()).await;
    let (frozen, _lines, _code) = start(&engine, sleeping()).await;
    frozen.sandbox.freeze().await.unwrap();
    running.sandbox.ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_way_out_outlives_a_killed_nigh() {
    let test = "no_way_out_outlives_a_killed_nigh";
    let Some((engine, _)) = equipped(test, Vec::new()).await else { return };
    if engine.probe().controls.freezer.is_err() {
        return skip(test, "without a cgroup it cannot be found");
    }
    let marker = marker();
    let mut child = Killed(
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "network::the_nigh_with_a_way_out_that_is_killed", "--ignored", "--nocapture"])
            .env(CHILD_VARIABLE, &marker)
            .env(INIT_VARIABLE, settings().init.unwrap())
            .stdout(Stdio::null())
            .spawn()
            .unwrap(),
    );
    until("both sandboxes run", || processes_with(&marker).len() == 2).await;
    // The second one is being frozen.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let group = |pid: i32| -> Option<PathBuf> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        let path = text.lines().filter_map(|line| line.rsplit(':').next()).find(|path| path.contains("/nigh-"))?;
        Some(PathBuf::from(path))
    };
    let groups: Vec<PathBuf> = processes_with(&marker).into_iter().filter_map(group).collect();
    let members = || {
        let all = std::fs::read_dir("/proc").unwrap();
        let pids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
        pids.filter(|pid| group(*pid).is_some_and(|group| groups.contains(&group))).count()
    };
    // Each its init, its command and its tool.
    assert_eq!((groups.len(), members()), (2, 6), "{groups:?}");
    child.kill();
    until("all processes have ended, the tools too", || members() == 0).await;
    let folder = |group: &PathBuf| {
        ["memory", "freezer", "pids", ""]
            .iter()
            .any(|tree| Path::new(&format!("/sys/fs/cgroup/{tree}{}", group.display())).exists())
    };
    until("their cgroups are gone", || !groups.iter().any(folder)).await;
}
