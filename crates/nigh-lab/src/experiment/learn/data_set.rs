//! A data set of real invocations: one CSV a function, one row an invocation (data/function-memory's form).
//!
//! `input_size`, `in_*`, `arg_*`, `start` and `used_before_bytes` are known before the run: the features. Models predict
//! `peak_cgroup_bytes`; `input_id` names the input. All other columns are measured after the run and are no features. `cpu_s` and
//! `output_size` serve the caching benefit, with `repeats` and `cpu_median_s` where runs were repeated.

use std::fs;
use std::path::Path;

use nigh_learn::{CsvTable, FeatureRow, Sample, Schema, feature_of, fold_of, hash_bytes};
use nigh_terms::ByteSize;

use crate::LabError;

/// Rows of a function at most.
const ROWS_MAX: usize = 100_000;
const PEAK: &str = "peak_cgroup_bytes";
/// The median of at least this many runs of one invocation is free of noise.
const REPEATS_MIN: f64 = 5.0;

/// An invocation's processor time and output.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    pub(super) cpu_s: f64,
    pub(super) output_bytes: f64,
    /// The median processor time of five further runs or more.
    pub(super) median_s: Option<f64>,
}

#[derive(Debug, Clone)]
pub(super) struct Invocation {
    pub(super) features: FeatureRow,
    pub(super) peak: ByteSize,
    /// Invocations on one input share it.
    pub(super) input: u64,
    pub(super) input_bytes: f64,
    /// Where it was measured.
    pub(super) work: Option<Work>,
}

/// The invocations of one function.
#[derive(Debug, Clone)]
pub(super) struct FunctionRows {
    pub(super) name: String,
    pub(super) rows: Vec<Invocation>,
}

/// Numbers of the rows that models are fitted to, and of those that judge them.
#[derive(Debug, Clone)]
pub(super) struct Split {
    pub(super) train: Vec<usize>,
    pub(super) test: Vec<usize>,
}

/// All functions of a folder, in the order of their names.
pub(super) fn read(folder: &Path) -> Result<Vec<FunctionRows>, LabError> {
    let missing = || LabError::Missing {
        missing: format!("{} with a CSV file a function", folder.display()),
        hint: "name a data set by --data",
    };
    let entries = fs::read_dir(folder).map_err(|_| missing())?;
    let mut files: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "csv"));
    files.sort();
    if files.is_empty() {
        return Err(missing());
    }
    files.iter().map(|path| read_function(path)).collect()
}

fn read_function(path: &Path) -> Result<FunctionRows, LabError> {
    let wrong = |reason: &dyn std::fmt::Display| LabError::file(path, reason);
    let text = fs::read_to_string(path).map_err(|error| wrong(&error))?;
    let table = CsvTable::read(&text, ROWS_MAX).map_err(|error| wrong(&error))?;
    let column = |name: &str| table.column(name).ok_or_else(|| wrong(&format!("there is no column {name}")));
    let (peak, input, size) = (column(PEAK)?, column("input_id")?, column("input_size")?);
    let worked = table.column("cpu_s").zip(table.column("output_size"));
    let repeated = table.column("repeats").zip(table.column("cpu_median_s"));
    let is_feature = |name: &str| {
        matches!(name, "input_size" | "start" | "used_before_bytes")
            || name.starts_with("in_")
            || name.starts_with("arg_")
    };
    let number = |text: &str| text.parse::<f64>().map_err(|error| wrong(&format!("{text:?}: {error}")));
    let mut rows = Vec::with_capacity(table.rows.len());
    for fields in &table.rows {
        let mut features = FeatureRow::default();
        for (name, field) in table.header.iter().zip(fields).filter(|(name, _)| is_feature(name)) {
            feature_of(&mut features, name, field).map_err(|error| wrong(&error))?;
        }
        let measured = |column: usize| number(&fields[column].text);
        let median = |(repeats, median): (usize, usize)| {
            let enough = !fields[repeats].text.is_empty() && measured(repeats)? >= REPEATS_MIN;
            enough.then(|| measured(median)).transpose()
        };
        let work = |(cpu, out): (usize, usize)| {
            let median_s = repeated.map(median).transpose()?.flatten();
            Ok::<_, LabError>(Work { cpu_s: measured(cpu)?, output_bytes: measured(out)?, median_s })
        };
        rows.push(Invocation {
            features,
            peak: ByteSize(number(&fields[peak].text)? as u64),
            input: hash_bytes(fields[input].text.as_bytes()),
            input_bytes: number(&fields[size].text)?,
            work: worked.map(work).transpose()?,
        });
    }
    let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(FunctionRows { name, rows })
}

impl FunctionRows {
    /// Folds in which all invocations on one input are together.
    pub(super) fn folds(&self, count: usize) -> Vec<Split> {
        let fold = |row: &usize| fold_of(self.rows[*row].input, count);
        let part = |which: usize| (0..self.rows.len()).partition(|row| fold(row) != which);
        let split = |which| {
            let (train, test) = part(which);
            Split { train, test }
        };
        (0..count).map(split).filter(|split| !split.test.is_empty() && !split.train.is_empty()).collect()
    }

    /// The first `count` rows of a shuffle for training, and its last quarter for judging.
    pub(super) fn first(&self, count: usize, shuffle: u64) -> Split {
        let mut order: Vec<usize> = (0..self.rows.len()).collect();
        let place = |row: &usize| hash_bytes(&[(*row as u64).to_le_bytes(), shuffle.to_le_bytes()].concat());
        order.sort_by_key(place);
        let cut = self.rows.len() * 3 / 4;
        Split { train: order[..count.min(cut)].to_vec(), test: order[cut..].to_vec() }
    }

    /// The schema of these rows, and the rows encoded by it.
    pub(super) fn samples(&self, rows: &[usize]) -> (Schema, Vec<Sample>) {
        let schema = Schema::learn(rows.iter().map(|row| &self.rows[*row].features));
        let sample = |row: &usize| {
            let Invocation { features, peak, input, .. } = &self.rows[*row];
            Sample { features: schema.encode(features), peak: *peak, bound: false, weight: 1.0, group: *input }
        };
        let samples = rows.iter().map(sample).collect();
        (schema, samples)
    }

    /// The number of different inputs.
    pub(super) fn inputs(&self) -> usize {
        let mut inputs: Vec<u64> = self.rows.iter().map(|row| row.input).collect();
        inputs.sort_unstable();
        inputs.dedup();
        inputs.len()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::fmt::Write as _;

    use super::*;

    /// Two made-up functions in a folder: memory by the pixel with a word that matters, and memory by the byte in steps.
    pub(in crate::experiment::learn) fn made_up(folder: &Path) {
        let mut text =
            "function,input_id,input_size,in_width,in_height,arg_mode,peak_cgroup_bytes,cpu_s,output_size\n".to_owned();
        for at in 0..160_u64 {
            let input = at % 120;
            let (width, height, mode) = (100 + input * 7919 % 1500, 100 + input * 104_729 % 1500, at % 2);
            let peak = 12_000_000 + (8 + 4 * mode) * width * height + at * 31 % 1000 * 500;
            let cpu = 0.2 + (width * height) as f64 / 1e8;
            let mode = ["fast", "good"][mode as usize];
            let _ = writeln!(text, "pixels,i{input},{},{width},{height},{mode},{peak},{cpu},1000", width * height / 9);
        }
        fs::write(folder.join("pixels.csv"), text).unwrap();
        let mut text = "function,input_id,input_size,peak_cgroup_bytes\n".to_owned();
        for at in 0..120_u64 {
            let _ = writeln!(text, "steps,i{at},{},{}", at * 1000, 10_000_000 + at / 30 * 40_000_000);
        }
        fs::write(folder.join("steps.csv"), text).unwrap();
    }

    #[test]
    fn an_input_is_never_on_both_sides_of_a_fold_and_every_row_is_judged_once() {
        let folder = tempfile::tempdir().unwrap();
        made_up(folder.path());
        let functions = read(folder.path()).unwrap();
        assert_eq!(functions.iter().map(|function| function.inputs()).collect::<Vec<_>>(), [120, 120]);
        let pixels = &functions[0];
        let folds = pixels.folds(10);
        let inputs =
            |rows: &[usize]| rows.iter().map(|row| pixels.rows[*row].input).collect::<std::collections::BTreeSet<_>>();
        for fold in &folds {
            assert!(inputs(&fold.train).is_disjoint(&inputs(&fold.test)));
        }
        assert_eq!(folds.iter().map(|fold| fold.test.len()).sum::<usize>(), pixels.rows.len());
        let first = pixels.first(25, 1);
        assert_eq!((first.train.len(), first.test.len()), (25, 40));
        assert!(first.train.iter().all(|row| !first.test.contains(row)));
    }

    #[test]
    fn what_is_measured_after_the_run_is_no_feature() {
        let folder = tempfile::tempdir().unwrap();
        made_up(folder.path());
        let row = &read(folder.path()).unwrap()[0].rows[0];
        let names: Vec<&str> = row.features.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["arg_mode", "in_height", "in_width", "input_size"]);
        assert!(row.work.is_some());
    }

    #[test]
    fn how_a_sandbox_begins_is_a_feature_and_medians_of_few_runs_are_none() {
        let folder = tempfile::tempdir().unwrap();
        let text = "input_id,input_size,start,used_before_bytes,peak_cgroup_bytes,page_cache_bytes,cpu_s,output_size,repeats,\
                    cpu_median_s\na,1,cold,,100,5,0.5,9,5,0.4\nb,2,warm,70,200,5,0.5,9,2,0.4\nc,2,warm,70,200,5,0.5,9,0,\n";
        fs::write(folder.path().join("f.csv"), text).unwrap();
        let rows = read(folder.path()).unwrap().remove(0).rows;
        let names = |row: &Invocation| row.features.iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>();
        assert_eq!(names(&rows[0]), ["input_size", "start"], "a new sandbox has used nothing");
        assert_eq!(names(&rows[1]), ["input_size", "start", "used_before_bytes"]);
        let medians: Vec<Option<f64>> = rows.iter().map(|row| row.work.unwrap().median_s).collect();
        assert_eq!(medians, [Some(0.4), None, None]);
    }

    #[test]
    fn the_projects_own_rows_are_read_whole() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/function-memory");
        let functions = read(&folder).unwrap();
        assert!(functions.len() >= 19);
        let peaks = || functions.iter().flat_map(|function| &function.rows).map(|row| row.peak);
        assert!(peaks().max().unwrap().bytes() >= 10 * peaks().min().unwrap().bytes());
        for FunctionRows { name, rows } in &functions {
            assert!(rows.len() >= 140, "{name} has {} rows", rows.len());
            let is = |row: &&Invocation, word: &str| {
                row.features.get("start") == Some(&nigh_learn::FeatureValue::Word(word.into()))
            };
            let cold = rows.iter().filter(|row| is(row, "cold")).count();
            let warm = rows.iter().filter(|row| is(row, "warm")).count();
            assert!(cold >= 14 && cold + warm == rows.len(), "{name}: {cold} cold, {warm} warm");
            assert!(rows.iter().all(|row| row.peak.bytes() > 10_000_000 && row.work.is_some()), "{name}");
            let medians = rows.iter().filter(|row| row.work.is_some_and(|work| work.median_s.is_some())).count();
            assert!(medians >= 12, "{name}: {medians} medians");
        }
    }

    #[test]
    fn a_folder_without_data_says_what_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read(folder.path()).unwrap_err().to_string().contains("--data"));
        fs::write(folder.path().join("f.csv"), "a,b\n1,2\n").unwrap();
        assert!(read(folder.path()).unwrap_err().to_string().contains(PEAK));
    }
}
