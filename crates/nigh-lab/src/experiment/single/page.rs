//! The report as a page: a chart a function, as OFC's figure 7: bars of extract, transform and load.

use super::report::{HEAD, Row, SingleReport};
use super::scenario::Scenario;
use crate::LabError;
use crate::instrument::chart::{escape, figure, page as whole_page, table};
use crate::instrument::stacked_bars::{EXTRACT, LOAD, StackedBar, TRANSFORM, stacked_bars};

/// A bar that is longer than Swift's by more is cut.
const SHOWN_MAX: f64 = 1.6;

/// The page.
pub(super) fn page(report: &SingleReport) -> Result<String, LabError> {
    let mut functions: Vec<&str> = report.rows.iter().map(|row| row.function.as_str()).collect();
    functions.dedup();
    let mut body =
        report.overall.iter().map(|overall| format!("<li>{}", escape(&overall.sentence()))).collect::<String>();
    body = format!("<ul>{body}</ul>");
    for function in functions {
        let rows: Vec<&Row> = report.rows.iter().filter(|row| row.function == function).collect();
        body += &figure(
            &format!("{function}: time over that of Swift by its S3 API (longer bars are cut)"),
            &chart(&rows)?,
        );
    }
    let conditions = report.conditions.iter().map(|said| format!("<li>{}", escape(said))).collect::<String>();
    let cells: Vec<Vec<String>> = report.rows.iter().map(Row::cells).collect();
    body += &format!("<h2>Conditions</h2><ul>{conditions}</ul><h2>All figures</h2>{}", table(&HEAD, &cells));
    let about = "Six image functions on inputs of six sizes (OFC, figure 7, upper half). The ceiling is the share of \
                 Swift's time that goes to fetching the input and storing the output: what a store without cost would save.";
    Ok(whole_page("Single functions against Swift and Redis", about, &body, &report.machine))
}

/// All sizes and scenarios of one function.
fn chart(rows: &[&Row]) -> Result<String, LabError> {
    let bar = |row: &&Row| {
        let swift = rows.iter().find(|other| other.bytes == row.bytes && other.scenario == Scenario::SwiftS3api);
        let whole = swift.map_or(row.p50_ms, |swift| swift.p50_ms);
        let ends = [row.extract_ms, row.extract_ms + row.transform_ms, row.extract_ms + row.transform_ms + row.load_ms];
        let [extract, transform, load] = ends.map(|end| (end / whole).min(SHOWN_MAX));
        StackedBar {
            label: format!("{} KB {}", row.bytes / 1000, row.scenario.name()),
            pieces: vec![(0.0, extract, EXTRACT), (extract, transform, TRANSFORM), (transform, load, LOAD)],
        }
    };
    let bars: Vec<StackedBar> = rows.iter().map(bar).collect();
    let legend = [("extract", EXTRACT), ("transform", TRANSFORM), ("load", LOAD)];
    stacked_bars(&bars, 0.0..SHOWN_MAX, |share| format!("{:.0} %", share * 100.0), &legend)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::single::report::{rows, tests::cell};
    use crate::experiment::single::rounds::RoundLimits;
    use crate::instrument::machine::Machine;

    #[test]
    fn a_page_has_a_chart_a_function_the_conditions_and_every_row() {
        let machine = Machine::read("nigh experiment single".to_owned());
        let limits = RoundLimits { rounds_min: 1, rounds_max: 1, seconds: 0.0 };
        let report = SingleReport::new(machine, limits, rows(&[cell()]));
        let page = page(&report).unwrap();
        assert_eq!(page.matches("<svg").count(), 1);
        assert_eq!(page.matches("<tr>").count(), 1 + report.rows.len());
        assert!(page.contains("f&lt;g") && !page.contains("<td>f<g"));
        assert!(page.contains("acknowledges what no crash would leave"));
    }
}
