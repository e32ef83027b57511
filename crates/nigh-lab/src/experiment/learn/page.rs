//! The report as text and as a page with the paper's figures.

use super::contenders::{J48_OURS, J48_OURS_NEXT, LINTREE, LINTREE_POINT};
use super::figures::{Maturation, MemoryPoint, SizeSpread};
use super::verdict::Verdict;
use super::{LearnReport, MeanScore};
use crate::LabError;
use crate::instrument::chart::{self, Series};
use crate::instrument::table::grid;

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
/// Errors beyond so many intervals are drawn together.
const ERROR_SHOWN: i64 = 6;

const MEAN_HEAD: [&str; 8] =
    ["MB", "model", "exact %", "exact or over %", "over MB", "the paper's", "matures", "rows to mature"];
const OVER_HEAD: [&str; 3] = ["predicted too much, 16 MB", "within three intervals %", "MB too much"];
const MATURATION_HEAD: [&str; 5] =
    ["matured", "half of the functions, rows", "three in four", "95 %", "functions by 25, 50, 100, 250 rows"];
const SPREAD_HEAD: [&str; 3] = ["memory by input size", "most / least at about the same size", "correlation"];
const VERDICT_HEAD: [&str; 4] = ["asked", "measured", "bound", "met"];

fn mean_cells(report: &LearnReport, mean: &MeanScore) -> Vec<String> {
    let paper = PAPER.iter().find(|(width, name, ..)| {
        *width == mean.interval_mb && mean.model.strip_prefix("weka-").is_some_and(|model| model == name.to_lowercase())
    });
    vec![
        mean.interval_mb.to_string(),
        mean.model.clone(),
        format!("{:.1}", mean.score.exact),
        format!("{:.1}", mean.score.exact_or_over),
        format!("{:.1}", mean.score.over_mb),
        paper.map(|(.., exact, over)| format!("{exact:.1} / {over:.1}")).unwrap_or_default(),
        mean.mature_functions
            .map_or_else(|| "-".to_owned(), |mature| format!("{mature} of {}", report.functions.len())),
        mean.mature_at.map_or_else(|| "-".to_owned(), |rows| rows.to_string()),
    ]
}

fn verdict_cells(verdict: &Verdict) -> Vec<String> {
    vec![
        verdict.what.clone(),
        format!("{:.2}", verdict.measured),
        format!("{} {}", if verdict.at_least { ">=" } else { "<=" }, verdict.bound),
        if verdict.met { "yes" } else { "no" }.to_owned(),
    ]
}

fn over_rows(report: &LearnReport) -> Vec<Vec<String>> {
    let row = |model: &str, [near, mean]: [f64; 2]| vec![model.to_owned(), format!("{near:.1}"), format!("{mean:.1}")];
    let ours = report.over_predictions.iter().map(|over| row(&over.model, [over.near_percent, over.mean_mb]));
    ours.chain([row("J48, the paper's", PAPER_OVER)]).collect()
}

fn maturation_rows(report: &LearnReport) -> Vec<Vec<String>> {
    let shown = [J48_OURS, J48_OURS_NEXT, "weka-j48", "weka-j48-next", LINTREE_POINT, LINTREE];
    let rows = |rows: Option<usize>| rows.map_or_else(|| "-".to_owned(), |rows| rows.to_string());
    let row = |one: &Maturation| {
        let at =
            |size: usize| one.functions.iter().find(|(rows, _)| *rows == size).map_or(0, |(_, functions)| *functions);
        let by_rows = [25, 50, 100, 250].map(|size| at(size).to_string()).join(", ");
        let [half, most, nearly_all] = [one.median_rows, one.p75_rows, one.p95_rows].map(rows);
        vec![one.model.clone(), half, most, nearly_all, format!("{by_rows} of {}", report.functions.len())]
    };
    let ours = report.maturation.iter().filter(|one| shown.contains(&one.model.as_str())).map(row);
    let [half, most, nearly_all] = PAPER_MATURATION.map(|rows| rows.to_string());
    let paper = vec!["J48, the paper's".to_owned(), half, most, nearly_all, "11 of 19 by 100".to_owned()];
    ours.chain([paper]).collect()
}

fn spread_rows(report: &LearnReport) -> Vec<Vec<String>> {
    let row =
        |one: &SizeSpread| vec![one.function.clone(), format!("{:.1}", one.spread), format!("{:.2}", one.correlation)];
    report.size_spreads.iter().map(row).collect()
}

fn about(report: &LearnReport) -> String {
    let rows: usize = report.functions.iter().map(|function| function.rows).sum();
    let speed = &report.speed;
    let mut text = format!(
        "{} functions, {rows} invocations, folds by input. Prediction {:.0} ns (p99 {:.0}), with features {:.0} ({:.0}), reading \
         the clock {:.0} of each; fit of 500 rows {:.2} ms (the slowest function {:.2}).",
        report.functions.len(),
        speed.predict_p50_ns,
        speed.predict_p99_ns,
        speed.with_features_p50_ns,
        speed.with_features_p99_ns,
        speed.clock_ns,
        speed.train500_ms,
        speed.train500_ms_most,
    );
    if let Some(benefit) = &report.benefit {
        text += &format!(
            " Caching benefit by processor time ({}) and a store of {}: precision {:.1} %, recall {:.1} %, {:.0} % of {} cases \
             profit; {} cases within 0.45 to 0.55 are apart, {:.0} % of them right.",
            if benefit.repeated > 0 { "medians of five runs" } else { "single runs" },
            report.benefit_store,
            benefit.precision,
            benefit.recall,
            benefit.profit,
            benefit.cases,
            benefit.in_doubt,
            benefit.in_doubt_right,
        );
    }
    match &report.weka {
        Some(reason) => text + " " + reason + ".",
        None => text,
    }
}

pub(super) fn text(report: &LearnReport) -> String {
    let table = |head: &[&str], rows: Vec<Vec<String>>| grid(head.iter().copied(), rows);
    let mean = table(&MEAN_HEAD, report.mean.iter().map(|mean| mean_cells(report, mean)).collect());
    let verdicts = table(&VERDICT_HEAD, report.verdicts.iter().map(verdict_cells).collect());
    let spreads = table(&SPREAD_HEAD, spread_rows(report));
    let over = table(&OVER_HEAD, over_rows(report));
    let maturation = table(&MATURATION_HEAD, maturation_rows(report));
    format!("{mean}\n{verdicts}\n{spreads}\n{over}\n{maturation}\n{}\n", about(report))
}

pub(super) fn page(report: &LearnReport) -> Result<String, LabError> {
    let mut body = String::new();
    body += &chart::table(&VERDICT_HEAD, &report.verdicts.iter().map(verdict_cells).collect::<Vec<_>>());
    body += &chart::table(&MEAN_HEAD, &report.mean.iter().map(|mean| mean_cells(report, mean)).collect::<Vec<_>>());
    body += &figure_2(report)?;
    body += &chart::table(&SPREAD_HEAD, &spread_rows(report));
    body += &figure_5(report)?;
    body += &chart::table(&OVER_HEAD, &over_rows(report));
    body += &figure_6(report)?;
    body += &maturation(report)?;
    body += &chart::table(&MATURATION_HEAD, &maturation_rows(report));
    let head = ["function", "rows", "inputs", "least MB", "median", "p95", "most", "j48", "lintree-point", "lintree"];
    body += &chart::table(&head, &function_rows(report));
    Ok(chart::page("What an invocation needs", &about(report), &body, &report.machine))
}

/// Memory by input size and by argument, a point an invocation.
fn figure_2(report: &LearnReport) -> Result<String, LabError> {
    let by = |name: &str, at: fn(&MemoryPoint) -> f64| -> Result<String, LabError> {
        let values = report.figure_2.iter().map(|point| (at(point), point.peak_mb)).collect();
        let svg = chart::points(&Series { name: "invocations".to_owned(), values }, name, "MB")?;
        Ok(chart::figure(&format!("Memory of one function by {name} (figure 2)"), &svg))
    };
    Ok(by("input, KB", |point| point.input_bytes / 1e3)? + &by("its argument", |point| point.argument)?)
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
        crate::instrument::stats::Sample::new(all).median() / 1e3
    };
    let speed = &report.speed;
    let mut series = vec![
        Series::of_groups("lintree", [speed.predict_p50_ns / 1e3, speed.predict_p99_ns / 1e3]),
        Series::of_groups(
            "lintree with features",
            [speed.with_features_p50_ns / 1e3, speed.with_features_p99_ns / 1e3],
        ),
        Series::of_groups("J48 at 16 MB, the paper's", PAPER_PREDICT_NS.map(|ns| ns / 1e3)),
    ];
    series.extend(speed.j48.iter().map(|tree| {
        let times = [tree.predict_p50_ns / 1e3, tree.predict_p99_ns / 1e3];
        Series::of_groups(format!("j48 at {} MB", tree.interval_mb), times)
    }));
    if report.weka_times.iter().any(|timed| timed.algorithm == "J48") {
        let times = [middle("J48", |timed| timed.predict_p50_ns), middle("J48", |timed| timed.predict_p99_ns)];
        series.push(Series::of_groups("weka-j48 at 16 MB", times));
    }
    let svg = chart::bars(&groups, &series, "us")?;
    Ok(chart::figure("Time of a prediction (figure 6)", &svg))
}

fn maturation(report: &LearnReport) -> Result<String, LabError> {
    let models = [J48_OURS, "j48-next", "weka-j48", "weka-j48-next", LINTREE_POINT, LINTREE];
    let series = |model: &&str| Series {
        name: (*model).to_owned(),
        values: report
            .curve
            .iter()
            .filter(|point| point.model == **model)
            .map(|point| (point.rows as f64, point.mature_percent))
            .collect(),
    };
    let all: Vec<Series> = models.iter().map(series).filter(|series| !series.values.is_empty()).collect();
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
    let row = |about: &super::FunctionAbout| {
        let mut cells = vec![about.function.clone(), about.rows.to_string(), about.inputs.to_string()];
        cells.extend(about.peaks_mb.iter().map(|peak| format!("{peak:.0}")));
        cells.extend([J48_OURS, LINTREE_POINT, LINTREE].map(|model| score(&about.function, model)));
        cells
    };
    report.functions.iter().map(row).collect()
}
