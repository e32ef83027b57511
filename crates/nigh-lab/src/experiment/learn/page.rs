//! The report as text and as a page with the paper's figures.

use serde_json::{Value, json};

use super::contenders::{J48_OURS, J48_OURS_NEXT, LINTREE, LINTREE_POINT};
use super::{LearnReport, MeanScore};
use crate::LabError;
use crate::instrument::chart::{self, Series};
use crate::instrument::stats::Sample;
use crate::instrument::template::{Columns, fill};

/// OFC's table 1: width in MB, learner, exact and exact-or-over in percent.
const PAPER: [(u64, &str, f64, f64); 12] = [
    (32, "HoeffdingTree", 81.09, 87.65),
    (32, "J48", 91.27, 95.77),
    (32, "RandomForest", 92.66, 96.20),
    (32, "RandomTree", 89.84, 94.23),
    (16, "HoeffdingTree", 72.01, 84.81),
    (16, "J48", 83.35, 92.73),
    (16, "RandomForest", 84.82, 92.76),
    (16, "RandomTree", 79.23, 88.69),
    (8, "HoeffdingTree", 63.40, 79.17),
    (8, "J48", 75.88, 87.91),
    (8, "RandomForest", 78.17, 89.42),
    (8, "RandomTree", 72.27, 84.12),
];
/// OFC's figure 6 and section 7.1.2, in nanoseconds: median and 99th percentile of J48 at 16 MB.
const PAPER_PREDICT_NS: [f64; 2] = [3190.0, 12_540.0];
/// What OFC says of figure 5: over-predictions within three intervals, in percent, and the mean over-prediction in MB.
const PAPER_OVER: [f64; 2] = [90.0, 26.8];
/// OFC's section 7.1.3: rows at which half, three in four and 95 % of functions have matured; its first check is at 100.
const PAPER_MATURATION: [usize; 3] = [100, 250, 450];
/// Errors of more intervals than this are drawn together.
const ERROR_SHOWN: i64 = 6;

const ABOUT: &str = "Prediction {predict_p50_ns:.0} ns (p99 {predict_p99_ns:.0}), with features {with_features_p50_ns:.0} \
                     ({with_features_p99_ns:.0}), reading the clock {clock_ns:.0} of each; fit of 500 rows {train500_ms:.2} ms (the \
                     slowest function {train500_ms_most:.2}).";
const ABOUT_BENEFIT: &str = "precision {precision:.1} %, recall {recall:.1} %, {profit:.0} % of {cases} cases profit; {in_doubt} \
                             cases within 0.45 to 0.55 are apart, {in_doubt_right:.0} % of them right.";
/// Models whose maturation is shown.
const MATURATION_SHOWN: [&str; 6] = [J48_OURS, J48_OURS_NEXT, "weka-j48", "weka-j48-next", LINTREE_POINT, LINTREE];
const MEAN: Columns = Columns(
    "MB = {interval_mb} | model | exact % = {exact:.1} | exact or over % = {exact_or_over:.1} | over MB = {over_mb:.1} | \
     the paper's = {paper} | matures = {mature_functions} | rows to mature = {mature_at}",
);
const OVER: Columns = Columns(
    "predicted too much, 16 MB = {model} | within three intervals % = {near_percent:.1} | MB too much = {mean_mb:.1}",
);
const MATURATION: Columns = Columns(
    "matured = {model} | half of the functions, rows = {median_rows} | three in four = {p75_rows} | 95 % = {p95_rows} | \
     functions by 25, 50, 100, 250 rows = {by_rows}",
);
const SPREAD: Columns = Columns(
    "memory by input size = {function} | most / least at about the same size = {spread:.1} | correlation = {correlation:.2}",
);
const VERDICT: Columns = Columns("target = {what} | measured = {measured:.2} | bound | or more = {at_least} | met");

/// The rows of a model's means, with the paper's beside WEKA's.
fn mean_rows(report: &LearnReport) -> Vec<Value> {
    let row = |mean: &MeanScore| {
        let is_same = |(width, name, ..): &&(u64, &str, f64, f64)| {
            *width == mean.interval_mb && mean.model.strip_prefix("weka-") == Some(name.to_lowercase().as_str())
        };
        let mut row = serde_json::to_value(mean).unwrap_or_default();
        row["paper"] = PAPER.iter().find(is_same).map(|(.., exact, over)| format!("{exact:.1} / {over:.1}")).into();
        row["mature_functions"] =
            mean.mature_functions.map(|mature| format!("{mature} of {}", report.functions.len())).into();
        row
    };
    report.mean.iter().map(row).collect()
}

fn over_rows(report: &LearnReport) -> Vec<Value> {
    let [near, mean] = PAPER_OVER;
    let paper = json!({ "model": "J48, the paper's", "near_percent": near, "mean_mb": mean });
    report.over_predictions.iter().cloned().chain([paper]).collect()
}

fn maturation_rows(report: &LearnReport) -> Vec<Value> {
    let is_shown = |row: &&Value| MATURATION_SHOWN.iter().any(|model| row["model"] == *model);
    let row = |row: &Value| {
        let counts = row["functions"].as_array().into_iter().flatten();
        let shown = counts.filter(|count| [25, 50, 100, 250].iter().any(|rows| count[0] == *rows));
        let by_rows = shown.map(|count| count[1].to_string()).collect::<Vec<_>>().join(", ");
        let mut row = row.clone();
        row["by_rows"] = format!("{by_rows} of {}", report.functions.len()).into();
        row
    };
    let [half, most, nearly_all] = PAPER_MATURATION;
    let paper = json!({
        "model": "J48, the paper's", "median_rows": half, "p75_rows": most, "p95_rows": nearly_all,
        "by_rows": "11 of 19 by 100",
    });
    report.maturation.iter().filter(is_shown).map(row).chain([paper]).collect()
}

fn about(report: &LearnReport) -> String {
    let rows: u64 = report.functions.iter().filter_map(|function| function["rows"].as_u64()).sum();
    let mut text = format!("{} functions, {rows} invocations, folds by input. ", report.functions.len());
    text += &fill(ABOUT, report);
    if let Some(benefit) = &report.benefit {
        let by = if benefit["repeated"] == 0 { "single runs" } else { "medians of five runs" };
        text += &format!(" Caching benefit by processor time ({by}) and a store of {}: ", report.benefit_store);
        text += &fill(ABOUT_BENEFIT, benefit);
    }
    match &report.weka {
        Some(reason) => text + " " + reason + ".",
        None => text,
    }
}

pub(super) fn text(report: &LearnReport) -> String {
    let tables = [
        MEAN.text(&mean_rows(report)),
        VERDICT.text(&report.verdicts),
        SPREAD.text(&report.size_spreads),
        OVER.text(&over_rows(report)),
        MATURATION.text(&maturation_rows(report)),
    ];
    format!("{}\n{}\n", tables.join("\n"), about(report))
}

pub(super) fn page(report: &LearnReport) -> Result<String, LabError> {
    let head = ["function", "rows", "inputs", "least MB", "median", "p95", "most", "j48", "lintree-point", "lintree"];
    let body = [
        VERDICT.html(&report.verdicts),
        MEAN.html(&mean_rows(report)),
        figure_2(report)?,
        SPREAD.html(&report.size_spreads),
        figure_5(report)?,
        OVER.html(&over_rows(report)),
        figure_6(report)?,
        maturation(report)?,
        MATURATION.html(&maturation_rows(report)),
        chart::table(&head, &function_rows(report)),
    ];
    Ok(chart::page("What an invocation needs", &about(report), &body.concat(), &report.machine))
}

/// Memory by input size and by argument, a point an invocation.
fn figure_2(report: &LearnReport) -> Result<String, LabError> {
    let by = |name: &str, field: &str, unit: f64| -> Result<String, LabError> {
        let point = |point: &Value| Some((point[field].as_f64()? / unit, point["peak_mb"].as_f64()?));
        let values = report.figure_2.iter().filter_map(point).collect();
        let svg = chart::points(&Series { name: "invocations".to_owned(), values }, name, "MB")?;
        Ok(chart::figure(&format!("Memory of one function by {name} (figure 2)"), &svg))
    };
    Ok(by("input, KB", "input_bytes", 1e3)? + &by("its argument", "argument", 1.0)?)
}

fn figure_5(report: &LearnReport) -> Result<String, LabError> {
    let shown = -ERROR_SHOWN..=ERROR_SHOWN;
    let groups: Vec<String> = shown.clone().map(|at| at.to_string()).collect();
    let models = [J48_OURS, "weka-j48", LINTREE_POINT, LINTREE];
    let mut series = Vec::new();
    for model in models {
        let of_model: Vec<_> = report.figure_5.iter().filter(|count| count.model == model).collect();
        let all: usize = of_model.iter().map(|count| count.predictions).sum();
        if all > 0 {
            let share = |at: i64| {
                let here = of_model.iter().filter(|count| count.intervals.clamp(-ERROR_SHOWN, ERROR_SHOWN) == at);
                100.0 * here.map(|count| count.predictions).sum::<usize>() as f64 / all as f64
            };
            series.push(Series::of_groups(model, shown.clone().map(share)));
        }
    }
    let svg = chart::bars(&groups, &series, "% of predictions")?;
    Ok(chart::figure(
        "Intervals of 16 MB by which predictions missed, below 0 too low; the outermost hold all beyond (figure 5)",
        &svg,
    ))
}

fn figure_6(report: &LearnReport) -> Result<String, LabError> {
    let groups = ["median".to_owned(), "p99".to_owned()];
    let middle = |algorithm: &str, of: fn(&super::WekaTimes) -> f64| {
        let all = report.weka_times.iter().filter(|timed| timed.algorithm == algorithm).map(of).collect();
        Sample::new(all).median()
    };
    let speed = &report.speed;
    let us = |name: &str, times: [f64; 2]| Series::of_groups(name, times.map(|ns| ns / 1e3));
    let mut series = vec![
        us("lintree", [speed.predict_p50_ns, speed.predict_p99_ns]),
        us("lintree with features", [speed.with_features_p50_ns, speed.with_features_p99_ns]),
        us("J48 at 16 MB, the paper's", PAPER_PREDICT_NS),
    ];
    series.extend(
        speed
            .j48
            .iter()
            .map(|tree| us(&format!("j48 at {} MB", tree.interval_mb), [tree.predict_p50_ns, tree.predict_p99_ns])),
    );
    if report.weka_times.iter().any(|timed| timed.algorithm == "J48") {
        let times = [middle("J48", |timed| timed.predict_p50_ns), middle("J48", |timed| timed.predict_p99_ns)];
        series.push(us("weka-j48 at 16 MB", times));
    }
    let svg = chart::bars(&groups, &series, "us")?;
    Ok(chart::figure("Time of a prediction (figure 6)", &svg))
}

fn maturation(report: &LearnReport) -> Result<String, LabError> {
    let series = |model: &&str| Series {
        name: (*model).to_owned(),
        values: report
            .curve
            .iter()
            .filter(|point| point.model == **model)
            .map(|point| (point.rows as f64, point.mature_percent))
            .collect(),
    };
    let all: Vec<Series> = MATURATION_SHOWN.iter().map(series).filter(|series| !series.values.is_empty()).collect();
    let svg = chart::lines(&all, "rows learned from", "% of functions mature")?;
    let caption = "Functions that meet the maturation criterion by rows (the paper: half at 100, its first check; three in four \
                   by 250; 95 % by 450)";
    Ok(chart::figure(caption, &svg))
}

fn function_rows(report: &LearnReport) -> Vec<Vec<String>> {
    let score = |function: &str, model: &str| {
        let of = |score: &&super::FunctionScore| {
            score.function == function && score.model == model && score.interval_mb == 16
        };
        report.scores.iter().find(of).map_or_else(String::new, |found| {
            let score = found.score;
            let mature = found.mature_at.map_or_else(|| "-".to_owned(), |rows| rows.to_string());
            format!("{:.1} / {:.1} / {:.1}, {mature}", score.exact, score.exact_or_over, score.over_mb)
        })
    };
    let row = |about: &Value| {
        let function = about["function"].as_str().unwrap_or_default();
        let mut cells: Vec<String> = ["{function}", "{rows}", "{inputs}"].map(|cell| fill(cell, about)).into();
        let peaks = about["peaks_mb"].as_array().into_iter().flatten();
        cells.extend(peaks.map(|peak| format!("{:.0}", peak.as_f64().unwrap_or(f64::NAN))));
        cells.extend([J48_OURS, LINTREE_POINT, LINTREE].map(|model| score(function, model)));
        cells
    };
    report.functions.iter().map(row).collect()
}
