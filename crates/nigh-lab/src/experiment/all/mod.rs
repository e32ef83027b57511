//! `nigh experiment all` runs every experiment and bench, each in its own process, and stores the results; `nigh experiment report`
//! makes one page of all stored results.
//!
//! An interrupted run continues at the experiment that it had reached. If one experiment fails, the others still run.

mod catalogue;
mod collected;
mod collected_page;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use clap::Args;
use serde::{Deserialize, Serialize};

use self::catalogue::{EXPERIMENTS, Experiment};
use self::collected::CollectedResults;
use crate::LabError;
use crate::instrument::choice::chosen;
use crate::instrument::error::Tried;
use crate::instrument::kept_progress::KeptProgress;
use crate::instrument::report::{print_report, write_page};
use crate::instrument::tree::Tree;

/// Where results are stored in the clone.
const STORED: &str = "experiments";
/// The progress file, in the folder of the results.
const STATE: &str = "all.state";
pub(super) const RESULT: &str = "result.json";

#[derive(Clone, Debug, Args)]
pub(super) struct AllArgs {
    /// The folder in which each experiment has its folder of results [default: experiments]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Run the short form of each experiment: takes minutes instead of an hour; needs --out, so that the stored
    /// results stay
    #[arg(long, requires = "out")]
    quick: bool,
    /// Only these experiments (names of folders in experiments/)
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    only: Vec<String>,
    /// Store results although the tree has uncommitted changes; the results say so
    #[arg(long)]
    dirty: bool,
    /// Write one page of all results to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub(super) struct ReportArgs {
    /// Write the page to this file
    #[arg(long, value_name = "FILE")]
    html: PathBuf,
    /// The folder with the results that `nigh experiment all` stored
    #[arg(long, value_name = "FOLDER", default_value = STORED)]
    results: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Outcome {
    experiment: String,
    seconds: f64,
    /// Why there is no result.
    failed: Option<String>,
}

/// What decides which results are wanted.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct AllParameters {
    quick: bool,
}

impl AllArgs {
    pub(super) fn run(&self, json: bool) -> Result<(), LabError> {
        let out = self.out.clone().unwrap_or_else(|| STORED.into());
        let chosen = self.chosen()?;
        if out == Path::new(STORED) && !self.dirty {
            committed(Tree::read())?;
        }
        fs::create_dir_all(&out).at(&out)?;
        let program = std::env::current_exe().at("the program")?;
        let kept = KeptProgress::open(&out.join(STATE), AllParameters { quick: self.quick })?;
        let mut outcomes = Vec::new();
        for (at, experiment) in chosen.iter().enumerate() {
            let outcome = match kept.done(experiment.name) {
                Some(outcome) => outcome,
                None => {
                    say(&format!("[{}/{}] {}", at + 1, chosen.len(), experiment.command_line(&out, self.quick)));
                    let outcome = run(&program, experiment, &out, self.quick);
                    if outcome.failed.is_none() {
                        kept.add(experiment.name, &outcome)?;
                    }
                    outcome
                }
            };
            outcomes.push(outcome);
        }
        if let Some(path) = &self.html {
            write_page(path, &collected_page::page(&CollectedResults::read(&out)?))?;
        }
        print_report(&outcomes, || text(&outcomes), json)?;
        let failed: Vec<&str> =
            outcomes.iter().filter(|one| one.failed.is_some()).map(|one| one.experiment.as_str()).collect();
        if failed.is_empty() {
            return kept.finish();
        }
        let reason = "run the same command again for these alone; what is done is kept".to_owned();
        Err(LabError::Request { what: format!("without a result: {}", failed.join(", ")), reason })
    }

    fn chosen(&self) -> Result<Vec<&'static Experiment>, LabError> {
        chosen("experiment", &self.only, &EXPERIMENTS, |experiment| experiment.name)
    }
}

impl ReportArgs {
    pub(super) fn run(&self, json: bool) -> Result<(), LabError> {
        let collected = CollectedResults::read(&self.results)?;
        write_page(&self.html, &collected_page::page(&collected))?;
        let report = serde_json::json!({
            "page": self.html,
            "results": collected.results.iter().map(|result| &result.name).collect::<Vec<_>>(),
            "faults": collected.faults,
        });
        let text = || {
            let faults = collected.faults.iter().map(|fault| format!("\n{fault}")).collect::<String>();
            format!("{} results in {}{faults}", collected.results.len(), self.html.display())
        };
        print_report(&report, text, json)
    }
}

/// Fails if the tree has uncommitted changes: stored results are of a commit, so that others can reproduce them.
fn committed(tree: &Tree) -> Result<(), LabError> {
    if tree.dirty {
        let why = "the tree has changes that no commit has; commit them, or store by --dirty or elsewhere by --out";
        return Err(LabError::Usage(why.to_owned()));
    }
    Ok(())
}

/// Fails if a result lacks its date, command or commit.
fn has_evidence(result: &Path) -> Result<(), LabError> {
    let text = fs::read(result).at(result)?;
    let value: serde_json::Value = serde_json::from_slice(&text).at(result)?;
    let lacks = |field: &&&str| value["machine"][**field].as_str().is_none_or(str::is_empty);
    match ["date", "command", "commit"].iter().find(lacks) {
        Some(field) => Err(LabError::file(result, &format!("the result has no {field}, and is not stored"))),
        None => Ok(()),
    }
}

/// Runs an experiment and stores its result.
fn run(program: &Path, experiment: &Experiment, out: &Path, quick: bool) -> Outcome {
    let begin = Instant::now();
    let failed = try_run(program, experiment, out, quick).err().map(|error| error.to_string());
    Outcome { experiment: experiment.name.to_owned(), seconds: begin.elapsed().as_secs_f64(), failed }
}

fn try_run(program: &Path, experiment: &Experiment, out: &Path, quick: bool) -> Result<(), LabError> {
    let folder = out.join(experiment.name);
    fs::create_dir_all(&folder).at(&folder)?;
    // Renamed when it is complete: a failed run leaves the earlier result.
    let (fresh, result) = (folder.join("result.fresh"), folder.join(RESULT));
    let output = File::create(&fresh).at(&fresh)?;
    let status = Command::new(program)
        .args(experiment.arguments(out, quick))
        .stdin(Stdio::null())
        .stdout(output)
        .status()
        .at(program)?;
    if !status.success() {
        // The experiment has printed its reason on standard error.
        let _ = fs::remove_file(&fresh);
        return Err(LabError::Request { what: experiment.name.to_owned(), reason: status.to_string() });
    }
    has_evidence(&fresh)?;
    fs::rename(&fresh, &result).at(&result)
}

fn text(outcomes: &[Outcome]) -> String {
    let line = |one: &Outcome| {
        let how = one.failed.clone().map_or_else(|| "done".to_owned(), |reason| format!("failed: {reason}"));
        format!("{:<18} {:>6.0} s  {how}", one.experiment, one.seconds)
    };
    outcomes.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[expect(clippy::print_stderr, reason = "progress goes to standard error, beside that of the experiments")]
fn say(text: &str) {
    eprintln!("{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(folder: &Path, script: &str) -> PathBuf {
        let path = folder.join("program");
        let text = folder.join("program.sh");
        fs::write(&text, format!("#!/bin/sh\n{script}\n")).unwrap();
        // By another process, of which no process that is forked here has the file open for writing.
        assert!(Command::new("install").args(["-m", "755"]).args([&text, &path]).status().unwrap().success());
        path
    }

    #[test]
    fn a_result_is_stored_whole_and_one_that_fails_leaves_the_one_before() {
        let folder = tempfile::tempdir().unwrap();
        let experiment = &EXPERIMENTS[0];
        let evidence = r#"echo '{"machine": {"date": "1", "commit": "2", "command": "'"$*"'"}}'"#;
        let good = program(folder.path(), evidence);
        assert_eq!(run(&good, experiment, folder.path(), true).failed, None);
        let stored = folder.path().join(experiment.name).join(RESULT);
        let first = fs::read_to_string(&stored).unwrap();
        assert!(first.contains("--json"), "{first}");

        let bad = program(folder.path(), "echo half; exit 3");
        let failed = run(&bad, experiment, folder.path(), true).failed.unwrap();
        assert!(failed.contains('3') && failed.contains(experiment.name), "{failed}");
        assert_eq!(fs::read_to_string(&stored).unwrap(), first);
        let without = program(folder.path(), "echo '{}'");
        assert!(run(&without, experiment, folder.path(), true).failed.unwrap().contains("date"));
        assert!(text(&[run(&bad, experiment, folder.path(), true)]).contains("failed"));
    }

    #[test]
    fn results_of_a_tree_with_changes_are_not_stored_unless_it_is_told() {
        let tree = |dirty| Tree { commit: "1234567".to_owned(), dirty };
        assert!(committed(&tree(false)).is_ok());
        assert!(committed(&tree(true)).unwrap_err().to_string().contains("--dirty"));
    }

    #[test]
    fn an_experiment_that_there_is_not_is_told_with_those_that_there_are() {
        let only = vec!["no-such".to_owned()];
        let error =
            AllArgs { out: None, quick: false, only, dirty: false, html: None }.chosen().unwrap_err().to_string();
        assert!(error.contains("no-such") && error.contains("llc-tail"), "{error}");
    }
}
