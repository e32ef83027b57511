//! What a function can use up.

use nigh_llc::resctrl::CpuList;
use nigh_sandbox::cgroup::cpuset::Cpusets;
use nigh_sandbox::sandbox::SandboxEnd;
use nigh_sandbox::sandbox::launch::IsolationLevel;
use nigh_sandbox::sandbox::local::{EngineSettings, LocalEngine};
use nigh_schedule::memory::grant::{Grant, SandboxMemoryError};
use nigh_terms::ByteSize;

use crate::harness::{
    PATIENCE, command, destroy, engine, has_namespaces, marker, output, processes_with, run, script, settings, start,
    until,
};
use crate::skipped::skip;

fn lacks_memory_control(engine: &LocalEngine, test: &str) -> bool {
    match &engine.probe().controls.memory {
        Ok(()) => false,
        Err(reason) => {
            skip(test, reason);
            true
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tmp_is_full_at_its_size_and_at_its_number_of_files() {
    let engine = engine().await;
    if !has_namespaces(&engine) {
        return skip("tmp_is_full_at_its_size_and_at_its_number_of_files", "/tmp is the host's here");
    }
    let said = output(&engine, "head -c 900k /dev/zero > /tmp/a && echo fits; head -c 900k /dev/zero > /tmp/b").await;
    assert!(said.starts_with("fits\n") && said.contains("No space left"), "{said}");
    let many = "i=0; while [ $i -lt 3000 ]; do true > /tmp/$i || break; i=$((i+1)); done 2>&1; ls /tmp | wc -l";
    let said = output(&engine, many).await;
    let made: usize = said.lines().last().unwrap().trim().parse().unwrap();
    assert!((900..1025).contains(&made), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_bomb_ends_at_the_process_limit() {
    let engine = engine().await;
    if engine.probe().level == IsolationLevel::None && engine.probe().controls.processes.is_err() {
        return skip("a_fork_bomb_ends_at_the_process_limit", "neither a cgroup nor an own user bounds it here");
    }
    // Each child makes children; the counter is a process that began before.
    let bomb = "$| = 1; my $failed = 0;
        for (1..200) { my $p = fork; if (!defined $p) { $failed++ } elsif (!$p) { sleep 1000 } }
        print \"failed $failed\\n\"; sleep 1000;";
    let (started, lines, _code) = start(&engine, command(&["/usr/bin/perl", "-e", bomb])).await;
    lines.wait_for("failed").await;
    let failed: usize = lines.text().rsplit(' ').next().unwrap().parse().unwrap();
    // 32 processes: perl and 31 children.
    assert_eq!(failed, 200 - 31, "{}", lines.text());
    destroy(&*started.sandbox).await;
}

/// Clock ticks that a process has had of the processors.
fn ticks_of(pid: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The fields behind the name, which may hold anything: proc(5).
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_is_confined_to_a_processor_runs_there_until_it_is_freed() {
    let engine = LocalEngine::open(EngineSettings { cpusets: Cpusets::OneEach, ..settings() }).await.unwrap();
    let cpus = match engine.sandbox_cpus() {
        Ok(cpus) => cpus,
        Err(reason) => {
            return skip("a_sandbox_that_is_confined_to_a_processor_runs_there_until_it_is_freed", reason);
        }
    };
    let name = marker();
    let (started, ..) = start(&engine, command(&["/bin/sh", "-c", "while :; do sleep 1; done", &name])).await;
    until("the process to run", || processes_with(&name).len() == 1).await;
    let pid = processes_with(&name)[0];
    let allowed = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
        line.trim().parse::<CpuList>().unwrap()
    };
    assert_eq!(allowed(), *cpus.all());
    let last = CpuList(cpus.all().0.last().copied().into_iter().collect());
    let tasks = started.sandbox.tasks().unwrap();
    cpus.confine(&tasks, &last).unwrap();
    assert_eq!(allowed(), last);
    cpus.confine(&tasks, cpus.all()).unwrap();
    assert_eq!(allowed(), *cpus.all());
    destroy(&*started.sandbox).await;
    cpus.confine(&tasks, &last).unwrap_err();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_books_more_gets_more_of_a_processor_and_the_other_is_not_starved() {
    let engine = engine().await;
    if let Err(reason) = &engine.probe().controls.cpu {
        let test = "a_sandbox_that_books_more_gets_more_of_a_processor_and_the_other_is_not_starved";
        return skip(test, reason);
    }
    let mut sandboxes = Vec::new();
    let mut pids = Vec::new();
    for mib in [64, 512] {
        let name = marker();
        let mut function = command(&["/bin/sh", "-c", "while :; do :; done", &name]);
        function.spec.grant = Grant::full(ByteSize::mib(mib));
        sandboxes.push(start(&engine, function).await);
        until("the process to run", || processes_with(&name).len() == 1).await;
        pids.push(processes_with(&name)[0]);
    }
    // All on one processor, the first that this process may use.
    let allowed = rustix::thread::sched_getaffinity(None).unwrap();
    let mut one = rustix::thread::CpuSet::new();
    one.set((0..rustix::thread::CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).unwrap());
    for pid in &pids {
        rustix::thread::sched_setaffinity(rustix::thread::Pid::from_raw(*pid), &one).unwrap();
    }
    let begin: Vec<u64> = pids.iter().map(|pid| ticks_of(*pid)).collect();
    let had = || [0, 1].map(|n| ticks_of(pids[n]) - begin[n]);
    // Enough for many turns of both; how long that takes is the machine's load.
    until("half a second of processor time", || had().iter().sum::<u64>() >= 50).await;
    let [small, large] = had();
    assert!(large >= 3 * small, "{small} and {large} ticks, where 1 to 8 is what they book");
    assert!(small > 0, "the smaller one had nothing of {large} ticks");
    for (started, ..) in sandboxes {
        destroy(&*started.sandbox).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn want_of_memory_is_told_from_another_kill() {
    let engine = engine().await;
    if lacks_memory_control(&engine, "want_of_memory_is_told_from_another_kill") {
        return;
    }
    let (_, end) = run(&engine, command(&["/usr/bin/tail", "/dev/zero"])).await;
    assert_eq!(end, SandboxEnd::OutOfMemory);
    let (_, end) = run(&engine, script("kill -9 $$")).await;
    assert_eq!(end, SandboxEnd::Signalled(9));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_peak_is_read_and_begun_anew() {
    let engine = engine().await;
    if lacks_memory_control(&engine, "the_peak_is_read_and_begun_anew") {
        return;
    }
    let text = "head -c 40m /dev/zero > /dev/shm/$$; rm /dev/shm/$$; echo empty; sleep 1000";
    let (started, lines, _code) = start(&engine, script(text)).await;
    lines.wait_for("empty").await;
    let memory = started.sandbox.memory();
    assert!(memory.peak().unwrap() >= ByteSize::mib(40), "{}", memory.peak().unwrap());
    memory.reset_peak().unwrap();
    assert!(memory.peak().unwrap() < ByteSize::mib(30), "{}", memory.peak().unwrap());
    assert!(memory.used().unwrap() < ByteSize::mib(30));
    assert_eq!(memory.oom_kills().unwrap(), 0);
    destroy(&*started.sandbox).await;
    assert!(memory.peak().is_err(), "no group is left to ask");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_smaller_peak_after_a_larger_one_is_told() {
    let engine = engine().await;
    if lacks_memory_control(&engine, "a_smaller_peak_after_a_larger_one_is_told") {
        return;
    }
    // It waits for a word through the runtime's door, so that the measurement begins between the two; and it stays the
    // shell, whose own peak goes when it becomes another program.
    let text = "head -c 40m /dev/zero > /dev/shm/$$; rm /dev/shm/$$; echo empty; \
                exec 3<>/dev/tcp/${DOORS%%:*}/9001; cat <&3; \
                printf -v x '%8000000s' ''; unset x; echo freed; sleep 1000; true";
    let (started, lines, _code) = start(&engine, command(&["/bin/bash", "-c", text])).await;
    lines.wait_for("empty").await;
    let memory = started.sandbox.memory();
    memory.reset_peak().unwrap();
    let before = memory.peak().unwrap();
    assert!(before < ByteSize::mib(30), "{before}");
    drop(started.runtime.accept().await.unwrap());
    lines.wait_for("freed").await;
    let peak = memory.peak().unwrap();
    assert!(peak >= before.saturating_sub(ByteSize::mib(1)) + ByteSize::mib(7), "{before}, then {peak}");
    assert!(peak < ByteSize::mib(38), "{peak}");
    destroy(&*started.sandbox).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_below_what_is_in_use_is_refused_and_the_old_one_stands() {
    let engine = engine().await;
    if lacks_memory_control(&engine, "a_limit_below_what_is_in_use_is_refused_and_the_old_one_stands") {
        return;
    }
    let (started, lines, _code) = start(
        &engine,
        script("trap 'rm /dev/shm/$$' EXIT; head -c 40m /dev/zero > /dev/shm/$$; echo full; sleep 1000"),
    )
    .await;
    lines.wait_for("full").await;
    let memory = started.sandbox.memory();
    let error = memory.set_limit(ByteSize::mib(16)).unwrap_err();
    assert!(
        matches!(error, SandboxMemoryError::CannotShrink { target, current, used }
            if target == ByteSize::mib(16) && current == ByteSize::mib(64) && used >= ByteSize::mib(40)),
        "{error}"
    );
    memory.set_limit(ByteSize::mib(56)).unwrap();
    memory.set_limit(ByteSize::mib(128)).unwrap();
    destroy(&*started.sandbox).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn coming_to_the_limit_is_noticed() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    let engine = engine().await;
    if lacks_memory_control(&engine, "coming_to_the_limit_is_noticed") {
        return;
    }
    // Waits for a word through the runtime's door, so that the notice stands before the memory is used.
    // Memory that it touches itself: what the kernel touches for it would fail at the limit on cgroup v1.
    let text = "exec 3<>/dev/tcp/${DOORS%%:*}/9001; cat <&3; while :; do printf -v y '%4000000s' ''; x+=$y; done";
    let mut function = command(&["/bin/bash", "-c", text]);
    function.spec.grant = Grant { memory: ByteSize::mib(32), booked: ByteSize::mib(64) };
    let (started, _lines, _code) = start(&engine, function).await;
    let noticed = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&noticed);
    let memory = started.sandbox.memory();
    memory.on_pressure(Box::new(move |used| seen.store(used.bytes(), Ordering::SeqCst))).unwrap();
    drop(started.runtime.accept().await.unwrap());
    until("the notice", || noticed.load(Ordering::SeqCst) > 0).await;
    // What the notice is for.
    memory.set_limit(ByteSize::mib(64)).unwrap();
    let ended = tokio::time::timeout(PATIENCE, started.sandbox.ended()).await;
    assert_eq!(ended, Ok(SandboxEnd::OutOfMemory), "it goes on to what it booked");
    destroy(&*started.sandbox).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_that_nobody_grants_more_can_be_ended() {
    let engine = engine().await;
    if lacks_memory_control(&engine, "a_function_that_nobody_grants_more_can_be_ended") {
        return;
    }
    // On v2 it is held back from then on, for seconds at a time within the kernel, and comes to its maximum in minutes.
    let mut function = command(&["/usr/bin/tail", "/dev/zero"]);
    function.spec.grant = Grant { memory: ByteSize::mib(32), booked: ByteSize::mib(64) };
    let (started, _lines, _code) = start(&engine, function).await;
    let memory = started.sandbox.memory();
    until("the peak at the grant", || memory.peak().is_ok_and(|peak| peak >= ByteSize::mib(31))).await;
    destroy(&*started.sandbox).await;
    assert!(memory.used().is_err(), "no group is left to ask");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_that_needs_more_than_its_grant_goes_on_when_it_is_given() {
    let test = "a_function_that_needs_more_than_its_grant_goes_on_when_it_is_given";
    let engine = engine().await;
    if lacks_memory_control(&engine, test) {
        return;
    }
    // Memory that it touches itself: what the kernel touches for it would fail at the limit on cgroup v1.
    let text = "exec 3<>/dev/tcp/${DOORS%%:*}/9001; cat <&3; printf -v x '%16000000s' '' && exit 5";
    let mut function = command(&["/bin/bash", "-c", text]);
    function.spec.grant = Grant { memory: ByteSize::mib(24), booked: ByteSize::mib(64) };
    let (started, _lines, _code) = start(&engine, function).await;
    let sandbox = &started.sandbox;
    let (noticed, mut notices) = tokio::sync::mpsc::unbounded_channel();
    let notice = move |used| {
        // Only the first is waited for.
        let _unheard = noticed.send(used);
    };
    sandbox.memory().on_pressure(Box::new(notice)).unwrap();
    drop(started.runtime.accept().await.unwrap());
    let used = tokio::time::timeout(PATIENCE, notices.recv()).await.unwrap().unwrap();
    assert!(used >= ByteSize::mib(23), "{used}");
    sandbox.memory().set_limit(ByteSize::mib(64)).unwrap();
    assert_eq!(tokio::time::timeout(PATIENCE, sandbox.ended()).await, Ok(SandboxEnd::Exited(5)));
    destroy(&**sandbox).await;
}

/// What the node does between two runs: it freezes a sandbox, lowers its limit to what it uses, and before the next run
/// gives it its memory first and thaws it then.
#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_sandbox_does_not_grow_and_one_that_has_its_memory_before_it_is_thawed_grows_at_once() {
    let test = "a_frozen_sandbox_does_not_grow_and_one_that_has_its_memory_before_it_is_thawed_grows_at_once";
    let engine = engine().await;
    if lacks_memory_control(&engine, test) {
        return;
    }
    // It takes 4 MB more every 20 ms, whether it has an invocation or not.
    let text =
        "n=0; while [ $n -lt 40 ]; do printf -v x$n '%4000000s' ''; echo grown; n=$((n+1)); sleep 0.02; done; exit 7";
    let mut function = command(&["/bin/bash", "-c", text]);
    function.spec.grant = Grant::full(ByteSize::mib(256));
    let (started, lines, _code) = start(&engine, function).await;
    let (sandbox, memory) = (&started.sandbox, started.sandbox.memory());
    lines.wait_for("grown").await;
    sandbox.freeze().await.unwrap();
    let held = memory.used().unwrap();
    assert!(held < ByteSize::mib(150), "it was frozen too late: {held}");
    memory.set_limit(held + ByteSize::mib(1)).unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    let used = memory.used().unwrap();
    assert!(used <= held + ByteSize::mib(1), "a frozen sandbox has grown from {held} to {used}");
    let hits = memory.limit_hits().unwrap();
    memory.set_limit(ByteSize::mib(256)).unwrap();
    sandbox.thaw().await.unwrap();
    assert_eq!(tokio::time::timeout(PATIENCE, sandbox.ended()).await, Ok(SandboxEnd::Exited(7)));
    assert!(memory.peak().is_ok_and(|peak| peak > ByteSize::mib(150)) || memory.peak().is_err());
    assert_eq!((memory.limit_hits().unwrap_or(hits), memory.oom_kills().unwrap_or(0)), (hits, 0));
    destroy(&**sandbox).await;
}
