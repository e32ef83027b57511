//! `nigh experiment llc-ways`: CASY's table III. The ways each recorded input needs on the simulated cache, at 1 % and at 5 %
//! of slowdown, with every miss at its full price and with misses on neighbour lines discounted as a prefetcher would hide
//! them; beside the paper's.
//!
//! A trace that was sampled while recorded cannot tell neighbours: for it the discount is given to every miss, so that its
//! figure is the least that any prefetcher could make of it.

use nigh_llc::{CacheClass, RunCurves, TimeCurve, Tolerance, Work};
use nigh_sim::llc::{CoreTiming, MachineConfig};
use serde::Serialize;

use super::{Bar, WaysArgs, bars_by_function, failed, paper, traces};
use crate::LabError;
use crate::instrument::cache_sizing::{self, LINES_PER_WAY, RULE};
use crate::instrument::chart;
use crate::instrument::machine::Machine;
use crate::instrument::parallel::in_parallel;
use crate::instrument::report_text::{html_of, tell_with_page};
use crate::instrument::trace_library::{RecordedInput, Role, TraceLibrary};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct Needs {
    at_1_percent: u8,
    at_5_percent: u8,
}

impl Needs {
    fn of(times: &TimeCurve) -> Self {
        Self {
            at_1_percent: times.ways_needed(Tolerance::ONE_PERCENT).0,
            at_5_percent: times.ways_needed(Tolerance::FIVE_PERCENT).0,
        }
    }
}

#[derive(Debug, Clone, Serialize)]
struct Row {
    input: String,
    function: String,
    bytes: u64,
    paper: Option<u8>,
    /// From the simulator's sweep of the kept trace.
    simulated: Needs,
    /// From the exact count of all lines.
    counted: Needs,
    /// With misses on neighbour lines discounted.
    prefetched: Needs,
    /// Whether neighbours are known, or all misses were discounted.
    neighbours_known: bool,
    slowdown_one_way: f64,
    class: CacheClass,
    /// The paper's class of the function: needs above one way.
    paper_class: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct WaysReport {
    machine: Machine,
    rows: Vec<Row>,
    /// Of table III's rows, those whose ways are the paper's: at 5 %, within one way at 5 %, prefetched at 5 %.
    equal: usize,
    within_one: usize,
    equal_prefetched: usize,
    compared: usize,
}

pub(crate) fn run(args: &WaysArgs, machine: Machine, json: bool) -> Result<(), LabError> {
    tell_with_page(&report(args.quick, machine)?, args.page.html.as_deref(), page, json)
}

fn report(quick: bool, machine: Machine) -> Result<WaysReport, LabError> {
    let library = traces()?;
    let suits = |input: &&RecordedInput| input.has_trace() && (input.is_whole() || !quick);
    let of_functions = paper::FUNCTIONS.into_iter().flat_map(|function| library.of(function, Role::Table));
    let inputs: Vec<_> = of_functions.filter(suits).collect();
    let rows = in_parallel(&inputs, |input| row(&library, input))?;
    let compared: Vec<_> = rows.iter().filter_map(|row| Some((row, row.paper?))).collect();
    let count = |suits: fn(&Row, u8) -> bool| compared.iter().filter(|(row, paper)| suits(row, *paper)).count();
    Ok(WaysReport {
        machine,
        equal: count(|row, paper| row.simulated.at_5_percent == paper),
        within_one: count(|row, paper| row.simulated.at_5_percent.abs_diff(paper) <= 1),
        equal_prefetched: count(|row, paper| row.prefetched.at_5_percent == paper),
        compared: compared.len(),
        rows,
    })
}

fn row(library: &TraceLibrary, input: &RecordedInput) -> Result<Row, LabError> {
    let trace = library.recorded_trace(input)?;
    let config = MachineConfig::XEON_SILVER_4210R;
    let simulated = cache_sizing::simulated_curves(&input.name, &trace, &config)?;
    let neighbours_known = trace.knows_neighbours();
    let prefetching = CoreTiming::CASCADE_LAKE_PREFETCHING;
    let prefetched = if neighbours_known {
        cache_sizing::simulated_curves(&input.name, &trace, &MachineConfig { timing: prefetching, ..config })?.times
    } else {
        all_neighbours(input, &simulated, &prefetching)?
    };
    let counted = cache_sizing::counted_curves(input, &config.timing)?;
    let paper = paper::ways_of(&input.name);
    Ok(Row {
        input: input.name.clone(),
        function: input.function.clone(),
        bytes: input.size.bytes(),
        paper,
        simulated: Needs::of(&simulated.times),
        counted: Needs::of(&counted.times),
        prefetched: Needs::of(&prefetched),
        neighbours_known,
        slowdown_one_way: 1.0 + simulated.times.sensitivity(),
        class: simulated.times.class(RULE.threshold, Some((&simulated.misses, LINES_PER_WAY))),
        paper_class: paper.and_then(|_| paper::class_of(&input.function)),
    })
}

/// The times if every miss were one on a neighbour line.
fn all_neighbours(input: &RecordedInput, curves: &RunCurves, timing: &CoreTiming) -> Result<TimeCurve, LabError> {
    let work = Work { instructions: input.instructions as f64, neighbour_share: 1.0 };
    TimeCurve::from_misses(&curves.misses, &work, &cache_sizing::cycles(timing))
        .map_err(|error| failed(&input.name, &error))
}

fn page(report: &WaysReport) -> Result<String, LabError> {
    let compared: Vec<_> = report.rows.iter().filter(|row| row.paper.is_some()).cloned().collect();
    let series: [Bar<Row>; 4] = [
        ("paper", |row| row.paper.unwrap_or_default().into()),
        ("ours, 5 %", |row| row.simulated.at_5_percent.into()),
        ("ours, 5 %, prefetched", |row| row.prefetched.at_5_percent.into()),
        ("ours, 1 %", |row| row.simulated.at_1_percent.into()),
    ];
    let named = |row: &Row| (row.function.clone(), row.input.clone());
    let body = bars_by_function(&compared, named, &series, "ways")? + &html_of(report)?;
    let about = "CASY's table III on a simulated Xeon Silver 4210R: the fewest ways within 5 % (and 1 %) of the time with all \
                 eleven, warm, alone, LRU. Where neighbours are not known, the prefetched figure is a lower bound.";
    Ok(chart::page("Ways needed", about, &body, &report.machine))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quick_form_compares_blur_with_table_3() {
        let report = report(true, Machine::read("llc-ways --quick".to_owned())).unwrap();
        assert_eq!(report.compared, 4);
        let needs: Vec<u8> = report.rows.iter().map(|row| row.simulated.at_5_percent).collect();
        assert!(needs.is_sorted() && needs[0] == 1 && needs[3] > 4, "{needs:?}");
        for row in &report.rows {
            assert!(row.neighbours_known && row.prefetched.at_5_percent <= row.simulated.at_5_percent, "{row:?}");
            assert!(row.simulated.at_1_percent >= row.simulated.at_5_percent);
            assert!(row.simulated.at_5_percent.abs_diff(row.counted.at_5_percent) <= 1, "{row:?}");
        }
        assert!(page(&report).unwrap().contains("<svg"));
    }
}
