//! The result: a row for each function, the node's counts, and the targets beside the figures. Pure.
//!
//! Only invocations that succeeded on every side are compared: the same ones, of the same inputs, for all.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::Side;
use super::node_look::{NodeLook, added_up, scalings};
use super::paper::{Paper, verdicts};
use super::stage::Stretch;
use crate::instrument::machine::Machine;
use crate::instrument::stats::Sample;
use crate::instrument::template::{Columns, fill};
use crate::instrument::verdict::Verdict;
use crate::load::booking::BookingProfile;
use crate::load::report::{hit_ratio, sum};
use crate::load::run::{InvocationTimes, Run};
use crate::load::settings::LoadSettings;
use crate::load::tenants::Tenant;

/// Points of a series in the report; a longer one is thinned.
const POINTS_MAX: usize = 600;

/// The runs of one function on one side.
type Runs<'a> = Vec<(&'a Run, &'a InvocationTimes)>;

/// What one side's invocations of a function took together. Seconds are sums, milliseconds percentiles.
fn side_sums(runs: &[(&Run, &InvocationTimes)]) -> Value {
    let seconds = |of: fn(&InvocationTimes) -> f64| runs.iter().map(|(_, one)| of(one)).sum::<f64>() / 1e3;
    let responses = Sample::of(runs, |(run, _)| run.response_ms);
    json!({
        "execution_s": seconds(|one| one.total_ms),
        // The part of it in the client's calls: extract and load.
        "data_s": seconds(InvocationTimes::data_ms),
        // The processor time of the handlers' processes.
        "processor_s": seconds(|one| one.cpu_ms),
        // The time from when an invocation is due to its answer.
        "response_p50_ms": responses.median(),
        "response_p95_ms": responses.percentile(0.95),
        "response_p99_ms": responses.percentile(0.99),
        "cold": runs.iter().filter(|(_, one)| one.cold).count(),
    })
}

/// What is saved of `floor`.
fn saved(floor: f64, of: f64) -> Option<f64> {
    (floor > 0.0).then(|| 1.0 - of / floor)
}

/// The saving of `of` as a share of the saving of `ceiling`; both save time of `floor`.
fn share(floor: f64, ceiling: f64, of: f64) -> Option<f64> {
    (floor > ceiling).then(|| (floor - of) / (floor - ceiling))
}

/// One function, of all tenants that have it.
fn function_row(function: &str, tenants: usize, booked_mb: u64, runs: &BTreeMap<Side, Runs<'_>>) -> Value {
    let sides: BTreeMap<Side, Value> = runs.iter().map(|(side, runs)| (*side, side_sums(runs))).collect();
    let of = |side: Side, figure: &str| sides.get(&side)?[figure].as_f64();
    // What is saved of the time on Swift, of all invocations together (OFC figure 9).
    let improvement = |side| saved(of(Side::Swift, "execution_s")?, of(side, "execution_s")?);
    let share_by = |figure| share(of(Side::Swift, figure)?, of(Side::Redis, figure)?, of(Side::Nigh, figure)?);
    let processor = |side| of(side, "processor_s").filter(|seconds| *seconds > 0.0);
    let nigh: Vec<&InvocationTimes> = runs.get(&Side::Nigh).into_iter().flatten().map(|(_, times)| *times).collect();
    json!({
        "function": function,
        "tenants": tenants,
        "booked_mb": booked_mb,
        // Invocations that succeeded on every side.
        "compared": nigh.len(),
        "sides": sides,
        "improvement_vs_swift": improvement(Side::Nigh),
        "improvement_off": improvement(Side::NighOff),
        // All in memory, nothing durable.
        "ceiling": improvement(Side::Redis),
        // The part that Nigh saves of what Redis saves: of data calls, as the work between is the same code and its noise no
        // saving; and of the whole execution.
        "share_of_ceiling": share_by("data_s"),
        "share_of_ceiling_whole": share_by("execution_s"),
        // Processor time on Nigh over that on Swift: the price of grants below the booking, and of sandboxes.
        "work_ratio": processor(Side::Nigh).zip(processor(Side::Swift)).map(|(nigh, swift)| nigh / swift),
        "hit_ratio": hit_ratio(&nigh),
        // On Nigh.
        "billed_gb_s": sum(&nigh, |one| one.billed_gb_s),
        "used_gb_s": sum(&nigh, |one| one.used_gb_s),
    })
}

/// The cache at some moment of the load.
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

#[derive(Debug, Serialize)]
pub(super) struct MixedLoadReport {
    pub(super) machine: Machine,
    pub(super) profile: BookingProfile,
    pub(super) tenants: usize,
    pub(super) conditions: Vec<String>,
    settings: LoadSettings,
    /// The figures of all functions together, and of Nigh's node.
    #[serde(flatten)]
    pub(super) figures: Map<String, Value>,
    /// What OFC's paper says of its improvement.
    pub(super) ofc: Paper,
    pub(super) verdicts: Vec<Verdict>,
    /// By function.
    pub(super) rows: Vec<Value>,
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
        let looks: Vec<NodeLook> = nigh.iter().flat_map(|stretch| stretch.seen.looks.iter().copied()).collect();
        let mut failed_by_side: BTreeMap<Side, usize> = BTreeMap::new();
        for stretch in stretches {
            let failed = stretch.runs.iter().filter(|run| run.answered.is_err()).count();
            *failed_by_side.entry(stretch.side).or_default() += failed;
        }
        let mut figures = figures(&rows, &nigh, &looks);
        figures.insert("failed".to_owned(), failed_by_side.get(&Side::Nigh).copied().unwrap_or(0).into());
        figures.insert("failed_by_side".to_owned(), json!(failed_by_side));
        Self {
            machine,
            profile: settings.booking,
            tenants: tenants.len(),
            conditions,
            ofc: Paper::of(tenants.len(), settings.booking),
            verdicts: verdicts(tenants.len(), &figures),
            figures,
            rows,
            cache_bytes: thinned(&looks),
            settings,
            looks,
        }
    }

    pub(super) fn text(&self) -> String {
        let mut lines = vec![COLUMNS.text(&self.rows)];
        lines.extend(TABLE_2.iter().map(|(name, cell)| format!("{name}: {}", fill(cell, self))));
        lines.extend(self.verdicts.iter().map(ToString::to_string));
        lines.push(self.ofc.sentence());
        lines.push(fill("[first failure: {first_failure}]", self));
        lines.push(self.machine.to_string());
        lines.join("\n")
    }
}

/// The paper's table 2, and more.
pub(super) const TABLE_2: [(&str, &str); 14] = [
    ("scale up", "{scale_up}"),
    ("scale down", "{scale_down}"),
    ("given way by the cache, MB", "{yielded_bytes:M}"),
    ("grown while they ran (bad predictions)", "{grown}"),
    ("run anew", "{retried}"),
    ("ended for want of memory", "{oom_kills}"),
    ("limits the kernel did not lower", "{refused}"),
    ("idle sandboxes ended for memory", "{idle_ended}"),
    ("failed invocations", "{failed}"),
    ("cache hit ratio", "{hit_ratio:%.1}"),
    ("billed, GB-s", "{billed_gb_s:.1}"),
    ("used at the peak, GB-s", "{used_gb_s:.1}"),
    ("booked by idle sandboxes, GB-s", "{idle_gb_s:.1}"),
    ("lent to the cache, GB-s", "{lent_gb_s:.1}"),
];

pub(super) const COLUMNS: Columns = Columns(
    "function | tenants | MB = {booked_mb} | runs = {compared} | Swift s = {sides.swift.execution_s:.2} | \
     off s = {sides.nigh_off.execution_s:.2} | Nigh s = {sides.nigh.execution_s:.2} | Redis s = {sides.redis.execution_s:.2} | \
     saved = {improvement_vs_swift:%.1} | ceiling = {ceiling:%.1} | share of it = {share_of_ceiling:%.1} | \
     whole = {share_of_ceiling_whole:%.1} | work = {work_ratio:.2} | hits = {hit_ratio:%.1}",
);

/// Figures of all functions and of Nigh's node, in `nigh`'s stretches.
fn figures(rows: &[Value], nigh: &[&Stretch], looks: &[NodeLook]) -> Map<String, Value> {
    let runs: Vec<&Run> = nigh.iter().flat_map(|stretch| &stretch.runs).collect();
    let answered: Vec<&InvocationTimes> = runs.iter().filter_map(|run| run.answered.as_ref().ok()).collect();
    let records = || answered.iter().filter_map(|one| one.record);
    // By the node's own count, where it has one.
    let counted = |name: &str| {
        let counts: Vec<u64> = nigh.iter().filter_map(|stretch| stretch.seen.counts.get(name).copied()).collect();
        (!counts.is_empty()).then(|| counts.iter().sum::<u64>())
    };
    let kills: u64 = nigh.iter().map(|stretch| stretch.out_of_memory as u64).sum();
    let of = |field: &str| Sample::of_field(rows, field);
    let (improvement, ceiling, shares) = (of("improvement_vs_swift"), of("ceiling"), of("share_of_ceiling"));
    let mean = |sample: &Sample| (!sample.is_empty()).then(|| sample.mean());
    let (rose, fell) = scalings(looks);
    let last = |points: Vec<(f64, f64)>| points.last().map_or(0.0, |(_, total)| *total);
    let lends = looks.iter().any(|look| look.lent_bytes.is_some());
    let figures = json!({
        "invocations": runs.len(),
        "improvement_vs_swift": mean(&improvement),
        "improvement_vs_swift_least": improvement.known_percentile(0.0),
        "improvement_vs_swift_most": improvement.known_percentile(1.0),
        "ceiling": mean(&ceiling),
        "share_of_ceiling": mean(&shares),
        "share_of_ceiling_least": shares.known_percentile(0.0),
        "hit_ratio": hit_ratio(&answered),
        "first_failure": runs.iter().find_map(|run| run.answered.as_ref().err()),
        // Sandboxes that ended for want of memory, and runs whose memory was raised or that were tried again.
        "oom_kills": kills.max(counted("killed").unwrap_or(0)),
        "grown": counted("grown").unwrap_or_else(|| records().map(|record| record.grown).sum()),
        "retried": counted("retried").unwrap_or_else(|| records().filter(|record| record.retried).count() as u64),
        // What the cache gave way, limits that the kernel did not lower, and idle sandboxes ended for memory.
        "yielded_bytes": counted("yielded"),
        "refused": counted("refused"),
        "idle_ended": counted("idle_ended"),
        // How often the cache got more and gave way; without counts, how often its size rose and fell between two looks.
        "scale_up": counted("scale_up").unwrap_or(rose),
        "scale_down": counted("scale_down").unwrap_or(fell),
        "billed_gb_s": sum(&answered, |one| one.billed_gb_s),
        "used_gb_s": sum(&answered, |one| one.used_gb_s),
        // What idle sandboxes booked over the load (OFC figure 1), and what of all that is booked the cache had.
        "idle_gb_s": last(added_up(looks, |look| look.idle_booked_bytes)),
        "lent_gb_s": lends.then(|| last(added_up(looks, |look| look.lent_bytes.unwrap_or(0)))),
    });
    figures.as_object().cloned().unwrap_or_default()
}

/// A row for each function, in the order in which tenants took the functions.
fn rows(tenants: &[Tenant], booked_mb: &[u64], stretches: &[Stretch]) -> Vec<Value> {
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
        let mut runs: BTreeMap<Side, Runs<'_>> = BTreeMap::new();
        for (side, run) in answered.values().filter(|by_side| by_side.len() == sides.len()).flatten() {
            if of_function(run.0.arrival.tenant) {
                runs.entry(*side).or_default().push(*run);
            }
        }
        let count = (0..tenants.len()).filter(|&tenant| of_function(tenant)).count();
        let first = (0..tenants.len()).find(|&tenant| of_function(tenant));
        let booked = first.and_then(|tenant| booked_mb.get(tenant)).copied().unwrap_or(0);
        function_row(function, count, booked, &runs)
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
        assert!(row["compared"] == 2 && row["tenants"] == 2 && row["booked_mb"] == 512);
        let near = |field: &str, expected: f64| (row[field].as_f64().unwrap() - expected).abs() < 1e-9;
        assert!(near("improvement_vs_swift", 0.46) && near("ceiling", 0.5));
        assert!(near("share_of_ceiling", 0.92) && near("share_of_ceiling_whole", 0.92));
        assert!(near("improvement_off", -0.1) && near("work_ratio", 0.54));
        assert_eq!(report.figures["failed_by_side"]["swift"], 1);
        assert!(report.figures["failed"] == 0 && report.figures["invocations"] == 3);
    }

    #[test]
    fn the_nodes_counts_are_its_own_where_it_has_them_and_else_those_of_its_records() {
        let report = report();
        let of = |field: &str| &report.figures[field];
        assert!(*of("grown") == 3 && *of("oom_kills") == 0 && *of("retried") == 0);
        assert!(of("yielded_bytes").is_null() && *of("scale_up") == 1 && *of("scale_down") == 1);
        assert!(*of("idle_gb_s") == 2.0 && of("lent_gb_s").is_null());
        assert_eq!(report.cache_bytes.len(), 3);
        let text = report.text();
        assert!(text.contains("given way by the cache, MB: -") && text.contains("92.0 %"), "{text}");
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
