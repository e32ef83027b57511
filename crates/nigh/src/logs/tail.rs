//! The last lines of several logs. Pure.

use nigh_node::admin::LogEntry;

use crate::printable;

/// The entries, oldest first, that have the last `count` lines. Unless `whole` entries are wanted, the first one begins with
/// the first of these lines.
pub(super) fn tail(entries: Vec<LogEntry>, count: usize, whole: bool) -> Vec<LogEntry> {
    let mut left = count;
    let mut kept = Vec::new();
    for mut entry in entries.into_iter().rev() {
        if left == 0 {
            break;
        }
        let lines = printable::lines(&entry.log).count();
        if lines > left && !whole {
            let last: Vec<&str> = printable::lines(&entry.log).skip(lines - left).collect();
            entry.log = last.join("\n");
            // What is left out was asked for to be left out.
            entry.log_omitted = 0;
        }
        left = left.saturating_sub(lines.max(1));
        kept.push(entry);
    }
    kept.reverse();
    kept
}

#[cfg(test)]
mod tests {
    use nigh_terms::{FunctionName, InvocationId};

    use super::*;

    fn entry(log: &str) -> LogEntry {
        LogEntry {
            id: InvocationId::now(),
            function: FunctionName::new("f").unwrap(),
            start: String::new(),
            ended_ms: 0,
            duration_us: 0,
            outcome: String::new(),
            log: log.to_owned(),
            log_omitted: 7,
        }
    }

    #[test]
    fn the_last_lines_of_several_logs_are_left_in_their_order() {
        let logs = || vec![entry("a\nb\n"), entry("c\nd\re\n"), entry("f\n")];
        let left =
            |count, whole| -> Vec<String> { tail(logs(), count, whole).into_iter().map(|entry| entry.log).collect() };
        assert_eq!(left(1, false), ["f\n"]);
        assert_eq!(left(3, false), ["d\ne", "f\n"]);
        assert_eq!(left(3, true), ["c\nd\re\n", "f\n"]);
        assert_eq!(left(100, false), ["a\nb\n", "c\nd\re\n", "f\n"]);
        assert!(left(0, false).is_empty());
        assert_eq!(tail(logs(), 3, false)[0].log_omitted, 0);
    }

    #[test]
    fn a_log_without_lines_counts_as_one() {
        assert_eq!(tail(vec![entry("a\n"), entry("")], 1, false).len(), 1);
    }
}
