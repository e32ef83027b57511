//! Bars in pieces, one below the other, each with its name: how OFC's figures 3 and 7 show extract, transform and load.

use plotters::prelude::*;

use super::chart::chart_error;
use crate::LabError;

pub(crate) const EXTRACT: RGBColor = RGBColor(38, 104, 168);
pub(crate) const TRANSFORM: RGBColor = RGBColor(187, 187, 187);
pub(crate) const LOAD: RGBColor = RGBColor(214, 118, 31);
const WIDTH: u32 = 960;
const HEIGHT_LEAST: u32 = 380;
/// Pixels of a bar, and of what is above and below all.
const BAR: u32 = 24;
const REST: u32 = 60;

/// One bar.
pub(crate) struct StackedBar {
    pub(crate) label: String,
    /// From, to and colour of each piece, from the axis outwards.
    pub(crate) pieces: Vec<(f64, f64, RGBColor)>,
}

/// Draws the first bar on top; `axis` writes the numbers below.
pub(crate) fn stacked_bars(
    bars: &[StackedBar],
    range: std::ops::Range<f64>,
    axis: impl Fn(&f64) -> String,
    legend: &[(&str, RGBColor)],
) -> Result<String, LabError> {
    let mut svg = String::new();
    let count = bars.len();
    let height = HEIGHT_LEAST.max(REST + BAR * count as u32);
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        let mut chart = ChartBuilder::on(&root)
            .margin(8)
            .x_label_area_size(28)
            .y_label_area_size(170)
            .build_cartesian_2d(range, (0..count).into_segmented())
            .map_err(chart_error)?;
        let label = |position: &SegmentValue<usize>| match position {
            // The axis also asks for a segment behind the last.
            SegmentValue::CenterOf(row) => {
                count.checked_sub(row + 1).and_then(|index| bars.get(index)).map(|bar| bar.label.clone())
            }
            _ => None,
        };
        chart
            .configure_mesh()
            .disable_y_mesh()
            .x_label_formatter(&axis)
            .y_label_formatter(&|position| label(position).unwrap_or_default())
            .y_labels(count + 1)
            .draw()
            .map_err(chart_error)?;
        for (name, color) in legend {
            let color = *color;
            chart
                .draw_series(std::iter::empty::<Rectangle<(f64, SegmentValue<usize>)>>())
                .map_err(chart_error)?
                .label(*name)
                .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], color.filled()));
        }
        for (index, bar) in bars.iter().enumerate() {
            let row = count - 1 - index;
            let pieces = bar.pieces.iter().map(|&(from, to, color)| {
                let corners = [(from, SegmentValue::Exact(row)), (to, SegmentValue::Exact(row + 1))];
                let mut piece = Rectangle::new(corners, color.filled());
                piece.set_margin(3, 3, 0, 0);
                piece
            });
            chart.draw_series(pieces).map_err(chart_error)?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.9))
            .border_style(BLACK.mix(0.3))
            .draw()
            .map_err(chart_error)?;
        root.present().map_err(chart_error)?;
    }
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bar_is_there_with_its_name_and_pieces() {
        let bar = |label: &str| StackedBar {
            label: label.to_owned(),
            pieces: vec![(0.0, 0.4, EXTRACT), (0.4, 1.0, TRANSFORM)],
        };
        let svg =
            stacked_bars(&[bar("one"), bar("two")], 0.0..1.0, |x| format!("{x:.1}"), &[("extract", EXTRACT)]).unwrap();
        assert!(svg.contains("one") && svg.contains("two") && svg.contains("extract"));
        let blue = svg.matches("fill=\"#2668A8\"").count();
        assert_eq!(blue, 3, "a piece of each bar and the legend's");
    }
}
