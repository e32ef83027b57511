//! The caching benefit, as far as a data set of memory allows: labels by processor time and a stated store.
//!
//! A function's own time is its processor time less the least of all its runs, which is its start. Reads and writes take the time
//! of a stated store for as many bytes. A model learns from single runs, as on the platform; it is judged by medians of five runs
//! or more where a function has any, else by single runs. Cases near the line are counted apart.

use nigh_learn::{BENEFIT_SHARE, Benefit, PhaseTimes};
use serde_json::{Value, json};

use super::data_set::{FunctionRows, Invocation, Work};

/// The stated store, Swift on this kind of machine: a request, and bytes a microsecond.
const REQUEST_US: f64 = 7_000.0;
const WRITE_REQUEST_US: f64 = 14_000.0;
const BYTES_A_US: f64 = 130.0;
/// Cases so near to the line are counted apart.
const DOUBT: f64 = 0.05;
const FOLDS: usize = 10;

/// Judges the benefit's model in folds by input; none if no work was measured.
pub(super) fn judge(functions: &[FunctionRows]) -> Option<Value> {
    let (mut told_right, mut told, mut profit, mut doubt, mut doubt_right, mut counted) = (0, 0, 0, 0, 0, 0);
    let (mut cases, mut repeated) = (0, 0);
    for function in functions {
        let Some((times, judged)) = times(function) else { continue };
        counted += 1;
        let has_median = |row: &Invocation| row.work.is_some_and(|work| work.median_s.is_some());
        repeated += usize::from(function.rows.iter().any(has_median));
        for split in function.folds(FOLDS) {
            let (schema, samples) = function.samples(&split.train);
            let of_train: Vec<PhaseTimes> = split.train.iter().map(|row| times[*row]).collect();
            let model = Benefit::fit(&schema, &samples, &of_train);
            for row in split.test {
                let Some(judged) = judged[row] else { continue };
                let said = model.predict(&schema.encode(&function.rows[row].features));
                let is = judged.benefits();
                if (judged.data_share() - BENEFIT_SHARE).abs() <= DOUBT {
                    doubt += 1;
                    doubt_right += usize::from(said == is);
                    continue;
                }
                cases += 1;
                told += usize::from(said);
                profit += usize::from(is);
                told_right += usize::from(said && is);
            }
        }
    }
    let percent = |part: usize, whole: usize| 100.0 * part as f64 / whole.max(1) as f64;
    (cases > 0).then(|| {
        json!({
            "functions": counted,
            // Functions judged by medians of repeated runs.
            "repeated": repeated,
            "cases": cases,
            // Percent of the cases predicted to profit that do, and of the cases that profit that were predicted to.
            "precision": percent(told_right, told),
            "recall": percent(told_right, profit),
            // Cases near the line, and the percent of them that was predicted right.
            "in_doubt": doubt,
            "in_doubt_right": percent(doubt_right, doubt),
            "profit": percent(profit, cases),
        })
    })
}

/// The times of each invocation in its own run, and the times that judge it, if any do.
fn times(function: &FunctionRows) -> Option<(Vec<PhaseTimes>, Vec<Option<PhaseTimes>>)> {
    let work: Option<Vec<Work>> = function.rows.iter().map(|row| row.work).collect();
    let work = work?;
    let start_s = work.iter().map(|work| work.cpu_s).fold(f64::INFINITY, f64::min);
    let times = |at: usize, cpu_s: f64| PhaseTimes {
        extract_us: REQUEST_US + function.rows[at].input_bytes / BYTES_A_US,
        transform_us: (cpu_s - start_s).max(0.0) * 1e6,
        load_us: WRITE_REQUEST_US + work[at].output_bytes / BYTES_A_US,
    };
    let has_medians = work.iter().any(|work| work.median_s.is_some());
    let of_run = work.iter().enumerate().map(|(at, work)| times(at, work.cpu_s)).collect();
    let judged = work.iter().enumerate().map(|(at, work)| {
        let cpu_s = if has_medians { work.median_s } else { Some(work.cpu_s) };
        cpu_s.map(|cpu_s| times(at, cpu_s))
    });
    Some((of_run, judged.collect()))
}

/// The stated store, in words.
pub(super) fn store() -> String {
    format!(
        "{} ms a read and {} ms a write, and a second for each {} MB",
        REQUEST_US / 1e3,
        WRITE_REQUEST_US / 1e3,
        BYTES_A_US
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::learn::data_set;

    #[test]
    fn medians_of_repeated_runs_are_what_a_model_is_judged_by() {
        let folder = tempfile::tempdir().unwrap();
        let mut text = "input_id,input_size,peak_cgroup_bytes,cpu_s,output_size,repeats,cpu_median_s\n".to_owned();
        for at in 0..60_u32 {
            let (repeats, median) = if at % 3 == 0 { (5, "0.5") } else { (0, "") };
            text += &format!("i{at},{at},100,{},10,{repeats},{median}\n", 0.4 + f64::from(at) / 1e3);
        }
        std::fs::write(folder.path().join("f.csv"), text).unwrap();
        let score = judge(&data_set::read(folder.path()).unwrap()).unwrap();
        let of = |field: &str| score[field].as_u64().unwrap();
        assert_eq!((of("repeated"), of("cases") + of("in_doubt")), (1, 20), "{score:?}");
    }

    #[test]
    fn what_profits_by_its_size_is_told() {
        let folder = tempfile::tempdir().unwrap();
        data_set::tests::made_up(folder.path());
        let score = judge(&data_set::read(folder.path()).unwrap()).unwrap();
        let of = |field: &str| score[field].as_f64().unwrap();
        assert_eq!(of("functions"), 1.0, "only one has its work measured");
        assert!(of("cases") + of("in_doubt") == 160.0 && of("cases") > 100.0, "{score:?}");
        assert!(of("recall") > 80.0 && of("precision") > 80.0, "{score:?}");
    }
}
