//! The metrics that a node reads when it is asked for them: functions, sandboxes, memory, ways, journal and cluster.

use nigh_invoke::hooks::meter::FunctionTotals;

use super::running::RunningNode;
use crate::cluster::ClusterEngine;
use crate::telemetry::{Sample, SampledHistogram};
use crate::writes;

/// The label of functions that have no place of their own, without a namespace: a function of that name has one.
const OTHER: &str = "other";

impl RunningNode {
    /// What is not recorded where it happens.
    pub(super) fn samples(&self) -> Vec<Sample> {
        let pool = self.invocations.invoker.in_use();
        let functions = &self.parts.foundation.settings.functions;
        let records = (self.records.bytes() + self.whisk_records.bytes()).bytes();
        let dropped = self.records.dropped() + self.whisk_records.dropped();
        let mut samples = vec![
            Sample::number("nigh_sandboxes_limit", functions.sandboxes_max as f64),
            Sample::number("nigh_sandboxes_booked_bytes", pool.booked.bytes() as f64),
            Sample::number("nigh_sandboxes_booked_limit_bytes", functions.memory.bytes() as f64),
            Sample::number("nigh_sandboxes_idle_bytes", pool.idle_held.bytes() as f64),
            Sample::number("nigh_invocations_running", pool.running as f64),
            Sample::number("nigh_invocations_waiting", pool.waiting as f64),
            Sample::number("nigh_activation_records_bytes", records as f64),
            Sample::number("nigh_activation_records_dropped_total", dropped as f64),
        ];
        samples.extend(self.invocations.meter.totals().iter().flat_map(of_function));
        samples.extend(writes::meters(self.parts.objects.journal.usage()));
        samples.extend(self.parts.llc.meters());
        if let Some(memory) = self.parts.objects.node_memory.status() {
            samples.push(Sample::number("nigh_memory_killed_total", memory.killed as f64));
        }
        if let Some(cluster) = self.parts.foundation.cluster.as_ref().map(ClusterEngine::status) {
            samples.push(Sample::number("nigh_cluster_members", cluster.members.len() as f64));
            let homes = cluster.homes.map_or(0, |homes| homes.own.len());
            samples.push(Sample::number("nigh_cluster_homes", homes as f64));
        }
        samples
    }
}

fn of_function(totals: &FunctionTotals) -> Vec<Sample> {
    let named = |sample: Sample| match &totals.function {
        Some((namespace, function)) => sample.with("namespace", namespace.as_str()).with("function", function.as_str()),
        None => sample.with("function", OTHER),
    };
    let ended = totals.ended();
    let ended = ended
        .map(|(outcome, count)| named(Sample::number("nigh_invocations_total", count as f64)).with("outcome", outcome));
    let durations = SampledHistogram { buckets: totals.buckets(), count: totals.count(), sum: totals.seconds };
    let more = [
        named(Sample::number("nigh_invocation_cold_starts_total", totals.cold_starts as f64)),
        named(Sample::histogram("nigh_invocation_duration_seconds", durations)),
    ];
    ended.chain(more).collect()
}
