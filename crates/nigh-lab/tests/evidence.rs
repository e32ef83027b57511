//! Each stored result says what it is of, and each figure that a document marks is the stored result's.
//!
//! A mark follows its figure and is not shown: `0.97<!--=macro/normal-8.json;hit_ratio-->`. It names a file below
//! `experiments/`, or a folder for the list of the folder's results, then the way to a value, and, if need be, `min`, `max`,
//! `mean`, `median`, `sum` or `count` of many values and a factor, `*100`. A step of the way is a name, a place in a list,
//! `*` for all, or `name=value` for those elements of a list, or that object, whose member `name` has the value.
//! The value, rounded to the digits of the figure, must be the figure. With `NIGH_WRITE_FIGURES=1` in the environment, the
//! test writes such figures into the documents instead.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use serde_json::Value;

const MARK: &str = "<!--=";
/// Rows of experiments/README.md without a marked figure: what a test counts. It may only fall.
const UNMARKED_ROWS: usize = 1;

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The files of `folder`, and of its folders if `deep`, that end with `ending`.
fn files(folder: &Path, ending: &str, deep: bool) -> Vec<PathBuf> {
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let of = |path: PathBuf| match path.is_dir() {
        true if deep => files(&path, ending, deep),
        false if path.to_str().unwrap().ends_with(ending) => vec![path],
        _ => Vec::new(),
    };
    paths.flat_map(of).collect()
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn every_stored_result_says_its_machine_date_command_and_commit() {
    let results = files(&project().join("experiments"), ".json", true);
    assert!(results.len() > 50, "the results are not read");
    for path in results {
        let machine = json(&path)["machine"].clone();
        for field in ["cpu", "date", "command", "commit"] {
            // One of before the others is without the processor's name.
            let known = machine[field].as_str().is_some_and(|text| !text.is_empty() && text != "unknown");
            assert!(known || (field == "cpu" && machine["cores"].is_u64()), "{}: no {field}", path.display());
        }
    }
}

/// A figure of a document, and what it must be.
struct Figure<'a> {
    /// Where it begins in the text.
    begin: usize,
    shown: &'a str,
    file: &'a str,
    way: &'a str,
    /// Of many values, one: `min`, `max`, `mean`, `median`, `sum` or `count`.
    fold: Option<&'a str>,
    factor: f64,
}

fn figures(text: &str) -> Vec<Figure<'_>> {
    let places = text.match_indices(MARK).map(|(at, _)| at);
    let figure = |at: usize| {
        let before = &text[..at];
        let begin = before.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == ',').len();
        let signed = before[..begin].ends_with([' ', '(']).then_some(begin);
        let begin = signed.unwrap_or(begin - usize::from(before[..begin].ends_with(" -")));
        let mark = text[at + MARK.len()..].split("-->").next().unwrap();
        let mut parts = mark.split(';').map(str::trim);
        let (file, way) = (parts.next().unwrap(), parts.next().unwrap());
        let (mut fold, mut factor) = (None, 1.0);
        for part in parts {
            match part.strip_prefix('*') {
                Some(number) => factor = number.parse().unwrap(),
                None => fold = Some(part),
            }
        }
        Figure { begin, shown: &text[begin..at], file, way, fold, factor }
    };
    places.map(figure).collect()
}

/// The numbers at the end of `way`.
fn values(value: &Value, way: &[&str]) -> Vec<f64> {
    let Some((step, rest)) = way.split_first() else { return value.as_f64().into_iter().collect() };
    let has = |one: &Value, (name, wanted): (&str, &str)| {
        one[name].as_str().map_or_else(|| one[name].to_string(), str::to_owned) == wanted
    };
    let chosen: Vec<&Value> = match (value, step.split_once('=')) {
        (Value::Array(all), _) if *step == "*" => all.iter().collect(),
        (Value::Object(all), _) if *step == "*" => all.values().collect(),
        (Value::Array(all), Some(member)) => all.iter().filter(|one| has(one, member)).collect(),
        (one, Some(member)) => has(one, member).then_some(one).into_iter().collect(),
        (Value::Array(all), None) => step.parse::<usize>().ok().and_then(|at| all.get(at)).into_iter().collect(),
        (other, _) => other.get(step).into_iter().collect(),
    };
    chosen.into_iter().flat_map(|one| values(one, rest)).collect()
}

fn folded(fold: Option<&str>, mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let count = values.len() as f64;
    match (fold, values.as_slice()) {
        (_, []) => f64::NAN,
        (None, [one]) => *one,
        (Some("min"), [first, ..]) => *first,
        (Some("max"), [.., last]) => *last,
        (Some("mean"), all) => all.iter().sum::<f64>() / count,
        (Some("sum"), all) => all.iter().sum(),
        (Some("count"), _) => count,
        (Some("median"), all) => f64::midpoint(all[(all.len() - 1) / 2], all[all.len() / 2]),
        _ => f64::NAN,
    }
}

/// What the result says, with as many decimals as `shown` has, and with commas between thousands if `shown` has some.
fn stored(figure: &Figure<'_>) -> String {
    let path = project().join("experiments").join(figure.file);
    let result: Value = match path.is_dir() {
        true => files(&path, ".json", false).iter().map(|path| json(path)).collect(),
        false => json(&path),
    };
    let value = folded(figure.fold, values(&result, &figure.way.split('/').collect::<Vec<_>>())) * figure.factor;
    let decimals = figure.shown.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let mut text = format!("{value:.decimals$}");
    let whole = text.find('.').unwrap_or(text.len());
    let first = 1 + usize::from(text.starts_with('-'));
    if figure.shown.contains(',') {
        (first..whole).rev().filter(|at| (whole - at).is_multiple_of(3)).for_each(|at| text.insert(at, ','));
    }
    text
}

#[test]
fn every_marked_figure_is_the_stored_results() {
    let documents = [files(&project(), ".md", false), files(&project().join("docs"), ".md", true)].concat();
    let measured = project().join("experiments/README.md");
    let write = std::env::var_os("NIGH_WRITE_FIGURES").is_some();
    let mut count = 0;
    for path in documents.into_iter().chain([measured]) {
        let text = std::fs::read_to_string(&path).unwrap();
        let mut written = text.clone();
        for figure in figures(&text).iter().rev() {
            let (stored, place) = (stored(figure), format!("{}: {} {}", path.display(), figure.file, figure.way));
            assert_ne!(stored, "NaN", "no such value in {place}");
            assert!(write || figure.shown == stored, "{} is {stored} in {place}", figure.shown);
            written.replace_range(figure.begin..figure.begin + figure.shown.len(), &stored);
            count += 1;
        }
        if written != text {
            std::fs::write(&path, written).unwrap();
        }
    }
    assert!(count > 30, "the marks are not read: {count}");
}

#[test]
fn no_row_of_measured_figures_is_added_without_a_mark() {
    let text = std::fs::read_to_string(project().join("experiments/README.md")).unwrap();
    let tables = text.split("## What they say").nth(1).unwrap();
    let row = |line: &&str| {
        line.starts_with("| ")
            && !["| figure |", "| | direct", "| beside one"].iter().any(|head| line.starts_with(head))
    };
    let unmarked: Vec<&str> = tables.lines().filter(row).filter(|line| !line.contains(MARK)).collect();
    assert!(unmarked.len() <= UNMARKED_ROWS, "{} rows without a mark: {unmarked:#?}", unmarked.len());
}

#[test]
fn a_mark_is_read_and_a_figure_of_another_run_is_not_the_results() {
    let text = "ratios of 1.5<!--=a/b.json; rows/*/ratio; mean--> and -1,250<!--=x.json; sum; *100-->";
    let [first, second] = figures(text).try_into().ok().unwrap();
    assert_eq!((first.shown, first.file, first.way, first.fold), ("1.5", "a/b.json", "rows/*/ratio", Some("mean")));
    assert_eq!((second.shown, second.factor), ("-1,250", 100.0));
    let rows = serde_json::json!({ "rows": [{ "name": "a", "ratio": 1 }, { "name": "b", "ratio": 2 }] });
    assert_eq!(folded(first.fold, values(&rows, &["rows", "*", "ratio"])), 1.5);
    assert_eq!(values(&rows, &["rows", "name=b", "ratio"]), [2.0]);
    assert_eq!(values(&rows, &["rows", "name=b", "ratio=2", "ratio"]), [2.0]);
    assert!(values(&rows, &["rows", "*", "name=a", "ratio=2", "ratio"]).is_empty());
    assert!(folded(None, values(&rows, &["rows", "*", "ratio"])).is_nan(), "which of the two is not said");
}
