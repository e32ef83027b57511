//! The report as a page: tails by load, and tails and batch loss by ways.

use nigh_terms::Ways;
use plotters::prelude::*;

use super::findings::{partitions, row_of};
use super::report::{SetReport, TailReport};
use super::sweep::Configuration;
use crate::LabError;
use crate::instrument::chart;
use crate::instrument::report_text::html_of;

const SIZE: (u32, u32) = (960, 380);
const ALONE: RGBColor = RGBColor(120, 120, 120);
const SHARED: RGBColor = RGBColor(190, 40, 40);
const CHOICE: RGBColor = RGBColor(28, 128, 72);
const FEWEST: RGBColor = RGBColor(38, 104, 168);
const MOST: RGBColor = RGBColor(214, 118, 31);

type Line = (String, RGBColor, Vec<(f64, f64)>);

pub(super) fn page(report: &TailReport) -> Result<String, LabError> {
    let mut body = String::new();
    for set in &report.sets {
        let caption = "99.9th percentile, microseconds, by load (million requests a second)";
        body += &format!("<h2>Working set {}</h2>", chart::escape(&set.working_set));
        body += &(chart::figure(caption, &tails_by_load(set)?) + &by_ways(set)?);
    }
    body += &html_of(report)?;
    let about = "Simulated. The paper's figures are maxima over an axis that it does not state, so these are findings of our own \
                 beside them, not a reproduction. Without CAT the tail grows without bound as the load nears what the store \
                 serves: the ring's length and the network's part bound the ratio.";
    Ok(chart::page("Tail latency of a key-value store beside a training job", about, &body, &report.machine))
}

fn tails_by_load(set: &SetReport) -> Result<String, LabError> {
    let sizes: Vec<Ways> = partitions(&set.rows).map(|(ways, _)| ways).collect();
    let guard = set.guard.last().map(|guard| guard.run.ways);
    let mut chosen = vec![(Configuration::NoContention, ALONE), (Configuration::NoCat, SHARED)];
    let ends = [(sizes.first(), FEWEST), (sizes.last(), MOST)];
    chosen.extend(ends.into_iter().filter_map(|(ways, color)| Some((Configuration::Partition(*ways?), color))));
    chosen.extend(guard.map(|ways| (Configuration::Partition(ways), CHOICE)));
    let lines = chosen.into_iter().filter_map(|(configuration, color)| {
        let row = row_of(&set.rows, configuration)?;
        let guard = configuration == guard.map_or(Configuration::NoCat, Configuration::Partition);
        let name = format!("{configuration}{}", if guard && color == CHOICE { " (the guard's choice)" } else { "" });
        Some((name, color, row.points.iter().map(|point| (point.load_mops, point.p999_us)).collect()))
    });
    lines_chart(&lines.collect::<Vec<_>>(), true, "Mops")
}

fn by_ways(set: &SetReport) -> Result<String, LabError> {
    let Some(best) = &set.best else { return Ok(String::new()) };
    let mut lines: [Vec<(f64, f64)>; 2] = Default::default();
    for (ways, row) in partitions(&set.rows) {
        if let Some(point) = row.points.iter().find(|point| point.load_mops == best.load_mops) {
            lines[0].push((f64::from(ways.0), point.p999_us));
            lines[1].push((f64::from(ways.0), point.batch_loss.unwrap_or(0.0) * 100.0));
        }
    }
    let [tails, losses] = lines;
    let tails = lines_chart(&[("p99.9, us".to_owned(), CHOICE, tails)], true, "ways of the store")?;
    let losses = lines_chart(&[("batch loss, %".to_owned(), MOST, losses)], false, "ways of the store")?;
    let caption = format!("99.9th percentile by ways at {:.1} Mops", best.load_mops);
    Ok(chart::figure(&caption, &tails) + &chart::figure("What the batch side loses, percent", &losses))
}

/// A chart of lines; the vertical axis is logarithmic or starts at the lowest value.
fn lines_chart(lines: &[Line], logarithmic: bool, axis: &str) -> Result<String, LabError> {
    let all = || lines.iter().flat_map(|(_, _, points)| points).copied();
    let scale = |value: f64| if logarithmic { value.max(1e-3).log10() } else { value };
    let range = |of: &dyn Fn((f64, f64)) -> f64| {
        all().map(of).fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), at| (low.min(at), high.max(at)))
    };
    let ((left, right), (low, high)) = (range(&|(x, _)| x), range(&|(_, y)| scale(y)));
    let margin = ((high - low) * 0.05).max(0.02);
    chart::drawn(SIZE, |root| {
        let mut chart = ChartBuilder::on(root)
            .margin(8)
            .x_label_area_size(36)
            .y_label_area_size(56)
            .build_cartesian_2d(left..right, low - margin..high + margin)?;
        let label =
            |value: &f64| if logarithmic { format!("{:.0}", 10_f64.powf(*value)) } else { format!("{value:.1}") };
        chart.configure_mesh().x_desc(axis).y_label_formatter(&label).draw()?;
        for (name, color, points) in lines {
            let color = *color;
            let line = LineSeries::new(points.iter().map(|&(x, y)| (x, scale(y))), color.stroke_width(2));
            let legend = move |(x, y): (i32, i32)| PathElement::new([(x, y), (x + 14, y)], color.stroke_width(2));
            chart.draw_series(line.point_size(2))?.label(name).legend(legend);
        }
        let labels = &mut chart.configure_series_labels();
        Ok(labels.position(SeriesLabelPosition::UpperLeft).background_style(WHITE.mix(0.9)).draw()?)
    })
}

#[cfg(test)]
mod tests {
    use super::super::findings::{best, larger_is_worse, reaches, tests::rows};
    use super::super::report::{PAPER, SetReport, TailReport};
    use super::super::server_machine::SIMULATED_MACHINE;
    use super::*;
    use crate::instrument::machine::Machine;

    #[test]
    fn a_page_has_three_charts_a_working_set_and_says_what_the_papers_figure_is() {
        let rows = rows();
        let set = SetReport {
            working_set: "2 MB".to_owned(),
            cache_ways: Ways(11),
            items_bytes: 2,
            index_bytes: 1,
            lines_per_request: 0.8,
            best: best(&rows, 10.0, |_| true),
            best_on_axis: None,
            paper_ratio: Some(5.3),
            reaches: reaches(&rows),
            larger_is_worse: larger_is_worse(&rows),
            guard: Vec::new(),
            rows,
        };
        let report = TailReport {
            machine: Machine::read("nigh experiment llc-tail".to_owned()),
            paper: PAPER,
            simulated: SIMULATED_MACHINE,
            quick: true,
            slo_us: 70.0,
            seconds: 1.0,
            sets: vec![set],
        };
        let page = page(&report).unwrap();
        assert_eq!(page.matches("<svg").count(), 3);
        for said in ["sets.0.rows", "best.ratio", "larger_is_worse.larger", "not a reproduction"] {
            assert!(page.contains(said), "{said}");
        }
    }
}
