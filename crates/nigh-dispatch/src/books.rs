//! What a controller keeps: the namespaces that it owns, who waits, and where the next one goes. No I/O.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use nigh_data::NamePrint;
use nigh_functions::function::Function;
use nigh_invoke::invocation::InvokeError;
use nigh_protocol::{Contract, Dispatch, Frontier, Member};
use nigh_schedule::scheduler::coverage_board::CoverageBoard;
use nigh_schedule::scheduler::dispatch_queue::{DispatchLimits, DispatchQueue, NewEntry, Place, Turn};
use nigh_schedule::scheduler::{
    Choice, Cost, Decision, Fingerprint, HeldInputs, Inputs, NodeView, Offer, PerNode, Placement, Refusal,
    WarmSandboxes, Weights, schedule,
};
use nigh_terms::{ByteSize, Monotonic, Namespace, NodeId, Token};
use tokio::sync::oneshot;

use super::cluster_view::{ClusterView, FunctionKey, which};

/// For an invocation that waits at the gate of a node: a question to the homes, and that the node may be slow to ask.
const AT_GATE: Cost = Cost(1_500);

/// A namespace that this controller owns.
pub(super) struct OwnedNamespace {
    pub(super) term: u64,
    pub(super) frontier: Frontier,
    board: CoverageBoard,
    /// Of each node the life and the report that the board knows.
    shown: Vec<(Member, u64)>,
}

impl OwnedNamespace {
    /// An owner begins, to whom the homes have told `newest`.
    pub(super) fn new(term: u64, newest: &Token) -> Self {
        let mut frontier = Frontier::begin(newest.iter().map(|(shard, version)| (shard, version.epoch)), Contract);
        newest.iter().for_each(|(shard, version)| frontier.read(shard, version));
        let mut board = CoverageBoard::new(0);
        board.need(newest);
        Self { term, frontier, board, shown: Vec::new() }
    }

    pub(super) fn see(&mut self, token: &Token) {
        self.frontier.see(token);
        self.board.need(token);
    }

    /// The board hears what nodes have reported since.
    fn look(&mut self, view: &ClusterView) {
        for (at, slot) in view.slots().iter().enumerate() {
            let index = nigh_schedule::scheduler::NodeIndex(u16::try_from(at).unwrap_or(u16::MAX));
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

/// One that waits for a node.
pub(super) struct WaitingInvocation {
    pub(super) function: Arc<Function>,
    pub(super) since: Monotonic,
    /// Nodes that have just refused it.
    pub(super) not_to: Vec<Member>,
    /// The objects that it will read, as far as is known.
    pub(super) reads: Vec<NamePrint>,
    pub(super) turn: oneshot::Sender<Result<DispatchPlacement, InvokeError>>,
}

/// Where one goes.
#[derive(Clone, Debug)]
pub(super) enum DispatchPlacement {
    At {
        node: NodeId,
        dispatch: Dispatch,
        term: u64,
        /// How it was chosen.
        why: String,
    },
    /// Its namespace is not owned here any more.
    NotOwned,
}

/// A sandbox of its function is expected sooner than a new one would be made.
struct HadBetterWait;

/// What decides where one goes.
pub(super) struct PlacementState {
    weights: Weights,
    cold_start: Duration,
    pub(super) view: ClusterView,
    pub(super) owned: HashMap<Namespace, OwnedNamespace>,
    /// How long runs have taken.
    runs: HashMap<FunctionKey, Duration>,
}

/// Functions of which it is known how long they run; with one more all are forgotten.
const RUNS_MAX: usize = 16_384;

/// See the module.
pub(super) struct Books {
    pub(super) placing: PlacementState,
    pub(super) queue: DispatchQueue<WaitingInvocation>,
    reserved: HashMap<FunctionKey, usize>,
    running: HashMap<FunctionKey, usize>,
}

/// Why `name` was chosen, which holds so much of all that the invocation is thought to read.
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
    /// Where an invocation of `function` would go that reads these objects, once the one that was sent to `after` is over.
    pub(super) fn foresee(&self, function: &Function, reads: &[NamePrint], after: Member) -> Option<Member> {
        let (warm, inputs) = (self.view.warm(function), self.view.inputs(reads));
        let placement = self.placement(function, &warm, &inputs);
        // Nobody else covers at once what that one writes.
        let mut nodes = self.view.views(|_, slot| u16::from(slot.member != after));
        for (node, _) in nodes.iter_mut().zip(self.view.slots()).filter(|(_, slot)| slot.member == after) {
            node.running = node.running.saturating_sub(1);
        }
        let choice = schedule(&self.weights, &placement, &nodes).choice?;
        self.view.slots().get(usize::from(choice.node.0)).map(|slot| slot.member)
    }

    /// Where a sandbox of `function` would be made if it were invoked now; nothing if one is idle somewhere, or there is no
    /// free room.
    pub(super) fn ahead(&self, function: &Function) -> Option<NodeId> {
        let (warm, inputs) = (self.view.warm(function), self.view.inputs(&[]));
        let placement = self.placement(function, &warm, &inputs);
        let choice = schedule(&self.weights, &placement, &self.view.views(|_, _| 0)).choice?;
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
            run: self.runs.get(&which(function)).copied().unwrap_or_default(),
            cold_start: self.cold_start,
            ways: self.view.ways(function),
            warm,
            inputs,
        }
    }

    /// True if an invocation had better wait for a sandbox of its function that runs: that is expected sooner than a new one,
    /// with what that would end, and it has not waited for as long yet. The node's own rule is the same (`sandbox_pool`).
    fn had_better_wait(&self, waiting: &WaitingInvocation, choice: &Choice, node: &NodeView, now: Monotonic) -> bool {
        let flying = self.view.flying(&waiting.function);
        let Some(run) = self.runs.get(&which(&waiting.function)).filter(|_| flying > 0) else { return false };
        let loss_us = match choice.offer {
            Offer::Warm => return false,
            Offer::Cold => 0,
            Offer::Evict => node.evict_us,
        };
        let price = self.cold_start.max(Duration::from_micros(node.start_us)) + Duration::from_micros(loss_us);
        (*run / flying).max(now.since(waiting.since)) <= price
    }

    /// Where `waiting` goes now.
    fn place(&mut self, waiting: &WaitingInvocation, now: Monotonic) -> Place<DispatchPlacement> {
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
        let mut decision = schedule(&self.weights, &placement, &nodes);
        // Who has not shown it yet may reach it in one question to the homes: it waits there, bounded, rather than for one of
        // the few who have, or for a new sandbox.
        nodes.iter_mut().for_each(|node| node.shards_behind = 0);
        let anywhere = schedule(&self.weights, &placement, &nodes);
        let is_better = |one: Choice| decision.choice.is_none_or(|other| one.terms.sum() + AT_GATE < other.terms.sum());
        if anywhere.choice.is_some_and(is_better) {
            decision = anywhere;
        }
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

impl Books {
    pub(super) fn new(weights: Weights, cold_start: Duration, limits: DispatchLimits) -> Self {
        let (view, owned, runs) = (ClusterView::default(), HashMap::new(), HashMap::new());
        let placing = PlacementState { weights, cold_start, view, owned, runs };
        Self { placing, queue: DispatchQueue::new(limits), reserved: HashMap::new(), running: HashMap::new() }
    }

    /// The owner of `term` joins what an invocation or a writer had seen. False if that is not this controller.
    pub(super) fn see(&mut self, namespace: &Namespace, term: Option<u64>, token: &Token) -> bool {
        let owned = self.placing.owned.get_mut(namespace).filter(|owned| term.is_none_or(|term| owned.term == term));
        let Some(owned) = owned else { return false };
        owned.see(token);
        true
    }

    /// The term in which this controller owns `namespace`.
    pub(super) fn term(&self, namespace: &Namespace) -> Option<u64> {
        self.placing.owned.get(namespace).map(|owned| owned.term)
    }

    /// One more runs, or waits.
    ///
    /// # Errors
    /// If the function runs as many as it may.
    pub(super) fn begins(&mut self, function: &Function) -> Result<(), InvokeError> {
        let key = which(function);
        let running = self.running.entry(key.clone()).or_default();
        match self.reserved.get(&key) {
            Some(&limit) if *running >= limit => {
                if *running == 0 {
                    self.running.remove(&key);
                }
                Err(InvokeError::ReservedConcurrency { function: key.1, limit })
            }
            _ => {
                *running += 1;
                Ok(())
            }
        }
    }

    /// It is over.
    pub(super) fn ends(&mut self, function: &Function) {
        let key = which(function);
        if let Some(running) = self.running.get_mut(&key) {
            *running -= 1;
            if *running == 0 {
                self.running.remove(&key);
            }
        }
    }

    pub(super) fn set_reserved(&mut self, function: FunctionKey, concurrency: Option<usize>) {
        let _before = match concurrency {
            Some(limit) => self.reserved.insert(function, limit),
            None => self.reserved.remove(&function),
        };
    }

    /// A run at `node` took so long, and left these copies there.
    pub(super) fn ran(
        &mut self,
        function: &Function,
        node: Member,
        took: Duration,
        left: impl IntoIterator<Item = (NamePrint, u64)>,
    ) {
        self.placing.view.left(node, left);
        let (key, runs) = (which(function), &mut self.placing.runs);
        if runs.len() >= RUNS_MAX && !runs.contains_key(&key) {
            runs.clear();
        }
        let known = runs.entry(key).or_insert(took);
        *known = (*known * 7 + took) / 8;
    }

    /// One waits for a node.
    ///
    /// # Errors
    /// If it may not even wait.
    pub(super) fn waits(
        &mut self,
        waiting: WaitingInvocation,
        deadline: Monotonic,
        now: Monotonic,
    ) -> Result<(), InvokeError> {
        let run = self.placing.runs.get(&which(&waiting.function)).copied().unwrap_or(Duration::from_millis(100));
        let (namespace, function) = which(&waiting.function);
        let entry = NewEntry { namespace, function, run, deadline, item: waiting };
        self.queue.push(entry, now).map(|_ticket| ()).map_err(|full| InvokeError::TooManyRequests(full.to_string()))
    }

    /// All whose turn it is are told so.
    pub(super) fn pump(&mut self, now: Monotonic) {
        let Self { placing, queue, .. } = self;
        while let Some(turn) = queue.next(now, |waiting| placing.place(waiting, now)) {
            match turn {
                Turn::Placed(_, waiting, placed) => {
                    if let Err(Ok(DispatchPlacement::At { dispatch, .. })) = waiting.turn.send(Ok(placed)) {
                        placing.view.over(dispatch.to, &waiting.function, false);
                    }
                }
                Turn::Expired(_, waiting) => {
                    let why = "no node could take it in time; invoke again later, or add nodes".to_owned();
                    let _nobody_waits = waiting.turn.send(Err(InvokeError::TooManyRequests(why)));
                }
            }
        }
    }
}
