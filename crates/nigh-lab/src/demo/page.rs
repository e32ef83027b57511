//! The demonstration as one page: OFC's figure 3 (shares of E, T and L) first, then times and their distributions.

use plotters::prelude::*;

use super::report::{COLUMNS, DemoReport, FOOT, Run, Side, Summary};
use crate::LabError;
use crate::instrument::chart::{self, StackedBar, drawn};
use crate::instrument::report::name_of;
use crate::instrument::stats::Sample;
use crate::instrument::template::fill;

const DIRECT: RGBColor = RGBColor(120, 120, 120);
const NIGH: RGBColor = RGBColor(28, 128, 72);
const SIZE: (u32, u32) = (960, 380);
const CLAIM: &str = "Each function runs the same code on the same inputs, in turn directly against the store and through Nigh; both \
                     are measured inside the function by the same instrument.";

pub(super) fn page(report: &DemoReport) -> Result<String, LabError> {
    let figures = [
        ("Where the time goes: extract, transform, load", shares(&report.summaries)?),
        ("Median time of an invocation, milliseconds (logarithmic)", medians(&report.summaries)?),
        ("Distribution of all invocations' times, milliseconds (logarithmic)", distributions(&report.runs)?),
    ];
    let figures = figures.map(|(title, svg)| chart::figure(title, &svg)).concat();
    let body = figures + &COLUMNS.html(&report.summaries) + &chart::list([fill(FOOT, report)]);
    Ok(chart::page("Where the time goes", report.without_comparison().unwrap_or(CLAIM), &body, &report.machine))
}

fn label(summary: &Summary) -> String {
    format!("{} {}", summary.function, name_of(&summary.side))
}

fn shares(summaries: &[Summary]) -> Result<String, LabError> {
    let phases = |summary: &Summary| [summary.extract, summary.transform, summary.load];
    let bar = |summary: &Summary| StackedBar::of_phases(label(summary), phases(summary), 1.0);
    chart::phase_bars(&summaries.iter().map(bar).collect::<Vec<_>>(), 1.0)
}

fn medians(summaries: &[Summary]) -> Result<String, LabError> {
    let largest = summaries.iter().map(|summary| summary.p50_ms).fold(10.0, f64::max).log10();
    let bar = |summary: &Summary| {
        let color = if summary.side == Side::Nigh { NIGH } else { DIRECT };
        StackedBar { label: label(summary), pieces: vec![(0.0, summary.p50_ms.max(1.0).log10(), color)] }
    };
    let bars: Vec<StackedBar> = summaries.iter().map(bar).collect();
    let power = |power: &f64| format!("{:.0}", 10f64.powf(*power));
    chart::stacked_bars(&bars, largest * 1.05, power, &[("direct", DIRECT), ("Nigh", NIGH)])
}

fn distributions(runs: &[Run]) -> Result<String, LabError> {
    let largest = runs.iter().map(|run| run.took_ms).fold(10.0, f64::max);
    drawn(SIZE, |root| {
        let mut chart = ChartBuilder::on(root)
            .margin(8)
            .x_label_area_size(28)
            .y_label_area_size(48)
            .build_cartesian_2d((1.0..largest).log_scale(), 0.0..1.0)?;
        chart.configure_mesh().y_label_formatter(&|share| format!("{:.0} %", share * 100.0)).draw()?;
        for (side, color) in [(Side::Direct, DIRECT), (Side::Nigh, NIGH)] {
            let times = Sample::new(runs.iter().filter(|run| run.side == side).map(|run| run.took_ms).collect());
            if times.is_empty() {
                continue;
            }
            let count = times.len() as f64;
            let points =
                times.values().iter().enumerate().map(|(rank, took)| (took.max(1.0), (rank + 1) as f64 / count));
            let line = LineSeries::new(points, color.stroke_width(2));
            let legend = move |(x, y): (i32, i32)| PathElement::new([(x, y), (x + 14, y)], color.stroke_width(2));
            chart.draw_series(line)?.label(name_of(&side)).legend(legend);
        }
        let labels = &mut chart.configure_series_labels();
        Ok(labels.position(SeriesLabelPosition::LowerRight).background_style(WHITE.mix(0.9)).draw()?)
    })
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
