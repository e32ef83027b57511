//! The caching benefit, as far as a data set of memory allows: labels by processor time and a stated store.
//!
//! What the function itself takes is its processor time less the least of all its runs, which is its start. Reading and writing
//! take what the stated store takes for as many bytes. Single runs and not medians of several: cases near the line are set apart.

use nigh_learn::{BENEFIT_SHARE, Benefit, PhaseTimes};
use serde::Serialize;

use super::data_set::FunctionRows;

/// The stated store, Swift on this kind of machine: a request, and bytes a microsecond.
const REQUEST_US: f64 = 7_000.0;
const WRITE_REQUEST_US: f64 = 14_000.0;
const BYTES_A_US: f64 = 130.0;
/// Cases this near to the line are set apart.
const DOUBT: f64 = 0.05;
const FOLDS: usize = 10;

/// How well the benefit was told, over all functions whose work was measured.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct BenefitScore {
    pub(super) functions: usize,
    pub(super) cases: usize,
    /// Percent of the cases told to profit that do.
    pub(super) precision: f64,
    /// Percent of the cases that profit that were told to.
    pub(super) recall: f64,
    /// Cases near the line, and the percent of them that was told right.
    pub(super) in_doubt: usize,
    pub(super) in_doubt_right: f64,
    /// Percent of all cases that profit.
    pub(super) profit: f64,
}

/// Judges the benefit's model in folds by input; none where nothing of the work was measured.
pub(super) fn judge(functions: &[FunctionRows]) -> Option<BenefitScore> {
    let (mut told_right, mut told, mut profit, mut doubt, mut doubt_right, mut counted) = (0, 0, 0, 0, 0, 0);
    let mut cases = 0;
    for function in functions {
        let Some(times) = times(function) else { continue };
        counted += 1;
        for split in function.folds(FOLDS) {
            let (schema, samples) = function.samples(&split.train);
            let of_train: Vec<PhaseTimes> = split.train.iter().map(|row| times[*row]).collect();
            let model = Benefit::fit(&schema, &samples, &of_train);
            for row in split.test {
                let said = model.predict(&schema.encode(&function.rows[row].features));
                let is = times[row].benefits();
                if (times[row].data_share() - BENEFIT_SHARE).abs() <= DOUBT {
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
    (cases > 0).then(|| BenefitScore {
        functions: counted,
        cases,
        precision: percent(told_right, told),
        recall: percent(told_right, profit),
        in_doubt: doubt,
        in_doubt_right: percent(doubt_right, doubt),
        profit: percent(profit, cases),
    })
}

fn times(function: &FunctionRows) -> Option<Vec<PhaseTimes>> {
    let work: Option<Vec<(f64, f64)>> = function.rows.iter().map(|row| row.work).collect();
    let work = work?;
    let start = work.iter().map(|(cpu, _)| *cpu).fold(f64::INFINITY, f64::min);
    let times = |((cpu, out), row): (&(f64, f64), &super::data_set::Invocation)| PhaseTimes {
        extract_us: REQUEST_US + row.input_bytes / BYTES_A_US,
        transform_us: (cpu - start) * 1e6,
        load_us: WRITE_REQUEST_US + out / BYTES_A_US,
    };
    Some(work.iter().zip(&function.rows).map(times).collect())
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
    fn what_profits_by_its_size_is_told() {
        let folder = tempfile::tempdir().unwrap();
        data_set::tests::made_up(folder.path());
        let score = judge(&data_set::read(folder.path()).unwrap()).unwrap();
        assert_eq!(score.functions, 1, "only one has its work measured");
        assert!(score.cases + score.in_doubt == 160 && score.cases > 100, "{score:?}");
        assert!(score.recall > 80.0 && score.precision > 80.0, "{score:?}");
    }
}
