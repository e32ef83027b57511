//! The picture of the demonstration: for each function two stacked bars in milliseconds, direct and through Nigh, beside each
//! other; as text for a terminal and as SVG for a page. Pure.
//!
//! Functions take from a few milliseconds to seconds, so each has a scale of its own: its longer bar has the full length, and
//! each bar has its time behind it.

use std::fmt::Write as _;

use plotters::style::RGBColor;

use super::report::{Comparison, Summary};
use super::table::milliseconds;
use crate::instrument::chart::{EXTRACT, LOAD, TRANSFORM, escape};

/// What the pieces of a bar are called, in their order.
const PIECES: [&str; 3] = ["reading objects", "work", "writing objects"];
/// The pieces in a terminal: as `nigh explain` draws reading, the handler and writing.
const CHARACTERS: [char; 3] = ['█', '─', '▓'];
/// The length of a full bar in columns.
const COLUMNS_MAX: f64 = 44.0;

const COLORS: [RGBColor; 3] = [EXTRACT, TRANSFORM, LOAD];
/// The drawing in pixels: its width; where sides and bars begin, and full bars end; where the ratios stand.
const WIDTH: u32 = 960;
const SIDES_AT: u32 = 150;
const BARS_AT: u32 = 206;
const BARS_END: u32 = 720;
const RATIOS_AT: u32 = 815;
/// The height of a bar, from one bar to the next, and from one function to the next.
const BAR: u32 = 15;
const STEP: u32 = 18;
const GROUP: u32 = 50;
/// The height of the legend and the heads above the bars.
const ABOVE: u32 = 64;

const fn pieces(summary: &Summary) -> [f64; 3] {
    [summary.phases_ms.extract, summary.phases_ms.transform, summary.phases_ms.load]
}

/// The bars of a function, the direct one first: the side's name and its summary.
fn bars<'a>(comparison: &Comparison<'a>) -> Vec<(&'static str, &'a Summary)> {
    comparison.direct.map(|direct| ("direct", direct)).into_iter().chain([("Nigh", comparison.nigh)]).collect()
}

/// The time of the longer bar.
fn longest(bars: &[(&'static str, &Summary)]) -> f64 {
    bars.iter().map(|(_, summary)| summary.time_ms).fold(f64::MIN_POSITIVE, f64::max)
}

/// Where the pieces of a bar end, if one of `longest` has the length `full`.
fn ends(summary: &Summary, longest: f64, full: f64) -> [f64; 3] {
    let [first, second, third] = pieces(summary);
    [first, first + second, first + second + third].map(|end| end / longest * full)
}

/// The picture for a terminal of 80 columns.
pub(super) fn text(comparisons: &[Comparison<'_>]) -> String {
    let legend = PIECES.iter().zip(CHARACTERS).map(|(name, character)| format!("{character} {name}"));
    let mut text = format!("{}; each function on its own scale\n", legend.collect::<Vec<_>>().join("  "));
    let names = comparisons.iter().map(|one| one.nigh.function.chars().count());
    let width = names.max().unwrap_or_default();
    for comparison in comparisons {
        let bars = bars(comparison);
        let longest = longest(&bars);
        for (at, (side, summary)) in bars.iter().enumerate() {
            let name = if at == 0 { comparison.nigh.function.as_str() } else { "" };
            let mut bar = String::new();
            for (end, character) in ends(summary, longest, COLUMNS_MAX).into_iter().zip(CHARACTERS) {
                let length = bar.chars().count();
                bar.extend(std::iter::repeat_n(character, (end.round() as usize).saturating_sub(length)));
            }
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{name:width$}  {side:<6} {bar} {} ms", milliseconds(summary.time_ms));
        }
    }
    text
}

fn put(svg: &mut String, x: u32, y: u32, style: &str, text: &str) {
    let _ = write!(svg, "<text x='{x}' y='{y}' {style}>{}</text>", escape(text));
}

fn rectangle(svg: &mut String, (x, y): (f64, u32), (width, height): (f64, u32), RGBColor(red, green, blue): RGBColor) {
    let _ = write!(
        svg,
        "<rect x='{x:.1}' y='{y}' width='{width:.1}' height='{height}' fill='#{red:02X}{green:02X}{blue:02X}'/>"
    );
}

/// The picture for a page.
pub(super) fn svg(comparisons: &[Comparison<'_>]) -> String {
    let height = ABOVE + GROUP * comparisons.len() as u32;
    let mut svg = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' width='{WIDTH}' height='{height}' \
         font-family='system-ui,sans-serif' font-size='13' fill='#222'>"
    );
    for ((name, color), left) in PIECES.iter().zip(COLORS).zip((BARS_AT..).step_by(140)) {
        rectangle(&mut svg, (f64::from(left), 8), (12.0, 12), color);
        put(&mut svg, left + 18, 19, "", name);
    }
    put(&mut svg, RATIOS_AT, 19, "", "Nigh / direct");
    put(&mut svg, BARS_AT, 42, "font-size='12' fill='#666'", "milliseconds; each function on its own scale");
    put(&mut svg, RATIOS_AT, 42, "font-size='12' fill='#666'", "time [95 % interval]");
    for (comparison, top) in comparisons.iter().zip((ABOVE..).step_by(GROUP as usize)) {
        let bars = bars(comparison);
        let longest = longest(&bars);
        put(&mut svg, 0, top + BAR - 3, "font-weight='600'", &comparison.nigh.function);
        for ((side, summary), y) in bars.iter().zip((top..).step_by(STEP as usize)) {
            put(&mut svg, SIDES_AT, y + BAR - 3, "", side);
            let mut begin = 0.0;
            for (end, color) in ends(summary, longest, f64::from(BARS_END - BARS_AT)).into_iter().zip(COLORS) {
                rectangle(&mut svg, (f64::from(BARS_AT) + begin, y), (end - begin, BAR), color);
                begin = end;
            }
            let time = format!("{} ms", milliseconds(summary.time_ms));
            put(&mut svg, BARS_AT + begin.round() as u32 + 6, y + BAR - 3, "", &time);
        }
        if let Some(ratio) = comparison.nigh.ratio_to_direct {
            let interval = comparison.nigh.ratio_low.zip(comparison.nigh.ratio_high);
            let interval = interval.map(|(low, high)| format!(" [{low:.2}, {high:.2}]")).unwrap_or_default();
            put(&mut svg, RATIOS_AT, top + BAR + 5, "", &format!("{ratio:.2}{interval}"));
        }
    }
    svg + "</svg>"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::report::comparisons;
    use crate::demo::report::tests::made_up;

    #[test]
    fn a_terminal_shows_both_sides_of_a_function_on_one_scale() {
        let summaries = [
            made_up("thumbnail", [20.0, 10.0, 20.0], [2.0, 9.0, 1.5], [0.2, 0.3]),
            made_up("speech", [10.0, 4000.0, 10.0], [1.0, 4000.0, 1.0], [0.99, 1.01]),
        ]
        .concat();
        let text = text(&comparisons(&summaries));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "█ reading objects  ─ work  ▓ writing objects; each function on its own scale");
        assert_eq!(
            lines[1],
            format!("thumbnail  direct {}{}{} 50.0 ms", "█".repeat(18), "─".repeat(8), "▓".repeat(18))
        );
        assert_eq!(lines[2], format!("           Nigh   {}{}{} 12.5 ms", "█".repeat(2), "─".repeat(8), "▓"));
        assert!(lines[3].starts_with("speech     direct ─") && lines[3].ends_with("─ 4020 ms"), "{}", lines[3]);
        assert_eq!(lines.len(), 5);
        for line in lines {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }

    #[test]
    fn a_page_shows_bars_times_and_ratios_and_its_legend_lies_above_all_bars() {
        let summaries = made_up("a<b", [20.0, 10.0, 20.0], [2.0, 9.0, 1.5], [0.2, 0.3]);
        let svg = svg(&comparisons(&summaries));
        assert_eq!(svg.matches("<rect").count(), 3 + 6, "the legend's and three of each bar");
        for part in ["a&lt;b", ">50.0 ms<", ">12.5 ms<", ">0.25 [0.20, 0.30]<", "width='205.6'", ">work<"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        let tops: Vec<u32> = svg
            .split("<rect ")
            .skip(1)
            .map(|one| one.split("y='").nth(1).unwrap().split('\'').next().unwrap().parse().unwrap())
            .collect();
        assert!(tops[..3].iter().all(|top| *top < 20) && tops[3..].iter().all(|top| *top >= ABOVE), "{tops:?}");
        // The longest time's words end before the ratios begin.
        const { assert!(BARS_END + 6 + 70 < RATIOS_AT && RATIOS_AT + 130 < WIDTH) };
    }

    #[test]
    fn one_side_alone_has_one_bar_and_no_ratio() {
        let mut summaries = made_up("f", [2.0, 2.0, 2.0], [1.0, 1.0, 1.0], [0.4, 0.6]);
        summaries.remove(0);
        summaries[0].ratio_to_direct = None;
        let comparisons = comparisons(&summaries);
        assert_eq!(text(&comparisons).lines().count(), 2);
        let svg = svg(&comparisons);
        assert!(svg.contains(">Nigh<") && !svg.contains(">direct<") && !svg.contains("0.40"), "{svg}");
    }
}
