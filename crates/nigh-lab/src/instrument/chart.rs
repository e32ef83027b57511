//! Charts and pages of the cache experiments: bars in groups, lines by way count, one page an experiment.

use plotters::prelude::*;

use crate::LabError;
use crate::instrument::machine::Machine;

const SIZE: (u32, u32) = (960, 340);
/// Told apart by people who do not see all colours, too.
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

/// One line, or one bar in every group.
pub(crate) struct Series {
    pub(crate) name: String,
    /// By group, or points (x, y); what is no number is left out.
    pub(crate) values: Vec<(f64, f64)>,
}

impl Series {
    /// Values of groups 0, 1, ...
    pub(crate) fn of_groups(name: impl Into<String>, values: impl IntoIterator<Item = f64>) -> Self {
        let values = values.into_iter().enumerate().map(|(group, value)| (group as f64, value));
        Self { name: name.into(), values: values.collect() }
    }
}

pub(crate) fn chart_error(error: impl std::fmt::Display) -> LabError {
    LabError::Chart(error.to_string())
}

fn color(series: usize) -> RGBColor {
    COLORS[series % COLORS.len()]
}

fn highest(series: &[Series]) -> f64 {
    let values = series.iter().flat_map(|series| series.values.iter().map(|(_, y)| *y));
    values.filter(|value| value.is_finite()).fold(f64::MIN_POSITIVE, f64::max)
}

/// One bar a series in every group.
pub(crate) fn bars(groups: &[String], series: &[Series], y_name: &str) -> Result<String, LabError> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let count = groups.len() as f64;
        let mut chart = ChartBuilder::on(&root)
            .margin(8)
            .x_label_area_size(30)
            .y_label_area_size(56)
            .build_cartesian_2d(-0.5..count - 0.5, 0.0..highest(series) * 1.15)
            .map_err(chart_error)?;
        let label = |at: &f64| {
            let whole = (at - at.round()).abs() < 1e-6 && *at > -0.5;
            if whole { groups.get(at.round() as usize).cloned().unwrap_or_default() } else { String::new() }
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(groups.len().max(1) * 2)
            .x_label_formatter(&label)
            .y_desc(y_name)
            .draw()
            .map_err(chart_error)?;
        let width = 0.8 / series.len().max(1) as f64;
        for (index, one) in series.iter().enumerate() {
            let color = color(index);
            let left = -0.4 + width * index as f64;
            let shown = one.values.iter().filter(|(_, value)| value.is_finite());
            let bars = shown.map(|(group, value)| {
                Rectangle::new([(group + left, 0.0), (group + left + width * 0.92, *value)], color.filled())
            });
            chart
                .draw_series(bars)
                .map_err(chart_error)?
                .label(&one.name)
                .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], color.filled()));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.85))
            .draw()
            .map_err(chart_error)?;
        root.present().map_err(chart_error)?;
    }
    Ok(svg)
}

/// One line a series.
pub(crate) fn lines(series: &[Series], x_name: &str, y_name: &str) -> Result<String, LabError> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let points = || series.iter().flat_map(|series| series.values.iter().copied());
        let (left, right) = points().fold((f64::MAX, f64::MIN), |(low, high), (x, _)| (low.min(x), high.max(x)));
        let lowest = points().map(|(_, y)| y).filter(|y| y.is_finite()).fold(f64::MAX, f64::min).min(1.0);
        let mut chart = ChartBuilder::on(&root)
            .margin(8)
            .x_label_area_size(36)
            .y_label_area_size(56)
            .build_cartesian_2d(left..right.max(left + 1.0), lowest * 0.98..highest(series) * 1.05)
            .map_err(chart_error)?;
        chart.configure_mesh().x_desc(x_name).y_desc(y_name).draw().map_err(chart_error)?;
        for (index, one) in series.iter().enumerate() {
            let color = color(index);
            let shown = one.values.iter().copied().filter(|(_, y)| y.is_finite());
            chart
                .draw_series(LineSeries::new(shown, color.stroke_width(2)))
                .map_err(chart_error)?
                .label(&one.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], color.stroke_width(2)));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.85))
            .draw()
            .map_err(chart_error)?;
        root.present().map_err(chart_error)?;
    }
    Ok(svg)
}

/// A point a value, the first axis by powers of ten where all are above nothing.
pub(crate) fn points(series: &Series, x_name: &str, y_name: &str) -> Result<String, LabError> {
    let shown = || series.values.iter().filter(|(x, y)| x.is_finite() && y.is_finite());
    let (left, right) = shown().fold((f64::MAX, f64::MIN), |(low, high), (x, _)| (low.min(*x), high.max(*x)));
    let by_powers = left > 0.0 && right > left;
    let place = |x: f64| if by_powers { x.log10() } else { x };
    let (left, right) = (place(left), place(right));
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let mut chart = ChartBuilder::on(&root)
            .margin(8)
            .x_label_area_size(36)
            .y_label_area_size(56)
            .build_cartesian_2d(left..right.max(left + 0.1), 0.0..highest(std::slice::from_ref(series)) * 1.05)
            .map_err(chart_error)?;
        let label = |at: &f64| format!("{:.3}", if by_powers { 10_f64.powf(*at) } else { *at });
        chart.configure_mesh().x_label_formatter(&label).x_desc(x_name).y_desc(y_name).draw().map_err(chart_error)?;
        let dots = shown().map(|(x, y)| Circle::new((place(*x), *y), 2, color(3).filled()));
        chart.draw_series(dots).map_err(chart_error)?;
        root.present().map_err(chart_error)?;
    }
    Ok(svg)
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

/// A figure with its caption.
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
         td,th{{padding:.25em .6em;text-align:right;border-bottom:1px solid #ddd}}\
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
}
