//! The recorded functions of `data/llc-traces`: each input's facts, its exact misses by ways, and its trace for the simulator.
//!
//! Traces that share a cache must hold the same sets of it, so each is thinned to one sampling. A long trace can be cut; times of a
//! part are the part's.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use nigh_sim::llc::{ReplayTrace, SampleRate, Sampling, Trace};
use nigh_terms::{ByteSize, Ways};

use crate::LabError;

/// Ways of the cache that `curves.csv` was counted for.
pub(crate) const CURVE_WAYS: Ways = Ways(11);

const HINT: &str = "run this in the project's folder, or name the folder of the traces with --traces";

/// What an input was recorded for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A size of CASY's tables III and IV.
    Table,
    /// An input that no model has seen.
    HeldOut,
}

#[derive(Debug, Clone)]
pub(crate) struct RecordedInput {
    pub(crate) name: String,
    pub(crate) function: String,
    pub(crate) role: Role,
    pub(crate) size: ByteSize,
    /// The features of the whole input (pixels, seconds), in the file's order.
    pub(crate) features: Vec<f64>,
    /// The file of the trace, where one is kept.
    trace: Option<String>,
    /// The trace has one line in this many.
    sampling: u32,
    /// Instructions of the recorded stretch, and of the whole run.
    pub(crate) instructions: u64,
    pub(crate) whole_instructions: u64,
    /// Requests to the last level.
    pub(crate) requests: u64,
    /// Misses of a run right after the same run, with 1 to 11 ways; all lines, LRU.
    pub(crate) warm: Vec<u64>,
}

impl RecordedInput {
    pub(crate) const fn has_trace(&self) -> bool {
        self.trace.is_some()
    }

    pub(crate) const fn is_whole(&self) -> bool {
        self.sampling == 1
    }

    /// The part of the run that was recorded: times of the trace are to be divided by it.
    pub(crate) fn share(&self) -> f64 {
        self.instructions as f64 / self.whole_instructions as f64
    }
}

/// All recorded inputs.
#[derive(Debug)]
pub(crate) struct TraceLibrary {
    folder: PathBuf,
    inputs: Vec<RecordedInput>,
}

impl TraceLibrary {
    pub(crate) fn open(folder: &Path) -> Result<Self, LabError> {
        let list = folder.join("curves.csv");
        let text = std::fs::read_to_string(&list)
            .map_err(|_| LabError::Missing { missing: list.display().to_string(), hint: HINT })?;
        let inputs = parse(&text).map_err(|reason| LabError::file(&list, &reason))?;
        Ok(Self { folder: folder.to_owned(), inputs })
    }

    pub(crate) fn of(&self, function: &str, role: Role) -> impl Iterator<Item = &RecordedInput> {
        self.inputs.iter().filter(move |input| input.function == function && input.role == role)
    }

    pub(crate) fn input(&self, name: &str) -> Result<&RecordedInput, LabError> {
        self.inputs
            .iter()
            .find(|input| input.name == name)
            .ok_or_else(|| LabError::Missing { missing: format!("the recording {name}"), hint: HINT })
    }

    /// The trace of an input with the lines that were kept of it.
    pub(crate) fn recorded_trace(&self, input: &RecordedInput) -> Result<ReplayTrace, LabError> {
        self.trace(input, input.sampling, u64::MAX)
    }

    /// The trace of an input with one line in `one_in`, ended after so many instructions.
    pub(crate) fn trace(
        &self,
        input: &RecordedInput,
        one_in: u32,
        instructions_max: u64,
    ) -> Result<ReplayTrace, LabError> {
        let no_trace = || LabError::Missing { missing: format!("the trace of {}", input.name), hint: "make traces" };
        let path = self.folder.join(input.trace.as_ref().ok_or_else(no_trace)?);
        let broken = |reason: &dyn std::fmt::Display| LabError::file(&path, reason);
        let file = std::fs::read(&path).map_err(|error| broken(&error))?;
        let trace = Trace::decode(&file).map_err(|error| broken(&error))?;
        let unsuited = || broken(&format!("it does not hold one line in {one_in}; choose a thinner sampling"));
        let sampling = Sampling::one_in(one_in).ok_or_else(unsuited)?;
        let thinned = trace.thinned(sampling).ok_or_else(unsuited)?;
        let rate = SampleRate::new(one_in).map_err(|error| broken(&error))?;
        let mut passed = 0;
        let begun = thinned.accesses.iter().take_while(|access| {
            passed += u64::from(access.instructions);
            passed <= instructions_max
        });
        let accesses: Vec<_> = begun.copied().collect();
        let counted: u64 = accesses.iter().map(|access| u64::from(access.instructions)).sum();
        let tail = thinned.header.instructions.min(instructions_max).saturating_sub(counted);
        ReplayTrace::new(accesses, tail, rate).map_err(|error| broken(&error))
    }
}

/// The rows of `curves.csv`; no field has a comma.
fn parse(text: &str) -> Result<Vec<RecordedInput>, String> {
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    lines.map(|line| parse_row(&header, line)).collect()
}

fn parse_row(header: &[&str], line: &str) -> Result<RecordedInput, String> {
    let fields: BTreeMap<&str, &str> = header.iter().copied().zip(line.split(',')).collect();
    let text = |name: &str| fields.get(name).copied().ok_or_else(|| format!("no column {name} in \"{line}\""));
    let number = |name: &str| {
        let field = text(name)?;
        field.parse::<u64>().map_err(|error| format!("{name} is \"{field}\" in \"{line}\": {error}"))
    };
    let named = |feature: &str| feature.split_once('=').and_then(|(_, value)| value.parse::<f64>().ok());
    let features = text("features")?;
    let mut values = features.split_whitespace().map(|feature| named(feature).unwrap_or(f64::NAN)).collect::<Vec<_>>();
    if values.iter().any(|value| !value.is_finite()) {
        return Err(format!("features \"{features}\": expected words NAME=NUMBER"));
    }
    // A picture's work grows with its pixels, not with one of its sides.
    if features.starts_with("width=") && values.len() > 1 {
        let width = values.remove(0);
        values[0] *= width;
    }
    let trace = text("trace")?;
    Ok(RecordedInput {
        name: text("name")?.to_owned(),
        function: text("function")?.to_owned(),
        role: match text("role")? {
            "table" => Role::Table,
            "held-out" => Role::HeldOut,
            other => return Err(format!("role \"{other}\": expected table or held-out")),
        },
        size: ByteSize(number("input_bytes")?),
        features: values,
        trace: (!trace.is_empty()).then(|| trace.to_owned()),
        sampling: number("sampling")? as u32,
        instructions: number("instructions")?,
        whole_instructions: number("whole_instructions")?,
        requests: number("l2_misses")?,
        warm: (1..=CURVE_WAYS.0).map(|ways| number(&format!("warm_{ways}"))).collect::<Result<_, _>>()?,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn kept() -> TraceLibrary {
        TraceLibrary::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/llc-traces")).unwrap()
    }

    #[test]
    fn the_kept_recordings_are_read_with_their_curves_and_traces() {
        let library = kept();
        let blur = library.input("blur-124k").unwrap();
        assert_eq!((blur.function.as_str(), blur.role, blur.features[0]), ("blur", Role::Table, 320.0 * 214.0));
        assert!(blur.warm.is_sorted_by(|more, fewer| more >= fewer) && blur.requests >= blur.warm[0]);
        let trace = library.recorded_trace(blur).unwrap();
        assert_eq!((trace.requests(), trace.instructions()), (blur.requests, blur.instructions));
        let half = library.trace(blur, 32, blur.instructions / 2).unwrap();
        assert!(half.instructions() <= blur.instructions / 2 && half.requests() < blur.requests / 32);
        assert!(library.input("blur-1k").unwrap_err().to_string().contains("--traces"));
    }

    #[test]
    fn a_broken_row_is_refused_with_its_field() {
        let text = "name,function,role,input_bytes\nblur-1k,blur,table,many";
        assert!(parse(text).unwrap_err().contains("features"));
        let library = kept();
        let list = std::fs::read_to_string(library.folder.join("curves.csv")).unwrap();
        let broken = list.replacen(",table,", ",other,", 1);
        assert!(parse(&broken).unwrap_err().contains("expected table or held-out"));
        let broken = list.replacen("124177", "-1", 1);
        assert!(parse(&broken).unwrap_err().contains("input_bytes"));
    }
}
