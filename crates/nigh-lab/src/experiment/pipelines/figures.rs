//! Where the time of an application's tasks went, as each prints it in its own process (`peers/measured.py`). Pure.

use serde::Deserialize;

const MARK: &str = "nigh-stage ";

/// One task, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub(super) struct Figures {
    /// The handler, from its first line to its last.
    pub(super) total_us: f64,
    /// Waiting for objects.
    pub(super) extract_us: f64,
    /// Storing objects.
    pub(super) load_us: f64,
}

impl Figures {
    /// Those in what a task has printed.
    pub(super) fn read<'a>(lines: impl Iterator<Item = &'a str>) -> impl Iterator<Item = Self> {
        let told = lines.filter_map(|line| line.split_once(MARK));
        told.filter_map(|(_, figures)| serde_json::from_str(figures).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_among_what_a_task_prints() {
        let log = "START\nhello\nnigh-stage {\"total_us\": 9.5, \"extract_us\": 2, \"load_us\": 3, \"cpu_us\": 1}\nnigh-stage x";
        let found: Vec<Figures> = Figures::read(log.lines()).collect();
        assert_eq!(found, [Figures { total_us: 9.5, extract_us: 2.0, load_us: 3.0 }]);
    }
}
