//! What is runc's alone: its user namespace, and what happens when it goes away and comes back.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use nigh_faas::sandbox::local::{EngineChoice, EngineSettings, LocalEngine};
use nigh_faas::sandbox::{SandboxEngine as _, SandboxError};

use crate::harness::{destroy, output, run, script, settings, skip, start, until};

/// The engine with a runc of the test's own, or nothing and said so.
async fn with_own_runc(test: &str) -> Option<(LocalEngine, PathBuf, tempfile::TempDir)> {
    let folders = ["/usr/sbin", "/usr/bin", "/usr/local/sbin"];
    let Some(installed) = folders.map(|folder| PathBuf::from(folder).join("runc")).into_iter().find(|it| it.is_file())
    else {
        skip(test, "runc is not installed here");
        return None;
    };
    let folder = tempfile::tempdir().unwrap();
    let runc = folder.path().join("runc");
    fs::copy(installed, &runc).unwrap();
    fs::set_permissions(&runc, fs::Permissions::from_mode(0o755)).unwrap();
    let settings = EngineSettings { choice: EngineChoice::Runc, runc: Some(runc.clone()), blanks: 0, ..settings() };
    match LocalEngine::open(settings).await {
        Ok(engine) => Some((engine, runc, folder)),
        Err(error) => {
            skip(test, &error.to_string());
            None
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runc_that_goes_missing_fails_new_sandboxes_harms_no_running_one_and_serves_again_when_it_is_back() {
    let test = "a_runc_that_goes_missing_fails_new_sandboxes_harms_no_running_one_and_serves_again_when_it_is_back";
    let Some((engine, runc, _folder)) = with_own_runc(test).await else { return };
    let (running, lines, _code) = start(&engine, script("while sleep 0.01; do echo alive; done")).await;
    assert_eq!(engine.trouble(), None);
    let away = runc.with_extension("away");
    fs::rename(&runc, &away).unwrap();
    let Err(error) = engine.start(script("true").spec).await else { panic!("a sandbox without runc") };
    let text = error.to_string();
    assert!(matches!(error, SandboxError::Start { .. }), "{text}");
    assert!(text.contains("runc") && text.contains("No such file") && text.contains("installed"), "{text}");
    assert!(engine.trouble().unwrap().contains("missing"));
    let before = lines.count();
    until("the running one runs on", || lines.count() > before).await;
    fs::rename(&away, &runc).unwrap();
    assert_eq!(output(&engine, "echo again").await, "again");
    assert_eq!(engine.trouble(), None);
    destroy(&*running.sandbox).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runc_that_fails_is_quoted() {
    let Some((engine, runc, _folder)) = with_own_runc("a_runc_that_fails_is_quoted").await else { return };
    // It writes its log as runc does, and fails.
    let text = "#!/bin/sh\nwhile [ \"$1\" != --log ]; do shift; done\n\
                echo '{\"level\":\"error\",\"msg\":\"no space left for a container\"}' >\"$2\"\nexit 1\n";
    fs::remove_file(&runc).unwrap();
    fs::write(&runc, text).unwrap();
    fs::set_permissions(&runc, fs::Permissions::from_mode(0o755)).unwrap();
    let Err(error) = engine.start(script("true").spec).await else { panic!("a sandbox without runc") };
    assert!(error.to_string().contains("no space left for a container"), "{error}");
    assert!(engine.trouble().unwrap().contains("no space left for a container"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_knows_two_users_neither_of_which_is_the_hosts_root() {
    let test = "a_container_knows_two_users_neither_of_which_is_the_hosts_root";
    let Some((engine, _runc, _folder)) = with_own_runc(test).await else { return };
    if !engine.probe().runtime.as_ref().unwrap().user_namespace {
        return skip(test, "no user namespace can be made here");
    }
    let map = run(&engine, script("cat /proc/self/uid_map")).await.0;
    let lines: Vec<Vec<u32>> =
        map.lines().map(|line| line.split_whitespace().map(|number| number.parse().unwrap()).collect()).collect();
    assert_eq!(lines.len(), 2, "{map}");
    assert!(lines.iter().all(|line| line[1] >= 2_000_000_000 && line[2] == 1), "{map}");
}
