//! The mixed load's targets, and OFC's own figures of it (section 7.2.2).

use serde::Serialize;
use serde_json::{Map, Value};

use crate::instrument::template::fill;
use crate::instrument::verdict::Verdict;
use crate::load::booking::BookingProfile;

/// With this many tenants or more, the target is the one of the paper's 24.
const MANY_TENANTS: usize = 16;

pub(super) fn verdicts(tenants: usize, figures: &Map<String, Value>) -> Vec<Verdict> {
    let of = |figure: &str| figures.get(figure).and_then(Value::as_f64);
    let many = tenants >= MANY_TENANTS;
    let (share, of_ceiling) = (if many { 0.7 } else { 0.9 }, of("share_of_ceiling_least"));
    let hits = (!many).then(|| Verdict::at_least("hit ratio", of("hit_ratio"), 0.93));
    std::iter::once(Verdict::at_least("share of the ceiling, least of a function", of_ceiling, share))
        .chain(hits)
        .chain([
            Verdict::at_most("failed invocations", of("failed"), 0.0),
            Verdict::at_most("ended for want of memory", of("oom_kills"), 0.0),
        ])
        .collect()
}

/// What the paper says of its own run with as many tenants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Paper {
    /// Least and most of a function.
    pub(super) improvement_least: f64,
    pub(super) improvement_most: f64,
    pub(super) improvement_mean: Option<f64>,
    pub(super) hit_ratio: f64,
    /// Table 2; only for 8 tenants.
    pub(super) scale_up: Option<u64>,
    pub(super) scale_down: Option<u64>,
    pub(super) bad_predictions: Option<u64>,
    pub(super) failed: u64,
}

impl Paper {
    pub(super) fn of(tenants: usize, profile: BookingProfile) -> Self {
        if tenants >= MANY_TENANTS {
            let (improvement_least, improvement_most, hit_ratio) = (0.045, 0.449, 0.323);
            return Self { improvement_least, improvement_most, hit_ratio, ..Self::default() };
        }
        let (hit_ratio, scale_up, scale_down) = match profile {
            BookingProfile::Normal => (0.9821, 96, 225 + 7),
            BookingProfile::Advanced => (0.9312, 94, 224 + 4),
            BookingProfile::Naive => (0.989, 95, 226 + 4),
        };
        Self {
            improvement_least: 0.239,
            improvement_most: 0.798,
            improvement_mean: Some(0.546),
            hit_ratio,
            scale_up: Some(scale_up),
            scale_down: Some(scale_down),
            bad_predictions: Some(7),
            failed: 0,
        }
    }

    pub(super) fn sentence(&self) -> String {
        let template = "OFC: saves {improvement_least:%.1} to {improvement_most:%.1}, hit ratio {hit_ratio:%.1} (another machine, \
                        other functions)";
        fill(template, self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::mixed_load::report::tests::report;

    #[test]
    fn what_is_asked_depends_on_how_many_tenants_there_are() {
        let mut report = report();
        let few = verdicts(report.tenants, &report.figures);
        assert_eq!(few[0].met, Some(true), "{}", few[0]);
        assert_eq!(few[1].met, Some(false), "{}", few[1]);
        assert_eq!((few.len(), few[3].bound), (4, 0.0));
        report.figures.remove("share_of_ceiling_least");
        let many = verdicts(24, &report.figures);
        assert_eq!((many.len(), many[0].bound, many[0].met), (3, 0.7, None));
        assert_eq!(many[0].to_string(), "share of the ceiling, least of a function: -, target >= 0.7: not measured");
    }

    #[test]
    fn the_papers_figures_are_those_of_as_many_tenants() {
        assert_eq!(Paper::of(8, BookingProfile::Naive).hit_ratio, 0.989);
        let many = Paper::of(24, BookingProfile::Normal);
        assert_eq!((many.improvement_least, many.improvement_most), (0.045, 0.449));
        assert!(many.sentence().contains("4.5 % to 44.9 %"));
    }
}
