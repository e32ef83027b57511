//! What will be invoked: all that an oracle knows and no policy in a node can.

use super::outcome::SHORTEST_RUN_US;
use super::workload::{NodeArrival, NodeWorkload};

/// So many invocations of a function are looked through for the next use of its sandboxes.
const LOOKED_THROUGH_MAX: usize = 64;

/// The workload, and how much of it has come.
#[derive(Debug)]
pub(super) struct Foresight<'a> {
    workload: &'a NodeWorkload,
    /// Invocations that have come.
    come: usize,
    /// The invocations of each function, and how many have come.
    by_function: Vec<(Vec<usize>, usize)>,
}

/// When a sandbox is needed next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct NextUse {
    /// Microseconds from now; infinite if it never is.
    pub(super) in_us: f64,
    /// The slowdown that this use would have more if the sandbox had to start then.
    pub(super) harm: f64,
}

impl<'a> Foresight<'a> {
    pub(super) fn new(workload: &'a NodeWorkload) -> Self {
        let mut by_function = vec![(Vec::new(), 0); workload.functions.len()];
        for (number, arrival) in workload.arrivals.iter().enumerate() {
            by_function[arrival.function].0.push(number);
        }
        Self { workload, come: 0, by_function }
    }

    pub(super) fn arrived(&mut self, invocation: usize, function: usize) {
        self.come = invocation + 1;
        self.by_function[function].1 += 1;
    }

    pub(super) const fn invocation(&self, number: usize) -> &'a NodeArrival {
        &self.workload.arrivals.as_slice()[number]
    }

    /// What a microsecond costs by which this invocation ends later: its part of a slowdown.
    pub(super) fn weight(&self, number: usize) -> f64 {
        1.0 / self.workload.arrivals[number].run_us.max(SHORTEST_RUN_US) as f64
    }

    /// Those that have not come, in order.
    pub(super) fn upcoming(&self) -> impl Iterator<Item = (usize, &'a NodeArrival)> {
        (self.come..).zip(&self.workload.arrivals[self.come..])
    }

    /// When each of so many idle sandboxes of a function is needed next, the one first that would be used first. Before
    /// them those are used that are free in `busy_us` microseconds from now. `waiting` are invocations of the function.
    pub(super) fn next_uses(
        &self,
        now_us: u64,
        function: usize,
        idle: usize,
        busy_us: &[f64],
        waiting: &[usize],
    ) -> Vec<NextUse> {
        let start_us = self.workload.functions[function].start_us as f64;
        let (all, come) = &self.by_function[function];
        let mut free_at: Vec<f64> = busy_us.iter().copied().chain(std::iter::repeat_n(0.0, idle)).collect();
        let mut uses = vec![NextUse { in_us: f64::INFINITY, harm: 0.0 }; idle];
        let mut unused = idle;
        for &number in waiting.iter().chain(&all[*come..]).take(LOOKED_THROUGH_MAX) {
            let arrival = &self.workload.arrivals[number];
            let in_us = arrival.at_us.saturating_sub(now_us) as f64;
            let Some(server) = free_at.iter().position(|free| *free <= in_us) else { continue };
            free_at[server] = in_us + arrival.run_us as f64;
            if server >= busy_us.len() && uses[server - busy_us.len()].in_us.is_infinite() {
                uses[server - busy_us.len()] = NextUse { in_us, harm: start_us * self.weight(number) };
                unused -= 1;
                if unused == 0 {
                    break;
                }
            }
        }
        uses
    }
}
