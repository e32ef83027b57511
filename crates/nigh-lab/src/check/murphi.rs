//! Runs the models of `nigh_check::murphi` with rumur, which makes of those of one size a C program, and the C compiler.
//!
//! All is made in a temporary folder, and each model run by one thread, so that the way to a broken property is the
//! shortest; two run at a time where there are two processors. It decides nothing but when to stop.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use nigh_check::{MurphiModel, MurphiProgram, MurphiReport, murphi_programs, with_choices};
use serde::Serialize;

use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::parallel::in_parallel;

/// Bytes of address space a verifier may take; then it ends, and its search counts as cut.
const MEMORY_BYTES_MAX: u64 = 4 << 30;

#[derive(Serialize)]
pub(super) struct MurphiViolation {
    property: String,
    steps: Vec<String>,
}

#[derive(Serialize)]
pub(super) struct MurphiRow {
    name: &'static str,
    about: &'static str,
    pub(super) states: u64,
    pub(super) complete: bool,
    /// None, or the first.
    violations: Vec<MurphiViolation>,
    /// `holds`, or the property that must fail.
    expected: String,
    as_expected: bool,
    long: bool,
    seconds: f64,
}

impl MurphiRow {
    /// Whether it shows what it must not, or does not show what it must, though it had the time.
    pub(super) fn is_wrong(&self) -> bool {
        !self.as_expected && (self.complete || !self.violations.is_empty())
    }

    /// Whether its time was too short, and that is a fault: long ones may be cut.
    pub(super) fn is_cut(&self) -> bool {
        !self.as_expected && !self.is_wrong() && !self.long
    }
}

/// Whether the models can be run here.
///
/// # Errors
/// With what is missing, and how to get it.
pub(super) fn installed() -> Result<(), LabError> {
    for (program, hint) in [
        ("rumur", "apt-get install rumur"),
        ("cc", "apt-get install gcc libc6-dev"),
        ("timeout", "apt-get install coreutils"),
    ] {
        if Command::new(program).arg("--version").output().is_err() {
            return Err(LabError::Missing { missing: program.to_owned(), hint });
        }
    }
    Ok(())
}

/// Runs the models, each for so many seconds at most; rows in the order of the models.
pub(super) fn explored(models: &[MurphiModel], seconds: u64) -> Result<Vec<MurphiRow>, LabError> {
    let folder = tempfile::tempdir().at("a temporary folder")?;
    let programs: Vec<(usize, MurphiProgram)> = murphi_programs(models).into_iter().enumerate().collect();
    let verifiers = in_parallel(&programs, |(number, program)| verifier(folder.path(), *number, program))?;
    in_parallel(models, |model| {
        let began = Instant::now();
        let of_its_size =
            |(_, program): &&(usize, MurphiProgram)| program.models.iter().any(|one| one.name == model.name);
        let number = programs.iter().find(of_its_size).map_or(0, |(number, _)| *number);
        let output = verify(&verifiers[number], model, seconds).at("timeout")?;
        let found = MurphiReport::read(&String::from_utf8_lossy(&output.stdout));
        let violations = found.broken.iter();
        let violations =
            violations.map(|broken| MurphiViolation { property: broken.property.clone(), steps: broken.steps.clone() });
        Ok(MurphiRow {
            name: model.name,
            about: model.about,
            states: found.states,
            complete: found.complete,
            as_expected: model.is_as_expected(&found),
            violations: violations.collect(),
            expected: model.expected.to_string(),
            long: model.long,
            seconds: began.elapsed().as_secs_f64(),
        })
    })
}

/// Makes a verifier; returns where it is.
fn verifier(folder: &Path, number: usize, program: &MurphiProgram) -> Result<PathBuf, LabError> {
    let path = |kind: &str| folder.join(format!("verifier-{number}{kind}"));
    let write = |kind: &str, text: &str| std::fs::write(path(kind), text).at(path(kind));
    write(".m", &program.text)?;
    let generate = [
        "--threads=1",
        "--deadlock-detection=off",
        "--pack-state=off",
        "--scalarset-schedules=off",
        "--output-format=machine-readable",
        "--output",
    ];
    made(program, Command::new("rumur").args(generate).arg(path(".c")).arg(path(".m")))?;
    if !program.models[0].chosen().is_empty() {
        let text = std::fs::read_to_string(path(".c")).map_err(|error| LabError::file(path(".c"), &error))?;
        let text = with_choices(&text).ok_or_else(|| LabError::Missing {
            missing: "the start state in what rumur has written".to_owned(),
            hint: "the models are run by rumur 2022.08.20, Debian's",
        })?;
        write(".c", &text)?;
    }
    // Optimised only where searches take longer than the compiler.
    let optimise = if program.models.iter().any(|model| model.long) { "-O1" } else { "-O0" };
    made(
        program,
        Command::new("cc")
            .args(["-std=c11", optimise, "-w", "-mcx16", "-o"])
            .arg(path(""))
            .arg(path(".c"))
            .arg("-pthread"),
    )?;
    Ok(path(""))
}

fn made(program: &MurphiProgram, command: &mut Command) -> Result<(), LabError> {
    let tool = command.get_program().to_string_lossy().into_owned();
    let output = command.output().at(&tool)?;
    if output.status.success() {
        return Ok(());
    }
    let told = String::from_utf8_lossy(&output.stderr);
    let why = told.lines().find(|line| line.contains("error")).or_else(|| told.lines().last()).unwrap_or_default();
    Err(LabError::Request { what: format!("{tool} for the model {}", program.models[0].name), reason: why.to_owned() })
}

fn verify(verifier: &Path, model: &MurphiModel, seconds: u64) -> std::io::Result<Output> {
    let limited = format!("ulimit -v {}; exec timeout --foreground \"$1\" \"$2\"", MEMORY_BYTES_MAX / 1024);
    let mut command = Command::new("sh");
    command.args(["-c", &limited, "sh", &seconds.to_string()]).arg(verifier).envs(model.chosen()).output()
}

#[cfg(test)]
mod tests {
    use nigh_check::{MurphiSource, murphi_models};

    use super::*;
    use crate::skipped::skip;

    #[test]
    fn apta_s_published_rules_fail_with_data_and_with_a_crash_and_hold_when_mended() {
        if let Err(missing) = installed() {
            return skip("apta_s_published_rules_fail_with_data_and_with_a_crash_and_hold_when_mended", missing);
        }
        let small = |model: &MurphiModel| !model.long && model.source == MurphiSource::Apta;
        let models: Vec<MurphiModel> = murphi_models().into_iter().filter(small).collect();
        assert!(models.len() > 3);
        for row in explored(&models, 300).unwrap() {
            let steps = row.violations.first().map(|one| &one.steps);
            assert!(row.as_expected && row.states > 10, "{}: {steps:?} in {} states", row.name, row.states);
        }
    }
}
