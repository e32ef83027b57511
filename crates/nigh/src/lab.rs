//! Starts `nigh-lab`, a program of its own, so that a node carries no peers, charts, checkers and simulators.
//!
//! `nigh bench`, `check`, `experiment`, `load`, `profile`, `llc selftest --vm` and `llc pack-trace` replace this process by
//! nigh-lab and pass it the words as given. The node and its keys are passed in the environment, under the names that the
//! AWS SDKs use, because other users of the machine can see command lines. `nigh llc learn --trace` reads nigh-lab's output.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, FromArgMatches};

use crate::context::Globals;
use crate::error::{CliError, USAGE};

const PROGRAM: &str = "nigh-lab";

/// The arguments for nigh-lab.
#[derive(Args)]
pub(crate) struct LabArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    words: Vec<OsString>,
}

impl LabArgs {
    /// The options of all subcommands, before and among these words.
    pub(crate) fn globals(&self) -> Result<Globals, CliError> {
        globals_among(std::env::args_os().skip(1))
    }

    /// Help needs no node.
    pub(crate) fn ask_for_help(&self) -> bool {
        self.words.iter().any(|word| word == "--help" || word == "-h")
    }
}

/// Becomes nigh-lab; returns only if that fails.
pub(crate) fn run() -> CliError {
    start(Vec::new())
}

/// Runs nigh-lab with `words` and returns what it prints.
pub(crate) fn answer(words: &[String]) -> Result<Vec<u8>, CliError> {
    let own = std::env::current_exe().unwrap_or_default();
    let program = find(&own, std::env::var_os("PATH").as_deref()).ok_or(CliError::NoLab { beside: own })?;
    let ran = Command::new(&program).args(words).output().map_err(CliError::local(program.display()))?;
    if ran.status.success() {
        return Ok(ran.stdout);
    }
    let reason = String::from_utf8_lossy(&ran.stderr).trim().trim_start_matches("nigh: ").to_owned();
    let is_usage = ran.status.code() == Some(USAGE.into());
    Err(if is_usage { CliError::Usage(reason) } else { CliError::Failed(reason) })
}

/// Becomes nigh-lab with the node of `globals` as the target of its load; returns only if that fails.
pub(crate) async fn load(globals: &Globals) -> Result<CliError, CliError> {
    let lambda = globals.reach(|endpoints| endpoints.lambda).await?;
    let (s3, state) = match globals.endpoint {
        // The Lambda door of a node that need not be on this machine.
        Some(_) => (None, None),
        None => {
            let s3 = globals.reach(|endpoints| endpoints.s3).await?.door.url;
            (Some(s3), Some(globals.configuration(Vec::new())?.settings.state))
        }
    };
    let keys = &lambda.credentials;
    let text = |value: &str| Some(OsString::from(value));
    let variables = vec![
        ("AWS_ENDPOINT_URL_LAMBDA", text(&lambda.door.url)),
        ("AWS_ENDPOINT_URL_S3", s3.map(OsString::from)),
        ("AWS_REGION", text(&lambda.region)),
        ("AWS_ACCESS_KEY_ID", text(keys.access_key.as_str())),
        ("AWS_SECRET_ACCESS_KEY", text(keys.secret_key.reveal())),
        ("NIGH_STATE", state.map(PathBuf::into_os_string)),
    ];
    Ok(start(variables))
}

/// Sets or removes `variables`, and becomes nigh-lab.
fn start(variables: Vec<(&str, Option<OsString>)>) -> CliError {
    let own = std::env::current_exe().unwrap_or_default();
    let Some(program) = find(&own, std::env::var_os("PATH").as_deref()) else {
        return CliError::NoLab { beside: own };
    };
    let mut command = Command::new(&program);
    command.args(std::env::args_os().skip(1));
    for (name, value) in variables {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    CliError::local(program.display())(command.exec())
}

/// nigh-lab installed with `own`, else in one of the folders of `path`.
fn find(own: &Path, path: Option<&OsStr>) -> Option<PathBuf> {
    let in_path = path.into_iter().flat_map(std::env::split_paths).map(|folder| folder.join(PROGRAM));
    nigh_terms::companion_programs(own, PROGRAM).chain(in_path).find(|program| program.is_file())
}

/// The options of all subcommands among `words`.
pub(crate) fn globals_among(words: impl Iterator<Item = OsString>) -> Result<Globals, CliError> {
    let known = Globals::augment_args(clap::Command::new("nigh"));
    let (mut own, mut words) = (vec![OsString::from("nigh")], words);
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        let name = text.strip_prefix("--").and_then(|name| name.split('=').next()).unwrap_or_default();
        let is_named = |option: &&clap::Arg| {
            option.get_long() == Some(name) || option.get_all_aliases().is_some_and(|all| all.contains(&name))
        };
        let Some(option) = known.get_arguments().find(is_named) else { continue };
        let value = if option.get_action().takes_values() && !text.contains('=') { words.next() } else { None };
        own.push(word);
        own.extend(value);
    }
    let matches = known.try_get_matches_from(own);
    let globals = matches.and_then(|matches| Globals::from_arg_matches(&matches));
    globals.map_err(|error| CliError::Usage(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_laboratory_is_found_beside_nigh_and_else_in_the_path() {
        let (beside, path) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let own = beside.path().join("nigh");
        assert_eq!(find(&own, Some(path.path().as_os_str())), None);
        std::fs::write(path.path().join(PROGRAM), "").unwrap();
        assert_eq!(find(&own, Some(path.path().as_os_str())), Some(path.path().join(PROGRAM)));
        std::fs::write(beside.path().join(PROGRAM), "").unwrap();
        assert_eq!(find(&own, None), Some(beside.path().join(PROGRAM)));
    }

    #[test]
    fn options_of_all_subcommands_are_found_among_the_laboratorys() {
        let words = "load --tenants 2 --state /s --profile=own --json --seed 1".split(' ').map(OsString::from);
        let globals = globals_among(words).unwrap();
        assert_eq!((globals.state, globals.profile, globals.json), (Some("/s".into()), Some("own".to_owned()), true));
        assert!(globals_among(["bench", "--state"].map(OsString::from).into_iter()).is_err());
    }
}
