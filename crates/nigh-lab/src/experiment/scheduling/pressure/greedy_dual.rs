//! FaasCache: sandboxes are kept as a cache keeps objects (Fuerst and Sharma, ASPLOS 2021, section 4).
//!
//! Greedy-Dual-Size-Frequency: a sandbox has the priority `clock + frequency * cost / size`; the one with the least ends
//! first, and the clock rises to its priority. `clock` is taken when the sandbox is used, the frequency counts the
//! function's invocations since it has had a sandbox, the cost is that of a new sandbox. None ends while there is room.
//! FaasCache is built into OpenWhisk's pool and has its line.

use std::collections::BTreeMap;

use nigh_schedule::keep_alive::KeepAlive;

use super::on_demand::{EndOrder, Line, OnDemandPool};
use super::policy::{IdleTakes, Policy, SandboxNo};
use super::sandboxes::IdleSandbox;
use super::workload::NodeFunction;

struct GreedyDual<'a> {
    functions: &'a [NodeFunction],
    idle_takes: IdleTakes,
    clock: f64,
    /// Invocations of each function since it has had a sandbox.
    frequency: Vec<u64>,
    /// The clock when each sandbox was used last.
    used: BTreeMap<SandboxNo, f64>,
}

impl GreedyDual<'_> {
    /// Milliseconds saved a mebibyte.
    fn priority(&self, sandbox: SandboxNo, function: usize) -> f64 {
        let clock = self.used.get(&sandbox).copied().unwrap_or(self.clock);
        let known = &self.functions[function];
        let size_mib = known.idle_takes(self.idle_takes).bytes() as f64 / 1_048_576.0;
        clock + self.frequency[function] as f64 * known.start_us as f64 / 1000.0 / size_mib
    }
}

impl EndOrder for GreedyDual<'_> {
    fn used(&mut self, sandbox: SandboxNo, function: usize) {
        self.frequency[function] += 1;
        self.used.insert(sandbox, self.clock);
    }

    fn sort(&self, idle: &mut Vec<IdleSandbox>) {
        let priority = |one: &IdleSandbox| self.priority(one.sandbox, one.function);
        idle.sort_by(|one, other| priority(one).total_cmp(&priority(other)));
    }

    fn ends(&mut self, sandbox: SandboxNo, function: usize, is_last: bool) {
        self.clock = self.clock.max(self.priority(sandbox, function));
        self.used.remove(&sandbox);
        if is_last {
            self.frequency[function] = 0;
        }
    }

    fn keep_alive(&self) -> Option<KeepAlive> {
        None
    }
}

pub(super) fn greedy_dual(functions: &[NodeFunction], idle_takes: IdleTakes) -> Box<dyn Policy + '_> {
    let frequency = vec![0; functions.len()];
    let order = GreedyDual { functions, idle_takes, clock: 0.0, frequency, used: BTreeMap::new() };
    Box::new(OnDemandPool::new(functions, idle_takes, Line::HeadBlocks, order))
}

#[cfg(test)]
mod tests {
    use nigh_terms::{ByteSize, Monotonic};

    use super::*;

    #[test]
    fn the_rarely_used_cheap_and_large_end_first_and_the_clock_lets_the_old_go() {
        let function = |booked_mib: u64, start_us: u64| {
            let booked = ByteSize::mib(booked_mib);
            NodeFunction { tenant: 0, booked, held: booked, start_us }
        };
        let functions = [function(100, 1_000_000), function(100, 100_000), function(400, 1_000_000)];
        let mut order = GreedyDual {
            functions: &functions,
            idle_takes: IdleTakes::Booked,
            clock: 0.0,
            frequency: vec![0; 3],
            used: BTreeMap::new(),
        };
        let idle = |function: usize| IdleSandbox { sandbox: SandboxNo(function as u32), function, since: Monotonic(0) };
        (0..3).for_each(|function| order.used(SandboxNo(function as u32), function));
        let mut all: Vec<IdleSandbox> = (0..3).map(idle).collect();
        order.sort(&mut all);
        // 1, 2.5 and 10 ms a MiB.
        assert_eq!(all.iter().map(|one| one.function).collect::<Vec<_>>(), [1, 2, 0]);
        order.ends(SandboxNo(1), 1, true);
        assert!((order.clock - 1.0).abs() < 1e-9 && order.frequency[1] == 0);
        order.ends(SandboxNo(2), 2, true);
        // A new one of the cheap function comes after all that was worth less before.
        order.used(SandboxNo(3), 1);
        assert!((order.priority(SandboxNo(3), 1) - 3.5).abs() < 1e-9);
    }
}
