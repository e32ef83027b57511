//! The node's own pool (`nigh-schedule/src/sandbox_pool.rs`), as it runs in production.

use std::collections::BTreeMap;
use std::sync::Arc;

use nigh_functions::function::Function;
use nigh_schedule::keep_alive::KeepAlive;
use nigh_schedule::sandbox_pool::{Command, PoolAnswer, PoolLimits, SandboxPool, StartId, Ticket};
use nigh_terms::{ByteSize, FunctionName, Monotonic, Namespace};

use super::node::WAIT_MAX_US;
use super::policy::{Action, IdleTakes, NodeState, Policy, SandboxNo};
use super::workload::{NodeFunction, NodeWorkload};

pub(super) struct Production<'a> {
    known: &'a [NodeFunction],
    functions: Vec<Arc<Function>>,
    pool: SandboxPool<SandboxNo>,
    waiting: BTreeMap<Ticket, usize>,
    refused: Vec<usize>,
    /// Function, start while it is made, and since when it starts or runs.
    sandboxes: BTreeMap<SandboxNo, (usize, Option<StartId>, Monotonic)>,
    last: u32,
}

impl<'a> Production<'a> {
    pub(super) fn new(workload: &'a NodeWorkload) -> Self {
        let limits = PoolLimits {
            sandboxes_max: usize::MAX,
            memory_max: workload.memory,
            lent_max: ByteSize::ZERO,
            invocations_max: usize::MAX,
            waiting_max: usize::MAX,
            wait_max: std::time::Duration::from_micros(WAIT_MAX_US),
            processors: usize::from(workload.processors),
        };
        let function = |(number, one): (usize, &NodeFunction)| {
            let namespace = Namespace::new(&format!("tenant-{}", one.tenant)).ok()?;
            let name = FunctionName::new(&format!("function-{number}")).ok()?;
            Some(Arc::new(Function::made_up(namespace, name, one.booked)))
        };
        Self {
            known: &workload.functions,
            functions: workload.functions.iter().enumerate().filter_map(function).collect(),
            pool: SandboxPool::new(limits, KeepAlive { idle_max: usize::MAX, ..KeepAlive::default() }),
            waiting: BTreeMap::new(),
            refused: Vec::new(),
            sandboxes: BTreeMap::new(),
            last: 0,
        }
    }
}

impl Policy for Production<'_> {
    fn idle_takes(&self) -> IdleTakes {
        IdleTakes::Held
    }

    fn arrived(&mut self, now: Monotonic, invocation: usize, function: usize) {
        match self.pool.ask(&self.functions[function], now) {
            PoolAnswer::Waiting(ticket) => drop(self.waiting.insert(ticket, invocation)),
            PoolAnswer::Refused(_) | PoolAnswer::OverReserved(_) | PoolAnswer::Closed => self.refused.push(invocation),
        }
    }

    fn overdue(&mut self, now: Monotonic, invocation: usize) {
        let found = self.waiting.iter().find(|(_, one)| **one == invocation).map(|(ticket, _)| *ticket);
        if let Some(ticket) = found {
            self.waiting.remove(&ticket);
            self.pool.leave(ticket, now);
        }
    }

    fn started(&mut self, now: Monotonic, sandbox: SandboxNo) {
        let Some((function, start, since)) = self.sandboxes.get_mut(&sandbox) else { return };
        let (Some(start), held) = (start.take(), self.known[*function].held) else { return };
        let kept = self.pool.started(start, sandbox, now.since(*since), now);
        assert!(kept.is_none(), "an open pool keeps what was made");
        self.pool.rests(&sandbox, held);
    }

    fn ended(&mut self, now: Monotonic, sandbox: SandboxNo) {
        let Some((function, _, since)) = self.sandboxes.get(&sandbox).copied() else { return };
        self.pool.finished(&self.functions[function]);
        let kept = self.pool.give_back(sandbox, Some(now.since(since)), now);
        assert!(kept.is_none(), "an open pool keeps what is given back");
        self.pool.rests(&sandbox, self.known[function].held);
    }

    fn gone(&mut self, _now: Monotonic, sandbox: SandboxNo) {
        self.sandboxes.remove(&sandbox);
        self.pool.gone(&sandbox);
    }

    fn decide(&mut self, now: Monotonic, node: &NodeState<'_>) -> Vec<Action> {
        let mut actions: Vec<Action> = self.refused.drain(..).map(Action::Refuse).collect();
        actions.extend(self.pool.take_expired(now, |_| false).into_iter().map(|(one, _)| Action::End(one)));
        self.pool.set_idle_processors(node.idle_processors(), now);
        for command in self.pool.serve(now) {
            match command {
                Command::Run { ticket, sandbox, after } => {
                    let Some(invocation) = self.waiting.remove(&ticket) else { continue };
                    if let Some((_, _, since)) = self.sandboxes.get_mut(&sandbox) {
                        *since = now;
                    }
                    actions.push(Action::Run { invocation, sandbox, after });
                }
                Command::Start(start) => {
                    self.last += 1;
                    let (sandbox, after) = (SandboxNo(self.last), start.after);
                    let is_it = |one: &Arc<Function>| one.same_version(&start.function);
                    let Some(function) = self.functions.iter().position(is_it) else { continue };
                    self.sandboxes.insert(sandbox, (function, Some(start.id), now));
                    actions.push(Action::Start { function, sandbox, after });
                }
                // They stand still at once here.
                Command::Freeze(_) => {}
                Command::Refuse { ticket, .. } => {
                    actions.extend(self.waiting.remove(&ticket).map(Action::Refuse));
                }
            }
        }
        actions
    }
}
