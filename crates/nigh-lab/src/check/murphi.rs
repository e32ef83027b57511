//! Runs the models of `nigh_check::murphi` with rumur, which makes of each a C program, and the C compiler.
//!
//! Each model is made and run in a temporary folder, by one thread, so that the way to a broken property is the
//! shortest; two models run at a time where there are two processors. It decides nothing but when to stop.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Instant;

use comfy_table::{Table, presets};
use nigh_check::{MurphiModel, MurphiReport};
use serde::Serialize;

use crate::LabError;
use crate::parallel::in_parallel;

/// Bytes of address space a verifier may take; then it ends, and its search counts as cut.
const MEMORY_BYTES_MAX: u64 = 4 << 30;

#[derive(Serialize)]
pub(super) struct MurphiViolation {
    property: String,
    steps: Vec<String>,
}

#[derive(Serialize)]
pub(super) struct MurphiRow {
    model: &'static str,
    about: &'static str,
    states: u64,
    complete: bool,
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
    for (program, hint) in
        [("rumur", "apt-get install rumur"), ("cc", "apt-get install gcc libc6-dev"), ("timeout", "apt-get install coreutils")]
    {
        if Command::new(program).arg("--version").output().is_err() {
            return Err(LabError::Missing { missing: program.to_owned(), hint });
        }
    }
    Ok(())
}

/// Runs the models, each for so many seconds at most.
pub(super) fn explored(models: &[MurphiModel], seconds: u64) -> Result<Vec<MurphiRow>, LabError> {
    in_parallel(models, |model| {
        let began = Instant::now();
        let found = run(model, seconds)?;
        Ok(MurphiRow {
            model: model.name,
            about: model.about,
            states: found.states,
            complete: found.complete,
            as_expected: model.is_as_expected(&found),
            violations: found
                .broken
                .into_iter()
                .map(|broken| MurphiViolation { property: broken.property, steps: broken.steps })
                .collect(),
            expected: model.expected.to_string(),
            long: model.long,
            seconds: began.elapsed().as_secs_f64(),
        })
    })
}

fn run(model: &MurphiModel, seconds: u64) -> Result<MurphiReport, LabError> {
    let folder = tempfile::tempdir().map_err(|error| LabError::file("a temporary folder", &error))?;
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("model.m"), model.text()).map_err(|error| LabError::file(path("model.m"), &error))?;
    let generate = [
        "--threads=1",
        "--deadlock-detection=off",
        "--pack-state=off",
        "--scalarset-schedules=off",
        "--output-format=machine-readable",
        "--output=model.c",
        "model.m",
    ];
    made(model, Command::new("rumur").args(generate).current_dir(&folder))?;
    // Optimised only where the search takes longer than the compiler.
    let optimise = if model.long { "-O1" } else { "-O0" };
    let compile = ["-std=c11", optimise, "-w", "-mcx16", "-o", "model", "model.c", "-pthread"];
    made(model, Command::new("cc").args(compile).current_dir(&folder))?;
    let output = verify(&path("model"), seconds).map_err(|error| LabError::file("timeout", &error))?;
    Ok(MurphiReport::read(&String::from_utf8_lossy(&output.stdout)))
}

fn made(model: &MurphiModel, command: &mut Command) -> Result<(), LabError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| LabError::file(&program, &error))?;
    if output.status.success() {
        return Ok(());
    }
    let told = String::from_utf8_lossy(&output.stderr);
    let why = told.lines().find(|line| line.contains("error")).or_else(|| told.lines().last()).unwrap_or_default();
    Err(LabError::Request { what: format!("{program} for the model {}", model.name), reason: why.to_owned() })
}

fn verify(program: &Path, seconds: u64) -> std::io::Result<Output> {
    let limited = format!("ulimit -v {}; exec timeout --foreground \"$1\" \"$2\"", MEMORY_BYTES_MAX / 1024);
    Command::new("sh").args(["-c", &limited, "sh", &seconds.to_string()]).arg(program).output()
}

pub(super) fn text(rows: &[MurphiRow]) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_header(["murphi", "states", "violations", "steps", "expected", "s"]);
    for row in rows {
        let broken = row.violations.first();
        table.add_row([
            row.model.to_owned(),
            format!("{}{}", row.states, if row.complete { "" } else { " (cut)" }),
            broken.map_or_else(|| "0".to_owned(), |broken| broken.property.clone()),
            broken.map_or_else(String::new, |broken| broken.steps.len().to_string()),
            format!("{}{}", row.expected, if row.as_expected { "" } else { ": NOT SO" }),
            format!("{:.1}", row.seconds),
        ]);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use nigh_check::murphi_models;

    use super::*;

    /// Small worlds of both files, and rules whose want shows at once.
    const SMALL: [&str; 8] = [
        "apta: published",
        "apta: tracked",
        "apta: data",
        "apta: crash",
        "nigh: one writer",
        "nigh: finish",
        "nigh without Gate",
        "nigh without NeverWait",
    ];

    #[test]
    fn the_second_encoding_shows_what_it_must_in_small_worlds() {
        if let Err(missing) = installed() {
            return println!("SKIPPED: the_second_encoding_shows_what_it_must_in_small_worlds: {missing}");
        }
        let models: Vec<MurphiModel> =
            murphi_models().into_iter().filter(|model| SMALL.contains(&model.name)).collect();
        assert_eq!(models.len(), SMALL.len());
        for row in explored(&models, 300).unwrap() {
            assert!(row.as_expected, "{}: {:?} in {} states", row.model, row.violations.first().map(|one| &one.steps), row.states);
            assert!(row.states > 10 && row.complete, "{}: {}", row.model, row.states);
        }
    }
}
