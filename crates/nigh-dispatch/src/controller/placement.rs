//! Where an invocation goes: chosen by what the nodes report and what this controller has sent since. No I/O.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use nigh_data::NamePrint;
use nigh_functions::function::Function;
use nigh_invoke::invocation::InvokeError;
use nigh_protocol::{Contract, Dispatch, Frontier, Member};
use nigh_schedule::scheduler::coverage_board::CoverageBoard;
use nigh_schedule::scheduler::dispatch_queue::Place;
use nigh_schedule::scheduler::{
    Choice, Cost, Decision, Fingerprint, HeldInputs, Inputs, NodeIndex, NodeView, Offer, PerNode, Placement, Refusal,
    WarmSandboxes, Weights, schedule,
};
use nigh_terms::{ByteSize, Monotonic, Namespace, NodeId, Token};
use tokio::sync::oneshot;

use super::cluster_view::{ClusterView, FunctionKey, which};

/// The cost of waiting at a node's gate: the node asks the homes, and may be slow to ask.
const AT_GATE: Cost = Cost(1_500);

/// A namespace that this controller owns.
pub(crate) struct OwnedNamespace {
    pub(crate) term: u64,
    pub(crate) frontier: Frontier,
    board: CoverageBoard,
    /// By node: the incarnation and the report that the board knows.
    shown: Vec<(Member, u64)>,
}

impl OwnedNamespace {
    /// An owner begins; the homes have reported `newest`.
    pub(crate) fn new(term: u64, newest: &Token) -> Self {
        let mut frontier = Frontier::begin(newest.iter().map(|(shard, version)| (shard, version.epoch)), Contract);
        newest.iter().for_each(|(shard, version)| frontier.read(shard, version));
        let mut board = CoverageBoard::new(0);
        board.need(newest);
        Self { term, frontier, board, shown: Vec::new() }
    }

    pub(crate) fn see(&mut self, token: &Token) {
        self.frontier.see(token);
        self.board.need(token);
    }

    /// Tells the board what nodes have reported since the last time.
    fn look(&mut self, view: &ClusterView) {
        for (at, slot) in view.slots().iter().enumerate() {
            let index = NodeIndex(u16::try_from(at).unwrap_or(u16::MAX));
            let known = self.shown.get(at).copied();
            if known.is_none_or(|(member, _)| member != slot.member) {
                self.board.restart(index);
                match self.shown.get_mut(at) {
                    Some(known) => *known = (slot.member, 0),
                    None => self.shown.push((slot.member, 0)),
                }
            }
            let Some((serial, covered)) = slot.covered() else { continue };
            if let Some((_, known)) = self.shown.get_mut(at).filter(|(_, known)| *known < serial) {
                *known = serial;
                covered.iter().for_each(|(shard, version)| self.board.shown(index, shard, version));
            }
        }
    }
}

/// An invocation that waits for a node.
pub(crate) struct WaitingInvocation {
    pub(crate) function: Arc<Function>,
    pub(crate) since: Monotonic,
    /// Nodes that have just refused it.
    pub(crate) not_to: Vec<Member>,
    /// The objects that it is expected to read.
    pub(crate) reads: Vec<NamePrint>,
    pub(crate) turn: oneshot::Sender<Result<DispatchPlacement, InvokeError>>,
}

/// Where an invocation goes.
#[derive(Clone, Debug)]
pub(crate) enum DispatchPlacement {
    At {
        node: NodeId,
        dispatch: Dispatch,
        term: u64,
        /// How it was chosen.
        why: String,
    },
    /// This controller does not own its namespace any more.
    NotOwned,
}

/// A sandbox of the function will be free before a new one would be ready.
struct HadBetterWait;

/// What decides where invocations go.
pub(crate) struct PlacementState {
    weights: Weights,
    cold_start: Duration,
    pub(crate) view: ClusterView,
    pub(crate) owned: HashMap<Namespace, OwnedNamespace>,
    /// How long runs of a function take: a mean in which new runs count most.
    runs: HashMap<FunctionKey, Duration>,
}

/// Functions whose run times are known; with one more, all are forgotten.
const RUNS_MAX: usize = 16_384;

/// Chooses a node for an invocation; all of `nodes` are taken to cover its frontier afterwards.
///
/// A node that has not shown yet that it covers the frontier may cover it after one question to the homes. A bounded wait at
/// its gate can be cheaper than one of the few nodes that cover it, or than a new sandbox.
fn decide(weights: &Weights, placement: &Placement<'_>, nodes: &mut [NodeView]) -> Decision {
    let decision = schedule(weights, placement, nodes);
    nodes.iter_mut().for_each(|node| node.shards_behind = 0);
    let anywhere = schedule(weights, placement, nodes);
    let is_better = |one: Choice| decision.choice.is_none_or(|other| one.terms.sum() + AT_GATE < other.terms.sum());
    if anywhere.choice.is_some_and(is_better) { anywhere } else { decision }
}

/// Why `name` was chosen, in words. It holds `held` of all that the invocation is expected to read.
fn words(decision: &Decision, name: &NodeId, (held, all): (HeldInputs, HeldInputs), at_gate: bool) -> String {
    let offer = match decision.choice.map(|choice| choice.offer) {
        Some(Offer::Warm) => "has an idle sandbox of it",
        Some(Offer::Cold) => "has room for a new sandbox",
        Some(Offer::Evict) | None => "makes room for a new sandbox",
    };
    let mut text = format!("{name} {offer}");
    if all.objects > 0 {
        let (of, bytes) = (ByteSize(all.bytes), ByteSize(held.bytes));
        text.push_str(&format!(
            " and holds {bytes} of {of} that it reads ({} of {} objects)",
            held.objects, all.objects
        ));
    }
    if decision.equals > 1 {
        text.push_str(&format!(", one of {} as good", decision.equals));
    }
    let refused: Vec<String> = Refusal::ALL
        .into_iter()
        .filter(|refusal| decision.refusals.count(*refusal) > 0)
        .map(|refusal| format!("{} that {}", decision.refusals.count(refusal), refusal.reason()))
        .collect();
    if !refused.is_empty() {
        text.push_str(&format!("; not {}", refused.join(", not ")));
    }
    if at_gate {
        text.push_str("; it catches up at its gate");
    }
    text
}

impl PlacementState {
    pub(super) fn new(weights: Weights, cold_start: Duration) -> Self {
        let (view, owned, runs) = (ClusterView::default(), HashMap::new(), HashMap::new());
        Self { weights, cold_start, view, owned, runs }
    }

    /// How long a run of `function` takes, if one has ended.
    pub(super) fn run(&self, function: &Function) -> Option<Duration> {
        self.runs.get(&which(function)).copied()
    }

    /// A run at `node` took so long, and left these copies there.
    pub(crate) fn ran(
        &mut self,
        function: &Function,
        node: Member,
        took: Duration,
        left: impl IntoIterator<Item = (NamePrint, u64)>,
    ) {
        self.view.left(node, left);
        let (key, runs) = (which(function), &mut self.runs);
        if runs.len() >= RUNS_MAX && !runs.contains_key(&key) {
            runs.clear();
        }
        let known = runs.entry(key).or_insert(took);
        *known = (*known * 7 + took) / 8;
    }

    /// Where an invocation of `function` that reads these objects would go when the one that was sent to `after` has ended.
    pub(crate) fn foresee(&self, function: &Function, reads: &[NamePrint], after: Member) -> Option<Member> {
        let (warm, inputs) = (self.view.warm(function), self.view.inputs(reads));
        let placement = self.placement(function, &warm, &inputs);
        // Only `after` covers at once what that invocation writes.
        let mut nodes = self.view.views(|_, slot| u16::from(slot.member != after));
        for (node, _) in nodes.iter_mut().zip(self.view.slots()).filter(|(_, slot)| slot.member == after) {
            node.running = node.running.saturating_sub(1);
        }
        let choice = schedule(&self.weights, &placement, &nodes).choice?;
        self.view.slots().get(usize::from(choice.node.0)).map(|slot| slot.member)
    }

    /// The node that would make a sandbox of `function` if it were invoked now. None if a node has an idle one, or no node has
    /// free room.
    pub(crate) fn ahead(&mut self, function: &Function) -> Option<NodeId> {
        let (warm, inputs) = (self.view.warm(function), self.view.inputs(&[]));
        let placement = self.placement(function, &warm, &inputs);
        let mut nodes = match self.owned.get_mut(&function.namespace) {
            Some(owned) => {
                owned.look(&self.view);
                self.view.views(|index, _| owned.board.shards_behind(index))
            }
            None => self.view.views(|_, _| 0),
        };
        let choice = decide(&self.weights, &placement, &mut nodes).choice?;
        let slot = self.view.slots().get(usize::from(choice.node.0))?;
        (choice.offer == Offer::Cold).then(|| slot.name.clone())
    }

    fn placement<'a>(
        &self,
        function: &Function,
        warm: &'a PerNode<WarmSandboxes>,
        inputs: &'a Inputs,
    ) -> Placement<'a> {
        Placement {
            function: Fingerprint::of(&[function.namespace.as_str(), function.name.as_str()]),
            booked: function.memory,
            expected: function.memory,
            run: self.run(function).unwrap_or_default(),
            cold_start: self.cold_start,
            ways: self.view.ways(function),
            warm,
            inputs,
        }
    }

    /// True if an invocation should wait for a busy sandbox of its function. A busy one is expected to be free before a new one
    /// has paid for itself and for the sandboxes that it would end; and the invocation has not waited that long yet. The
    /// node's own rule is the same (`sandbox_pool`).
    fn had_better_wait(&self, waiting: &WaitingInvocation, choice: &Choice, node: &NodeView, now: Monotonic) -> bool {
        let flying = self.view.flying(&waiting.function);
        let Some(run) = self.run(&waiting.function).filter(|_| flying > 0) else { return false };
        let loss_us = match choice.offer {
            Offer::Warm => return false,
            Offer::Cold => 0,
            Offer::Evict => node.evict_us,
        };
        let price = self.cold_start.max(Duration::from_micros(node.start_us)) + Duration::from_micros(loss_us);
        (run / flying).max(now.since(waiting.since)) <= price
    }

    /// Where `waiting` goes now.
    pub(super) fn place(&mut self, waiting: &WaitingInvocation, now: Monotonic) -> Place<DispatchPlacement> {
        match self.found(waiting, now) {
            Ok(placed) => placed.map_or(Place::Nowhere, Place::Here),
            Err(HadBetterWait) => Place::Later,
        }
    }

    fn found(
        &mut self,
        waiting: &WaitingInvocation,
        now: Monotonic,
    ) -> Result<Option<DispatchPlacement>, HadBetterWait> {
        let function = &*waiting.function;
        let (warm, inputs) = (self.view.warm(function), self.view.inputs(&waiting.reads));
        let placement = self.placement(function, &warm, &inputs);
        let Some(owned) = self.owned.get_mut(&function.namespace) else { return Ok(Some(DispatchPlacement::NotOwned)) };
        owned.look(&self.view);
        let mut nodes = self.view.views(|index, _| owned.board.shards_behind(index));
        for (node, slot) in nodes.iter_mut().zip(self.view.slots()) {
            if waiting.not_to.contains(&slot.member) {
                node.invocations_free = 0;
            }
        }
        let decision = decide(&self.weights, &placement, &mut nodes);
        let at_gate = decision.choice.is_some_and(|choice| owned.board.shards_behind(choice.node) > 0);
        let Some(choice) = decision.choice else { return Ok(None) };
        let dispatch =
            self.view.slots().get(usize::from(choice.node.0)).map(|slot| owned.frontier.dispatch(slot.member));
        let (Some(Some(dispatch)), term) = (dispatch, owned.term) else { return Ok(None) };
        if nodes.get(usize::from(choice.node.0)).is_some_and(|node| self.had_better_wait(waiting, &choice, node, now)) {
            return Err(HadBetterWait);
        }
        let Some(slot) = self.view.slots().get(usize::from(choice.node.0)) else { return Ok(None) };
        let held = inputs.by_node().get(choice.node).copied().unwrap_or_default();
        let why = words(&decision, &slot.name, (held, inputs.all()), at_gate);
        let placed = DispatchPlacement::At { node: slot.name.clone(), dispatch, term, why };
        self.view.sent(choice.node, function, choice.offer);
        Ok(Some(placed))
    }
}
