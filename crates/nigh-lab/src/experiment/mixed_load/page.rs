//! The report as a page: OFC's figures 9 and 10 and table 2 with our figures, and what keeping sandboxes costs (figure 1).

use serde_json::Value;

use super::node_look::added_up;
use super::report::{COLUMNS, CachePoint, MixedLoadReport, TABLE_2};
use crate::LabError;
use crate::instrument::chart::{self, Series};
use crate::instrument::report::name_of;
use crate::instrument::template::fill;

const MIB: f64 = (1 << 20) as f64;
const ABOUT: &str = "The same invocations at the same times, played in turn against functions on Swift (the floor), on Nigh with \
                     all off, on Nigh, and on Redis (the ceiling): OFC, section 7.2.2, scaled to this machine.";
/// OFC's figures beside those of the table.
const OFC_TABLE_2: [(&str, &str); 5] = [
    ("scale up", "{scale_up}"),
    ("scale down", "{scale_down}"),
    ("grown while they ran (bad predictions)", "{bad_predictions}"),
    ("failed invocations", "{failed}"),
    ("cache hit ratio", "{hit_ratio:%.1}"),
];

pub(super) fn page(report: &MixedLoadReport) -> Result<String, LabError> {
    let verdicts = report.verdicts.iter().map(ToString::to_string);
    let mut body = chart::list(verdicts.chain([report.ofc.sentence()]));
    let mut figure = |caption: &str, svg: String| body += &chart::figure(caption, &svg);
    figure("Time of all invocations of each function together, seconds (OFC figure 9)", figure_9(report)?);
    if !report.looks.is_empty() {
        figure("The cache over the time of the load, MiB (OFC figure 10)", figure_10(report)?);
        let caption = "What idle sandboxes book, added up over the time of the load, GB-seconds (OFC figure 1: keep-alive's \
                       waste), and what the cache has of what is booked and not used";
        figure(caption, keep_alive(report)?);
    }
    let ofc =
        |name: &str| OFC_TABLE_2.iter().find(|(known, _)| *known == name).map(|(_, cell)| fill(cell, &report.ofc));
    let counted = TABLE_2.map(|(name, cell)| vec![name.to_owned(), fill(cell, report), ofc(name).unwrap_or_default()]);
    body += &format!(
        "<h2>What the node counted (OFC table 2)</h2>{}<h2>Each function</h2>{}<h2>Conditions</h2>{}",
        chart::table(&["metric", "Nigh", "OFC"], &counted),
        COLUMNS.html(&report.rows),
        chart::list(&report.conditions)
    );
    let title = format!("The mixed load: {} tenants, {}", report.tenants, name_of(&report.profile));
    Ok(chart::page(&title, ABOUT, &body, &report.machine))
}

fn figure_9(report: &MixedLoadReport) -> Result<String, LabError> {
    let functions: Vec<String> = report.rows.iter().map(|row| fill("{function}", row)).collect();
    let sides = [("swift", "Swift"), ("nigh_off", "Nigh, all off"), ("nigh", "Nigh"), ("redis", "Redis")];
    let series = sides.map(|(side, name)| {
        let seconds = |row: &Value| row["sides"][side]["execution_s"].as_f64().unwrap_or(f64::NAN);
        Series::of_groups(name, report.rows.iter().map(seconds))
    });
    chart::bars(&functions, &series, "s")
}

fn figure_10(report: &MixedLoadReport) -> Result<String, LabError> {
    let over_time = |name: &str, of: fn(&CachePoint) -> Option<u64>| {
        let point = |point: &CachePoint| Some((point.at_s / 60.0, of(point)? as f64 / MIB));
        Series { name: name.to_owned(), values: report.cache_bytes.iter().filter_map(point).collect() }
    };
    let mut series = vec![
        over_time("what it may take", |point| Some(point.bytes)),
        over_time("what objects take", |point| Some(point.kept_bytes)),
    ];
    series.extend(Some(over_time("of it lent", |point| point.lent_bytes)).filter(|lent| !lent.values.is_empty()));
    chart::lines(&series, "minutes", "MiB")
}

fn keep_alive(report: &MixedLoadReport) -> Result<String, LabError> {
    let mut series = vec![Series {
        name: "idle, booked".to_owned(),
        values: added_up(&report.looks, |look| look.idle_booked_bytes),
    }];
    if !report.figures["lent_gb_s"].is_null() {
        let values = added_up(&report.looks, |look| look.lent_bytes.unwrap_or(0));
        series.push(Series { name: "lent to the cache".to_owned(), values });
    }
    chart::lines(&series, "minutes", "GB-s")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::mixed_load::report::tests::report;

    #[test]
    fn a_page_has_its_figures_the_papers_beside_and_every_function() {
        let page = page(&report()).unwrap();
        assert_eq!(page.matches("<svg").count(), 3);
        for part in ["OFC figure 9", "OFC figure 10", "GB-s", "<td>96", "f&lt;g", "all alike", "23.9 % to 79.8 %"] {
            assert!(page.contains(part), "{part}");
        }
        assert!(!page.contains("<td>f<g"));
    }
}
