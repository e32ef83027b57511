//! What was asked of the mixed load beside what was measured, and what OFC's paper says of its own (section 7.2.2).

use std::fmt;

use serde::Serialize;

use super::report::{MixedLoadReport, percent};
use crate::load::booking::BookingProfile;

/// From so many tenants on, the asking is that of the paper's 24.
const MANY_TENANTS: usize = 16;

/// One line of what was asked.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Verdict {
    pub(super) what: &'static str,
    /// None where it could not be measured.
    pub(super) measured: Option<f64>,
    pub(super) bound: f64,
    /// True where more is better.
    pub(super) at_least: bool,
    /// None where it could not be measured.
    pub(super) met: Option<bool>,
}

impl Verdict {
    fn new(what: &'static str, measured: Option<f64>, at_least: bool, bound: f64) -> Self {
        let met = measured.map(|measured| if at_least { measured >= bound } else { measured <= bound });
        Self { what, measured, bound, at_least, met }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let met = match self.met {
            Some(true) => "met",
            Some(false) => "missed",
            None => "not measured",
        };
        let sign = if self.at_least { ">=" } else { "<=" };
        let measured = self.measured.map_or_else(|| "-".to_owned(), |measured| format!("{measured:.3}"));
        write!(f, "{}: {measured}, asked {sign} {}: {met}", self.what, self.bound)
    }
}

/// All lines that what was measured allows.
pub(super) fn verdicts(report: &MixedLoadReport) -> Vec<Verdict> {
    let many = report.tenants >= MANY_TENANTS;
    let share = if many { 0.7 } else { 0.9 };
    let mut all =
        vec![Verdict::new("share of the ceiling, least of a function", report.share_of_ceiling_least, true, share)];
    if !many {
        all.push(Verdict::new("hit ratio", report.hit_ratio, true, 0.93));
    }
    all.push(Verdict::new("failed invocations", Some(report.failed as f64), false, 0.0));
    all.push(Verdict::new("ended for want of memory", Some(report.oom_kills as f64), false, 0.0));
    all
}

/// What the paper says of its own run with as many tenants.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
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
    pub(super) const fn of(tenants: usize, profile: BookingProfile) -> Self {
        if tenants >= MANY_TENANTS {
            return Self {
                improvement_least: 0.045,
                improvement_most: 0.449,
                improvement_mean: None,
                hit_ratio: 0.323,
                scale_up: None,
                scale_down: None,
                bad_predictions: None,
                failed: 0,
            };
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
}

impl fmt::Display for Paper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { improvement_least, improvement_most, hit_ratio, .. } = self;
        let shares = [improvement_least, improvement_most, hit_ratio].map(|share| percent(Some(*share)));
        write!(
            f,
            "OFC: saves {} to {}, hit ratio {} (another machine, other functions)",
            shares[0], shares[1], shares[2]
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::mixed_load::report::tests::report;

    #[test]
    fn what_is_asked_depends_on_how_many_tenants_there_are() {
        let mut report = report();
        let few = verdicts(&report);
        assert_eq!(few[0].met, Some(true), "{}", few[0]);
        assert_eq!(few[1].met, Some(false), "{}", few[1]);
        assert_eq!((few.len(), few[3].bound), (4, 0.0));
        report.tenants = 24;
        report.share_of_ceiling_least = None;
        let many = verdicts(&report);
        assert_eq!((many.len(), many[0].bound, many[0].met), (3, 0.7, None));
        assert_eq!(many[0].to_string(), "share of the ceiling, least of a function: -, asked >= 0.7: not measured");
    }

    #[test]
    fn the_papers_figures_are_those_of_as_many_tenants() {
        assert_eq!(Paper::of(8, BookingProfile::Naive).hit_ratio, 0.989);
        let many = Paper::of(24, BookingProfile::Normal);
        assert_eq!((many.improvement_least, many.improvement_most), (0.045, 0.449));
        assert!(many.to_string().contains("4.5 % to 44.9 %"));
    }
}
