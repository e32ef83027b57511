//! The result of a load: a row for each tenant, and one for all. Pure.

use serde::Serialize;
use serde_json::{Value, json};

use super::run::{InvocationTimes, Run};
use super::settings::LoadSettings;
use super::tenants::Tenant;
use crate::instrument::machine::Machine;
use crate::instrument::stats::Sample;
use crate::instrument::template::{Columns, fill};

/// An invocation counts as late if it is sent so long after it was due.
const LATE_MS: f64 = 20.0;

const COLUMNS: Columns = Columns(
    "tenant | MB = {booked_mb} | runs = {invocations} | failed | late | p50 ms = {p50_ms:.0} | p95 = {p95_ms:.0} | \
     p99 = {p99_ms:.0} | E/T/L ms = {extract_ms:.1}/{transform_ms:.1}/{load_ms:.1} | cold | hits = {hit_ratio:%.1} | \
     billed GB-s = {billed_gb_s:.2} | used = {used_gb_s:.2}",
);

/// Invocations of one tenant, or of all. Milliseconds are percentiles, those of the phases medians.
fn row<'a>(tenant: &str, booked_mb: Option<u64>, runs: impl Iterator<Item = &'a Run>) -> Value {
    let runs: Vec<&Run> = runs.collect();
    let answered: Vec<&InvocationTimes> = runs.iter().filter_map(|run| run.answered.as_ref().ok()).collect();
    let median = |of: fn(&InvocationTimes) -> f64| Sample::of(&answered, |times| of(times)).median();
    let responses = Sample::of(&runs, |run| run.response_ms);
    json!({
        "tenant": tenant,
        "booked_mb": booked_mb,
        "invocations": runs.len(),
        "failed": runs.len() - answered.len(),
        // Sent more than 20 ms later than due, as too many others were under way.
        "late": runs.iter().filter(|run| run.late_ms > LATE_MS).count(),
        // From when it was due to its answer.
        "p50_ms": responses.median(),
        "p95_ms": responses.percentile(0.95),
        "p99_ms": responses.percentile(0.99),
        "extract_ms": median(|one| one.extract_ms),
        "transform_ms": median(InvocationTimes::transform_ms),
        "load_ms": median(|one| one.load_ms),
        "cold": answered.iter().filter(|one| one.cold).count(),
        // Reads served from memory; null where the node's records cannot be read.
        "hit_ratio": hit_ratio(&answered),
        // Sums over all invocations.
        "billed_gb_s": sum(&answered, |one| one.billed_gb_s),
        "used_gb_s": sum(&answered, |one| one.used_gb_s),
        "first_failure": runs.iter().find_map(|run| run.answered.as_ref().err()),
    })
}

/// The share of recorded reads that were served from memory.
pub(crate) fn hit_ratio(answered: &[&InvocationTimes]) -> Option<f64> {
    let (hits, reads) = answered
        .iter()
        .filter_map(|one| one.record)
        .fold((0, 0), |(hits, reads), record| (hits + record.hits, reads + record.hits + record.misses));
    (reads > 0).then(|| hits as f64 / reads as f64)
}

/// The sum of the known figures; none if no figure is known.
pub(crate) fn sum(answered: &[&InvocationTimes], of: impl Fn(&InvocationTimes) -> Option<f64>) -> Option<f64> {
    let known: Vec<f64> = answered.iter().filter_map(|one| of(one)).collect();
    (!known.is_empty()).then(|| known.iter().sum())
}

#[derive(Debug, Serialize)]
pub(crate) struct LoadReport {
    machine: Machine,
    settings: LoadSettings,
    /// Ctrl-C ended it before its time.
    interrupted: bool,
    /// Invocations of the whole schedule.
    scheduled: usize,
    all: Value,
    tenants: Vec<Value>,
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
        let of_tenant = |(number, (tenant, booked_mb)): (usize, &(Tenant, u64))| {
            row(&tenant.name, Some(*booked_mb), runs.iter().filter(move |run| run.arrival.tenant == number))
        };
        let tenants = tenants.iter().enumerate().map(of_tenant).collect();
        Self { machine, settings, interrupted, scheduled, all: row("all", None, runs.iter()), tenants }
    }

    pub(crate) fn text(&self) -> String {
        let rows: Vec<&Value> = self.tenants.iter().chain([&self.all]).collect();
        let sent = self.all["invocations"].as_u64().unwrap_or(0);
        let left = (self.scheduled as u64).saturating_sub(sent);
        let ended = if self.interrupted { format!("\ninterrupted: {left} were not sent") } else { String::new() };
        let failure = fill("[\nfirst failure: {first_failure}]", &self.all);
        format!("{}{ended}{failure}\n{}", COLUMNS.text(&rows), self.machine)
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
        let row = row("t", Some(128), runs.iter().filter(|run| run.arrival.tenant == 0));
        let is = |row: &Value, fields: &[(&str, Value)]| fields.iter().all(|(field, value)| row[field] == *value);
        assert!(is(&row, &[("invocations", 3.into()), ("failed", 1.into()), ("late", 1.into()), ("cold", 0.into())]));
        assert!(is(&row, &[("p50_ms", 21.0.into()), ("p99_ms", 31.0.into())]), "a failed one took its time, too");
        let near = |field: &str, figure: f64| (row[field].as_f64().unwrap() - figure).abs() < 1e-9;
        assert!(near("extract_ms", 2.0) && near("transform_ms", 7.0));
        assert!(near("hit_ratio", 0.75) && near("billed_gb_s", 1.0) && near("used_gb_s", 0.5));
        assert_eq!(row["first_failure"], "refused");
        let none = super::row("t", None, runs.iter().filter(|run| run.arrival.tenant == 7));
        assert!(is(&none, &[("invocations", 0.into()), ("hit_ratio", Value::Null), ("billed_gb_s", Value::Null)]));
    }
}
