//! The report as a page: a chart an application, as OFC's figure 7: bars of extract, transform and load.

use super::report::{HEAD, PipelinesReport, Row};
use super::scenario::Scenario;
use crate::LabError;
use crate::instrument::chart::{escape, figure, page as whole_page, table};
use crate::instrument::stacked_bars::{EXTRACT, LOAD, StackedBar, TRANSFORM, stacked_bars};

/// A bar that is longer than Swift's by more is cut.
const SHOWN_MAX: f64 = 1.4;

/// The page.
pub(super) fn page(report: &PipelinesReport) -> Result<String, LabError> {
    let mut applications: Vec<&str> = report.rows.iter().map(|row| row.application.as_str()).collect();
    applications.dedup();
    let list = |items: &mut dyn Iterator<Item = String>| {
        let items: String = items.map(|item| format!("<li>{}", escape(&item))).collect();
        format!("<ul>{items}</ul>")
    };
    let mut body = list(&mut report.sentences().into_iter());
    for application in applications {
        let rows: Vec<&Row> = report.rows.iter().filter(|row| row.application == application).collect();
        let title = format!("{application}: time of all tasks together over that on Swift (longer bars are cut)");
        body += &figure(&title, &chart(&rows)?);
    }
    let conditions = list(&mut report.conditions.iter().map(|&said| said.to_owned()));
    let cells: Vec<Vec<String>> = report.rows.iter().map(Row::cells).collect();
    body += &format!("<h2>Conditions</h2>{conditions}<h2>All figures</h2>{}", table(&HEAD, &cells));
    let about = "Four applications of several stages (OFC, figure 7, lower half). The ceiling is the share of the tasks' time on \
                 Swift that goes to fetching and storing objects: what a store without cost would save.";
    Ok(whole_page("Applications of several stages against Swift and Redis", about, &body, &report.machine))
}

/// All inputs and scenarios of one application.
fn chart(rows: &[&Row]) -> Result<String, LabError> {
    let bars: Vec<StackedBar> = rows
        .iter()
        .flat_map(|row| {
            let whole = row.phases.get(&Scenario::Swift).map_or(1.0, |swift| swift.total());
            row.phases.iter().map(move |(scenario, phases)| {
                let ends = [phases.extract_ms, phases.extract_ms + phases.transform_ms, phases.total()];
                let [extract, transform, load] = ends.map(|end| (end / whole).min(SHOWN_MAX));
                StackedBar {
                    label: format!("{} {}", row.size, scenario.name()),
                    pieces: vec![(0.0, extract, EXTRACT), (extract, transform, TRANSFORM), (transform, load, LOAD)],
                }
            })
        })
        .collect();
    let legend = [("extract", EXTRACT), ("transform", TRANSFORM), ("load", LOAD)];
    stacked_bars(&bars, 0.0..SHOWN_MAX, |share| format!("{:.0} %", share * 100.0), &legend)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::pipelines::report::tests::cell;
    use crate::instrument::machine::Machine;

    #[test]
    fn a_page_has_a_chart_an_application_the_conditions_and_every_row() {
        let machine = Machine::read("nigh experiment pipelines".to_owned());
        let report = PipelinesReport::new(machine, 3, 2, &[cell()]);
        let page = page(&report).unwrap();
        assert_eq!((page.matches("<svg").count(), page.matches("<tr>").count()), (1, 2));
        assert!(page.contains("a&lt;b") && !page.contains("<td>a<b"));
        assert!(page.contains("acknowledges what no crash would leave"));
    }
}
