//! Pools that start a sandbox when an invocation finds none, for this invocation, and have others wait in order for room.
//!
//! Published ones are of this kind, and Nigh's was. They differ in who may pass whom, in which idle sandbox ends first, and in
//! what an idle one takes.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use nigh_schedule::keep_alive::{IdleSince, KeepAlive};
use nigh_terms::{ByteSize, Monotonic};

use super::policy::{Action, IdleTakes, NodeState, Policy, SandboxNo};
use super::sandboxes::{IdleSandbox, Sandboxes};
use super::workload::NodeFunction;

/// OpenWhisk's, and what Nigh's was.
const KEPT_FOR: Duration = Duration::from_secs(600);

/// Whom those pass who came later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// Nobody: the first in line holds up all.
    HeadBlocks,
    /// Who waits for a new sandbox is passed by those for whom there is an idle one.
    WarmPasses,
}

/// Which idle sandboxes end first.
pub(super) trait EndOrder {
    /// A run begins in a sandbox.
    fn used(&mut self, _sandbox: SandboxNo, _function: usize) {}

    /// Puts those first that are to end first. They come with the one idle longest first.
    fn sort(&self, _idle: &mut Vec<IdleSandbox>) {}

    /// A sandbox ends to make room; whether it is its function's last.
    fn ends(&mut self, _sandbox: SandboxNo, _function: usize, _is_last: bool) {}

    /// How long idle ones live; as long as nobody needs their room if nothing.
    fn keep_alive(&self) -> Option<KeepAlive> {
        Some(KeepAlive { idle_for: KEPT_FOR, idle_max: usize::MAX })
    }
}

/// The one idle longest, and after ten minutes whether room is needed or not.
pub(super) struct LongestIdle;

impl EndOrder for LongestIdle {}

/// A pool of this kind.
pub(super) struct OnDemandPool<'a, O> {
    functions: &'a [NodeFunction],
    idle_takes: IdleTakes,
    line: Line,
    order: O,
    sandboxes: Sandboxes,
    /// Invocation and function.
    waiting: VecDeque<(usize, usize)>,
    /// The invocation for which a sandbox starts.
    made_for: BTreeMap<SandboxNo, usize>,
    /// Those that have started for an invocation that has not run yet.
    ready: Vec<SandboxNo>,
}

/// What Nigh's pool did before it had a queue for each function: whoever waits gets the room of whoever is idle, at once.
///
/// An idle sandbox of the function if there is one, the one used last; else a new one in free room; else a new one once
/// those idle longest have ended; else the invocation waits. For a warm sandbox anyone may go first, for room nobody passes
/// one who came before. As many sandboxes start at once as find room.
pub(super) fn at_once(functions: &[NodeFunction], idle_takes: IdleTakes) -> Box<dyn Policy + '_> {
    Box::new(OnDemandPool::new(functions, idle_takes, Line::WarmPasses, LongestIdle))
}

/// Apache OpenWhisk's `ContainerPool` (`core/invoker/.../containerpool/ContainerPool.scala`).
///
/// A free container of the action that is warm; else a new one, if what all containers book leaves room for it; else a new
/// one in place of those free longest. Who finds no room goes to the run buffer, a line that its head holds up: while it is
/// not empty, everyone joins it behind.
pub(super) fn openwhisk(functions: &[NodeFunction], idle_takes: IdleTakes) -> Box<dyn Policy + '_> {
    Box::new(OnDemandPool::new(functions, idle_takes, Line::HeadBlocks, LongestIdle))
}

impl<'a, O: EndOrder> OnDemandPool<'a, O> {
    pub(super) fn new(functions: &'a [NodeFunction], idle_takes: IdleTakes, line: Line, order: O) -> Self {
        Self {
            functions,
            idle_takes,
            line,
            order,
            sandboxes: Sandboxes::default(),
            waiting: VecDeque::new(),
            made_for: BTreeMap::new(),
            ready: Vec::new(),
        }
    }

    /// The idle sandboxes that have to end for `needed` to be free, none if it is; nothing if all are not enough.
    fn make_room(
        &mut self,
        free: &mut ByteSize,
        needed: ByteSize,
        spared: Option<SandboxNo>,
    ) -> Option<Vec<SandboxNo>> {
        let missing = needed.saturating_sub(*free);
        let mut idle: Vec<IdleSandbox> = Vec::new();
        if missing > ByteSize::ZERO {
            idle.extend(self.sandboxes.idle().filter(|one| Some(one.sandbox) != spared));
            self.order.sort(&mut idle);
        }
        let takes = |one: &IdleSandbox| self.functions[one.function].idle_takes(self.idle_takes);
        let mut freed = ByteSize::ZERO;
        let mut count = 0;
        while freed < missing {
            freed += takes(idle.get(count)?);
            count += 1;
        }
        idle.truncate(count);
        *free = (*free + freed).saturating_sub(needed);
        Some(idle.into_iter().map(|one| self.end(one)).collect())
    }

    fn end(&mut self, one: IdleSandbox) -> SandboxNo {
        let is_last = self.sandboxes.end(one.sandbox);
        self.order.ends(one.sandbox, one.function, is_last);
        one.sandbox
    }

    fn run(&mut self, invocation: usize, function: usize, sandbox: SandboxNo, after: Vec<SandboxNo>) -> Action {
        self.sandboxes.take(sandbox);
        self.order.used(sandbox, function);
        Action::Run { invocation, sandbox, after }
    }

    /// Lets one run whose turn it is, if that is possible now.
    fn serve(
        &mut self,
        (invocation, function): (usize, usize),
        free: &mut ByteSize,
        may_start: bool,
    ) -> Option<Action> {
        if let Some(sandbox) = self.sandboxes.warmest(function) {
            let growth = self.functions[function].growth(self.idle_takes);
            let after = self.make_room(free, growth, Some(sandbox))?;
            return Some(self.run(invocation, function, sandbox, after));
        }
        if !may_start {
            return None;
        }
        let after = self.make_room(free, self.functions[function].booked, None)?;
        let sandbox = self.sandboxes.make(function);
        self.made_for.insert(sandbox, invocation);
        Some(Action::Start { function, sandbox, after })
    }

    fn end_expired(&mut self, now: Monotonic, free: &mut ByteSize, actions: &mut Vec<Action>) {
        let Some(keep_alive) = self.order.keep_alive() else { return };
        let idle: Vec<IdleSandbox> = self.sandboxes.idle().collect();
        let takes = |one: &IdleSandbox| self.functions[one.function].idle_takes(self.idle_takes);
        let views: Vec<IdleSince> = idle.iter().map(|one| IdleSince { since: one.since }).collect();
        let expired = keep_alive.expired(&views, now);
        *free += idle[..expired].iter().map(takes).sum();
        actions.extend(idle[..expired].iter().map(|one| Action::End(self.end(*one))));
    }
}

impl<O: EndOrder> Policy for OnDemandPool<'_, O> {
    fn idle_takes(&self) -> IdleTakes {
        self.idle_takes
    }

    fn arrived(&mut self, _now: Monotonic, invocation: usize, function: usize) {
        self.waiting.push_back((invocation, function));
    }

    fn overdue(&mut self, _now: Monotonic, invocation: usize) {
        self.waiting.retain(|(waits, _)| *waits != invocation);
        self.made_for.retain(|_, waits| *waits != invocation);
    }

    fn started(&mut self, now: Monotonic, sandbox: SandboxNo) {
        self.sandboxes.keep(sandbox, now);
        self.ready.push(sandbox);
    }

    fn ended(&mut self, now: Monotonic, sandbox: SandboxNo) {
        self.sandboxes.keep(sandbox, now);
    }

    fn decide(&mut self, now: Monotonic, node: &NodeState<'_>) -> Vec<Action> {
        let mut actions = Vec::new();
        let mut free = node.memory_free;
        for sandbox in std::mem::take(&mut self.ready) {
            if let (Some(invocation), Some(function)) =
                (self.made_for.remove(&sandbox), self.sandboxes.function(sandbox))
            {
                // It had this memory while it started.
                free = free.saturating_sub(self.functions[function].growth(self.idle_takes));
                actions.push(self.run(invocation, function, sandbox, Vec::new()));
            }
        }
        self.end_expired(now, &mut free, &mut actions);
        let (mut may_start, mut is_blocked) = (true, false);
        for one in std::mem::take(&mut self.waiting) {
            if !is_blocked && self.functions[one.1].booked > node.memory {
                actions.push(Action::Refuse(one.0));
                continue;
            }
            match (!is_blocked).then(|| self.serve(one, &mut free, may_start)).flatten() {
                Some(action) => actions.push(action),
                None => {
                    may_start = false;
                    is_blocked |= self.line == Line::HeadBlocks;
                    self.waiting.push_back(one);
                }
            }
        }
        actions
    }
}
