//! The report as a page: OFC's figures 9 and 10 and table 2 with our figures, and what keeping sandboxes costs (figure 1).

use super::node_look::added_up;
use super::report::{HEAD, MixedLoadReport, percent};
use super::side::Side;
use crate::LabError;
use crate::instrument::chart::{Series, bars, escape, figure, lines, page as whole_page, table};

const MIB: f64 = (1 << 20) as f64;

/// The page.
pub(super) fn page(report: &MixedLoadReport) -> Result<String, LabError> {
    let verdicts = report.verdicts.iter().map(|verdict| format!("<li>{}", escape(&verdict.to_string())));
    let mut body = format!("<ul>{}<li>{}</ul>", verdicts.collect::<String>(), escape(&report.ofc.to_string()));
    body += &figure("Time of all invocations of each function together, seconds (OFC figure 9)", &figure_9(report)?);
    if !report.looks.is_empty() {
        body += &figure("The cache over the time of the load, MiB (OFC figure 10)", &figure_10(report)?);
        let caption = "What idle sandboxes book, added up over the time of the load, GB-seconds (OFC figure 1: \
                       keep-alive's waste), and what the cache has of what is booked and not used";
        body += &figure(caption, &keep_alive(report)?);
    }
    body += "<h2>What the node counted (OFC table 2)</h2>";
    let ofc = |name: &str| match name {
        "scale up" => report.ofc.scale_up.map(|count| count.to_string()),
        "scale down" => report.ofc.scale_down.map(|count| count.to_string()),
        "grown while they ran (bad predictions)" => report.ofc.bad_predictions.map(|count| count.to_string()),
        "failed invocations" => Some(report.ofc.failed.to_string()),
        "cache hit ratio" => Some(percent(Some(report.ofc.hit_ratio))),
        _ => None,
    };
    let counted: Vec<Vec<String>> = report
        .table_2()
        .into_iter()
        .map(|(name, figure)| vec![name.to_owned(), figure, ofc(name).unwrap_or_default()])
        .collect();
    body += &table(&["metric", "Nigh", "OFC"], &counted);
    let conditions = report.conditions.iter().map(|said| format!("<li>{}", escape(said))).collect::<String>();
    let cells: Vec<Vec<String>> = report.rows.iter().map(super::report::FunctionRow::cells).collect();
    body += &format!("<h2>Each function</h2>{}<h2>Conditions</h2><ul>{conditions}</ul>", table(&HEAD, &cells));
    let title = format!("The mixed load: {} tenants, {}", report.tenants, report.profile.name());
    let about = "The same invocations at the same times, played in turn against functions on Swift (the floor), on Nigh \
                 with all off, on Nigh, and on Redis (the ceiling): OFC, section 7.2.2, scaled to this machine.";
    Ok(whole_page(&title, about, &body, &report.machine))
}

fn figure_9(report: &MixedLoadReport) -> Result<String, LabError> {
    let functions: Vec<String> = report.rows.iter().map(|row| row.function.clone()).collect();
    let sides =
        [(Side::Swift, "Swift"), (Side::NighOff, "Nigh, all off"), (Side::Nigh, "Nigh"), (Side::Redis, "Redis")];
    let series = sides.map(|(side, name)| {
        let seconds = |row: &super::report::FunctionRow| row.sides.get(&side).map_or(f64::NAN, |sums| sums.execution_s);
        Series::of_groups(name, report.rows.iter().map(seconds))
    });
    bars(&functions, &series, "s")
}

fn figure_10(report: &MixedLoadReport) -> Result<String, LabError> {
    let over_time = |name: &str, of: fn(&super::report::CachePoint) -> Option<u64>| Series {
        name: name.to_owned(),
        values: report
            .cache_bytes
            .iter()
            .filter_map(|point| Some((point.at_s / 60.0, of(point)? as f64 / MIB)))
            .collect(),
    };
    let mut series = vec![
        over_time("what it may take", |point| Some(point.bytes)),
        over_time("what objects take", |point| Some(point.kept_bytes)),
    ];
    series.extend(Some(over_time("of it lent", |point| point.lent_bytes)).filter(|lent| !lent.values.is_empty()));
    lines(&series, "minutes", "MiB")
}

fn keep_alive(report: &MixedLoadReport) -> Result<String, LabError> {
    let mut series = vec![Series {
        name: "idle, booked".to_owned(),
        values: added_up(&report.looks, |look| look.idle_booked_bytes),
    }];
    if report.lent_gb_s.is_some() {
        let values = added_up(&report.looks, |look| look.lent_bytes.unwrap_or(0));
        series.push(Series { name: "lent to the cache".to_owned(), values });
    }
    lines(&series, "minutes", "GB-s")
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
