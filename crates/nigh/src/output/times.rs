//! Times in words: spans, and how long ago something was.

use nigh_terms::Timestamp;

/// Times longer ago are told as dates: 60 days.
const AGO_MAX_S: u64 = 60 * 86_400;
/// The units of spans, in seconds.
const UNITS: [(&str, u64); 4] = [("days", 86_400), ("h", 3600), ("min", 60), ("s", 1)];

/// Seconds in at most two units: `45 s`, `3 min 20 s`, `2 h 5 min`, `1 day 4 h`.
pub(crate) fn span(seconds: u64) -> String {
    let counted = |count: u64, unit: &str| match (count, unit) {
        (1, "days") => "1 day".to_owned(),
        _ => format!("{count} {unit}"),
    };
    let Some(at) = UNITS.iter().position(|(_, unit)| seconds >= *unit) else { return "0 s".to_owned() };
    let (unit, length) = UNITS[at];
    let first = counted(seconds / length, unit);
    match UNITS.get(at + 1) {
        Some((next, its_length)) if seconds % length >= *its_length => {
            format!("{first} {}", counted(seconds % length / its_length, next))
        }
        _ => first,
    }
}

/// How long before `now` was `then`, in one unit: `just now`, `5 s ago`, `3 min ago`, `4 days ago`; the date if that is
/// long ago or to come.
pub(crate) fn ago(then: Timestamp, now: Timestamp) -> String {
    let Some(millis) = now.millis().checked_sub(then.millis()) else { return then.rfc3339() };
    match millis / 1000 {
        0 => "just now".to_owned(),
        seconds if seconds > AGO_MAX_S => then.rfc3339().chars().take("2026-11-26".len()).collect(),
        seconds => {
            let unit = UNITS.iter().find(|(_, unit)| seconds >= *unit).map_or(1, |(_, unit)| *unit);
            format!("{} ago", span(seconds / unit * unit))
        }
    }
}

/// Microseconds as people read them: `850 us`, `1.2 ms`, `3.40 s`.
pub(crate) fn duration(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} us"),
        1_000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        _ => format!("{:.2} s", us as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_keep_two_or_three_figures() {
        assert_eq!(duration(850), "850 us");
        assert_eq!(duration(1_250), "1.2 ms");
        assert_eq!(duration(3_400_000), "3.40 s");
    }

    #[test]
    fn a_span_has_at_most_two_units_and_no_zeros() {
        for (seconds, words) in [
            (0, "0 s"),
            (45, "45 s"),
            (60, "1 min"),
            (200, "3 min 20 s"),
            (3600, "1 h"),
            (3605, "1 h"),
            (7500, "2 h 5 min"),
            (86_400, "1 day"),
            (100_800, "1 day 4 h"),
            (200_000, "2 days 7 h"),
        ] {
            assert_eq!(span(seconds), words);
        }
    }

    #[test]
    fn what_was_is_told_in_one_unit_and_long_ago_or_to_come_by_its_date() {
        let now = Timestamp(1_800_000_000_000);
        let before = |seconds: u64| ago(Timestamp(now.millis() - seconds * 1000), now);
        assert_eq!(before(0), "just now");
        assert_eq!(before(59), "59 s ago");
        assert_eq!(before(200), "3 min ago");
        assert_eq!(before(7_500), "2 h ago");
        assert_eq!(before(90_000), "1 day ago");
        assert_eq!(before(400 * 86_400), "2025-12-11");
        assert_eq!(ago(Timestamp(now.millis() + 1), now), "2027-01-15T08:00:00.001Z");
    }
}
