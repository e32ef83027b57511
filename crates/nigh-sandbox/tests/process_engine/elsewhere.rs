//! The same tests on machines that allow less: as a user without rights, where no namespace can be made, and where no
//! cgroup can be written.
//!
//! A process whose root is not the mount's may make no user namespace, and without CAP_SYS_ADMIN no other either:
//! so a machine that forbids both is had by `chroot` and `setpriv`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output};

use nigh_sandbox::cgroup::cpuset::Cpusets;
use nigh_sandbox::cgroup::{CgroupHost, Trees};
use nigh_sandbox::sandbox::local::{EngineChoice, EngineSettings, LocalEngine};
use nigh_sandbox::sandbox::{SandboxEngine as _, SandboxError};

use crate::harness::{ENGINE_VARIABLE, INIT_VARIABLE, TRUST_VARIABLE, output, settings};
use crate::skipped::skip;

const NOBODY: u32 = 65534;
/// Set while this file's tests run the others, so that they do not run themselves again.
const INNER_VARIABLE: &str = "NIGH_TEST_ELSEWHERE";
/// Names the Nigh that an earlier life has left folders of, where no cgroup can be written.
const READ_ONLY_VARIABLE: &str = "NIGH_TEST_READ_ONLY_CGROUPS";

/// The tests and the init where every user can run them.
struct Programs(tempfile::TempDir);

impl Programs {
    fn copied() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::copy(std::env::current_exe().unwrap(), folder.path().join("tests")).unwrap();
        fs::copy(settings().init.unwrap(), folder.path().join("nigh-sandbox")).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env(INNER_VARIABLE, "1").env(INIT_VARIABLE, self.path("nigh-sandbox")).current_dir("/");
        // Tests that cannot run with less than this machine allows have run outside.
        command.env_remove("NIGH_TEST_MAY_SKIP");
        command
    }
}

/// False, and said so, where the outer tests are not root or are the inner ones.
fn can_go_elsewhere(test: &str) -> bool {
    if std::env::var_os(INNER_VARIABLE).is_some() {
        return false;
    }
    if !Path::new("/proc/self").metadata().is_ok_and(|this| std::os::unix::fs::MetadataExt::uid(&this) == 0) {
        skip(test, "only root can become others");
        return false;
    }
    true
}

fn assert_passed(output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("test result: ok") && !text.contains(" 0 passed"), "{text}");
}

#[test]
fn the_same_walls_and_limits_hold_under_runc() {
    let test = "the_same_walls_and_limits_hold_under_runc";
    if !can_go_elsewhere(test) {
        return;
    }
    if Command::new("runc").arg("--version").output().is_err() {
        return skip(test, "runc is not installed here");
    }
    let programs = Programs::copied();
    let mut tests = programs.command(&programs.path("tests"));
    assert_passed(&tests.env(ENGINE_VARIABLE, "runc").output().unwrap());
}

#[test]
fn the_walls_stand_for_a_user_without_rights() {
    let test = "the_walls_stand_for_a_user_without_rights";
    if !can_go_elsewhere(test) {
        return;
    }
    if fs::read_to_string("/proc/sys/user/max_user_namespaces").is_ok_and(|max| max.trim() == "0")
        || fs::read_to_string("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").is_ok_and(|on| on.trim() == "1")
    {
        return skip(test, "user namespaces are forbidden to users here");
    }
    let programs = Programs::copied();
    let tests = programs.command(&programs.path("tests")).uid(NOBODY).gid(NOBODY).output().unwrap();
    assert_passed(&tests);
}

/// Runs a program where no namespace can be made, as root or as nobody.
fn without_namespaces(programs: &Programs, user: &str, arguments: &[&str], trust: bool) -> Output {
    let root = tempfile::tempdir().unwrap();
    let script = "mount --make-rprivate / && mount --rbind / \"$ROOT\" && exec chroot \"$ROOT\" \"$@\"";
    let mut command = programs.command("/usr/bin/unshare");
    command.env("ROOT", root.path()).args(["-m", "/bin/sh", "-c", script, "sh", "/usr/bin/setpriv"]);
    command.args(["--bounding-set=-sys_admin", "--inh-caps=-sys_admin", "--clear-groups"]);
    command.args([format!("--reuid={user}"), format!("--regid={user}"), programs.path("tests")]);
    command.args(arguments);
    if trust {
        command.env(TRUST_VARIABLE, "1");
    }
    command.output().unwrap()
}

#[test]
fn without_namespaces_each_sandbox_has_its_own_user() {
    if can_go_elsewhere("without_namespaces_each_sandbox_has_its_own_user") {
        assert_passed(&without_namespaces(&Programs::copied(), "0", &["walls::", "life::", "limits::"], true));
    }
}

#[test]
fn trusted_functions_run_where_nothing_keeps_them_apart() {
    if can_go_elsewhere("trusted_functions_run_where_nothing_keeps_them_apart") {
        let user = NOBODY.to_string();
        assert_passed(&without_namespaces(&Programs::copied(), &user, &["walls::", "life::", "limits::"], true));
    }
}

#[test]
fn where_nothing_keeps_functions_apart_the_engine_refuses() {
    if can_go_elsewhere("where_nothing_keeps_functions_apart_the_engine_refuses") {
        let test = ["--exact", "elsewhere::the_engine_that_refuses", "--ignored"];
        assert_passed(&without_namespaces(&Programs::copied(), &NOBODY.to_string(), &test, false));
        // An own user alone does not keep a sandbox's doors from the others.
        assert_passed(&without_namespaces(&Programs::copied(), "0", &test, false));
    }
}

#[tokio::test]
#[ignore = "it is the inner half of the test above"]
async fn the_engine_that_refuses() {
    let refusal = match LocalEngine::open(settings()).await {
        Err(SandboxError::Unsupported(refusal)) => refusal,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("the engine opens where nothing keeps functions apart"),
    };
    for part in ["user namespace", "/srv/nigh", "--trust-functions"] {
        assert!(refusal.contains(part), "{refusal}");
    }
}

#[test]
fn with_read_only_cgroups_sandboxes_run_without_that_level_and_the_reason_is_said() {
    let test = "with_read_only_cgroups_sandboxes_run_without_that_level_and_the_reason_is_said";
    if !can_go_elsewhere(test) {
        return;
    }
    let instance = settings().instance;
    let earlier = CgroupHost::detect(&instance, Cpusets::Unused, Trees::Controlled);
    if let Err(reason) = earlier.controls().freezer {
        return skip(test, reason);
    }
    let programs = Programs::copied();
    let script = "mount --make-rprivate / && while read -r _ point kind _; do case $kind in cgroup*) \
                  mount -o remount,bind,ro \"$point\" || exit 1;; esac; done </proc/self/mounts && exec \"$@\"";
    // Of a new name, and of one whose folders an earlier life has left.
    for instance in [settings().instance, instance] {
        let mut command = programs.command("unshare");
        command.env(READ_ONLY_VARIABLE, instance).args(["-m", "/bin/sh", "-c", script, "sh", &programs.path("tests")]);
        command.args([
            "--include-ignored",
            "--exact",
            "elsewhere::the_engine_without_groups",
            "limits::a_fork_bomb_ends_at_the_process_limit",
        ]);
        assert_passed(&command.output().unwrap());
    }
    drop(earlier);
}

#[tokio::test]
#[ignore = "it is the inner half of the test above"]
async fn the_engine_without_groups() {
    let instance = std::env::var(READ_ONLY_VARIABLE).unwrap();
    // runc needs them: who leaves the choice to Nigh has Nigh's own engine.
    let settings = EngineSettings { instance, choice: EngineChoice::Auto, ..settings() };
    let engine = LocalEngine::open(settings).await.unwrap();
    let controls = &engine.probe().controls;
    for level in [&controls.memory, &controls.processes, &controls.freezer, &controls.cpu] {
        assert!(level.as_ref().is_err_and(|reason| reason.contains("Read-only file system")), "{controls:?}");
    }
    assert_eq!((engine.kind(), output(&engine, "echo runs").await.as_str()), ("process", "runs"));
    assert!(engine.probe().off().iter().any(|reason| reason.starts_with("runc: ")), "{:?}", engine.probe());
}
