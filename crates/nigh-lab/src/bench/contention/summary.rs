//! Computes the figures of all cells together, and compares them with their targets. Pure.

use std::collections::BTreeMap;

use super::Row;
use crate::bench::RatioTarget;

const WORST_SHARE: &str = "worst_share_of_best";
const COLD_BELOW_ROOM: &str = "cold_per_invocation_below_room";
const COLD: &str = "cold_per_invocation";
/// The least number of callers of a row that may be the best of its group or gets a share: the throughput of one caller is
/// decided by its schedule.
const CALLERS_MIN: u32 = 2;

pub(super) fn asked() -> BTreeMap<&'static str, RatioTarget> {
    BTreeMap::from([(WORST_SHARE, RatioTarget::AtLeast(0.9)), (COLD_BELOW_ROOM, RatioTarget::AtMost(0.01))])
}

/// The throughput of each row, divided by the throughput that was possible: the best of its group (the rows that differ
/// only in the number of callers, and have at least two), or the rate that its callers offer, if that is less. None for a
/// row with one caller.
pub(super) fn shares_of_best(rows: &[Row]) -> Vec<Option<f64>> {
    let counts = |row: &&Row| row.cell.callers >= CALLERS_MIN;
    let share = |row: &Row| {
        let group = rows.iter().filter(counts).filter(|other| other.cell.is_in_group_of(&row.cell));
        let best = group.map(|other| other.throughput_per_s).fold(0.0, f64::max);
        let possible = best.min(row.offered_per_s);
        // If no cell of the group answered a call, no cell is worse than another; `throughput_per_s` shows that.
        (counts(&row) && possible > 0.0).then(|| row.throughput_per_s / possible)
    };
    rows.iter().map(share).collect()
}

/// The figures by name, without those that no row gives.
pub(super) fn summary(rows: &[Row]) -> BTreeMap<&'static str, f64> {
    let cold = |row: &Row| row.cold_per_invocation;
    let worst_cold = |rows: &mut dyn Iterator<Item = &Row>| rows.map(cold).reduce(f64::max);
    let figures = [
        (WORST_SHARE, rows.iter().filter_map(|row| row.share_of_best).reduce(f64::min)),
        (COLD_BELOW_ROOM, worst_cold(&mut rows.iter().filter(|row| row.cell.has_room_for_all()))),
        (COLD, worst_cold(&mut rows.iter())),
    ];
    figures.into_iter().filter_map(|(name, figure)| Some((name, figure?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::contention::cell::Cell;

    fn row(cell: &str, throughput_per_s: f64, cold_per_invocation: f64) -> Row {
        let cell: Cell = cell.parse().unwrap();
        let offered_per_s = f64::from(cell.callers) * 40.0;
        Row { throughput_per_s, offered_per_s, cold_per_invocation, ..Row::unmeasured(cell) }
    }

    fn with_shares(mut rows: Vec<Row>) -> Vec<Row> {
        let shares = shares_of_best(&rows);
        rows.iter_mut().zip(shares).for_each(|(row, share)| row.share_of_best = share);
        rows
    }

    #[test]
    fn a_share_is_of_the_best_of_its_group_or_of_what_its_callers_offer() {
        let rows = [
            row("1,2GiB,3,1", 300.0, 0.0),
            row("1,2GiB,3,3", 108.0, 0.0),
            row("1,2GiB,3,8", 160.0, 0.0),
            row("1,2GiB,3,64", 40.0, 0.0),
            row("1,4GiB,3,64", 1000.0, 0.0),
            row("1,1GiB,3,64", 0.0, 0.0),
        ];
        // One caller's own rate counts nowhere; three callers offer 120, less than the best, which is 160.
        assert_eq!(shares_of_best(&rows), [None, Some(0.9), Some(1.0), Some(0.25), Some(1.0), None]);
    }

    #[test]
    fn the_summary_has_the_worst_cell_and_tells_where_there_was_room() {
        let rows = with_shares(vec![
            row("1,2GiB,3,8", 100.0, 0.002),
            row("1,2GiB,3,3", 100.0, 0.001),
            row("1,2GiB,3,9", 50.0, 0.4),
        ]);
        let expected = BTreeMap::from([(WORST_SHARE, 0.5), (COLD_BELOW_ROOM, 0.002), (COLD, 0.4)]);
        assert_eq!(summary(&rows), expected);
        assert!(asked().keys().all(|name| expected.contains_key(name)));
    }

    #[test]
    fn a_figure_that_no_row_tells_is_left_out() {
        assert!(summary(&[]).is_empty());
        let crowded = with_shares(vec![row("1,1GiB,1,64", 10.0, 0.5)]);
        assert_eq!(summary(&crowded).into_keys().collect::<Vec<_>>(), [COLD, WORST_SHARE]);
    }
}
