//! How sandboxes begin, stand still and end.

use std::fs::Permissions;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use nigh_sandbox::cgroup::cpuset::Cpusets;
use nigh_sandbox::cgroup::{CgroupHost, Trees};
use nigh_sandbox::sandbox::local::{EngineSettings, LocalEngine};
use nigh_sandbox::sandbox::{ProgramFault, SandboxEnd, SandboxEngine as _, SandboxError};
use nigh_schedule::memory::grant::Grant;
use nigh_terms::ByteSize;

use crate::harness::{
    INIT_VARIABLE, command, destroy, engine, marker, output, processes_with, run, script, settings, start, under_runc,
    until,
};
use crate::skipped::skip;

/// Set for the process that the test of Nigh's own death starts: what its sandboxes sleep for.
const CHILD_VARIABLE: &str = "NIGH_TEST_CHILD_MARKER";

#[tokio::test(flavor = "multi_thread")]
async fn the_end_is_that_of_the_first_process() {
    let engine = engine().await;
    assert_eq!(run(&engine, script("exit 7")).await.1, SandboxEnd::Exited(7));
    assert_eq!(run(&engine, script("kill -TERM $$; sleep 1000")).await.1, SandboxEnd::Signalled(15));
    // What the first process leaves behind ends with it.
    let marker = marker();
    assert_eq!(run(&engine, script(&format!("sleep {marker} & exit 0"))).await.1, SandboxEnd::Exited(0));
    assert!(processes_with(&marker).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_cannot_start_is_an_error_that_names_it() {
    let engine = engine().await;
    let error_of = async |program: &str| {
        let function = command(&[program]);
        for (file, text) in [("astray", "#!/nowhere\n"), ("formless", "neither a program nor a script\n")] {
            std::fs::write(function.code.path().join(file), text).unwrap();
            std::fs::set_permissions(function.code.path().join(file), Permissions::from_mode(0o755)).unwrap();
        }
        let Err(error) = engine.start(function.spec).await else { panic!("{program} started") };
        error
    };
    for (program, expected, reason) in [
        ("/var/task/absent", ProgramFault::Missing, "No such file"),
        ("/var/task/astray", ProgramFault::Unusable, "No such file"),
        ("/var/task/formless", ProgramFault::Unusable, "Exec format error"),
        ("/var/task/handler.txt", ProgramFault::Unusable, "Permission denied"),
    ] {
        let error = error_of(program).await;
        let text = error.to_string();
        assert!(matches!(error, SandboxError::Entrypoint { fault, .. } if fault == expected), "{error:?}");
        assert!(text.contains(program) && text.contains(reason), "{text}");
    }
    // A program outside the function's code is the node's.
    let error = error_of("/usr/bin/absent").await;
    assert!(matches!(error, SandboxError::Start { .. }) && error.to_string().contains("/usr/bin/absent"), "{error}");
    let mut function = script("true");
    function.spec.code = PathBuf::from("/absent/code");
    let Err(error) = engine.start(function.spec).await else { panic!("started without code") };
    assert!(error.to_string().contains("/absent/code") || error.to_string().contains("code's folder"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_still_open_for_writing_is_started_when_it_is_not() {
    let engine = engine().await;
    let function = command(&["/var/task/program"]);
    let path = function.code.path().join("program");
    let copied = Command::new("install").args(["-m", "755", "/bin/true"]).arg(&path).status();
    assert!(copied.unwrap().success());
    let writer = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    assert_eq!(Command::new(&path).status().unwrap_err().kind(), ErrorKind::ExecutableFileBusy);
    let (ended, ()) = tokio::join!(run(&engine, function), async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        drop(writer);
    });
    assert_eq!(ended.1, SandboxEnd::Exited(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_sandbox_stands_still_and_a_thawed_one_runs_on() {
    let engine = engine().await;
    let (started, lines, _code) = start(&engine, script("(while sleep 0.005; do echo child; done) & wait")).await;
    lines.wait_for("child").await;
    for _ in 0..3 {
        started.sandbox.freeze().await.unwrap();
        // What was written before may still be on its way.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let before = lines.count();
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(lines.count(), before);
        started.sandbox.thaw().await.unwrap();
        until("it runs on", || lines.count() > before).await;
    }
    destroy(&*started.sandbox).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_sandbox_can_be_destroyed() {
    let engine = engine().await;
    let marker = marker();
    let (started, _lines, _code) = start(&engine, command(&["/usr/bin/sleep", &marker])).await;
    assert_eq!(processes_with(&marker).len(), 1);
    started.sandbox.freeze().await.unwrap();
    destroy(&*started.sandbox).await;
    assert!(processes_with(&marker).is_empty());
    assert_eq!(started.sandbox.ended().await, SandboxEnd::Destroyed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_that_daemonises_ends_with_its_sandbox() {
    let engine = engine().await;
    let marker = marker();
    let daemon = format!(
        "(setsid sh -c 'setsid sleep {marker} & ' &) ; (nohup sleep {marker} >/dev/null 2>&1 &); sleep {marker}"
    );
    let (started, _lines, _code) = start(&engine, script(&daemon)).await;
    until("three sleep", || processes_with(&marker).len() == 3).await;
    destroy(&*started.sandbox).await;
    assert!(processes_with(&marker).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_call_does_harm_after_the_end_and_all_hear_of_it() {
    let engine = engine().await;
    let (started, _lines, _code) = start(&engine, script("sleep 1000")).await;
    let sandbox = started.sandbox;
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let sandbox = Arc::clone(&sandbox);
            tokio::spawn(async move { sandbox.ended().await })
        })
        .collect();
    tokio::join!(sandbox.destroy(), sandbox.destroy());
    for waiter in waiting {
        assert_eq!(waiter.await.unwrap(), SandboxEnd::Destroyed);
    }
    destroy(&*sandbox).await;
    assert!(matches!(sandbox.freeze().await, Err(SandboxError::Ended(_))));
    assert!(matches!(sandbox.thaw().await, Err(SandboxError::Ended(_))));
    assert!(sandbox.memory().used().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_the_last_handle_destroys_the_sandbox() {
    let engine = engine().await;
    let marker = marker();
    let (started, _lines, _code) = start(&engine, command(&["/usr/bin/sleep", &marker])).await;
    assert_eq!(processes_with(&marker).len(), 1);
    drop(started);
    until("it has ended", || processes_with(&marker).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_output_harms_neither_the_engine_nor_the_next_sandbox() {
    let engine = engine().await;
    let (started, lines, _code) = start(&engine, command(&["/usr/bin/yes"])).await;
    until("lines come", || lines.count() > 100_000).await;
    destroy(&*started.sandbox).await;
    assert_eq!(output(&engine, "echo still here").await, "still here");
}

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_sandboxes_start_side_by_side() {
    let engine = Arc::new(engine().await);
    let starting: Vec<_> = (0..16)
        .map(|number| {
            let engine = Arc::clone(&engine);
            tokio::spawn(async move { output(&engine, &format!("echo {number}")).await })
        })
        .collect();
    for (number, started) in starting.into_iter().enumerate() {
        assert_eq!(started.await.unwrap(), number.to_string());
    }
}

/// Processes of a user of this machine.
fn processes_of(users: &Range<u32>) -> Vec<u32> {
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let user = status.lines().find_map(|line| line.strip_prefix("Uid:\t")?.split('\t').next()?.parse().ok());
            user.is_some_and(|user| users.contains(&user))
        })
        .collect()
}

/// Settings with users that no other test has.
fn with_users(count: u32, blanks: usize) -> EngineSettings {
    let first = 2_000_100_000 + (std::process::id() % 10_000) * 100 + count * 10;
    EngineSettings { uids: first..first + count, blanks, ..settings() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blank_that_was_killed_is_passed_over() {
    let settings = with_users(4, 1);
    let engine = LocalEngine::open(settings.clone()).await.unwrap();
    let id_of_blank = || {
        std::fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
            .find(|pid| {
                let group = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
                group.contains(&format!("nigh-{}/", settings.instance))
            })
    };
    if engine.probe().controls.freezer.is_err() {
        return skip("a_blank_that_was_killed_is_passed_over", "without a cgroup it cannot be found");
    }
    until("a blank stands", || id_of_blank().is_some()).await;
    // It may still be raising its walls; killed then, it never comes to the stock, which is as good.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let blank = id_of_blank().unwrap();
    let status = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let keeper = status(&blank.to_string()).lines().find_map(|line| line.strip_prefix("PPid:\t").map(str::to_owned));
    let keeper = keeper.unwrap();
    assert!(Command::new("/bin/kill").args(["-9", &blank.to_string()]).status().unwrap().success());
    until("it is gone, and its keeper", || {
        let keeper = status(&keeper);
        id_of_blank().is_none() && (keeper.is_empty() || keeper.contains("State:\tZ"))
    })
    .await;
    assert_eq!(output(&engine, "echo alive").await, "alive");
}

#[tokio::test(flavor = "multi_thread")]
async fn when_all_users_are_taken_the_error_says_so_and_a_freed_one_serves_again() {
    // runc gives half of them to the sandboxes' own roots.
    let settings = with_users(if under_runc() { 2 } else { 1 }, 0);
    let engine = LocalEngine::open(settings.clone()).await.unwrap();
    let (first, _lines, _code) = start(&engine, script("sleep 1000")).await;
    if engine.probe().level.uid().is_some() {
        assert!(!processes_of(&settings.uids).is_empty());
    }
    let Err(error) = engine.start(script("true").spec).await else { panic!("two sandboxes of one user") };
    assert!(error.to_string().contains("widen"), "{error}");
    destroy(&*first.sandbox).await;
    // On a shared network its listeners hold its address as long as they are open.
    drop(first);
    assert!(processes_of(&settings.uids).is_empty());
    assert_eq!(output(&engine, "echo again").await, "again");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it is the Nigh that `nothing_outlives_a_killed_nigh` starts and kills"]
async fn the_nigh_that_is_killed() {
    let marker = std::env::var(CHILD_VARIABLE).unwrap();
    let engine = LocalEngine::open(settings()).await.unwrap();
    let (running, _lines, _code) = start(&engine, script(&format!("setsid sleep {marker} & sleep {marker}"))).await;
    let (frozen, _lines, _code) = start(&engine, command(&["/usr/bin/sleep", &marker])).await;
    frozen.sandbox.freeze().await.unwrap();
    running.sandbox.ended().await;
}

/// The cgroups of Nigh's that a process with `marker` is in.
fn groups_of_process_with(marker: &str) -> Vec<PathBuf> {
    let Some(pid) = processes_with(marker).first().copied() else { return Vec::new() };
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.rsplit(':').next())
        .filter(|path| path.contains("/nigh-"))
        .flat_map(|path| ["memory", "freezer", "pids", ""].map(|tree| format!("/sys/fs/cgroup/{tree}{path}").into()))
        .filter(|path: &PathBuf| path.exists())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_is_closed_leaves_no_cgroup_of_nighs() {
    let marker = marker();
    let engine = engine().await;
    let (running, _lines, _code) = start(&engine, command(&["/usr/bin/sleep", &marker])).await;
    until("it runs", || !processes_with(&marker).is_empty()).await;
    let groups = groups_of_process_with(&marker);
    assert_eq!(groups.is_empty(), engine.probe().controls.freezer.is_err(), "{groups:?}");
    destroy(&*running.sandbox).await;
    // It holds what its group was made in.
    drop(running);
    engine.close().await;
    let left: Vec<_> = groups.iter().filter_map(|group| group.parent()).filter(|parent| parent.exists()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_outlives_a_killed_nigh() {
    let marker = marker();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "life::the_nigh_that_is_killed", "--ignored", "--nocapture"])
        .env(CHILD_VARIABLE, &marker)
        .env(INIT_VARIABLE, settings().init.unwrap())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    until("both sandboxes run", || processes_with(&marker).len() == 3).await;
    // The second one is being frozen.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let groups = groups_of_process_with(&marker);
    assert_eq!(groups.is_empty(), engine().await.probe().controls.freezer.is_err(), "{groups:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    until("all processes have ended", || processes_with(&marker).is_empty()).await;
    until("their cgroups are gone", || groups.iter().all(|group| !group.exists())).await;
    until("the folders of Nigh's cgroups are gone", || {
        groups.iter().filter_map(|group| group.parent()).all(|parent| !parent.exists())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_ends_what_was_left_and_spares_what_lives() {
    let settings = settings();
    let engine = LocalEngine::open(settings.clone()).await.unwrap();
    if engine.probe().controls.freezer.is_err() {
        return skip("a_sweep_ends_what_was_left_and_spares_what_lives", "no cgroup can be made here");
    }
    // What a keeper that was killed together with Nigh would leave: processes in a frozen group.
    let earlier = CgroupHost::detect(&settings.instance, Cpusets::Unused, Trees::Controlled);
    let group = earlier.create("left-over").unwrap();
    group.bound(Grant::full(ByteSize::mib(64)), 8).unwrap();
    let mut left = Command::new("/usr/bin/sleep").arg("1000").spawn().unwrap();
    for file in group.join_files() {
        std::fs::write(file, left.id().to_string()).unwrap();
    }
    group.freeze().await.unwrap();
    let folders = group.folders().to_vec();
    let (living, lines, _code) = start(&engine, script("while sleep 0.01; do echo alive; done")).await;

    // The left-over process is a child of this test: its parent must reap it for the group to become empty.
    let reaped = tokio::task::spawn_blocking(move || left.wait());
    assert_eq!(engine.sweep().await.unwrap(), 1);
    reaped.await.unwrap().unwrap();
    assert!(folders.iter().all(|folder| !folder.exists()));
    let before = lines.count();
    until("the living one runs on", || lines.count() > before).await;
    destroy(&*living.sandbox).await;
    assert_eq!(engine.sweep().await.unwrap(), 0);
}
