//! `nigh experiment llc-prediction`: CASY's figure 5. Models trained on table III's four sizes of each function name the ways
//! and the class of ten inputs they have not seen; each is judged by the full sweep of that very input.
//!
//! Beside Nigh's choice of model, CASY's: the nearest row by size. What a model is told of an input is what a store knows of
//! an object before the function runs: bytes, pixels, seconds.

use nigh_llc::{Axis, ModelKind, Prediction, SizingModel, TrainedRange, TrainingRow, TrainingRows};
use nigh_sim::llc::CoreTiming;
use nigh_terms::Ways;
use serde::Serialize;

use super::{Bar, PageArgs, bars_by_function, failed, paper, traces};
use crate::LabError;
use crate::instrument::cache_sizing::{self, RULE};
use crate::instrument::chart;
use crate::instrument::machine::Machine;
use crate::instrument::report_text::{html_of, tell_with_page};
use crate::instrument::trace_library::{RecordedInput, Role};

/// What the time with the predicted ways may be of that with all.
const TIME_ALLOWED: f64 = 1.05;

#[derive(Debug, Clone, Serialize)]
struct JudgedPrediction {
    ways: u8,
    class_right: bool,
    /// Time with these ways over time with all.
    time: f64,
}

#[derive(Debug, Clone, Serialize)]
struct Row {
    input: String,
    function: String,
    bytes: u64,
    /// Beyond the trained inputs: the platform would profile it.
    range: TrainedRange,
    model: ModelKind,
    axis: Axis,
    /// By the full sweep.
    ways_needed: u8,
    sensitive: bool,
    slowdown_one_way: f64,
    nigh: JudgedPrediction,
    casy: JudgedPrediction,
}

#[derive(Debug, Serialize)]
struct PredictionReport {
    machine: Machine,
    rows: Vec<Row>,
    nigh: Score,
    casy: Score,
    /// The same of inputs within the trained sizes alone.
    nigh_trained: Score,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Score {
    inputs: usize,
    class_right: usize,
    ways_right: usize,
    /// Inputs whose time is within 5 %.
    time_right: usize,
    worst_time: f64,
}

pub(crate) fn run(args: &PageArgs, machine: Machine, json: bool) -> Result<(), LabError> {
    tell_with_page(&report(machine)?, args.html.as_deref(), page, json)
}

fn report(machine: Machine) -> Result<PredictionReport, LabError> {
    let library = traces()?;
    let mut rows = Vec::new();
    for function in paper::FUNCTIONS {
        let trained = paper::TABLE_3.iter().map(|(name, _)| library.input(name));
        let trained: Vec<_> = trained.filter_map(Result::ok).filter(|input| input.function == function).collect();
        let held_out: Vec<_> = library.of(function, Role::HeldOut).collect();
        if !trained.is_empty() {
            rows.extend(judge_function(function, &trained, &held_out)?);
        }
    }
    Ok(PredictionReport {
        machine,
        nigh: score(&rows, |row| &row.nigh),
        casy: score(&rows, |row| &row.casy),
        nigh_trained: score(rows.iter().filter(|row| row.range == TrainedRange::Trained), |row| &row.nigh),
        rows,
    })
}

fn judge_function(
    function: &str,
    trained: &[&RecordedInput],
    held_out: &[&RecordedInput],
) -> Result<Vec<Row>, LabError> {
    let timing = CoreTiming::CASCADE_LAKE;
    let profiled = trained.iter().map(|input| cache_sizing::profiled(input, &timing)).collect::<Result<Vec<_>, _>>()?;
    let nigh = cache_sizing::learn(function, profiled.iter().cloned())?;
    let casy = nearest(function, &profiled)?;
    let row = |input: &&RecordedInput| {
        let truth = cache_sizing::profiled(input, &timing)?;
        let times = cache_sizing::counted_curves(input, &timing)?.times;
        let ask = |model: &SizingModel| {
            let said = model.predict(&cache_sizing::version(function), &cache_sizing::sizing_input(input));
            said.ok_or_else(|| failed(&input.name, &"the model says nothing of it"))
        };
        let judged = |said: &Prediction| JudgedPrediction {
            ways: said.predicted.ways.0,
            class_right: said.predicted.class.is_insensitive() == truth.class.is_insensitive(),
            time: times.slowdown(said.predicted.ways),
        };
        let (ours, theirs) = (ask(&nigh)?, ask(&casy)?);
        Ok(Row {
            input: input.name.clone(),
            function: function.to_owned(),
            bytes: input.size.bytes(),
            range: ours.range,
            model: ours.kind,
            axis: nigh.axis(),
            ways_needed: truth.ways.0,
            sensitive: !truth.class.is_insensitive(),
            slowdown_one_way: times.slowdown(Ways(1)),
            nigh: judged(&ours),
            casy: judged(&theirs),
        })
    };
    held_out.iter().map(row).collect()
}

fn nearest(function: &str, rows: &[TrainingRow]) -> Result<SizingModel, LabError> {
    let version = cache_sizing::version(function);
    let mut set = TrainingRows::new(version.clone());
    for row in rows {
        set.add(&version, row.clone()).map_err(|error| failed(function, &error))?;
    }
    SizingModel::fit(set, RULE, ModelKind::Nearest, Axis::Size).ok_or_else(|| failed(function, &"no rows"))
}

fn score<'r>(rows: impl IntoIterator<Item = &'r Row>, of: fn(&Row) -> &JudgedPrediction) -> Score {
    let mut score = Score { inputs: 0, class_right: 0, ways_right: 0, time_right: 0, worst_time: 0.0 };
    for row in rows {
        let judged = of(row);
        score.inputs += 1;
        score.class_right += usize::from(judged.class_right);
        score.ways_right += usize::from(judged.ways == row.ways_needed);
        score.time_right += usize::from(judged.time <= TIME_ALLOWED + 1e-9);
        score.worst_time = score.worst_time.max(judged.time);
    }
    score
}

fn page(report: &PredictionReport) -> Result<String, LabError> {
    let named = |row: &Row| (row.function.clone(), format!("{} ({})", row.input, row.nigh.ways));
    let series: [Bar<Row>; 3] = [
        ("all ways", |_| 1.0),
        ("ways predicted by Nigh", |row| row.nigh.time),
        ("ways predicted by CASY's k-NN", |row| row.casy.time),
    ];
    let body = bars_by_function(&report.rows, named, &series, "time over time with all")? + &html_of(report)?;
    let about = "CASY's figure 5: models trained on table III's four sizes of each function, asked for inputs they have not seen. \
                 In brackets the ways predicted. The paper's figure 5 has every class right and times \"identical\" to those \
                 with all ways.";
    Ok(chart::page("Predicted ways", about, &body, &report.machine))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_out_inputs_are_judged_by_their_own_sweep() {
        let report = report(Machine::read("llc-prediction".to_owned())).unwrap();
        assert!(report.nigh.inputs >= 10);
        for row in &report.rows {
            assert!(row.nigh.time >= 1.0 && row.casy.time >= 1.0, "{row:?}");
            assert_eq!(row.sensitive, row.slowdown_one_way > 1.05, "{row:?}");
            assert!(row.nigh.ways < row.ways_needed || row.nigh.time <= TIME_ALLOWED + 1e-9, "{row:?}");
        }
        assert!(report.nigh.time_right >= report.casy.time_right);
        assert!(page(&report).unwrap().contains("<svg"));
    }
}
