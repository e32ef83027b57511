//! The plan of invocations: the seed and the row's number decide a function's input and arguments, and whether the row begins in a
//! new sandbox. Pure.
//!
//! Rows come in sessions, each in its own sandbox: the first run is cold, the others are warm. A draw that would compute for
//! longer than `WORK_MAX_S` is drawn again, so that large inputs come with cheap arguments.

use std::collections::BTreeMap;

use nigh_learn::hash_bytes;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;

use super::arguments::ProfiledFunction;
use super::inputs::{INPUTS, MadeUp};

/// Rows of a session.
pub(super) const SESSION: u32 = 10;
/// One row in this many is run again for its processor time: about forty of three hundred.
const REPEATED_ONE_IN: u32 = 7;
/// Seconds of processor that a run may take, by estimate.
const WORK_MAX_S: f64 = 0.8;
/// After this many draws the cheapest is taken.
const DRAWS_MAX: usize = 200;

/// An invocation's arguments, by name.
pub(super) type Arguments = BTreeMap<&'static str, Value>;

/// A row that will be recorded.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PlannedRow {
    pub(super) seq: u32,
    pub(super) input: MadeUp,
    pub(super) arguments: Arguments,
    /// The row is run again for its processor time.
    pub(super) is_repeated: bool,
}

/// Row `seq` of `function`, from 0.
pub(super) fn planned(function: &ProfiledFunction, seed: u64, seq: u32) -> PlannedRow {
    let mut random = StdRng::seed_from_u64(hash_bytes(format!("{seed} {} {seq}", function.name).as_bytes()));
    let mut best: Option<(f64, MadeUp, Arguments)> = None;
    for _ in 0..DRAWS_MAX {
        let input = function.pool.input(seed, random.random_range(0..INPUTS));
        let arguments = function.draw(&mut random);
        let work_s = (function.work_s)(&input.content, &arguments);
        if best.as_ref().is_none_or(|(least, ..)| work_s < *least) {
            best = Some((work_s, input, arguments));
        }
        if work_s <= WORK_MAX_S {
            break;
        }
    }
    let (_, input, arguments) = best.unwrap_or_else(|| (0.0, function.pool.input(seed, 0), Arguments::new()));
    PlannedRow { seq, input, arguments, is_repeated: seq % REPEATED_ONE_IN == REPEATED_ONE_IN / 2 }
}

/// The session that row `seq` is in, and whether it is its first.
pub(super) const fn session(seq: u32) -> (u32, bool) {
    (seq / SESSION, seq.is_multiple_of(SESSION))
}

#[cfg(test)]
mod tests {
    use super::super::arguments::PROFILED;
    use super::*;

    #[test]
    fn the_same_seed_plans_the_same_rows_and_another_plans_others() {
        for function in &PROFILED {
            let all = |seed| (0..30).map(|seq| planned(function, seed, seq)).collect::<Vec<_>>();
            assert_eq!(all(1), all(1));
            assert_ne!(all(1), all(2));
        }
    }

    #[test]
    fn work_is_bounded_and_inputs_stay_spread() {
        for function in &PROFILED {
            let rows: Vec<PlannedRow> = (0..300).map(|seq| planned(function, 1, seq)).collect();
            let work = rows.iter().map(|row| (function.work_s)(&row.input.content, &row.arguments));
            let (sum, most) = work.fold((0.0, 0.0_f64), |(sum, most), one| (sum + one, most.max(one)));
            assert!(
                most <= WORK_MAX_S && sum / 300.0 < 0.35,
                "{}: {} s in the mean, {most} at most",
                function.name,
                sum / 300.0
            );
            let amounts = rows.iter().map(|row| row.input.content.amount());
            let (least, most) = amounts.fold((f64::MAX, 0.0_f64), |(low, high), one| (low.min(one), high.max(one)));
            assert!(most / least > 5.0, "{}: {least} to {most}", function.name);
            let repeated = rows.iter().filter(|row| row.is_repeated).count();
            assert!((40..=45).contains(&repeated), "{repeated}");
        }
    }

    #[test]
    fn a_session_begins_with_its_first_row_alone() {
        assert_eq!([session(0), session(1), session(9), session(10)], [(0, true), (0, false), (0, false), (1, true)]);
    }
}
