//! The demonstration as one page: OFC's figure 3 (shares of E, T and L) first, then times and their distributions.

use plotters::prelude::*;

use super::report::{DemoReport, Run, Side, Summary};
use crate::LabError;
use crate::instrument::stacked_bars::{EXTRACT, LOAD, StackedBar, TRANSFORM, stacked_bars};
use crate::instrument::stats::Sample;

const DIRECT: RGBColor = RGBColor(120, 120, 120);
const NIGH: RGBColor = RGBColor(28, 128, 72);
const SIZE: (u32, u32) = (960, 380);

fn chart_error(error: impl std::fmt::Display) -> LabError {
    LabError::Chart(error.to_string())
}

/// The page.
pub(super) fn page(report: &DemoReport) -> Result<String, LabError> {
    let compared = report.summaries.iter().any(|summary| summary.side == Side::Direct);
    let charts = [
        ("Where the time goes: extract, transform, load", shares(&report.summaries)?),
        ("Median time of an invocation, milliseconds (logarithmic)", medians(&report.summaries)?),
        ("Distribution of all invocations' times, milliseconds (logarithmic)", distributions(&report.runs)?),
    ];
    let figures = charts.map(|(title, svg)| format!("<figure><figcaption>{title}</figcaption>{svg}</figure>")).concat();
    let rows = report.summaries.iter().map(table_row).collect::<String>();
    let machine = &report.machine;
    let claim = if compared {
        "Each function runs the same code on the same inputs, in turn directly against the store and through Nigh; \
         both are measured inside the function by the same instrument."
    } else {
        "There is no second store to compare with, so no improvement is claimed."
    };
    Ok(format!(
        "<!doctype html><html lang=en><meta charset=utf-8><title>Nigh: where the time goes</title>\
         <meta name=viewport content='width=device-width'>\
         <style>body{{font:15px/1.5 system-ui,sans-serif;max-width:980px;margin:2em auto;padding:0 1em;color:#222}}\
         table{{border-collapse:collapse;width:100%}}td,th{{padding:.25em .6em;text-align:right;border-bottom:1px solid #ddd}}\
         td:nth-child(-n+2),th:nth-child(-n+2){{text-align:left}}figure{{margin:2em 0}}figcaption{{font-weight:600}}\
         svg{{max-width:100%;height:auto}}</style>\
         <h1>Where the time goes</h1><p>{claim}</p>{figures}\
         <table><tr><th>function<th>side<th>runs<th>p50 ms<th>p95 ms<th>extract<th>transform<th>load<th>hits<th>Nigh / direct\
         {rows}</table>\
         <p>Store: {}. {} clients, {} rounds, {} failed invocations. {} x {}, {} GiB, load {}, Linux {}, {}. \
         <code>{}</code></p></html>",
        report.store,
        report.clients,
        report.rounds,
        report.failed,
        machine.cores,
        escape(&machine.cpu),
        machine.memory_gib,
        machine.load,
        escape(&machine.kernel),
        machine.date,
        escape(&machine.command),
    ))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

const fn side_name(side: Side) -> &'static str {
    match side {
        Side::Direct => "direct",
        Side::Nigh => "Nigh",
    }
}

fn table_row(summary: &Summary) -> String {
    let percent = |share: Option<f64>| share.map_or_else(String::new, |share| format!("{:.0} %", share * 100.0));
    format!(
        "<tr><td>{}<td>{}<td>{}<td>{:.1}<td>{:.1}<td>{}<td>{}<td>{}<td>{}<td>{}",
        escape(&summary.function),
        side_name(summary.side),
        summary.runs,
        summary.p50_ms,
        summary.p95_ms,
        percent(Some(summary.extract)),
        percent(Some(summary.transform)),
        percent(Some(summary.load)),
        percent(summary.hit_ratio),
        summary.ratio_to_direct.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
    )
}

fn bars(
    summaries: &[Summary],
    range: std::ops::Range<f64>,
    axis: impl Fn(&f64) -> String,
    segments: impl Fn(&Summary) -> Vec<(f64, f64, RGBColor)>,
    legend: &[(&str, RGBColor)],
) -> Result<String, LabError> {
    let bar = |summary: &Summary| StackedBar {
        label: format!("{} {}", summary.function, side_name(summary.side)),
        pieces: segments(summary),
    };
    let bars: Vec<StackedBar> = summaries.iter().map(bar).collect();
    stacked_bars(&bars, range, axis, legend)
}

fn shares(summaries: &[Summary]) -> Result<String, LabError> {
    bars(
        summaries,
        0.0..1.0,
        |share| format!("{:.0} %", share * 100.0),
        |summary| {
            let transformed = summary.extract + summary.transform;
            vec![
                (0.0, summary.extract, EXTRACT),
                (summary.extract, transformed, TRANSFORM),
                (transformed, transformed + summary.load, LOAD),
            ]
        },
        &[("extract", EXTRACT), ("transform", TRANSFORM), ("load", LOAD)],
    )
}

fn medians(summaries: &[Summary]) -> Result<String, LabError> {
    let largest = summaries.iter().map(|summary| summary.p50_ms).fold(10.0, f64::max).log10();
    bars(
        summaries,
        0.0..largest * 1.05,
        |power| format!("{:.0}", 10f64.powf(*power)),
        |summary| vec![(0.0, summary.p50_ms.max(1.0).log10(), if summary.side == Side::Nigh { NIGH } else { DIRECT })],
        &[("direct", DIRECT), ("Nigh", NIGH)],
    )
}

fn distributions(runs: &[Run]) -> Result<String, LabError> {
    let mut svg = String::new();
    let largest = runs.iter().map(|run| run.took_ms).fold(10.0, f64::max);
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let mut chart = ChartBuilder::on(&root)
            .margin(8)
            .x_label_area_size(28)
            .y_label_area_size(48)
            .build_cartesian_2d((1.0..largest).log_scale(), 0.0..1.0)
            .map_err(chart_error)?;
        chart
            .configure_mesh()
            .y_label_formatter(&|share| format!("{:.0} %", share * 100.0))
            .draw()
            .map_err(chart_error)?;
        for (side, color) in [(Side::Direct, DIRECT), (Side::Nigh, NIGH)] {
            let times = Sample::new(runs.iter().filter(|run| run.side == side).map(|run| run.took_ms).collect());
            if times.is_empty() {
                continue;
            }
            let count = times.len() as f64;
            let points =
                times.values().iter().enumerate().map(|(rank, took)| (took.max(1.0), (rank + 1) as f64 / count));
            chart
                .draw_series(LineSeries::new(points, color.stroke_width(2)))
                .map_err(chart_error)?
                .label(side_name(side))
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], color.stroke_width(2)));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .background_style(WHITE.mix(0.9))
            .draw()
            .map_err(chart_error)?;
        root.present().map_err(chart_error)?;
    }
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instrument::machine::Machine;
    use crate::instrument::phase_log::PhasesMs;

    fn summary(side: Side) -> Summary {
        Summary {
            function: "a<b".to_owned(),
            side,
            runs: 1,
            p50_ms: 12.0,
            p95_ms: 20.0,
            extract: 0.5,
            transform: 0.3,
            load: 0.2,
            hit_ratio: None,
            ratio_to_direct: None,
            processor_ratio_to_direct: None,
        }
    }

    fn report(sides: &[Side]) -> DemoReport {
        let phases_ms = PhasesMs { extract: 5.0, transform: 5.0, load: 2.0 };
        let run = |&side: &Side| Run {
            function: "a<b".to_owned(),
            input: "i".to_owned(),
            side,
            round: 0,
            took_ms: 12.0,
            phases_ms,
            processor_ms: None,
        };
        DemoReport {
            machine: Machine::read("nigh experiment demo".to_owned()),
            store: "Swift",
            clients: 2,
            rounds: 1,
            failed: 0,
            summaries: sides.iter().map(|&side| summary(side)).collect(),
            runs: sides.iter().map(run).collect(),
        }
    }

    #[test]
    fn a_page_has_its_three_charts_and_claims_only_what_was_compared() {
        let both = page(&report(&[Side::Direct, Side::Nigh])).unwrap();
        assert_eq!(both.matches("<svg").count(), 3);
        assert!(both.contains("a&lt;b") && !both.contains("<td>a<b"));
        assert!(!both.contains("no improvement is claimed"));
        assert!(page(&report(&[Side::Nigh])).unwrap().contains("no improvement is claimed"));
    }
}
