//! The rows of the report, its text and its page. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::rates::{Cell, RateOf};
use super::round::{Round, percentile};
use super::stage::NIGH;
use crate::LabError;
use crate::instrument::chart::{self, Series};
use crate::instrument::machine::Machine;
use crate::instrument::stats::Sample;
use crate::instrument::template::Columns;

/// The generator is late if its own part of the lateness is more than this at the 99th percentile.
const GENERATOR_LATE_MAX_US: f64 = 500.0;

const TITLE: &str = "Latency at fixed rates";
const ABOUT: &str = "Requests that are due whatever became of those before, at shares of what Nigh sustains, and of what each \
                     side sustains itself. Latency counts from when a request was due. A rate at which a side is overloaded \
                     has no point.";
const SUSTAINED: Columns = Columns("request | side | connections | sustained a second = {per_second:.0}");
const COLUMNS: Columns = Columns(
    "request | side | share = {share:%} | of what sustains = {of} | due a second = {rate_per_s:.0} | \
     answered = {achieved_per_s:.0} | p50 us = {p50_us:.0} | p90 = {p90_us:.0} | p99 = {p99_us:.0} | p99.9 = {p999_us:.0} | \
     errors | cpu us = {cpu_us:.1} | generator late us, p50 = {generator_p50_us:.0} | p99 = {generator_p99_us:.0} | \
     mark = {mark|}",
);
const CONDITIONS: [&str; 8] = [
    "requests come as a Poisson process, as from independent callers: queues form as in service, where equal intervals would hide \
     them; in a round, every side at one rate gets the same times",
    "a due request is sent by whichever connection is free, by threads on the server's machine; latency counts from when it was due",
    "sustained: a closed loop over all connections, the median of the rounds",
    "overloaded: in more than half of the rounds, the median wait for a free connection grew from quarter to quarter, by more \
     than 2 % of the time and 10 ms, or requests were left a second after the end; in a round that is one of few, such a \
     request counts as late as it was then",
    "generator-late: the generator itself sent requests more than 500 us late at the 99th percentile; this time is in the latencies",
    "a percentile is told if a request lies beyond it",
    "cpu: the server's processes for each request; Nigh's without its sandboxes, and none for the bare Runtime API server, which \
     is part of the generator",
    "put: Nigh's journal is synced; MinIO writes the object's file with O_SYNC and does not sync its folder; Redis syncs its \
     append-only file; bare s3s keeps objects in memory. Between turns Nigh pushes what it acknowledged",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Mark {
    /// The backlog grows without end: there are no percentiles.
    Overloaded,
    GeneratorLate,
}

/// One side at one rate, in all rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) request: String,
    pub(super) side: String,
    pub(super) of: RateOf,
    pub(super) share: f64,
    pub(super) rate_per_s: f64,
    /// Answers without an error.
    pub(super) achieved_per_s: f64,
    /// That were due.
    pub(super) requests: usize,
    pub(super) errors: usize,
    pub(super) first_error: Option<String>,
    pub(super) p50_us: Option<f64>,
    pub(super) p90_us: Option<f64>,
    pub(super) p99_us: Option<f64>,
    pub(super) p999_us: Option<f64>,
    /// The median of the rounds.
    pub(super) cpu_us: Option<f64>,
    /// How late requests were sent for which a connection was free.
    pub(super) generator_p50_us: Option<f64>,
    pub(super) generator_p99_us: Option<f64>,
    pub(super) mark: Option<Mark>,
}

impl Row {
    pub(super) fn of(request: &str, side: &str, cell: &Cell, rounds: &[Round]) -> Self {
        let is_overloaded = 2 * rounds.iter().filter(|round| round.is_overloaded()).count() > rounds.len();
        let latencies = Sample::new(rounds.iter().flat_map(Round::latencies_us).collect());
        let latency = |share: f64| percentile(&latencies, share).filter(|_| !is_overloaded);
        let timed = || rounds.iter().flat_map(|round| &round.timed);
        let generator = Sample::new(timed().map(|one| one.generator_s * 1e6).collect());
        let generator_p99_us = generator.known_percentile(0.99);
        let is_late = generator_p99_us.is_some_and(|late| late > GENERATOR_LATE_MAX_US);
        let cpu_us = rounds.iter().filter_map(|round| Some(round.cpu_s? * 1e6 / round.timed.len() as f64));
        let answered: usize = rounds.iter().map(Round::answered).sum();
        Self {
            request: request.to_owned(),
            side: side.to_owned(),
            of: cell.of,
            share: cell.share,
            rate_per_s: cell.rate_per_s,
            achieved_per_s: answered as f64 / rounds.iter().map(|round| round.took_s).sum::<f64>(),
            requests: rounds.iter().map(Round::requests).sum(),
            errors: timed().count() - answered,
            first_error: rounds.iter().flat_map(Round::errors).next().cloned(),
            p50_us: latency(0.5),
            p90_us: latency(0.9),
            p99_us: latency(0.99),
            p999_us: latency(0.999),
            cpu_us: Sample::new(cpu_us.collect()).known_percentile(0.5),
            generator_p50_us: generator.known_percentile(0.5),
            generator_p99_us,
            mark: match (is_overloaded, is_late) {
                (true, _) => Some(Mark::Overloaded),
                (false, true) => Some(Mark::GeneratorLate),
                (false, false) => None,
            },
        }
    }
}

/// What a side answers a second in a closed loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SustainedRow {
    pub(super) request: String,
    pub(super) side: String,
    pub(super) connections: usize,
    pub(super) per_second: f64,
}

/// A peer that takes no part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SkippedSide {
    pub(super) request: String,
    pub(super) side: String,
    pub(super) reason: String,
}

/// All of one kind of request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct RequestOutcome {
    pub(super) sustained: Vec<SustainedRow>,
    pub(super) rows: Vec<Row>,
    pub(super) skipped: Vec<SkippedSide>,
    /// Versions of the peers.
    pub(super) peers: BTreeMap<String, String>,
}

#[derive(Debug, Serialize)]
pub(super) struct LoadReport {
    machine: Machine,
    /// Figures of a build that checks itself are not those of a release.
    debug_assertions: bool,
    rounds: u16,
    seconds: f64,
    conditions: [&'static str; 8],
    sustained: Vec<SustainedRow>,
    rows: Vec<Row>,
    skipped: Vec<SkippedSide>,
}

impl LoadReport {
    pub(super) fn new(mut machine: Machine, rounds: u16, seconds: f64, outcomes: Vec<RequestOutcome>) -> Self {
        let (mut sustained, mut rows, mut skipped) = (Vec::new(), Vec::new(), Vec::new());
        for outcome in outcomes {
            machine.peers.extend(outcome.peers);
            sustained.extend(outcome.sustained);
            rows.extend(outcome.rows);
            skipped.extend(outcome.skipped);
        }
        let debug_assertions = cfg!(debug_assertions);
        Self { machine, debug_assertions, rounds, seconds, conditions: CONDITIONS, sustained, rows, skipped }
    }

    fn left_out(&self) -> Vec<String> {
        let line = |one: &SkippedSide| format!("{}: {} is left out: {}", one.request, one.side, one.reason);
        self.skipped.iter().map(line).collect()
    }

    pub(super) fn text(&self) -> String {
        let (sustained, rows) = (SUSTAINED.text(&self.sustained), COLUMNS.text(&self.rows));
        let mut lines = vec![sustained, rows];
        lines.extend(self.left_out());
        lines.extend(CONDITIONS.map(str::to_owned));
        lines.push(self.machine.to_string());
        lines.join("\n")
    }

    pub(super) fn page(&self) -> Result<String, LabError> {
        let mut body = chart::list(self.left_out());
        let mut requests: Vec<&str> = self.sustained.iter().map(|row| row.request.as_str()).collect();
        requests.dedup();
        for request in requests {
            let rows: Vec<&Row> = self.rows.iter().filter(|row| row.request == request).collect();
            let by_rate = lines_by(&rows, |row| Some(row.rate_per_s));
            let by_share = lines_by(&rows, |row| {
                let is_own = row.of == RateOf::Own || row.side == NIGH;
                is_own.then_some(row.share * 100.0)
            });
            for (series, what, x_name) in [
                (by_rate, "by the rate", "requests a second"),
                (by_share, "by the share of what each side sustains", "% of what the side sustains"),
            ] {
                // A chart needs a point.
                if !series.is_empty() {
                    let svg = chart::lines(&series, x_name, "p99, ms")?;
                    body += &chart::figure(&format!("{request}: 99th percentile {what}"), &svg);
                }
            }
        }
        body += &SUSTAINED.html(&self.sustained);
        body += &COLUMNS.html(&self.rows);
        body += &chart::list(CONDITIONS);
        Ok(chart::page(TITLE, ABOUT, &body, &self.machine))
    }
}

/// A line for each side that has a point: 99th percentiles in milliseconds by what `x` says of a row.
fn lines_by(rows: &[&Row], x: impl Fn(&Row) -> Option<f64>) -> Vec<Series> {
    let mut known = BTreeSet::new();
    let sides = rows.iter().map(|row| row.side.as_str()).filter(|side| known.insert(*side));
    let line = |side: &str| {
        let own = rows.iter().filter(|row| row.side == side);
        let mut values: Vec<(f64, f64)> = own.filter_map(|row| Some((x(row)?, row.p99_us? / 1e3))).collect();
        values.sort_by(|one, other| one.0.total_cmp(&other.0));
        Series { name: side.to_owned(), values }
    };
    sides.map(line).filter(|line| !line.values.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::round::Timed;
    use super::*;

    /// A round of so many requests a millisecond apart, all answered after `latency_s`.
    fn round(count: usize, latency_s: f64) -> Round {
        let one = |number: usize| Timed { number, due_s: number as f64 / 1e3, latency_s, ..Timed::default() };
        let timed: Vec<Timed> = (0..count).map(one).collect();
        Round { timed, length_s: 1.0, took_s: 1.0, cpu_s: Some(count as f64 * 20e-6), ..Round::default() }
    }

    fn overloaded() -> Round {
        Round { unsent_due_s: vec![0.5], ..round(1000, 0.3) }
    }

    fn cell(of: RateOf, rate_per_s: f64) -> Cell {
        Cell { side: 0, of, share: 0.5, rate_per_s }
    }

    #[test]
    fn a_row_pools_its_rounds_and_says_what_failed() {
        let mut second = round(1000, 0.003);
        second.timed[0].error = Some("503".to_owned());
        let row = Row::of("get-1kib", NIGH, &cell(RateOf::Nigh, 1000.0), &[round(1000, 0.001), second]);
        assert_eq!((row.p50_us, row.p99_us), (Some(1000.0), Some(3000.0)));
        assert_eq!((row.requests, row.errors, row.first_error.as_deref()), (2000, 1, Some("503")));
        assert_eq!((row.achieved_per_s, row.mark), (999.5, None));
        assert!((row.cpu_us.unwrap() - 20.0).abs() < 1e-9, "{row:?}");
        let kept: Row = serde_json::from_str(&serde_json::to_string(&row).unwrap()).unwrap();
        assert_eq!((kept.requests, kept.p99_us, kept.mark, kept.of), (2000, Some(3000.0), None, RateOf::Nigh));
    }

    #[test]
    fn a_rate_that_overloads_most_rounds_is_marked_and_has_no_percentile() {
        let of = |rounds: &[Round]| Row::of("get-1kib", NIGH, &cell(RateOf::Nigh, 1000.0), rounds);
        let most = of(&[overloaded(), overloaded(), round(1000, 0.001)]);
        assert_eq!((most.mark, most.p50_us, most.p999_us), (Some(Mark::Overloaded), None, None));
        let one = of(&[overloaded(), round(1000, 0.001), round(1000, 0.001)]);
        assert_eq!((one.mark, one.p50_us, one.requests), (None, Some(1000.0), 3001));
    }

    #[test]
    fn a_generator_that_is_late_itself_is_marked() {
        let mut late = round(1000, 0.002);
        late.timed.iter_mut().take(20).for_each(|one| one.generator_s = 0.0006);
        let row = Row::of("get-1kib", NIGH, &cell(RateOf::Nigh, 1000.0), &[late]);
        assert_eq!((row.mark, row.generator_p50_us), (Some(Mark::GeneratorLate), Some(0.0)));
        assert!(row.generator_p99_us.unwrap() > GENERATOR_LATE_MAX_US && row.p99_us.is_some(), "{row:?}");
    }

    fn report(rows: Vec<Row>) -> LoadReport {
        let sustained =
            SustainedRow { request: "get-1kib".to_owned(), side: NIGH.to_owned(), connections: 16, per_second: 2000.0 };
        let skipped = SkippedSide {
            request: "get-1kib".to_owned(),
            side: "MinIO".to_owned(),
            reason: "MinIO is not <installed>".to_owned(),
        };
        let peers = BTreeMap::from([("Redis".to_owned(), "7.0".to_owned())]);
        let outcome = RequestOutcome { sustained: vec![sustained], rows, skipped: vec![skipped], peers };
        LoadReport::new(Machine::read("nigh bench load".to_owned()), 1, 1.0, vec![outcome])
    }

    #[test]
    fn a_report_shows_every_rate_and_what_is_left_out_and_a_page_has_charts_of_what_is_known() {
        let of = |side: &str, of: RateOf, rounds: &[Round]| Row::of("get-1kib", side, &cell(of, 1000.0), rounds);
        let known = report(vec![
            of(NIGH, RateOf::Nigh, &[round(1000, 0.001)]),
            of("bare s3s", RateOf::Nigh, &[overloaded()]),
            of("bare s3s", RateOf::Own, &[round(1000, 0.002)]),
        ]);
        let text = known.text();
        for part in ["overloaded", "1000", "50 %", "MinIO is left out", "Redis 7.0", "Poisson"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let page = known.page().unwrap();
        assert_eq!(page.matches("<svg").count(), 2, "{page}");
        assert!(page.contains("not &lt;installed&gt;") && page.contains("bare s3s"), "{page}");
        let unknown = report(vec![of(NIGH, RateOf::Nigh, &[overloaded()])]);
        assert_eq!(unknown.page().unwrap().matches("<svg").count(), 0);
    }
}
