//! What a load says: a row a tenant, and one of all. Pure.

use serde::Serialize;

use super::run::{InvocationTimes, Run};
use super::settings::LoadSettings;
use super::tenants::Tenant;
use crate::instrument::machine::Machine;
use crate::instrument::stats::Sample;
use crate::instrument::table::plain_grid;

/// What is sent so much later than due counts as late.
const LATE_MS: f64 = 20.0;

/// Invocations of one tenant, or of all. Milliseconds are percentiles; those of the phases medians.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LoadRow {
    pub(crate) tenant: String,
    pub(crate) booked_mb: Option<u64>,
    pub(crate) invocations: usize,
    pub(crate) failed: usize,
    /// Sent more than 20 ms later than due, as too many others were under way.
    pub(crate) late: usize,
    /// From when it was due to its answer.
    pub(crate) p50_ms: f64,
    pub(crate) p95_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) extract_ms: f64,
    pub(crate) transform_ms: f64,
    pub(crate) load_ms: f64,
    pub(crate) cold: usize,
    /// Reads served from memory; none where the node's records cannot be read.
    pub(crate) hit_ratio: Option<f64>,
    /// Of all invocations together.
    pub(crate) billed_gb_s: Option<f64>,
    pub(crate) used_gb_s: Option<f64>,
    /// Why the first that failed did.
    pub(crate) first_failure: Option<String>,
}

impl LoadRow {
    pub(crate) fn of<'a>(tenant: &str, booked_mb: Option<u64>, runs: impl Iterator<Item = &'a Run> + Clone) -> Self {
        let answered: Vec<&InvocationTimes> = runs.clone().filter_map(|run| run.answered.as_ref().ok()).collect();
        let median =
            |of: fn(&InvocationTimes) -> f64| Sample::new(answered.iter().map(|one| of(one)).collect()).median();
        let responses = Sample::new(runs.clone().map(|run| run.response_ms).collect());
        Self {
            tenant: tenant.to_owned(),
            booked_mb,
            invocations: runs.clone().count(),
            failed: runs.clone().filter(|run| run.answered.is_err()).count(),
            late: runs.clone().filter(|run| run.late_ms > LATE_MS).count(),
            p50_ms: responses.median(),
            p95_ms: responses.percentile(0.95),
            p99_ms: responses.percentile(0.99),
            extract_ms: median(|one| one.extract_ms),
            transform_ms: median(InvocationTimes::transform_ms),
            load_ms: median(|one| one.load_ms),
            cold: answered.iter().filter(|one| one.cold).count(),
            hit_ratio: hit_ratio(&answered),
            billed_gb_s: sum(&answered, |one| one.billed_gb_s),
            used_gb_s: sum(&answered, |one| one.used_gb_s),
            first_failure: runs.clone().find_map(|run| run.answered.as_ref().err().cloned()),
        }
    }

    fn cells(&self) -> Vec<String> {
        let or_dash = |figure: Option<f64>, digits: usize| {
            figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.digits$}"))
        };
        // Percentiles of nothing are no numbers.
        let known = |figure: f64| Some(figure).filter(|figure| figure.is_finite());
        vec![
            self.tenant.clone(),
            self.booked_mb.map_or_else(String::new, |mb| mb.to_string()),
            self.invocations.to_string(),
            self.failed.to_string(),
            self.late.to_string(),
            or_dash(known(self.p50_ms), 0),
            or_dash(known(self.p95_ms), 0),
            or_dash(known(self.p99_ms), 0),
            [self.extract_ms, self.transform_ms, self.load_ms].map(|ms| or_dash(known(ms), 1)).join("/"),
            self.cold.to_string(),
            or_dash(self.hit_ratio.map(|ratio| ratio * 100.0), 1),
            or_dash(self.billed_gb_s, 2),
            or_dash(self.used_gb_s, 2),
        ]
    }
}

/// Of the reads of which there is a record, the share that was served from memory.
pub(crate) fn hit_ratio(answered: &[&InvocationTimes]) -> Option<f64> {
    let (hits, reads) = answered
        .iter()
        .filter_map(|one| one.record)
        .fold((0, 0), |(hits, reads), record| (hits + record.hits, reads + record.hits + record.misses));
    (reads > 0).then(|| hits as f64 / reads as f64)
}

/// The sum of what is known of each; none if nothing is known of any.
pub(crate) fn sum(answered: &[&InvocationTimes], of: impl Fn(&InvocationTimes) -> Option<f64>) -> Option<f64> {
    let known: Vec<f64> = answered.iter().filter_map(|one| of(one)).collect();
    (!known.is_empty()).then(|| known.iter().sum())
}

/// All that a load says.
#[derive(Debug, Serialize)]
pub(crate) struct LoadReport {
    machine: Machine,
    settings: LoadSettings,
    /// Ctrl-C ended it before its time.
    interrupted: bool,
    /// Invocations that were settled beforehand.
    scheduled: usize,
    all: LoadRow,
    tenants: Vec<LoadRow>,
}

impl LoadReport {
    pub(crate) fn new(
        machine: Machine,
        settings: LoadSettings,
        scheduled: usize,
        interrupted: bool,
        tenants: &[(Tenant, u64)],
        runs: &[Run],
    ) -> Self {
        let row = |(number, (tenant, booked_mb)): (usize, &(Tenant, u64))| {
            LoadRow::of(&tenant.name, Some(*booked_mb), runs.iter().filter(move |run| run.arrival.tenant == number))
        };
        let rows = tenants.iter().enumerate().map(row).collect();
        Self { machine, settings, interrupted, scheduled, all: LoadRow::of("all", None, runs.iter()), tenants: rows }
    }

    pub(crate) fn text(&self) -> String {
        let table = plain_grid(
            "tenant | MB | runs | failed | late | p50 ms | p95 | p99 | E/T/L ms | cold | hits % | billed GB-s | used"
                .split(" | "),
            self.tenants.iter().chain([&self.all]).map(|row| row.cells()),
        );
        let left = self.scheduled.saturating_sub(self.all.invocations);
        let ended = if self.interrupted { format!("\ninterrupted: {left} were not sent") } else { String::new() };
        let failure = self.all.first_failure.as_ref().map_or_else(String::new, |why| format!("\nfirst failure: {why}"));
        format!("{table}{ended}{failure}\n{}", self.machine)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::load::arrivals::Arrival;
    use crate::load::run::PlatformRecord;

    /// An answer after `total_ms`, two tenths of it reading and one writing.
    pub(crate) fn run(number: usize, tenant: usize, total_ms: f64) -> Run {
        let answered = InvocationTimes {
            total_ms,
            extract_ms: total_ms * 0.2,
            load_ms: total_ms * 0.1,
            cpu_ms: total_ms * 0.7,
            billed_gb_s: Some(0.5),
            used_gb_s: Some(0.25),
            record: Some(PlatformRecord { hits: 3, misses: 1, ..PlatformRecord::default() }),
            ..InvocationTimes::default()
        };
        let arrival = Arrival { number, due_s: number as f64, tenant, input: 0 };
        Run { arrival, late_ms: 0.0, response_ms: total_ms + 1.0, answered: Ok(answered) }
    }

    #[test]
    fn a_tenants_row_has_its_runs_their_phases_their_hits_and_their_cost() {
        let mut runs = vec![run(0, 0, 10.0), run(1, 0, 30.0), run(2, 1, 1000.0)];
        runs.push(Run { late_ms: 40.0, answered: Err("refused".to_owned()), ..run(3, 0, 20.0) });
        let row = LoadRow::of("t", Some(128), runs.iter().filter(|run| run.arrival.tenant == 0));
        assert_eq!((row.invocations, row.failed, row.late, row.cold), (3, 1, 1, 0));
        assert_eq!((row.p50_ms, row.p99_ms), (21.0, 31.0), "a failed one took its time, too");
        assert!((row.extract_ms - 2.0).abs() < 1e-9 && (row.transform_ms - 7.0).abs() < 1e-9);
        assert_eq!((row.hit_ratio, row.billed_gb_s, row.used_gb_s), (Some(0.75), Some(1.0), Some(0.5)));
        assert_eq!(row.first_failure.as_deref(), Some("refused"));
        let none = LoadRow::of("t", None, runs.iter().filter(|run| run.arrival.tenant == 7));
        assert_eq!((none.invocations, none.hit_ratio, none.billed_gb_s), (0, None, None));
    }
}
