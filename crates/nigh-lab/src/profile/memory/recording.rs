//! The rows of one function on disk: a CSV file, appended row by row. An interrupted recording continues after its last whole
//! row.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use nigh_learn::CsvTable;
use serde_json::{Map, Value};

use super::arguments::ProfiledFunction;
use super::plan::{Arguments, PlannedRow};
use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::stats::Sample;

/// Rows of a file at most.
pub(super) const ROWS_MAX: u32 = 10_000;
const BEFORE: [&str; 4] = ["function", "seq", "input_id", "input_size"];
const MEASURED: [&str; 9] = [
    "start",
    "used_before_bytes",
    "peak_cgroup_bytes",
    "page_cache_bytes",
    "touched_limit",
    "cpu_s",
    "output_size",
    "repeats",
    "cpu_median_s",
];

/// What was measured of one invocation.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RowMeasurements {
    pub(super) is_cold: bool,
    /// Bytes that the sandbox used before the run; none for a new sandbox.
    pub(super) used_before: Option<u64>,
    pub(super) peak: u64,
    pub(super) page_cache: u64,
    pub(super) touched_limit: bool,
    pub(super) cpu_s: f64,
    pub(super) output_size: u64,
    /// The processor time of further runs of the same.
    pub(super) repeats: Vec<f64>,
}

/// An input as it was made.
#[derive(Clone, Debug)]
pub(super) struct InputFacts {
    pub(super) size: u64,
    pub(super) features: Map<String, Value>,
}

/// The file of one function.
#[derive(Debug)]
pub(super) struct RecordingFile {
    function: &'static ProfiledFunction,
    path: PathBuf,
    file: File,
    next: u32,
}

impl RecordingFile {
    /// Opens the function's file in `folder`, or makes it. An incomplete last row is removed.
    pub(super) fn open(folder: &Path, function: &'static ProfiledFunction) -> Result<Self, LabError> {
        let path = folder.join(format!("{}.csv", function.name));
        let wrong = |reason: &dyn std::fmt::Display| LabError::file(&path, reason);
        let mut file = OpenOptions::new().create(true).append(true).open(&path).map_err(|error| wrong(&error))?;
        let text = fs::read_to_string(&path).map_err(|error| wrong(&error))?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64).map_err(|error| wrong(&error))?;
        let header = header(function);
        if whole == 0 {
            file.write_all(format!("{}\n", header.join(",")).as_bytes()).map_err(|error| wrong(&error))?;
            return Ok(Self { function, path, file, next: 0 });
        }
        let table = CsvTable::read(&text[..whole], ROWS_MAX as usize).map_err(|error| wrong(&error))?;
        if table.header != header {
            return Err(wrong(&"its columns are not those of this recording; record into another folder"));
        }
        let last = table.rows.last().map(|fields| fields[1].text.parse::<u32>());
        let next = last.transpose().map_err(|error| wrong(&error))?.map_or(0, |last| last + 1);
        Ok(Self { function, path, file, next })
    }

    /// The number of the next row.
    pub(super) const fn next(&self) -> u32 {
        self.next
    }

    /// Skips a row that could not be measured.
    pub(super) const fn pass_over(&mut self) {
        self.next += 1;
    }

    /// Appends a row; it is in the file when this returns.
    pub(super) fn append(
        &mut self,
        planned: &PlannedRow,
        known: &InputFacts,
        measured: &RowMeasurements,
    ) -> Result<(), LabError> {
        let line = line(self.function, planned, known, measured);
        self.file.write_all(line.as_bytes()).at(&self.path)?;
        self.next = planned.seq + 1;
        Ok(())
    }
}

fn header(function: &ProfiledFunction) -> Vec<String> {
    let names = BEFORE.iter().chain(function.pool.features()).map(|&name| name.to_owned());
    let arguments = function.arguments.iter().map(|(name, _)| format!("arg_{name}"));
    names.chain(arguments).chain(MEASURED.iter().map(|&name| name.to_owned())).collect()
}

fn line(function: &ProfiledFunction, planned: &PlannedRow, known: &InputFacts, measured: &RowMeasurements) -> String {
    let mut line = format!("{},{},{},{}", function.name, planned.seq, planned.input.id, known.size);
    for name in function.pool.features() {
        line.push(',');
        line += &field(known.features.get(*name));
    }
    let arguments: &Arguments = &planned.arguments;
    for (name, _) in function.arguments {
        line.push(',');
        line += &field(arguments.get(name));
    }
    let RowMeasurements { is_cold, used_before, peak, page_cache, touched_limit, cpu_s, output_size, repeats } =
        measured;
    let _ = write!(
        line,
        ",{},{},{peak},{page_cache},{touched_limit},{cpu_s:.6},{output_size},{},{}",
        if *is_cold { "cold" } else { "warm" },
        used_before.map_or_else(String::new, |bytes| bytes.to_string()),
        repeats.len(),
        if repeats.is_empty() { String::new() } else { format!("{:.6}", Sample::new(repeats.clone()).median()) },
    );
    line.push('\n');
    line
}

/// The words and numbers of this recording need no quotes.
fn field(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(word)) => word.clone(),
        Some(value) => value.to_string(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::arguments::PROFILED;
    use super::super::plan::planned;
    use super::*;

    fn measured() -> RowMeasurements {
        RowMeasurements {
            is_cold: false,
            used_before: Some(50_000_000),
            peak: 123_456_789,
            page_cache: 4096,
            touched_limit: false,
            cpu_s: 0.25,
            output_size: 1000,
            repeats: vec![0.2, 0.3, 0.1, 0.25, 0.22],
        }
    }

    #[test]
    fn a_recording_that_was_cut_off_goes_on_behind_its_last_whole_row() {
        let folder = tempfile::tempdir().unwrap();
        for function in &PROFILED {
            let known = InputFacts { size: 7, features: Map::new() };
            let mut recording = RecordingFile::open(folder.path(), function).unwrap();
            assert_eq!(recording.next(), 0);
            recording.append(&planned(function, 1, 0), &known, &measured()).unwrap();
            recording.pass_over();
            recording.append(&planned(function, 1, 2), &known, &measured()).unwrap();
            let path = recording.path.clone();
            let whole = fs::read_to_string(&path).unwrap();
            fs::write(&path, format!("{whole}wand_blur,3,pict")).unwrap();
            let again = RecordingFile::open(folder.path(), function).unwrap();
            assert_eq!(again.next(), 3);
            assert_eq!(fs::read_to_string(&path).unwrap(), whole);
        }
    }

    #[test]
    fn a_row_has_what_was_measured_by_its_columns() {
        let folder = tempfile::tempdir().unwrap();
        let function = PROFILED.iter().find(|function| function.name == "wand_blur").unwrap();
        let features = [("in_width", Value::from(640)), ("in_format", Value::from("jpeg"))];
        let features = features.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let mut recording = RecordingFile::open(folder.path(), function).unwrap();
        recording.append(&planned(function, 1, 0), &InputFacts { size: 7, features }, &measured()).unwrap();
        let cold = RowMeasurements { is_cold: true, used_before: None, repeats: Vec::new(), ..measured() };
        recording.append(&planned(function, 1, 1), &InputFacts { size: 7, features: Map::new() }, &cold).unwrap();
        let table = CsvTable::read(&fs::read_to_string(&recording.path).unwrap(), 10).unwrap();
        let of = |row: usize, name: &str| table.rows[row][table.column(name).unwrap()].text.clone();
        assert_eq!([of(0, "in_width"), of(0, "in_format"), of(1, "in_width")], ["640", "jpeg", ""]);
        assert_eq!([of(0, "start"), of(1, "start"), of(1, "used_before_bytes")], ["warm", "cold", ""]);
        assert_eq!(
            [of(0, "peak_cgroup_bytes"), of(0, "repeats"), of(0, "cpu_median_s")],
            ["123456789", "5", "0.220000"]
        );
        assert_eq!([of(1, "repeats"), of(1, "cpu_median_s")], ["0", ""]);
        assert!(of(0, "arg_sigma").parse::<f64>().is_ok());
    }

    #[test]
    fn a_file_of_another_form_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("blur.csv"), "a,b\n1,2\n").unwrap();
        let function = PROFILED.iter().find(|function| function.name == "blur").unwrap();
        assert!(RecordingFile::open(folder.path(), function).unwrap_err().to_string().contains("columns"));
    }
}
