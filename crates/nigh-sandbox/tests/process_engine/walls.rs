//! What a function can see, read, change and reach.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;

use nigh_sandbox::sandbox::launch::IsolationLevel;
use nigh_sandbox::sandbox::local::{EngineSettings, LocalEngine};
use nigh_sandbox::sandbox::{DATA_PORT, FAST_PATH, RUNTIME_PORT, SandboxEnd, SandboxEngine as _};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::harness::{
    command, destroy, engine, has_namespaces, output, run, script, settings, start, under_runc, until,
};
use crate::skipped::skip;

const SHARED: &str = "files, processes and network are the host's here";

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_sees_only_its_own_root() {
    let engine = engine().await;
    if !has_namespaces(&engine) {
        return skip("a_sandbox_sees_only_its_own_root", SHARED);
    }
    let seen = output(&engine, "ls /").await;
    let allowed = ["bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "opt", "proc", "sbin", "tmp", "usr", "var"];
    // The init's own program stands where runc found it.
    assert!(seen.lines().all(|name| allowed.contains(&name) || name == "nigh-sandbox"), "{seen}");
    assert_eq!(output(&engine, "cat /var/task/handler.txt; ls /var; pwd").await, "code\ntask\ntmp\n/var/task");
    let leaks = output(&engine, "cat /proc/self/mountinfo | cut -d' ' -f5 | grep -v '^/\\($\\|nigh-sandbox\\|usr\\|bin\\|sbin\\|lib\\|etc\\|proc\\|dev\\|tmp\\|var/task\\)'").await;
    assert_eq!(leaks, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_the_host_cannot_be_read() {
    let engine = engine().await;
    if engine.probe().level == IsolationLevel::None {
        return skip("a_file_of_the_host_cannot_be_read", "functions are trusted here");
    }
    let state = tempfile::tempdir().unwrap();
    if !has_namespaces(&engine) {
        // Then the folder's own mode is what protects it, as that of Nigh's state does.
        std::fs::set_permissions(state.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    }
    let secret = state.path().join("secret");
    std::fs::write(&secret, "the-key-of-all-functions").unwrap();
    let seen = output(&engine, &format!("cat {} /etc/shadow /proc/1/environ 2>&1", secret.display())).await;
    assert!(!seen.contains("the-key") && !seen.contains("root:"), "{seen}");
    assert_eq!(seen.lines().count(), 3, "three refusals: {seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_of_the_host_cannot_be_seen() {
    let engine = engine().await;
    if !has_namespaces(&engine) {
        return skip("processes_of_the_host_cannot_be_seen", SHARED);
    }
    let seen = output(&engine, "for p in /proc/[0-9]*; do cat $p/comm; done | sort -u").await;
    let seen: Vec<&str> = seen.lines().collect();
    assert!(seen.iter().all(|name| ["nigh-sandbox", "sh", "cat", "sort"].contains(name)), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_else_can_be_signalled() {
    let engine = engine().await;
    if engine.probe().level == IsolationLevel::None {
        return skip("nobody_else_can_be_signalled", "functions are trusted here");
    }
    let (victim, lines, _code) = start(&engine, script("while sleep 0.01; do echo alive; done")).await;
    let us = std::process::id();
    // `kill -1` spares the shell itself and the first process of its namespace. Where there is none it would end the
    // sandbox's own init, and with it this sandbox.
    let all = if has_namespaces(&engine) { "kill -9 -1;" } else { "" };
    let said = output(&engine, &format!("kill -9 {us}; {all} echo after")).await;
    assert!(said.contains("after"), "{said}");
    let before = lines.count();
    until("the other sandbox runs on", || lines.count() > before).await;
    destroy(&*victim.sandbox).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_the_hosts_network_is_reached_but_the_two_doors_are() {
    let engine = engine().await;
    let host = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = host.local_addr().unwrap().port();
    let text = format!(
        "(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo REACHED
         for door in {RUNTIME_PORT} {DATA_PORT}; do
           exec 3<>/dev/tcp/${{DOORS%%:*}}/$door && cat <&3
         done"
    );
    let (started, lines, _code) = start(&engine, command(&["/bin/bash", "-c", &text])).await;
    for (listener, name) in [(started.runtime, "runtime\n"), (started.data, "data\n")] {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(name.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.unwrap();
    }
    assert_eq!(started.sandbox.ended().await, SandboxEnd::Exited(0));
    let said = lines.text();
    let doors = if has_namespaces(&engine) { "runtime\ndata" } else { "REACHED\nruntime\ndata" };
    assert_eq!(said, doors);
    started.sandbox.destroy().await;
}

/// Perl, which systems have: connects to the fast path and prints the packet that comes.
const FAST_PATH_CLIENT: &str = r#"use Socket; socket(my $s, AF_UNIX, SOCK_SEQPACKET, 0) or die "socket: $!";
    connect($s, pack("S a*", AF_UNIX, "\0" . substr($ENV{NIGH_FAST_PATH}, 1))) or die "connect: $!";
    recv($s, my $said, 100, 0); print "$ENV{NIGH_FAST_PATH} says $said\n""#;

#[tokio::test(flavor = "multi_thread")]
async fn the_fast_path_is_reached_by_its_name_inside_and_from_no_other_network() {
    let test = "the_fast_path_is_reached_by_its_name_inside_and_from_no_other_network";
    let engine = LocalEngine::open(EngineSettings { fast_path: true, ..settings() }).await.unwrap();
    if !has_namespaces(&engine) {
        let (started, _, _code) = start(&engine, script("true")).await;
        assert!(started.fast.is_none(), "on a shared network the name would be everybody's");
        assert_eq!(output(&engine, "echo ${NIGH_FAST_PATH-unset}").await, "unset");
        return skip(test, SHARED);
    }
    if !std::path::Path::new("/usr/bin/perl").exists() {
        return skip(test, "there is no perl to connect with");
    }
    let (started, lines, _code) = start(&engine, command(&["/usr/bin/perl", "-e", FAST_PATH_CLIENT])).await;
    let listener = started.fast.unwrap();
    until("a connection", || {
        rustix::net::accept(&listener).is_ok_and(|client| rustix::io::write(&client, b"hello").is_ok())
    })
    .await;
    assert_eq!(started.sandbox.ended().await, SandboxEnd::Exited(0), "{}", lines.text());
    assert_eq!(lines.text(), format!("@{FAST_PATH} says hello"));
    let address = SocketAddrUnix::new_abstract_name(FAST_PATH.as_bytes()).unwrap();
    let outside = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    assert_eq!(rustix::net::connect(&outside, &address), Err(rustix::io::Errno::CONNREFUSED));
    started.sandbox.destroy().await;
    // Who does not serve it does not tell of it.
    let silent = LocalEngine::open(settings()).await.unwrap();
    assert_eq!(output(&silent, "echo ${NIGH_FAST_PATH-unset}").await, "unset");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_tmp_and_shared_memory_can_be_written() {
    let engine = engine().await;
    if !has_namespaces(&engine) {
        return skip("only_tmp_and_shared_memory_can_be_written", SHARED);
    }
    let text = "for f in / /var /var/task /usr /etc /dev /tmp /dev/shm /proc/sys/kernel; do
                  (echo x > $f/written) 2>/dev/null && echo $f; done
                (echo x >> /var/task/handler.txt) 2>/dev/null && echo handler
                chmod 777 /var/task 2>/dev/null && echo chmod
                mount -t tmpfs none /tmp 2>/dev/null && echo mount
                true";
    assert_eq!(output(&engine, text).await, "/tmp\n/dev/shm");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_has_no_privilege_and_can_win_none() {
    let engine = engine().await;
    if engine.probe().level == IsolationLevel::None {
        return skip("a_function_has_no_privilege_and_can_win_none", "functions are trusted here");
    }
    if engine.probe().filter.is_ok() {
        assert_eq!(output(&engine, "grep '^Seccomp:' /proc/self/status").await, "Seccomp:\t2");
    }
    let status = output(&engine, "grep -E '^(Cap|NoNewPrivs)' /proc/self/status").await;
    for line in status.lines() {
        let (name, value) = line.split_once(":\t").unwrap();
        let wanted = if name == "NoNewPrivs" { "1" } else { "0000000000000000" };
        assert_eq!(value, wanted, "{name}");
    }
    assert_eq!(status.lines().count(), 6);
    if has_namespaces(&engine) {
        assert_eq!(output(&engine, "unshare -U true 2>/dev/null && echo new user namespace").await, "");
        assert_eq!(output(&engine, "ls /proc/1/fd 2>/dev/null; cat /proc/1/maps 2>/dev/null").await, "");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_environment_and_the_descriptors_are_those_given() {
    let engine = engine().await;
    let mut function = command(&["/usr/bin/env"]);
    function.spec.environment = [("ONE".into(), "1 = one".into()), ("TWO".into(), String::new().into())].into();
    assert_eq!(run(&engine, function).await.0, "ONE=1 = one\nTWO=");
    // The fourth is the folder that `ls` reads.
    assert_eq!(output(&engine, "ls /proc/self/fd").await, "0\n1\n2\n3");
    assert_eq!(output(&engine, "echo out > /dev/stdout; cat < /dev/null; read x; echo end $?").await, "out\nend 1");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_sandboxes_have_different_users_and_do_not_share_tmp() {
    let engine = engine().await;
    let text = "id -u; ls /tmp /dev/shm; echo x > /tmp/mine; echo made; sleep 1000";
    let (first, first_lines, _code1) = start(&engine, script(text)).await;
    let (second, second_lines, _code2) = start(&engine, script(text)).await;
    first_lines.wait_for("made").await;
    second_lines.wait_for("made").await;
    let user = |text: &str| text.lines().next().unwrap().parse::<u32>().unwrap();
    let (one, two) = (user(&first_lines.text()), user(&second_lines.text()));
    if engine.probe().level.uid().is_some() {
        assert_ne!(one, two);
        assert!([one, two].iter().all(|uid| *uid >= 2_000_000_000), "{one} {two}");
    }
    if has_namespaces(&engine) {
        for lines in [first_lines, second_lines] {
            assert!(!lines.text().contains("mine"), "{}", lines.text());
        }
    }
    destroy(&*first.sandbox).await;
    destroy(&*second.sandbox).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_folder_appears_read_only_at_its_own_path() {
    let engine = engine().await;
    let runtime = tempfile::tempdir().unwrap();
    std::fs::set_permissions(runtime.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    std::fs::write(runtime.path().join("library"), "a library").unwrap();
    let text = format!(
        "cat {0}/library; echo; (echo x > {0}/new) 2>/dev/null && echo WRITTEN; true",
        runtime.path().display()
    );
    let mut function = script(&text);
    function.spec.runtime_folders = vec![runtime.path().to_owned()];
    let (said, _) = run(&engine, function).await;
    assert_eq!(said.trim_end(), if has_namespaces(&engine) { "a library" } else { "a library\nWRITTEN" });
}

#[tokio::test(flavor = "multi_thread")]
async fn one_line_says_what_keeps_sandboxes_apart() {
    let engine = engine().await;
    let line = engine.isolation();
    assert_eq!(engine.kind(), if under_runc() { "runc" } else { "process" });
    assert!(!line.contains('\n') && line.starts_with("each its own") || line.starts_with("none"), "{line}");
    for reason in engine.probe().off() {
        assert!(line.contains(&reason), "{line}: {reason}");
    }
}
