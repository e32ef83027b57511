//! Programs of Go and Rust: built to `bootstrap`, which the runtime `provided` starts.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Deserialize;

use super::Progress;
use super::cache::Cache;
use super::tool::{ToolRun, in_path};
use crate::archive::{self, FileChoice};
use crate::build_error::BuildError;

/// The program that the runtime starts.
const BOOTSTRAP: &str = "bootstrap";

/// The folder with the program of the Go module in `folder`; none if the folder has one that is newer than its sources.
///
/// # Errors
/// If there is no Go, or it fails.
pub(super) async fn go(
    folder: &Path,
    cache: &Cache,
    progress: &mut dyn Progress,
) -> Result<Option<PathBuf>, BuildError> {
    let is_source = |name: &str| name.ends_with(".go") || ["go.mod", "go.sum"].contains(&name);
    if has_fresh_program(folder, is_source)? {
        return Ok(None);
    }
    let go = in_path("go").ok_or_else(|| BuildError::NoTool {
        file: "go.mod",
        tool: "go",
        hint: "install it (https://go.dev/dl), or put the built program into the folder as `bootstrap`".to_owned(),
    })?;
    progress.step(&format!("building {} with go", folder.display()));
    let built = cache.program_folder(folder)?;
    let target = built.join(BOOTSTRAP);
    let mut run = ToolRun::new(&go, folder, go_arguments(&target));
    run.environment = GO_ENVIRONMENT.map(|(name, value)| (name, value.into())).to_vec();
    run.failure = format!("{} cannot be built", folder.display());
    run.otherwise = "mend the code, and deploy again";
    run.run(progress).await?;
    if !target.is_file() {
        return Err(BuildError::Unusable(format!(
            "{} is no program: the package beside go.mod must be `package main`",
            folder.display()
        )));
    }
    Ok(Some(built))
}

/// A program that needs nothing of the machine it runs on.
const GO_ENVIRONMENT: [(&str, &str); 3] = [("CGO_ENABLED", "0"), ("GOOS", "linux"), ("GOARCH", "amd64")];

fn go_arguments(target: &Path) -> Vec<OsString> {
    // Without what differs from machine to machine (paths, the state of the repository), symbols, and the RPC of a runtime
    // that Nigh does not have.
    let arguments = ["build", "-trimpath", "-ldflags=-s -w", "-tags=lambda.norpc", "-buildvcs=false", "-o"];
    arguments.into_iter().map(OsString::from).chain([target.into(), ".".into()]).collect()
}

/// The folder with the program of the Rust package in `folder`; none if the folder has one that is newer than its sources.
///
/// # Errors
/// If there is no Cargo, it fails, or builds several programs of which none is called `bootstrap`.
pub(super) async fn rust(
    folder: &Path,
    cache: &Cache,
    progress: &mut dyn Progress,
) -> Result<Option<PathBuf>, BuildError> {
    let is_source = |name: &str| {
        name.ends_with(".rs")
            || name.ends_with("Cargo.toml")
            || name.ends_with("Cargo.lock")
            || name.starts_with(".cargo/")
    };
    if has_fresh_program(folder, is_source)? {
        return Ok(None);
    }
    let cargo = in_path("cargo").ok_or_else(|| BuildError::NoTool {
        file: "Cargo.toml",
        tool: "cargo",
        hint: "install it (https://rustup.rs), or put the built program into the folder as `bootstrap`".to_owned(),
    })?;
    progress.step(&format!("building {} with cargo", folder.display()));
    let mut run = ToolRun::new(&cargo, folder, ["build", "--release", "--message-format", "json-render-diagnostics"]);
    run.failure = format!("{} cannot be built", folder.display());
    run.otherwise = "mend the code, and deploy again";
    run.answers = |line| line.starts_with('{');
    let said = run.run(progress).await?;
    let program = choose(said.iter().filter_map(|line| executable(line)).collect()).map_err(BuildError::Unusable)?;
    let built = cache.program_folder(folder)?;
    // A copy under another name first: whoever packs the folder meanwhile finds the old program or the new one.
    let (half, target) = (built.join(format!(".{BOOTSTRAP}.{}", std::process::id())), built.join(BOOTSTRAP));
    fs::copy(&program, &half).map_err(BuildError::io("copying", &program))?;
    fs::rename(&half, &target).map_err(BuildError::io("renaming to", &target))?;
    Ok(Some(built))
}

/// The program that a line of Cargo's JSON says is built.
fn executable(line: &str) -> Option<PathBuf> {
    #[derive(Deserialize)]
    struct Message {
        executable: Option<PathBuf>,
        target: Option<Target>,
    }
    #[derive(Deserialize)]
    struct Target {
        kind: Vec<String>,
    }
    let Message { executable, target } = serde_json::from_str(line).ok()?;
    target?.kind.iter().any(|kind| kind == "bin").then_some(executable)?
}

/// The program to deploy: `bootstrap`, or the only one. The error is why none is chosen.
fn choose(mut programs: Vec<PathBuf>) -> Result<PathBuf, String> {
    if let Some(at) = programs.iter().position(|program| program.file_name().is_some_and(|name| name == BOOTSTRAP)) {
        return Ok(programs.swap_remove(at));
    }
    match programs.len() {
        1 => Ok(programs.remove(0)),
        0 => Err("Cargo.toml has no program to build: give it a src/main.rs".to_owned()),
        _ => {
            let names: Vec<_> = programs.iter().filter_map(|program| program.file_name()?.to_str()).collect();
            Err(format!("Cargo.toml has several programs ({}): call the function's `bootstrap`", names.join(", ")))
        }
    }
}

/// True if `folder` has a program that is not older than any of its sources.
fn has_fresh_program(folder: &Path, is_source: impl Fn(&str) -> bool) -> Result<bool, BuildError> {
    let written = |path: &Path| path.metadata().and_then(|metadata| metadata.modified()).ok();
    let Some(program) = written(&folder.join(BOOTSTRAP)) else { return Ok(false) };
    let files = archive::list(folder, &FileChoice::default());
    let files = files.map_err(|error| BuildError::Unusable(error.to_string()))?;
    let sources = files.iter().filter(|file| is_source(&file.name));
    let newest = sources.filter_map(|file| written(&file.path)).max();
    Ok(newest.is_none_or(|newest: SystemTime| newest <= program))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn go_builds_a_program_for_the_runtime() {
        let arguments = go_arguments(Path::new("/cache/bootstrap"));
        let expected = [
            "build",
            "-trimpath",
            "-ldflags=-s -w",
            "-tags=lambda.norpc",
            "-buildvcs=false",
            "-o",
            "/cache/bootstrap",
            ".",
        ];
        assert_eq!(arguments, expected);
        assert!(GO_ENVIRONMENT.contains(&("CGO_ENABLED", "0")));
    }

    #[test]
    fn cargo_tells_its_programs_and_one_is_chosen() {
        let line = |name: &str, kind: &str, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","target":{{"kind":["{kind}"],"name":"{name}"}},"executable":{executable}}}"#
            )
        };
        assert_eq!(executable(&line("a", "bin", r#""/t/release/a""#)), Some(PathBuf::from("/t/release/a")));
        for other in [
            line("a", "lib", "null"),
            line("build-script-build", "custom-build", r#""/t/b""#),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
            "no JSON".to_owned(),
        ] {
            assert_eq!(executable(&other), None, "{other}");
        }
        let of = |names: &[&str]| choose(names.iter().map(PathBuf::from).collect());
        assert_eq!(of(&["/t/a"]), Ok(PathBuf::from("/t/a")));
        assert_eq!(of(&["/t/a", "/t/bootstrap"]), Ok(PathBuf::from("/t/bootstrap")));
        assert!(of(&["/t/a", "/t/b"]).unwrap_err().contains("several programs (a, b)"));
        assert!(of(&[]).unwrap_err().contains("src/main.rs"));
    }

    #[test]
    fn a_program_that_is_newer_than_its_sources_is_deployed_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str, minutes: u64| {
            let path = folder.path().join(name);
            fs::write(&path, "").unwrap();
            let written = SystemTime::UNIX_EPOCH + Duration::from_secs(60 * minutes);
            fs::File::options().write(true).open(path).unwrap().set_modified(written).unwrap();
        };
        let is_fresh = || has_fresh_program(folder.path(), |name| name.ends_with(".go")).unwrap();
        at("main.go", 2);
        assert!(!is_fresh());
        at(BOOTSTRAP, 2);
        at("words.txt", 9);
        assert!(is_fresh());
        at("other.go", 3);
        assert!(!is_fresh());
    }
}
