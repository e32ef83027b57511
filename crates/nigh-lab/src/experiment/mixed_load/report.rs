//! What the sides' stretches say: a row a function, what the node counted, and what was asked beside what was measured. Pure.
//!
//! Only invocations that succeeded on every side are compared: the same ones, of the same inputs, for all.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::Serialize;

use super::node_look::{NodeLook, added_up, scalings};
use super::side::Side;
use super::stage::Stretch;
use super::verdict::{Paper, Verdict, verdicts};
use crate::instrument::machine::Machine;
use crate::instrument::stats::Sample;
use crate::instrument::table::plain_grid;
use crate::load::booking::BookingProfile;
use crate::load::report::{hit_ratio, sum};
use crate::load::run::{InvocationTimes, Run};
use crate::load::settings::LoadSettings;
use crate::load::tenants::Tenant;

/// Points of a series in the report; a longer one is thinned.
const POINTS_MAX: usize = 600;

/// What one side's invocations of a function took together. Seconds are sums, milliseconds percentiles.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct SideSums {
    pub(super) execution_s: f64,
    /// Of it, time in the client's calls: extract and load.
    pub(super) data_s: f64,
    /// Processor time of the handlers' processes.
    pub(super) processor_s: f64,
    /// From when each was due to its answer.
    pub(super) response_p50_ms: f64,
    pub(super) response_p95_ms: f64,
    pub(super) response_p99_ms: f64,
    pub(super) cold: usize,
}

impl SideSums {
    fn of(runs: &[(&Run, &InvocationTimes)]) -> Self {
        let seconds = |of: fn(&InvocationTimes) -> f64| runs.iter().map(|(_, one)| of(one)).sum::<f64>() / 1e3;
        let responses = Sample::new(runs.iter().map(|(run, _)| run.response_ms).collect());
        Self {
            execution_s: seconds(|one| one.total_ms),
            data_s: seconds(InvocationTimes::data_ms),
            processor_s: seconds(|one| one.cpu_ms),
            response_p50_ms: responses.median(),
            response_p95_ms: responses.percentile(0.95),
            response_p99_ms: responses.percentile(0.99),
            cold: runs.iter().filter(|(_, one)| one.cold).count(),
        }
    }
}

/// One function, of all tenants that have it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct FunctionRow {
    pub(super) function: String,
    pub(super) tenants: usize,
    pub(super) booked_mb: u64,
    /// Invocations that succeeded on every side.
    pub(super) compared: usize,
    pub(super) sides: BTreeMap<Side, SideSums>,
    /// What is saved of the time on Swift, of all invocations together (OFC figure 9).
    pub(super) improvement_vs_swift: Option<f64>,
    /// The same of Nigh with all off.
    pub(super) improvement_off: Option<f64>,
    /// The same of Redis: all in memory, nothing durable.
    pub(super) ceiling: Option<f64>,
    /// Of what Redis saves of the time in data calls, what Nigh saves of it. The work between is the same code and left out,
    /// so that its noise is not taken for a saving.
    pub(super) share_of_ceiling: Option<f64>,
    /// The same of the whole execution, noise included.
    pub(super) share_of_ceiling_whole: Option<f64>,
    /// Processor time on Nigh over that on Swift: what granting less than is booked, and sandboxes, cost the work.
    pub(super) work_ratio: Option<f64>,
    pub(super) hit_ratio: Option<f64>,
    /// On Nigh.
    pub(super) billed_gb_s: Option<f64>,
    pub(super) used_gb_s: Option<f64>,
}

/// What is saved of `floor`.
fn saved(floor: f64, of: f64) -> Option<f64> {
    (floor > 0.0).then(|| 1.0 - of / floor)
}

/// Of what `ceiling` saves of `floor`, the share that `of` saves.
fn share(floor: f64, ceiling: f64, of: f64) -> Option<f64> {
    (floor > ceiling).then(|| (floor - of) / (floor - ceiling))
}

impl FunctionRow {
    fn new(
        function: &str,
        tenants: usize,
        booked_mb: u64,
        runs: &BTreeMap<Side, Vec<(&Run, &InvocationTimes)>>,
    ) -> Self {
        let sides: BTreeMap<Side, SideSums> = runs.iter().map(|(side, runs)| (*side, SideSums::of(runs))).collect();
        let of = |side: Side, figure: fn(&SideSums) -> f64| sides.get(&side).map(figure);
        let execution = |side| of(side, |sums| sums.execution_s);
        let improvement = |side| execution(Side::Swift).zip(execution(side)).and_then(|(swift, one)| saved(swift, one));
        let share_by = |figure: fn(&SideSums) -> f64| {
            let (swift, redis, nigh) = (of(Side::Swift, figure)?, of(Side::Redis, figure)?, of(Side::Nigh, figure)?);
            share(swift, redis, nigh)
        };
        let processor = |side| of(side, |sums| sums.processor_s).filter(|seconds| *seconds > 0.0);
        let answered: Vec<&InvocationTimes> =
            runs.get(&Side::Nigh).into_iter().flatten().map(|(_, answered)| *answered).collect();
        Self {
            function: function.to_owned(),
            tenants,
            booked_mb,
            compared: runs.get(&Side::Nigh).map_or(0, Vec::len),
            improvement_vs_swift: improvement(Side::Nigh),
            improvement_off: improvement(Side::NighOff),
            ceiling: improvement(Side::Redis),
            share_of_ceiling: share_by(|sums| sums.data_s),
            share_of_ceiling_whole: share_by(|sums| sums.execution_s),
            work_ratio: processor(Side::Nigh).zip(processor(Side::Swift)).map(|(nigh, swift)| nigh / swift),
            hit_ratio: hit_ratio(&answered),
            billed_gb_s: sum(&answered, |one| one.billed_gb_s),
            used_gb_s: sum(&answered, |one| one.used_gb_s),
            sides,
        }
    }
}

/// A figure at some moment of the load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct CachePoint {
    pub(super) at_s: f64,
    /// What cached objects may take.
    pub(super) bytes: u64,
    /// What they take.
    pub(super) kept_bytes: u64,
    /// What of it sandboxes book and do not use; none where the node does not say.
    pub(super) lent_bytes: Option<u64>,
}

/// What was played.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PlayedLoad {
    pub(super) settings: LoadSettings,
    pub(super) conditions: Vec<String>,
    pub(super) tenants: Vec<Tenant>,
    /// By tenant.
    pub(super) booked_mb: Vec<u64>,
}

/// All that a run of the experiment says.
#[derive(Debug, Serialize)]
pub(super) struct MixedLoadReport {
    pub(super) machine: Machine,
    pub(super) profile: BookingProfile,
    pub(super) tenants: usize,
    pub(super) conditions: Vec<String>,
    pub(super) settings: LoadSettings,
    pub(super) invocations: usize,
    /// Means, and the least and most of a function.
    pub(super) improvement_vs_swift: Option<f64>,
    pub(super) improvement_vs_swift_least: Option<f64>,
    pub(super) improvement_vs_swift_most: Option<f64>,
    pub(super) ceiling: Option<f64>,
    pub(super) share_of_ceiling: Option<f64>,
    pub(super) share_of_ceiling_least: Option<f64>,
    /// What OFC's paper says of its improvement.
    pub(super) ofc: Paper,
    pub(super) hit_ratio: Option<f64>,
    /// Invocations that failed on Nigh, and the reason of the first.
    pub(super) failed: usize,
    pub(super) first_failure: Option<String>,
    /// On each side.
    pub(super) failed_by_side: BTreeMap<Side, usize>,
    /// Sandboxes of Nigh that ended for want of memory.
    pub(super) oom_kills: u64,
    /// How often memory was raised while a function ran.
    pub(super) grown: u64,
    pub(super) retried: u64,
    /// Bytes by which the cache gave way, limits that the kernel did not lower, and idle sandboxes ended for memory, by the
    /// node's own count; none where it does not count them.
    pub(super) yielded_bytes: Option<u64>,
    pub(super) refused: Option<u64>,
    pub(super) idle_ended: Option<u64>,
    /// How often the cache got more, and had to give way, by the node's own count; where it has none, how often its size rose
    /// and fell between two looks, 0.2 s apart.
    pub(super) scale_up: u64,
    pub(super) scale_down: u64,
    pub(super) billed_gb_s: Option<f64>,
    pub(super) used_gb_s: Option<f64>,
    /// What idle sandboxes booked over the time of the load (OFC figure 1), and what of all that is booked was the cache's.
    pub(super) idle_gb_s: f64,
    pub(super) lent_gb_s: Option<f64>,
    pub(super) verdicts: Vec<Verdict>,
    pub(super) rows: Vec<FunctionRow>,
    pub(super) cache_bytes: Vec<CachePoint>,
    /// For the page alone.
    #[serde(skip)]
    pub(super) looks: Vec<NodeLook>,
}

impl MixedLoadReport {
    pub(super) fn new(machine: Machine, played: PlayedLoad, stretches: &[Stretch]) -> Self {
        let PlayedLoad { settings, conditions, tenants, booked_mb } = played;
        let rows = rows(&tenants, &booked_mb, stretches);
        let nigh: Vec<&Stretch> = stretches.iter().filter(|stretch| stretch.side == Side::Nigh).collect();
        let runs: Vec<&Run> = nigh.iter().flat_map(|stretch| &stretch.runs).collect();
        let answered: Vec<&InvocationTimes> = runs.iter().filter_map(|run| run.answered.as_ref().ok()).collect();
        let records = || answered.iter().filter_map(|one| one.record);
        let counted = |name: &str| {
            let counts: Vec<u64> = nigh.iter().filter_map(|stretch| stretch.seen.counts.get(name).copied()).collect();
            (!counts.is_empty()).then(|| counts.iter().sum::<u64>())
        };
        let kills: u64 = nigh.iter().map(|stretch| stretch.out_of_memory as u64).sum();
        let mut failed_by_side: BTreeMap<Side, usize> = BTreeMap::new();
        for stretch in stretches {
            let failed = stretch.runs.iter().filter(|run| run.answered.is_err()).count();
            *failed_by_side.entry(stretch.side).or_default() += failed;
        }
        let looks: Vec<NodeLook> = nigh.iter().flat_map(|stretch| stretch.seen.looks.iter().copied()).collect();
        let of = |figure: fn(&FunctionRow) -> Option<f64>| Sample::new(rows.iter().filter_map(figure).collect());
        let (improvement, ceiling) = (of(|row| row.improvement_vs_swift), of(|row| row.ceiling));
        let shares = of(|row| row.share_of_ceiling);
        let known = |sample: &Sample, figure: fn(&Sample) -> f64| (!sample.is_empty()).then(|| figure(sample));
        let least = |sample: &Sample| sample.values().first().copied();
        let (rose, fell) = scalings(&looks);
        let last = |points: Vec<(f64, f64)>| points.last().map_or(0.0, |(_, total)| *total);
        let lends = looks.iter().any(|look| look.lent_bytes.is_some());
        let mut report = Self {
            machine,
            profile: settings.booking,
            tenants: tenants.len(),
            conditions,
            invocations: runs.len(),
            improvement_vs_swift: known(&improvement, Sample::mean),
            improvement_vs_swift_least: least(&improvement),
            improvement_vs_swift_most: improvement.values().last().copied(),
            ceiling: known(&ceiling, Sample::mean),
            share_of_ceiling: known(&shares, Sample::mean),
            share_of_ceiling_least: least(&shares),
            ofc: Paper::of(tenants.len(), settings.booking),
            hit_ratio: hit_ratio(&answered),
            failed: failed_by_side.get(&Side::Nigh).copied().unwrap_or(0),
            first_failure: runs.iter().find_map(|run| run.answered.as_ref().err().cloned()),
            failed_by_side,
            oom_kills: kills.max(counted("killed").unwrap_or(0)),
            grown: counted("grown").unwrap_or_else(|| records().map(|record| record.grown).sum()),
            retried: counted("retried").unwrap_or_else(|| records().filter(|record| record.retried).count() as u64),
            yielded_bytes: counted("yielded"),
            refused: counted("refused"),
            idle_ended: counted("idle_ended"),
            scale_up: counted("scale_up").unwrap_or(rose),
            scale_down: counted("scale_down").unwrap_or(fell),
            billed_gb_s: sum(&answered, |one| one.billed_gb_s),
            used_gb_s: sum(&answered, |one| one.used_gb_s),
            idle_gb_s: last(added_up(&looks, |look| look.idle_booked_bytes)),
            lent_gb_s: lends.then(|| last(added_up(&looks, |look| look.lent_bytes.unwrap_or(0)))),
            verdicts: Vec::new(),
            rows,
            cache_bytes: thinned(&looks),
            settings,
            looks,
        };
        report.verdicts = verdicts(&report);
        report
    }

    pub(super) fn text(&self) -> String {
        let table = plain_grid(HEAD, self.rows.iter().map(|row| row.cells()));
        let mut text = table.to_string();
        for (name, figure) in self.table_2() {
            let _ = write!(text, "\n{name}: {figure}");
        }
        for verdict in &self.verdicts {
            let _ = write!(text, "\n{verdict}");
        }
        let _ = write!(text, "\n{}", self.ofc);
        if let Some(why) = &self.first_failure {
            let _ = write!(text, "\nfirst failure: {why}");
        }
        let _ = write!(text, "\n{}", self.machine);
        text
    }

    /// The paper's table 2, with what it lacks.
    pub(super) fn table_2(&self) -> Vec<(&'static str, String)> {
        let count = |count: Option<u64>| count.map_or_else(|| "not counted".to_owned(), |count| count.to_string());
        let mib =
            |bytes: Option<u64>| bytes.map_or_else(|| "not counted".to_owned(), |bytes| format!("{} MiB", bytes >> 20));
        let gb_s = |figure: Option<f64>| figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.1} GB-s"));
        vec![
            ("scale up", self.scale_up.to_string()),
            ("scale down", self.scale_down.to_string()),
            ("given way by the cache", mib(self.yielded_bytes)),
            ("grown while they ran (bad predictions)", self.grown.to_string()),
            ("run anew", self.retried.to_string()),
            ("ended for want of memory", self.oom_kills.to_string()),
            ("limits the kernel did not lower", count(self.refused)),
            ("idle sandboxes ended for memory", count(self.idle_ended)),
            ("failed invocations", self.failed.to_string()),
            ("cache hit ratio", percent(self.hit_ratio)),
            ("billed", gb_s(self.billed_gb_s)),
            ("used at the peak", gb_s(self.used_gb_s)),
            ("booked by idle sandboxes", gb_s(Some(self.idle_gb_s))),
            ("lent to the cache", gb_s(self.lent_gb_s)),
        ]
    }
}

pub(super) const HEAD: [&str; 14] = [
    "function",
    "tenants",
    "MB",
    "runs",
    "Swift s",
    "off s",
    "Nigh s",
    "Redis s",
    "saved",
    "ceiling",
    "share of it",
    "whole",
    "work",
    "hits",
];

/// A share as people read it.
pub(super) fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

impl FunctionRow {
    pub(super) fn cells(&self) -> Vec<String> {
        let seconds = |side| {
            self.sides.get(&side).map_or_else(|| "-".to_owned(), |sums: &SideSums| format!("{:.2}", sums.execution_s))
        };
        vec![
            self.function.clone(),
            self.tenants.to_string(),
            self.booked_mb.to_string(),
            self.compared.to_string(),
            seconds(Side::Swift),
            seconds(Side::NighOff),
            seconds(Side::Nigh),
            seconds(Side::Redis),
            percent(self.improvement_vs_swift),
            percent(self.ceiling),
            percent(self.share_of_ceiling),
            percent(self.share_of_ceiling_whole),
            self.work_ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
            percent(self.hit_ratio),
        ]
    }
}

/// A row a function, in the order in which tenants took them.
fn rows(tenants: &[Tenant], booked_mb: &[u64], stretches: &[Stretch]) -> Vec<FunctionRow> {
    let sides: BTreeSet<Side> = stretches.iter().map(|stretch| stretch.side).collect();
    // By the arrival's number, for each side.
    let mut answered: BTreeMap<usize, BTreeMap<Side, (&Run, &InvocationTimes)>> = BTreeMap::new();
    for stretch in stretches {
        for run in &stretch.runs {
            if let Ok(one) = &run.answered {
                answered.entry(run.arrival.number).or_default().insert(stretch.side, (run, one));
            }
        }
    }
    let mut functions: Vec<&str> = Vec::new();
    for tenant in tenants {
        if !functions.contains(&tenant.function.as_str()) {
            functions.push(&tenant.function);
        }
    }
    let row = |function: &&str| {
        let of_function = |tenant: usize| tenants.get(tenant).is_some_and(|one| one.function == **function);
        let mut runs: BTreeMap<Side, Vec<(&Run, &InvocationTimes)>> = BTreeMap::new();
        for (side, run) in answered.values().filter(|by_side| by_side.len() == sides.len()).flatten() {
            if of_function(run.0.arrival.tenant) {
                runs.entry(*side).or_default().push(*run);
            }
        }
        let count = (0..tenants.len()).filter(|&tenant| of_function(tenant)).count();
        let first = (0..tenants.len()).find(|&tenant| of_function(tenant));
        let booked = first.and_then(|tenant| booked_mb.get(tenant)).copied().unwrap_or(0);
        FunctionRow::new(function, count, booked, &runs)
    };
    functions.iter().map(row).collect()
}

/// The cache's size over time, in so many points at most.
fn thinned(looks: &[NodeLook]) -> Vec<CachePoint> {
    let step = looks.len().div_ceil(POINTS_MAX).max(1);
    let point = |look: &NodeLook| CachePoint {
        at_s: look.at_ms as f64 / 1e3,
        bytes: look.cache_bytes,
        kept_bytes: look.kept_bytes,
        lent_bytes: look.lent_bytes,
    };
    looks.iter().step_by(step).map(point).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::experiment::mixed_load::node_look::StretchObservation;
    use crate::load::report::tests::run;

    pub(in crate::experiment::mixed_load) fn report() -> MixedLoadReport {
        let tenant =
            |name: &str| Tenant { name: name.to_owned(), function: "f<g".to_owned(), inputs: vec!["i".to_owned()] };
        let look = |at_ms, cache_bytes| NodeLook {
            at_ms,
            cache_bytes,
            kept_bytes: 1,
            idle_booked_bytes: 1 << 30,
            booked_bytes: 1 << 30,
            granted_bytes: None,
            lent_bytes: None,
        };
        let stretch = |side: Side, total_ms: f64| Stretch {
            side,
            runs: vec![run(0, 0, total_ms), run(1, 1, total_ms)],
            seen: match side {
                Side::Nigh => StretchObservation {
                    looks: vec![look(0, 5), look(1000, 9), look(2000, 4)],
                    counts: [("grown".to_owned(), 3), ("killed".to_owned(), 0)].into(),
                },
                _ => StretchObservation::default(),
            },
            out_of_memory: 0,
        };
        let mut swift = stretch(Side::Swift, 100.0);
        // Failed on one side: not compared on any.
        swift.runs.push(Run { answered: Err("refused".to_owned()), ..run(2, 0, 1.0) });
        let mut nigh = stretch(Side::Nigh, 54.0);
        nigh.runs.push(run(2, 0, 1e6));
        let stretches = [nigh, swift, stretch(Side::Redis, 50.0), stretch(Side::NighOff, 110.0)];
        let played = PlayedLoad {
            settings: LoadSettings::default(),
            conditions: vec!["all alike".to_owned()],
            tenants: vec![tenant("a"), tenant("b")],
            booked_mb: vec![512, 512],
        };
        MixedLoadReport::new(Machine::read("nigh experiment macro".to_owned()), played, &stretches)
    }

    #[test]
    fn what_is_saved_is_told_of_invocations_that_succeeded_everywhere_and_beside_the_ceiling() {
        let report = report();
        let [row] = report.rows.as_slice() else { panic!("one function") };
        assert_eq!((row.compared, row.tenants, row.booked_mb), (2, 2, 512));
        let near = |figure: Option<f64>, expected: f64| (figure.unwrap() - expected).abs() < 1e-9;
        assert!(near(row.improvement_vs_swift, 0.46) && near(row.ceiling, 0.5));
        assert!(near(row.share_of_ceiling, 0.92) && near(row.share_of_ceiling_whole, 0.92));
        assert!(near(row.improvement_off, -0.1) && near(row.work_ratio, 0.54));
        assert_eq!(report.failed_by_side[&Side::Swift], 1);
        assert_eq!((report.failed, report.invocations), (0, 3));
    }

    #[test]
    fn the_nodes_counts_are_its_own_where_it_has_them_and_else_those_of_its_records() {
        let report = report();
        assert_eq!((report.grown, report.oom_kills, report.retried), (3, 0, 0));
        assert_eq!((report.yielded_bytes, report.scale_up, report.scale_down), (None, 1, 1));
        assert_eq!((report.idle_gb_s, report.lent_gb_s), (2.0, None));
        assert_eq!(report.cache_bytes.len(), 3);
        let text = report.text();
        assert!(text.contains("given way by the cache: not counted") && text.contains("92.0 %"), "{text}");
        let value = serde_json::to_value(&report).unwrap();
        for field in [
            "improvement_vs_swift",
            "share_of_ceiling",
            "hit_ratio",
            "failed",
            "oom_kills",
            "grown",
            "retried",
            "scale_up",
            "scale_down",
            "cache_bytes",
        ] {
            assert!(value.get(field).is_some(), "{field}");
        }
    }

    #[test]
    fn a_ceiling_below_the_floor_has_no_shares() {
        assert_eq!(share(10.0, 10.0, 5.0), None);
        assert_eq!(share(10.0, 6.0, 8.0), Some(0.5));
        assert_eq!(saved(0.0, 1.0), None);
    }
}
