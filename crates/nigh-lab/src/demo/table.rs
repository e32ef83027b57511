//! The table of the demonstration: a row a function, in 80 columns. Pure.

use serde::Serialize;

use super::report::{Comparison, Summary};
use crate::instrument::template::Columns;

/// The least columns of a function's name.
const NAME_MIN: usize = 11;
/// Where a figure does not exist.
const NONE: &str = "-";
/// The same rows for a page.
const COLUMNS: Columns = Columns(
    "function | direct, ms = {direct_ms:.1} | Nigh, ms = {nigh_ms:.1} | time, Nigh / direct = {ratio:.2} | \
     95 % interval = [{low:.2} to {high:.2}] | reading and writing objects, direct, ms = {direct_objects_ms:.1} | \
     the same through Nigh, ms = {nigh_objects_ms:.1} | p95, direct, ms = {direct_p95_ms:.1} | \
     p95, Nigh, ms = {nigh_p95_ms:.1} | reads from memory = {hit_ratio:%} | \
     processor time of its work, Nigh / direct = {processor_ratio:.2} | runs a side = {runs}",
);

/// A function's figures.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    function: String,
    runs: usize,
    direct_ms: Option<f64>,
    nigh_ms: f64,
    ratio: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    direct_objects_ms: Option<f64>,
    nigh_objects_ms: f64,
    direct_p95_ms: Option<f64>,
    nigh_p95_ms: f64,
    hit_ratio: Option<f64>,
    processor_ratio: Option<f64>,
}

impl Row {
    pub(super) fn of(comparison: &Comparison<'_>) -> Self {
        let Comparison { direct, nigh } = *comparison;
        Self {
            function: nigh.function.clone(),
            runs: nigh.runs,
            direct_ms: direct.map(|direct| direct.time_ms),
            nigh_ms: nigh.time_ms,
            ratio: nigh.ratio_to_direct,
            low: nigh.ratio_low,
            high: nigh.ratio_high,
            direct_objects_ms: direct.map(Summary::objects_ms),
            nigh_objects_ms: nigh.objects_ms(),
            direct_p95_ms: direct.map(|direct| direct.p95_ms),
            nigh_p95_ms: nigh.p95_ms,
            hit_ratio: nigh.hit_ratio,
            processor_ratio: nigh.processor_ratio_to_direct,
        }
    }
}

/// Milliseconds, with a digit behind the point where there are few before it.
pub(super) fn milliseconds(value: f64) -> String {
    if value < 100.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

/// The table for a terminal, whose rows are printed one by one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table {
    name_width: usize,
}

impl Table {
    /// For functions of these names.
    pub(super) fn new<'n>(names: impl Iterator<Item = &'n str>) -> Self {
        Self { name_width: names.map(|name| name.chars().count()).fold(NAME_MIN, usize::max) }
    }

    /// Two lines above the rows.
    pub(super) fn head(self) -> String {
        let width = self.name_width;
        let above = ["", "time, ms", "Nigh / direct", "objects, ms", "hits", "CPU"];
        let [name, time, ratio, objects, hits, cpu] = above;
        let above = format!("{name:width$}{time:>16}  {ratio:<20}{objects:>16}{hits:>6}{cpu:>6}");
        let below = ["function", "direct", "Nigh", "time [95 % interval]", "direct", "Nigh", "", "ratio"];
        let [name, direct, nigh, ratio, direct_objects, nigh_objects, hits, cpu] = below;
        let below = format!(
            "{name:width$}{direct:>8}{nigh:>8}  {ratio:<20}{direct_objects:>8}{nigh_objects:>8}{hits:>6}{cpu:>6}"
        );
        format!("{above}\n{below}")
    }

    pub(super) fn line(self, row: &Row) -> String {
        let width = self.name_width;
        let ms = |value: Option<f64>| value.map_or_else(|| NONE.to_owned(), milliseconds);
        let ratio = |value: Option<f64>| value.map_or_else(|| NONE.to_owned(), |value| format!("{value:.2}"));
        let interval = row.low.zip(row.high).map(|(low, high)| format!(" [{low:.2}, {high:.2}]")).unwrap_or_default();
        let hits = row.hit_ratio.map_or_else(|| NONE.to_owned(), |share| format!("{:.0} %", share * 100.0));
        format!(
            "{:width$}{:>8}{:>8}  {:<20}{:>8}{:>8}{:>6}{:>6}",
            row.function,
            ms(row.direct_ms),
            ms(Some(row.nigh_ms)),
            ratio(row.ratio) + &interval,
            ms(row.direct_objects_ms),
            ms(Some(row.nigh_objects_ms)),
            hits,
            ratio(row.processor_ratio),
        )
    }
}

/// The table for a page.
pub(super) fn html(comparisons: &[Comparison<'_>]) -> String {
    COLUMNS.html(&comparisons.iter().map(Row::of).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::report::comparisons;
    use crate::demo::report::tests::made_up;

    #[test]
    fn a_row_has_its_figures_under_their_heads_in_80_columns() {
        let summaries = made_up("thumbnail", [12.0, 10.0, 28.0], [1.5, 10.0, 4.66], [0.293, 0.354]);
        let row = Row::of(&comparisons(&summaries)[0]);
        let table = Table::new(["thumbnail", "wordcount"].into_iter());
        let line = table.line(&row);
        assert_eq!(line, "thumbnail      50.0    16.2  0.32 [0.29, 0.35]       40.0     6.2  95 %  1.00");
        let head = table.head();
        let [first, second] = head.lines().collect::<Vec<_>>().try_into().ok().unwrap();
        for line in [first, second, line.as_str()] {
            assert!(line.chars().count() <= 80, "{line}");
        }
        // Each figure ends below the word that names it.
        let ends = |line: &str, word: &str| line.find(word).unwrap() + word.len();
        assert_eq!(ends(second, "direct"), ends(&line, "50.0"));
        assert_eq!(ends(second, "ratio"), ends(&line, "1.00"));
        assert_eq!(ends(first, "hits"), ends(&line, "95 %"));
    }

    #[test]
    fn times_of_minutes_fit_and_what_is_not_known_is_a_dash() {
        let mut summaries = made_up("speech", [20.0, 99_000.0, 30.0], [10.0, 99_000.0, 20.0], [0.9, 1.1]);
        summaries.remove(0);
        summaries[0].ratio_to_direct = None;
        summaries[0].ratio_low = None;
        let row = Row::of(&comparisons(&summaries)[0]);
        let line = Table::new(["speech"].into_iter()).line(&row);
        assert!(line.starts_with("speech            -   99030  -  "), "{line}");
        assert!(line.chars().count() <= 80, "{line}");
        assert!(html(&comparisons(&summaries)).contains("99030.0"), "the page has it, too");
    }

    #[test]
    fn a_long_name_is_not_cut() {
        let name = "sentiment_analysis";
        let row = Row::of(&comparisons(&made_up(name, [1.0; 3], [1.0; 3], [0.9, 1.1]))[0]);
        assert!(Table::new([name].into_iter()).line(&row).starts_with("sentiment_analysis     3.0     3.0"));
    }
}
