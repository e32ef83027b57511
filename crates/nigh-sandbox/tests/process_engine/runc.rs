//! What is runc's alone: its user namespace, what happens when it goes away and comes back, and what a crash leaves of
//! it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nigh_sandbox::sandbox::local::{EngineChoice, EngineSettings, LocalEngine};
use nigh_sandbox::sandbox::{SandboxEngine as _, SandboxError};

use crate::harness::{INIT_VARIABLE, destroy, output, run, script, settings, start, until};
use crate::skipped::skip;

/// Set for the process that is killed while it makes containers: its name, and the folder that its runc works in.
const CHILD_INSTANCE: &str = "NIGH_TEST_CHILD_INSTANCE";
const CHILD_FOLDER: &str = "NIGH_TEST_CHILD_FOLDER";

/// Makes `program` of what is in `source`. Another process writes it: what this one has open for writing, a process
/// that another test forks meanwhile has open too, and it cannot be run until that becomes a program itself.
fn install(source: &Path, program: &Path) {
    assert!(Command::new("install").args(["-m", "755"]).args([source, program]).status().unwrap().success());
}

/// The engine with a runc of the test's own; nothing, and said so, where runc is absent or may not be run.
async fn with_own_runc(test: &str) -> Option<(LocalEngine, PathBuf, tempfile::TempDir)> {
    let folders = ["/usr/sbin", "/usr/bin", "/usr/local/sbin"];
    let Some(installed) = folders.map(|folder| PathBuf::from(folder).join("runc")).into_iter().find(|it| it.is_file())
    else {
        skip(test, "runc is not installed here");
        return None;
    };
    if !rustix::process::geteuid().is_root() {
        skip(test, "only root can use runc");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let runc = folder.path().join("runc");
    install(&installed, &runc);
    let settings = EngineSettings { choice: EngineChoice::Runc, runc: Some(runc.clone()), blanks: 0, ..settings() };
    Some((LocalEngine::open(settings).await.unwrap(), runc, folder))
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
    let failing = runc.with_extension("sh");
    fs::write(&failing, text).unwrap();
    install(&failing, &runc);
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

/// Of a Nigh that makes containers without end.
fn settings_of_maker(instance: &str, folder: &Path, blanks: usize) -> EngineSettings {
    let (instance, runtime_folder) = (instance.to_owned(), folder.to_owned());
    EngineSettings { choice: EngineChoice::Runc, instance, runtime_folder, blanks, ..settings() }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it is the Nigh that the test below starts and kills"]
async fn the_nigh_that_is_killed_while_it_makes_containers() {
    let (instance, folder) = (std::env::var(CHILD_INSTANCE).unwrap(), std::env::var_os(CHILD_FOLDER).unwrap());
    let engine = LocalEngine::open(settings_of_maker(&instance, Path::new(&folder), 4)).await.unwrap();
    loop {
        output(&engine, "true").await;
    }
}

/// All folders below `folder` that a life of the Nigh called `instance` has made, two levels deep.
fn left_in(folder: &Path, instance: &str) -> Vec<PathBuf> {
    let below = |folder: &Path| -> Vec<PathBuf> {
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    };
    below(&folder.join(format!("nigh-{instance}")))
        .iter()
        .flat_map(|life| [vec![life.clone()], below(life)].concat())
        .collect()
}

/// The groups of the Nigh called `instance`, wherever they are in the kernel's trees.
fn groups_of(instance: &str) -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let trees = mounts.lines().filter(|line| line.contains(" cgroup")).filter_map(|line| line.split(' ').nth(1));
    let name = format!("nigh-{instance}");
    let find =
        |tree: &str| Command::new("find").args([tree, "-mindepth", "2", "-path"]).arg(format!("*/{name}/*")).output();
    let found =
        trees.filter_map(|tree| find(tree).ok()).map(|found| String::from_utf8_lossy(&found.stdout).into_owned());
    let lines = found.flat_map(|text| text.lines().map(PathBuf::from).collect::<Vec<_>>());
    lines.filter(|path| path.is_dir()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_crash_leaves_of_a_container_that_is_being_made_is_gone_after_the_next_start() {
    let test = "what_a_crash_leaves_of_a_container_that_is_being_made_is_gone_after_the_next_start";
    if with_own_runc(test).await.is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // runc enters it as the sandbox's root.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let instance = settings().instance;
    let mut interrupted = 0;
    // A container takes some 50 ms: each try kills at another moment of one.
    for moment in 0..6 {
        let mut nigh = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "runc::the_nigh_that_is_killed_while_it_makes_containers", "--ignored", "--nocapture"])
            .env(CHILD_INSTANCE, &instance)
            .env(CHILD_FOLDER, folder.path())
            .env(INIT_VARIABLE, settings().init.unwrap())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let is_bundle = |path: &Path| path.join("config.json").exists();
        let bundles = || {
            let lives = left_in(folder.path(), &instance);
            let bundles = lives.iter().filter(|path| path.ends_with("bundles"));
            bundles
                .flat_map(|bundles| fs::read_dir(bundles).into_iter().flatten().flatten())
                .any(|one| is_bundle(&one.path()))
        };
        until("a container is being made", bundles).await;
        tokio::time::sleep(Duration::from_millis(12 * moment)).await;
        nigh.kill().unwrap();
        nigh.wait().unwrap();
        interrupted += usize::from(!left_in(folder.path(), &instance).is_empty());

        let engine = LocalEngine::open(settings_of_maker(&instance, folder.path(), 0)).await.unwrap();
        engine.sweep().await.unwrap();
        // Keepers of the earlier life may still be ending what they had begun.
        until("nothing is left but this life's root", || {
            let left = left_in(folder.path(), &instance);
            let lives = left.iter().filter(|path| path.join("lives").exists()).count();
            let bundles = left.iter().filter(|path| path.ends_with("bundles"));
            let empty = bundles.clone().all(|bundles| fs::read_dir(bundles).is_ok_and(|mut all| all.next().is_none()));
            lives == 1 && bundles.count() == 1 && empty && groups_of(&instance).is_empty()
        })
        .await;
        assert_eq!(output(&engine, "echo works").await, "works");
        engine.close().await;
    }
    assert!(interrupted > 0, "no try met a container in the making");
    until("the folder is gone with the last life", || left_in(folder.path(), &instance).is_empty()).await;
}
