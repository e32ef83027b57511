//! The stored results of a folder: machine, figures and charts of each, and which are missing or broken.

use std::fs;
use std::io::Read;
use std::path::Path;

use serde_json::Value;

use super::RESULT;
use super::catalogue::EXPERIMENTS;
use crate::LabError;
use crate::instrument::error::Tried;

/// Bytes of a result or page that are read.
const FILE_MAX: u64 = 64 << 20;
/// Rows of a table that are shown; the result has them all.
const ROWS_MAX: usize = 60;
/// Columns that are shown.
const COLUMNS_MAX: usize = 16;

/// A table of a result: an array of objects.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FigureTable {
    pub(super) name: String,
    pub(super) head: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
    /// Rows that are not shown.
    pub(super) more: usize,
}

/// One stored result.
#[derive(Debug)]
pub(super) struct StoredResult {
    pub(super) name: String,
    pub(super) about: String,
    pub(super) machine: String,
    pub(super) date: String,
    pub(super) command: String,
    /// Figures that are no table, with their names.
    pub(super) figures: Vec<(String, String)>,
    pub(super) tables: Vec<FigureTable>,
    /// The `figure` elements of the result's page, unchanged.
    pub(super) charts: Vec<String>,
}

#[derive(Debug)]
pub(super) struct CollectedResults {
    pub(super) results: Vec<StoredResult>,
    /// Files that cannot be shown, and why.
    pub(super) faults: Vec<String>,
}

impl CollectedResults {
    /// Reads every folder below `results` that holds a result, those of known experiments first.
    pub(super) fn read(results: &Path) -> Result<Self, LabError> {
        let entries = fs::read_dir(results).at(results)?;
        let mut others: Vec<String> = entries
            .flatten()
            .filter(|entry| entry.path().join(RESULT).is_file())
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| EXPERIMENTS.iter().all(|experiment| experiment.name != name))
            .collect();
        others.sort();
        let mut collected = Self { results: Vec::new(), faults: Vec::new() };
        for experiment in EXPERIMENTS.iter() {
            collected.add(results, experiment.name, experiment.about, experiment.page);
        }
        for name in &others {
            collected.add(results, name, "", None);
        }
        Ok(collected)
    }

    fn add(&mut self, results: &Path, name: &str, about: &str, page: Option<&str>) {
        let folder = results.join(name);
        let text = match read(&folder.join(RESULT)) {
            Ok(text) => text,
            Err(fault) => return self.faults.push(fault),
        };
        let value: Value = match serde_json::from_str(&text) {
            Ok(value) => value,
            Err(error) => return self.faults.push(format!("{}: no JSON: {error}", folder.join(RESULT).display())),
        };
        let mut charts = Vec::new();
        if let Some(page) = page.map(|page| folder.join(page)) {
            match read(&page) {
                Ok(text) => match figures_of(&text) {
                    Ok(found) => charts = found,
                    Err(reason) => self.faults.push(format!("{}: {reason}", page.display())),
                },
                Err(fault) => self.faults.push(fault),
            }
        }
        self.results.push(StoredResult::new(name, about, &value, charts));
    }
}

/// The text of a file; its fault names it.
fn read(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    let read = fs::File::open(path).and_then(|file| file.take(FILE_MAX + 1).read_to_string(&mut text));
    match read {
        Ok(bytes) if bytes as u64 > FILE_MAX => Err(format!("{}: larger than {} MiB", path.display(), FILE_MAX >> 20)),
        Ok(_) => Ok(text),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// The `figure` elements of one of our pages. Each holds a caption and a drawing; a program in it is refused.
fn figures_of(page: &str) -> Result<Vec<String>, &'static str> {
    let (begin, end) = ("<figure>", "</figure>");
    let mut figures = Vec::new();
    for part in page.split(begin).skip(1) {
        let (figure, _) = part.split_once(end).ok_or("a figure has no end")?;
        if figure.contains("<script") || figure.contains("<iframe") {
            return Err("a figure holds a program");
        }
        figures.push(format!("{begin}{figure}{end}"));
    }
    Ok(figures)
}

impl StoredResult {
    fn new(name: &str, about: &str, value: &Value, charts: Vec<String>) -> Self {
        let machine = &value["machine"];
        let fields = || value.as_object().into_iter().flatten().filter(|(name, _)| *name != "machine");
        let text_of = |field: &str| machine[field].as_str().unwrap_or_default().to_owned();
        Self {
            name: name.to_owned(),
            about: about.to_owned(),
            machine: machine_line(machine),
            date: text_of("date"),
            command: text_of("command"),
            figures: flatten(fields()),
            tables: fields().filter_map(|(name, value)| table(name, value.as_array()?)).collect(),
            charts,
        }
    }
}

/// The fields of a result's machine without date and command, which the page shows apart.
fn machine_line(machine: &Value) -> String {
    let Some(fields) = machine.as_object() else { return "its machine is not told".to_owned() };
    let told = |(name, value): (&String, &Value)| match value {
        Value::Object(peers) => {
            let versions = peers.iter().filter_map(|(peer, version)| Some(format!("{peer} {}", scalar(version)?)));
            Some(versions.collect::<Vec<_>>().join(", "))
        }
        value => scalar(value).map(|text| format!("{} {text}", name.replace('_', " "))),
    };
    let fields = fields.iter().filter(|(name, _)| !matches!(name.as_str(), "date" | "command"));
    fields.filter_map(told).filter(|text| !text.is_empty()).collect::<Vec<_>>().join(", ")
}

/// A figure or text; none for lists and objects.
fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::Null => Some(String::new()),
        Value::Bool(yes) => Some(if *yes { "yes" } else { "no" }.to_owned()),
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(match number.as_f64() {
            Some(value) if number.is_f64() => rounded(value),
            _ => number.to_string(),
        }),
        Value::Array(_) | Value::Object(_) => None,
    }
}

/// Four significant digits.
fn rounded(value: f64) -> String {
    let digits = if value == 0.0 { 0.0 } else { 3.0 - value.abs().log10().floor() };
    format!("{value:.*}", digits.clamp(0.0, 9.0) as usize)
}

/// A table of the fields that are figures or texts, and of those of inner objects.
fn table(name: &str, items: &[Value]) -> Option<FigureTable> {
    let flat: Vec<Vec<(String, String)>> = items.iter().filter_map(Value::as_object).map(flatten).collect();
    let mut head: Vec<String> = Vec::new();
    for (column, _) in flat.iter().flatten() {
        if head.len() < COLUMNS_MAX && !head.contains(column) {
            head.push(column.clone());
        }
    }
    if head.is_empty() {
        return None;
    }
    let cell = |row: &[(String, String)], column: &String| {
        row.iter().find(|(name, _)| name == column).map(|(_, text)| text.clone()).unwrap_or_default()
    };
    let rows = flat.iter().take(ROWS_MAX).map(|row| head.iter().map(|column| cell(row, column)).collect()).collect();
    Some(FigureTable { name: name.replace('_', " "), head, rows, more: flat.len().saturating_sub(ROWS_MAX) })
}

/// The fields that are figures or texts, and those of inner objects.
fn flatten<'v>(fields: impl IntoIterator<Item = (&'v String, &'v Value)>) -> Vec<(String, String)> {
    let mut flat = Vec::new();
    for (name, value) in fields {
        match value {
            Value::Object(inner) => {
                let inner =
                    inner.iter().filter_map(|(inner, value)| Some((format!("{name}, {inner}"), scalar(value)?)));
                flat.extend(inner);
            }
            value => flat.extend(scalar(value).map(|text| (name.clone(), text))),
        }
    }
    flat
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn store(folder: &Path, name: &str, result: &str) {
        fs::create_dir_all(folder.join(name)).unwrap();
        fs::write(folder.join(name).join(RESULT), result).unwrap();
    }

    #[test]
    fn results_are_read_and_what_is_broken_or_missing_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let machine =
            json!({"cpu": "X", "cores": 2, "date": "today", "command": "nigh bench s3", "peers": {"Redis": "7"}});
        store(
            folder.path(),
            "bench-s3",
            &json!({"machine": machine, "rows": [{"what": "get", "p50_us": 1.5}]}).to_string(),
        );
        store(folder.path(), "single", "{\"machine\":");
        store(folder.path(), "demo", "{}");
        store(folder.path(), "another", "{\"answer\": 42.123456}");
        let collected = CollectedResults::read(folder.path()).unwrap();

        let names: Vec<&str> = collected.results.iter().map(|result| result.name.as_str()).collect();
        assert_eq!(names, ["demo", "bench-s3", "another"]);
        let bench = &collected.results[1];
        assert_eq!((bench.date.as_str(), bench.command.as_str()), ("today", "nigh bench s3"));
        assert_eq!(bench.machine, "cores 2, cpu X, Redis 7");
        assert_eq!(bench.tables[0].rows, [["1.500", "get"]]);
        assert_eq!(collected.results[2].figures, [("answer".to_owned(), "42.12".to_owned())]);
        assert_eq!(collected.results[0].machine, "its machine is not told");

        let fault = |part: &str| collected.faults.iter().any(|fault| fault.contains(part));
        assert!(fault("single/result.json: no JSON"), "{:?}", collected.faults);
        assert!(fault("demo/demo.html"), "its page is missing");
        assert!(fault("llc-tail/result.json"), "it was never run");
    }

    #[test]
    fn charts_are_taken_out_of_a_page_unless_they_hold_a_program() {
        let page = "<h1>x</h1><figure><figcaption>a</figcaption><svg/></figure><p>b</p><figure>c</figure>";
        assert_eq!(figures_of(page).unwrap().len(), 2);
        assert!(figures_of("<figure><script>x</script></figure>").is_err());
        assert!(figures_of("<figure>cut off").is_err());
    }

    #[test]
    fn long_tables_are_cut_and_say_so() {
        let rows: Vec<Value> = (0..100).map(|n| json!({"n": n, "inner": {"m": 0.001_234_56}, "list": [1]})).collect();
        let table = table("some_rows", &rows).unwrap();
        assert_eq!((table.rows.len(), table.more, table.name.as_str()), (60, 40, "some rows"));
        assert_eq!(table.head, ["inner, m", "n"]);
        assert_eq!(table.rows[0], ["0.001235", "0"]);
        assert!(super::table("numbers", &[json!(1), json!(2)]).is_none());
    }
}
