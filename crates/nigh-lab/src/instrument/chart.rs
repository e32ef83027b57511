//! Charts and pages of reports: bars in groups, bars in pieces, lines, points, tables.

use plotters::coord::{CoordTranslate, Shift};
use plotters::prelude::*;

use crate::LabError;
use crate::instrument::machine::Machine;

const SIZE: (u32, u32) = (960, 340);
/// Colours that colour-blind people can tell apart too.
const COLORS: [RGBColor; 8] = [
    RGBColor(120, 120, 120),
    RGBColor(214, 118, 31),
    RGBColor(28, 128, 72),
    RGBColor(38, 104, 168),
    RGBColor(171, 71, 143),
    RGBColor(94, 60, 20),
    RGBColor(230, 190, 40),
    RGBColor(80, 180, 200),
];
pub(crate) const EXTRACT: RGBColor = RGBColor(38, 104, 168);
pub(crate) const TRANSFORM: RGBColor = RGBColor(187, 187, 187);
pub(crate) const LOAD: RGBColor = RGBColor(214, 118, 31);
/// Sizes of a chart of stacked bars, in pixels: its least height, the height of one bar, the space above and below, the
/// width of the labels, and the height of the legend.
const STACKED_HEIGHT_MIN: u32 = 380;
const STACKED_BAR: u32 = 24;
const STACKED_REST: u32 = 60;
const STACKED_LABELS: u32 = 170;
const LEGEND_HEIGHT: u32 = 28;

/// A series of a chart: one line, or one bar in every group.
pub(crate) struct Series {
    pub(crate) name: String,
    /// Values by group, or points (x, y); values that are not numbers are left out.
    pub(crate) values: Vec<(f64, f64)>,
}

impl Series {
    /// Values of groups 0, 1, ...
    pub(crate) fn of_groups(name: impl Into<String>, values: impl IntoIterator<Item = f64>) -> Self {
        let values = values.into_iter().enumerate().map(|(group, value)| (group as f64, value));
        Self { name: name.into(), values: values.collect() }
    }

    fn finite(&self) -> impl Iterator<Item = (f64, f64)> {
        self.values.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite())
    }
}

impl<E: std::error::Error + Send + Sync> From<DrawingAreaErrorKind<E>> for LabError {
    fn from(error: DrawingAreaErrorKind<E>) -> Self {
        Self::Chart(error.to_string())
    }
}

/// The SVG of what `draw` draws.
pub(crate) fn drawn(
    size: (u32, u32),
    draw: impl FnOnce(&DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), LabError>,
) -> Result<String, LabError> {
    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    draw(&root)?;
    root.present()?;
    drop(root);
    Ok(svg)
}

fn draw_legend<'a, C: CoordTranslate>(chart: &mut ChartContext<'a, SVGBackend<'a>, C>) -> Result<(), LabError> {
    let labels = &mut chart.configure_series_labels();
    Ok(labels.position(SeriesLabelPosition::UpperRight).background_style(WHITE.mix(0.85)).draw()?)
}

fn color(series: usize) -> RGBColor {
    COLORS[series % COLORS.len()]
}

fn highest(series: &[Series]) -> f64 {
    series.iter().flat_map(Series::finite).map(|(_, y)| y).fold(f64::MIN_POSITIVE, f64::max)
}

/// Draws one bar per series in every group.
pub(crate) fn bars(groups: &[String], series: &[Series], y_name: &str) -> Result<String, LabError> {
    drawn(SIZE, |root| {
        let mut chart = ChartBuilder::on(root)
            .margin(8)
            .x_label_area_size(30)
            .y_label_area_size(56)
            .build_cartesian_2d(-0.5..groups.len() as f64 - 0.5, 0.0..highest(series) * 1.15)?;
        let label = |at: &f64| {
            let whole = (at - at.round()).abs() < 1e-6 && *at > -0.5;
            if whole { groups.get(at.round() as usize).cloned().unwrap_or_default() } else { String::new() }
        };
        let labels = groups.len().max(1) * 2;
        chart.configure_mesh().disable_x_mesh().x_labels(labels).x_label_formatter(&label).y_desc(y_name).draw()?;
        let width = 0.8 / series.len().max(1) as f64;
        for (index, one) in series.iter().enumerate() {
            let (color, left) = (color(index), -0.4 + width * index as f64);
            let bar = |(group, value): (f64, f64)| {
                Rectangle::new([(group + left, 0.0), (group + left + width * 0.92, value)], color.filled())
            };
            let legend = move |(x, y): (i32, i32)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], color.filled());
            chart.draw_series(one.finite().map(bar))?.label(&one.name).legend(legend);
        }
        draw_legend(&mut chart)
    })
}

/// One bar in pieces: how OFC's figures 3 and 7 show extract, transform and load.
pub(crate) struct StackedBar {
    pub(crate) label: String,
    /// From, to and colour of each piece, from the axis outwards.
    pub(crate) pieces: Vec<(f64, f64, RGBColor)>,
}

impl StackedBar {
    /// A bar of `[extract, transform, load]`, cut at `most`.
    pub(crate) fn of_phases(label: String, [extract, transform, load]: [f64; 3], most: f64) -> Self {
        let ends = [extract, extract + transform, extract + transform + load].map(|end| end.min(most));
        let pieces = vec![(0.0, ends[0], EXTRACT), (ends[0], ends[1], TRANSFORM), (ends[1], ends[2], LOAD)];
        Self { label, pieces }
    }
}

/// Bars of `StackedBar::of_phases`, with percent up to `most` on the axis.
pub(crate) fn phase_bars(bars: &[StackedBar], most: f64) -> Result<String, LabError> {
    let legend = [("extract", EXTRACT), ("transform", TRANSFORM), ("load", LOAD)];
    stacked_bars(bars, most, |share| format!("{:.0} %", share * 100.0), &legend)
}

/// Draws the first bar on top; `axis` writes the numbers below.
pub(crate) fn stacked_bars(
    bars: &[StackedBar],
    most: f64,
    axis: impl Fn(&f64) -> String,
    legend: &[(&str, RGBColor)],
) -> Result<String, LabError> {
    let count = bars.len();
    let height = STACKED_HEIGHT_MIN.max(STACKED_REST + STACKED_BAR * count as u32);
    drawn((SIZE.0, height), |root| {
        let mut chart = ChartBuilder::on(root)
            .margin(8)
            .margin_top(LEGEND_HEIGHT)
            .margin_right(28)
            .x_label_area_size(28)
            .y_label_area_size(STACKED_LABELS)
            .build_cartesian_2d(0.0..most, (0..count).into_segmented())?;
        let label = |position: &SegmentValue<usize>| match position {
            // The axis also asks for a segment behind the last.
            SegmentValue::CenterOf(row) => count
                .checked_sub(row + 1)
                .and_then(|index| bars.get(index))
                .map_or_else(String::new, |bar| bar.label.clone()),
            _ => String::new(),
        };
        chart
            .configure_mesh()
            .disable_y_mesh()
            .x_label_formatter(&axis)
            .y_label_formatter(&label)
            .y_labels(count + 1)
            .draw()?;
        for (index, bar) in bars.iter().enumerate() {
            let row = count - 1 - index;
            let pieces = bar.pieces.iter().map(|&(from, to, color)| {
                let corners = [(from, SegmentValue::Exact(row)), (to, SegmentValue::Exact(row + 1))];
                let mut piece = Rectangle::new(corners, color.filled());
                piece.set_margin(3, 3, 0, 0);
                piece
            });
            chart.draw_series(pieces)?;
        }
        // Above the bars: they reach both ends of the axis.
        for (&(name, color), left) in legend.iter().zip((STACKED_LABELS as i32..).step_by(110)) {
            root.draw(&Rectangle::new([(left, 9), (left + 12, 19)], color.filled()))?;
            root.draw(&Text::new(name.to_owned(), (left + 18, 8), ("sans-serif", 12)))?;
        }
        Ok(())
    })
}

/// Draws one line per series.
pub(crate) fn lines(series: &[Series], x_name: &str, y_name: &str) -> Result<String, LabError> {
    let points = || series.iter().flat_map(|series| series.values.iter().copied());
    let (left, right) = points().fold((f64::MAX, f64::MIN), |(low, high), (x, _)| (low.min(x), high.max(x)));
    let lowest = points().map(|(_, y)| y).filter(|y| y.is_finite()).fold(f64::MAX, f64::min).min(1.0);
    drawn(SIZE, |root| {
        let mut chart = ChartBuilder::on(root)
            .margin(8)
            .x_label_area_size(36)
            .y_label_area_size(56)
            .build_cartesian_2d(left..right.max(left + 1.0), lowest * 0.98..highest(series) * 1.05)?;
        chart.configure_mesh().x_desc(x_name).y_desc(y_name).draw()?;
        for (index, one) in series.iter().enumerate() {
            let color = color(index);
            let legend = move |(x, y): (i32, i32)| PathElement::new([(x, y), (x + 14, y)], color.stroke_width(2));
            let line = LineSeries::new(one.finite(), color.stroke_width(2));
            chart.draw_series(line)?.label(&one.name).legend(legend);
        }
        draw_legend(&mut chart)
    })
}

/// Draws one point per value; the first axis is logarithmic if all its values are above zero.
pub(crate) fn points(series: &Series, x_name: &str, y_name: &str) -> Result<String, LabError> {
    let (left, right) = series.finite().fold((f64::MAX, f64::MIN), |(low, high), (x, _)| (low.min(x), high.max(x)));
    let by_powers = left > 0.0 && right > left;
    let place = |x: f64| if by_powers { x.log10() } else { x };
    let (left, right) = (place(left), place(right));
    drawn(SIZE, |root| {
        let mut chart = ChartBuilder::on(root)
            .margin(8)
            .x_label_area_size(36)
            .y_label_area_size(56)
            .build_cartesian_2d(left..right.max(left + 0.1), 0.0..highest(std::slice::from_ref(series)) * 1.05)?;
        let label = |at: &f64| format!("{:.3}", if by_powers { 10_f64.powf(*at) } else { *at });
        chart.configure_mesh().x_label_formatter(&label).x_desc(x_name).y_desc(y_name).draw()?;
        chart.draw_series(series.finite().map(|(x, y)| Circle::new((place(x), y), 2, color(3).filled())))?;
        Ok(())
    })
}

/// A table of what a page shows, the head first.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let row = |cells: Vec<String>, tag: &str| {
        let cells = cells.iter().map(|cell| format!("<{tag}>{}", escape(cell))).collect::<String>();
        format!("<tr>{cells}")
    };
    let body = rows.iter().map(|cells| row(cells.clone(), "td")).collect::<String>();
    format!("<table>{}{body}</table>", row(head.iter().map(|&cell| cell.to_owned()).collect(), "th"))
}

/// A list of sentences.
pub(crate) fn list<S: AsRef<str>>(items: impl IntoIterator<Item = S>) -> String {
    let items: String = items.into_iter().map(|item| format!("<li>{}", escape(item.as_ref()))).collect();
    format!("<ul>{items}</ul>")
}

pub(crate) fn figure(caption: &str, svg: &str) -> String {
    format!("<figure><figcaption>{}</figcaption>{svg}</figure>", escape(caption))
}

/// A whole page; `body` is HTML.
pub(crate) fn page(title: &str, about: &str, body: &str, machine: &Machine) -> String {
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8><title>Nigh: {title}</title>\
         <meta name=viewport content='width=device-width'>\
         <style>body{{font:15px/1.5 system-ui,sans-serif;max-width:980px;margin:2em auto;padding:0 1em;color:#222}}\
         table{{border-collapse:collapse;width:100%;margin:1em 0}}\
         td,th{{padding:.25em .6em;text-align:right;white-space:nowrap;border-bottom:1px solid #ddd}}\
         th{{white-space:normal}}\
         td:first-child,th:first-child{{text-align:left}}figure{{margin:2em 0}}figcaption{{font-weight:600}}\
         svg{{max-width:100%;height:auto}}</style>\
         <h1>{title}</h1><p>{about}</p>{body}\
         <p>Run on {}. <code>{}</code></p></html>",
        escape(&machine.to_string()),
        escape(&machine.command),
        title = escape(title),
        about = escape(about),
    )
}

pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_shows_its_bars_lines_and_table() {
        let groups = ["one".to_owned(), "two".to_owned()];
        let series = [Series::of_groups("ours", [1.0, f64::NAN]), Series::of_groups("theirs", [2.0, 3.0])];
        let bars = bars(&groups, &series, "s").unwrap();
        assert!(bars.contains("one") && bars.contains("theirs"));
        assert!(!bars.contains("NaN"), "what is no number is left out");
        let lines = lines(&series, "ways", "time").unwrap();
        assert!(lines.contains("ways"));
        let dots =
            points(&Series { name: "p".to_owned(), values: vec![(1.0, 2.0), (1000.0, 3.0)] }, "KB", "MB").unwrap();
        assert_eq!(dots.matches("<circle").count(), 2);
        let table = table(&["what"], &[vec!["a<b".to_owned()]]);
        let page = page("t", "about", &(figure("f", &bars) + &table), &Machine::read("nigh".to_owned()));
        assert!(page.contains("<svg") && page.contains("a&lt;b"));
    }

    #[test]
    fn every_bar_in_pieces_is_there_with_its_name_and_pieces() {
        let bar = |label: &str| StackedBar {
            label: label.to_owned(),
            pieces: vec![(0.0, 0.4, EXTRACT), (0.4, 1.0, TRANSFORM)],
        };
        let svg = phase_bars(&[bar("one"), bar("two")], 1.0).unwrap();
        assert!(svg.contains("one") && svg.contains("two") && svg.contains("extract"));
        let blue = svg.matches("fill=\"#2668A8\"").count();
        assert_eq!(blue, 3, "a piece of each bar and the legend's");
    }
}
