//! The nodes as a controller sees them: pure.
//!
//! A node reports five times a second. What this controller has sent since is added, so that a burst between two reports does
//! not go to one node; the next report corrects that.

use std::collections::HashMap;
use std::time::Duration;

use nigh_data::NamePrint;
use nigh_engine::{NodeRole as Duty, PresentMember};
use nigh_functions::function::Function;
use nigh_protocol::Member;
use nigh_schedule::scheduler::locality_hints::LocalityHints;
use nigh_schedule::scheduler::vacancy::{Vacancy, WarmFunction};
use nigh_schedule::scheduler::{Fingerprint, Inputs, NodeIndex, NodeRole, NodeView, Offer, PerNode, WarmSandboxes};
use nigh_terms::{ByteSize, FunctionName, Namespace, NodeId, NodeNumber, Token, invariant};

use crate::wire::{HoldingsNews, ReportHead};

/// A function of a namespace.
pub(crate) type FunctionKey = (Namespace, FunctionName);

pub(crate) fn which(function: &Function) -> FunctionKey {
    (function.namespace.clone(), function.name.clone())
}

/// The last report of a node.
#[derive(Debug)]
struct NodeReport {
    serial: u64,
    vacancy: Vacancy,
    covered: Token,
}

fn is_version(warm: &WarmFunction, function: &Function) -> bool {
    let names = (&function.namespace, &function.name, &function.revision_id);
    (&warm.namespace, &warm.function, &warm.revision) == names
}

/// A node.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) name: NodeId,
    pub(crate) member: Member,
    fingerprint: Fingerprint,
    /// It is a member, runs functions, and takes work.
    lives: bool,
    said: Option<NodeReport>,
    /// Invocations that this controller has running there.
    in_flight: u32,
    /// Since the last report: idle sandboxes taken and given back, cold starts and what they book.
    warm: HashMap<FunctionKey, i64>,
    begun: u32,
    booked: ByteSize,
}

impl Slot {
    fn new(name: NodeId, member: Member) -> Self {
        Self {
            fingerprint: Fingerprint::of(&[&name.0]),
            name,
            member,
            lives: true,
            said: None,
            in_flight: 0,
            warm: HashMap::new(),
            begun: 0,
            booked: ByteSize::ZERO,
        }
    }

    /// The versions that it covers, and the report that said so.
    pub(crate) fn covered(&self) -> Option<(u64, &Token)> {
        self.said.as_ref().map(|said| (said.serial, &said.covered))
    }

    fn warm_of(&self, function: &Function) -> WarmSandboxes {
        let Some(said) = &self.said else { return WarmSandboxes::default() };
        let known = said.vacancy.warm.iter().find(|warm| is_version(warm, function));
        let since = self.warm.get(&which(function)).copied().unwrap_or(0);
        let sandboxes = known.map_or(0, |known| i64::from(known.sandboxes)) + since;
        WarmSandboxes {
            sandboxes: u32::try_from(sandboxes.max(0)).unwrap_or(u32::MAX),
            granted: known.map_or(function.memory, |known| known.granted),
            idle_for: known.map_or(Duration::ZERO, |known| known.idle_for),
        }
    }

    fn view(&self, shards_behind: u16) -> NodeView {
        let nothing = Vacancy::default();
        let vacancy = self.said.as_ref().map_or(&nothing, |said| &said.vacancy);
        // An invocation that was sent and waits there counts in both.
        let running = (vacancy.running + vacancy.waiting).max(self.in_flight);
        let takes = self.lives && self.said.is_some();
        NodeView {
            incarnation: self.member.incarnation,
            name: self.fingerprint,
            role: if takes { NodeRole::Worker } else { NodeRole::Draining },
            shards_behind,
            idle: vacancy.idle,
            memory: vacancy.memory,
            memory_free: vacancy.memory_free.saturating_sub(self.booked),
            memory_idle: vacancy.memory_idle,
            sandboxes_free: vacancy.sandboxes_free.saturating_sub(self.begun),
            running,
            invocations_free: vacancy.invocations_free.saturating_sub(running.saturating_sub(vacancy.running)),
            processors: vacancy.processors,
            ways_free: vacancy.ways_free,
            evict_us: vacancy.evict_us,
            start_us: vacancy.start_us,
        }
    }
}

/// All nodes that run functions, or have run them.
#[derive(Debug, Default)]
pub(crate) struct ClusterView {
    slots: Vec<Slot>,
    places: HashMap<NodeNumber, usize>,
    /// Invocations that this controller has running, by function.
    flying: HashMap<FunctionKey, u32>,
    /// Which node caches which object; made with the first report of copies.
    hints: Option<LocalityHints>,
}

/// Cached copies that a controller knows, at twelve bytes each.
const HINTS: usize = 1 << 18;

impl ClusterView {
    /// The members have changed.
    pub(crate) fn members(&mut self, living: &[PresentMember]) {
        self.slots.iter_mut().for_each(|slot| slot.lives = false);
        for member in living.iter().filter(|member| member.has(Duty::Run)) {
            let me = Member { node: member.presence.number, incarnation: member.incarnation };
            let slot = || Slot { lives: member.takes_runs(living), ..Slot::new(member.node.clone(), me) };
            match self.places.get(&me.node) {
                Some(&at) if self.slots[at].member == me => self.slots[at].lives = member.takes_runs(living),
                Some(&at) => {
                    self.slots[at] = slot();
                    if let (Some(hints), Ok(at)) = (&mut self.hints, u16::try_from(at)) {
                        hints.node_lost(NodeIndex(at));
                    }
                }
                None => {
                    self.places.insert(me.node, self.slots.len());
                    self.slots.push(slot());
                }
            }
        }
    }

    /// A node reports. False if that incarnation is unknown, or a later report has come.
    pub(crate) fn report(&mut self, report: ReportHead) -> bool {
        let ReportHead { from, serial, vacancy, covered, holdings, .. } = report;
        let Some(slot) = self.slot_mut(from) else { return false };
        if slot.said.as_ref().is_some_and(|said| said.serial >= serial) {
            return false;
        }
        slot.said = Some(NodeReport { serial, vacancy, covered });
        slot.warm.clear();
        (slot.begun, slot.booked) = (0, ByteSize::ZERO);
        self.hear(from, &holdings);
        true
    }

    /// Takes what a node reports of its copies.
    fn hear(&mut self, from: Member, news: &HoldingsNews) {
        let Some(node) = self.index(from).filter(|_| news.anew || !news.changes.is_empty()) else { return };
        let hints = self.hints.get_or_insert_with(|| LocalityHints::new(HINTS));
        if news.anew {
            hints.node_lost(node);
        }
        for (print, bytes) in &news.changes {
            match bytes {
                Some(bytes) => hints.installed(Fingerprint(*print), node, *bytes),
                None => hints.dropped(Fingerprint(*print), node),
            }
        }
    }

    /// An invocation at `member` has ended and left these copies there; the next report of the node will say so too.
    pub(crate) fn left(&mut self, member: Member, copies: impl IntoIterator<Item = (NamePrint, u64)>) {
        for (print, bytes) in copies {
            // Copies of earlier versions are invalid.
            if let Some(hints) = &mut self.hints {
                let object = Fingerprint(print.0);
                let before: Vec<NodeIndex> = hints.holders(object).map(|(node, _)| node).collect();
                before.into_iter().for_each(|node| hints.dropped(object, node));
            }
            self.hear(member, &HoldingsNews { anew: false, changes: vec![(print.0, Some(bytes))] });
        }
    }

    /// These objects were written at `node`, if it is known.
    pub(crate) fn wrote(&mut self, node: NodeNumber, copies: impl IntoIterator<Item = (NamePrint, u64)>) {
        if let Some(member) = self.places.get(&node).and_then(|at| self.slots.get(*at)).map(|slot| slot.member) {
            self.left(member, copies);
        }
    }

    /// These copies were prefetched to `member`; the next report of the node will say so too.
    pub(crate) fn brought(&mut self, member: Member, copies: impl IntoIterator<Item = (NamePrint, u64)>) {
        let changes = copies.into_iter().map(|(print, bytes)| (print.0, Some(bytes))).collect();
        self.hear(member, &HoldingsNews { anew: false, changes });
    }

    /// The last-level cache ways that `function` needed where it ran last, as far as nodes have reported.
    pub(crate) fn ways(&self, function: &Function) -> u8 {
        let said = self.slots.iter().filter_map(|slot| slot.said.as_ref());
        let warm = said.flat_map(|said| &said.vacancy.warm).filter(|warm| is_version(warm, function));
        warm.map(|warm| warm.ways).max().unwrap_or(0)
    }

    /// The nodes that cache `objects`, as far as is known.
    pub(crate) fn inputs(&self, objects: &[NamePrint]) -> Inputs {
        let mut inputs = Inputs::default();
        let Some(hints) = &self.hints else { return inputs };
        for object in objects {
            let holders: Vec<(NodeIndex, u64)> = hints.holders(Fingerprint(object.0)).collect();
            // An object that no node caches has an unknown size and is equally far from all nodes.
            let Some(bytes) = holders.iter().map(|(_, bytes)| *bytes).max() else { continue };
            inputs.add(bytes, holders.into_iter().map(|(node, _)| node));
        }
        inputs
    }

    fn index(&self, member: Member) -> Option<NodeIndex> {
        let at = *self.places.get(&member.node)?;
        let at = self.slots.get(at).filter(|slot| slot.member == member).map(|_| at)?;
        u16::try_from(at).ok().map(NodeIndex)
    }

    fn slot_mut(&mut self, member: Member) -> Option<&mut Slot> {
        let at = *self.places.get(&member.node)?;
        self.slots.get_mut(at).filter(|slot| slot.member == member)
    }

    /// All of them, in their order.
    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// What the scheduler sees; `behind` says by how many shards a node is behind.
    pub(crate) fn views(&self, mut behind: impl FnMut(NodeIndex, &Slot) -> u16) -> Vec<NodeView> {
        (0..).map(NodeIndex).zip(&self.slots).map(|(index, slot)| slot.view(behind(index, slot))).collect()
    }

    /// The idle sandboxes of `function`.
    pub(crate) fn warm(&self, function: &Function) -> PerNode<WarmSandboxes> {
        let mut warm = PerNode::default();
        for (index, slot) in (0..).map(NodeIndex).zip(&self.slots) {
            let of = slot.warm_of(function);
            if of.sandboxes > 0 {
                *warm.entry(index) = of;
            }
        }
        warm
    }

    /// How many invocations of `function` this controller has running.
    pub(crate) fn flying(&self, function: &Function) -> u32 {
        self.flying.get(&which(function)).copied().unwrap_or(0)
    }

    /// An invocation is sent to `node`.
    pub(crate) fn sent(&mut self, node: NodeIndex, function: &Function, offer: Offer) {
        let Some(slot) = self.slots.get_mut(usize::from(node.0)) else { return };
        slot.in_flight += 1;
        *self.flying.entry(which(function)).or_default() += 1;
        match offer {
            Offer::Warm => *slot.warm.entry(which(function)).or_default() -= 1,
            Offer::Cold | Offer::Evict => {
                slot.begun += 1;
                slot.booked += function.memory;
            }
        }
    }

    /// An invocation that was sent has ended; `ran`: its sandbox is idle now.
    pub(crate) fn over(&mut self, member: Member, function: &Function, ran: bool) {
        if let Some(flying) = self.flying.get_mut(&which(function)) {
            // `sent` has counted it, and entries without invocations are removed.
            invariant!(*flying > 0, "an invocation of {} has ended that was not sent", function.name);
            *flying -= 1;
            if *flying == 0 {
                self.flying.remove(&which(function));
            }
        }
        let Some(slot) = self.slot_mut(member) else { return };
        slot.in_flight = slot.in_flight.saturating_sub(1);
        if ran {
            *slot.warm.entry(which(function)).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests;
