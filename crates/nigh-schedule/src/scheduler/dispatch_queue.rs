//! The fair queue of invocations that wait for room. Pure: time is an argument, and the caller says whether an
//! invocation can be placed.
//!
//! Namespaces share by weight, and the functions of a namespace evenly: self-clocked fair queueing (Golestani, INFOCOM
//! 1994) on both levels, by the expected run times. The turn that would end first goes first, so short work waits less,
//! and nobody's share shrinks for that. A long line of one namespace or function delays no other. Within a function the
//! order is that of arrival. If the next invocation of a function fits nowhere, others pass it, of its own namespace
//! too. After `passes_max` passes all others wait for it, so that room can gather. Only then may a node with room be
//! idle, and at most for `hold_max`. An invocation that is not placed by its deadline is returned as expired.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use nigh_terms::{FunctionName, Monotonic, Namespace};
use thiserror::Error;

/// The limits of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DispatchLimits {
    /// The most entries of all namespaces.
    pub entries_max: usize,
    /// The most entries of one namespace.
    pub tenant_entries_max: usize,
    /// How often others may pass an entry; then all wait for it.
    pub passes_max: u32,
    /// How long all wait for an entry; then others may pass it again.
    pub hold_max: Duration,
}

impl Default for DispatchLimits {
    fn default() -> Self {
        Self { entries_max: 100_000, tenant_entries_max: 10_000, passes_max: 256, hold_max: Duration::from_secs(1) }
    }
}

/// Why an invocation may not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DispatchRefusal {
    /// The queue is full.
    #[error("{0} invocations wait for a node, as many as may; invoke again later, or add nodes")]
    Full(usize),
    /// The namespace's part of the queue is full.
    #[error("{0} invocations of this namespace wait for a node, as many as may; invoke again later")]
    TenantFull(usize),
    /// The invocation's deadline has passed.
    #[error("its deadline passed before it could wait for a node; invoke again")]
    Late,
}

/// The number of an entry: later ones have higher numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DispatchTicket(u64);

/// A new entry.
#[derive(Clone, Debug)]
pub struct NewEntry<T> {
    /// The namespace.
    pub namespace: Namespace,
    /// The name of the function.
    pub function: FunctionName,
    /// The entry's expected duration, which is charged to the share of its namespace.
    pub run: Duration,
    /// When it expires.
    pub deadline: Monotonic,
    /// The caller's own data.
    pub item: T,
}

/// What to do with the next entry of a function in its turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place<P> {
    /// Place it here.
    Here(P),
    /// Let others pass it, although there may be room.
    Later,
    /// The entry fits nowhere: others pass it, at most `passes_max` times.
    Nowhere,
    /// Place it before all whose turn is later.
    First,
}

/// An entry that leaves the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn<T, P> {
    /// The entry was placed here.
    Placed(DispatchTicket, T, P),
    /// The entry's deadline has passed.
    Expired(DispatchTicket, T),
}

#[derive(Debug)]
struct Entry<T> {
    ticket: DispatchTicket,
    cost: u64,
    deadline: Monotonic,
    /// The time when half of its wait is over.
    late_from: Monotonic,
    passes: u32,
    /// The time until which all wait for it, because it was passed too often.
    waited_for: Monotonic,
    item: T,
}

impl<T> Entry<T> {
    /// The virtual time by which it advances its function.
    const fn cost(&self) -> VirtualTime {
        self.cost as VirtualTime * SCALE
    }

    /// The virtual time by which its expected run delays its turn. After half of its wait this no longer counts:
    /// otherwise a long one would never be first among many short ones.
    fn lead(&self, now: Monotonic) -> VirtualTime {
        if now >= self.late_from { 0 } else { self.cost() }
    }

    fn is_waited_for(&self, now: Monotonic, limits: &DispatchLimits) -> bool {
        self.passes >= limits.passes_max && now < self.waited_for
    }

    fn pass(&mut self, now: Monotonic, limits: &DispatchLimits) {
        // All have waited long enough for it, so others may pass it again.
        self.passes = if self.passes >= limits.passes_max { 1 } else { self.passes + 1 };
        if self.passes >= limits.passes_max {
            self.waited_for = now.after(limits.hold_max);
        }
    }
}

/// A point in the queue's virtual time, in which all shares run equally fast.
type VirtualTime = u128;

impl<T> Tenant<T> {
    /// The first entry of each function, with the number that wait, in the order of their turns.
    fn heads(&self, now: Monotonic) -> impl Iterator<Item = (&Entry<T>, usize)> {
        let head = |line: &'_ Line<T>| line.entries.front().map(|entry| (line.start + entry.lead(now), entry.ticket));
        let mut lines: Vec<_> = self.lines.values().filter_map(|line| Some((head(line)?, line))).collect();
        lines.sort_unstable_by_key(|(turn, _)| *turn);
        lines.into_iter().filter_map(|(_, line)| Some((line.entries.front()?, line.entries.len())))
    }
}

/// The virtual time of one microsecond at weight one: fine enough for weights into the thousands.
const SCALE: u128 = 1 << 16;

/// The entries of one function.
#[derive(Debug)]
struct Line<T> {
    entries: VecDeque<Entry<T>>,
    /// When its next entry may start, in its namespace's virtual time.
    start: VirtualTime,
}

#[derive(Debug)]
struct Tenant<T> {
    /// Functions with entries, and functions that have used more than their share of this busy period.
    lines: BTreeMap<FunctionName, Line<T>>,
    waiting: usize,
    /// When its next entry may start, in virtual time.
    start: VirtualTime,
    /// The virtual time of its functions.
    now: VirtualTime,
}

/// The first entry of a function.
#[derive(Debug)]
pub struct Head<'a, T> {
    /// The entry's ticket.
    pub ticket: DispatchTicket,
    /// The caller's own data.
    pub item: &'a T,
    /// Number of entries of its function, itself included.
    pub waiting: usize,
}

/// The queue; `T` is the caller's data of an entry.
#[derive(Debug)]
pub struct DispatchQueue<T> {
    limits: DispatchLimits,
    weights: BTreeMap<Namespace, u32>,
    /// Namespaces with entries, and those that have used more than their share of this busy period.
    tenants: BTreeMap<Namespace, Tenant<T>>,
    /// Namespaces with entries, in the order of their turns.
    turns: BTreeSet<(VirtualTime, Namespace)>,
    /// Namespaces without entries, by the time when they may be forgotten.
    resting: BTreeSet<(VirtualTime, Namespace)>,
    places: HashMap<DispatchTicket, (Namespace, FunctionName)>,
    deadlines: BTreeSet<(Monotonic, DispatchTicket)>,
    now: VirtualTime,
    tickets: u64,
}

impl<T> DispatchQueue<T> {
    /// An empty queue.
    #[must_use]
    pub fn new(limits: DispatchLimits) -> Self {
        Self {
            limits,
            weights: BTreeMap::new(),
            tenants: BTreeMap::new(),
            turns: BTreeSet::new(),
            resting: BTreeSet::new(),
            places: HashMap::new(),
            deadlines: BTreeSet::new(),
            now: 0,
            tickets: 0,
        }
    }

    /// The weight of `namespace`; 1 by default, and for 0.
    pub fn set_weight(&mut self, namespace: Namespace, weight: u32) {
        self.weights.insert(namespace, weight.max(1));
    }

    /// The number of waiting entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// True if no entry waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// When to call `next` even if no room has become free; None if no entry waits.
    #[must_use]
    pub fn first_deadline(&self) -> Option<Monotonic> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// Why it may not wait.
    pub fn push(&mut self, entry: NewEntry<T>, now: Monotonic) -> Result<DispatchTicket, DispatchRefusal> {
        let NewEntry { namespace, function, run, deadline, item } = entry;
        if deadline <= now {
            return Err(DispatchRefusal::Late);
        }
        if self.len() >= self.limits.entries_max {
            return Err(DispatchRefusal::Full(self.len()));
        }
        let waiting = self.tenants.get(&namespace).map_or(0, |tenant| tenant.waiting);
        if waiting >= self.limits.tenant_entries_max {
            return Err(DispatchRefusal::TenantFull(waiting));
        }
        self.tickets += 1;
        let ticket = DispatchTicket(self.tickets);
        let start = self.now;
        let new = || Tenant { lines: BTreeMap::new(), waiting: 0, start, now: 0 };
        let tenant = self.tenants.entry(namespace.clone()).or_insert_with(new);
        if tenant.waiting == 0 {
            self.resting.remove(&(tenant.start, namespace.clone()));
            // A namespace that was away has saved no time, and owes what it used beyond its share.
            tenant.start = tenant.start.max(start);
            self.turns.insert((tenant.start, namespace.clone()));
        }
        tenant.waiting += 1;
        let cost = u64::try_from(run.as_micros()).unwrap_or(u64::MAX).max(1);
        let now_here = tenant.now;
        let line = tenant.lines.entry(function.clone());
        let line = line.or_insert_with(|| Line { entries: VecDeque::new(), start: now_here });
        if line.entries.is_empty() {
            line.start = line.start.max(now_here);
        }
        let late_from = now.after(deadline.since(now) / 2);
        line.entries.push_back(Entry { ticket, cost, deadline, late_from, passes: 0, waited_for: now, item });
        self.places.insert(ticket, (namespace, function));
        self.deadlines.insert((deadline, ticket));
        Ok(ticket)
    }

    /// The next entry at `now`: an expired one if there is one, else the first in turn for which `place` finds room.
    /// After None, ask again when there is more room, or at `first_deadline`.
    pub fn next<P>(&mut self, now: Monotonic, mut place: impl FnMut(&T) -> Place<P>) -> Option<Turn<T, P>> {
        if let Some((_, ticket)) = self.deadlines.first().copied().filter(|(deadline, _)| *deadline <= now) {
            return self.take(ticket).map(|entry| Turn::Expired(ticket, entry.item));
        }
        let (ticket, placed, passed) = self.find(now, &mut place)?;
        let limits = self.limits;
        for ticket in passed {
            if let Some(entry) = self.entry_mut(ticket) {
                entry.pass(now, &limits);
            }
        }
        self.charge(ticket);
        let entry = self.take(ticket)?;
        Some(Turn::Placed(ticket, entry.item, placed))
    }

    /// Removes the entry of `ticket`. None if it did not wait.
    pub fn leave(&mut self, ticket: DispatchTicket) -> Option<T> {
        self.take(ticket).map(|entry| entry.item)
    }

    /// The first entry in turn that can be placed, and those before it that cannot.
    fn find<P>(
        &self,
        now: Monotonic,
        place: &mut impl FnMut(&T) -> Place<P>,
    ) -> Option<(DispatchTicket, P, Vec<DispatchTicket>)> {
        let mut passed = Vec::new();
        for (entry, _) in self.in_turn(now) {
            match place(&entry.item) {
                Place::Here(placed) => return Some((entry.ticket, placed, passed)),
                Place::Later => {}
                Place::First => return None,
                Place::Nowhere if entry.is_waited_for(now, &self.limits) => return None,
                Place::Nowhere => passed.push(entry.ticket),
            }
        }
        None
    }

    /// The first entry of each function, in the order of their turns.
    pub fn heads(&self, now: Monotonic) -> impl Iterator<Item = Head<'_, T>> {
        self.in_turn(now).map(|(entry, waiting)| Head { ticket: entry.ticket, item: &entry.item, waiting })
    }

    /// The first entry of each function, with the number that wait, in the order of their turns.
    fn in_turn(&self, now: Monotonic) -> impl Iterator<Item = (&Entry<T>, usize)> {
        let turn = |namespace: &Namespace| {
            let (tenant, weight) = (self.tenants.get(namespace)?, self.weights.get(namespace).copied().unwrap_or(1));
            let (first, _) = tenant.heads(now).next()?;
            Some((tenant.start + first.lead(now) / u128::from(weight), first.ticket, tenant))
        };
        let mut tenants: Vec<_> = self.turns.iter().filter_map(|(_, namespace)| turn(namespace)).collect();
        tenants.sort_unstable_by_key(|(end, ticket, _)| (*end, *ticket));
        tenants.into_iter().flat_map(move |(_, _, tenant)| tenant.heads(now))
    }

    /// The number of waiting entries of a namespace.
    #[must_use]
    pub fn waiting_of(&self, namespace: &Namespace) -> usize {
        self.tenants.get(namespace).map_or(0, |tenant| tenant.waiting)
    }

    fn entry_mut(&mut self, ticket: DispatchTicket) -> Option<&mut Entry<T>> {
        let (namespace, function) = self.places.get(&ticket)?;
        let line = self.tenants.get_mut(namespace)?.lines.get_mut(function)?;
        let at = line.entries.binary_search_by_key(&ticket, |entry| entry.ticket).ok()?;
        line.entries.get_mut(at)
    }

    fn take(&mut self, ticket: DispatchTicket) -> Option<Entry<T>> {
        let (namespace, function) = self.places.remove(&ticket)?;
        let tenant = self.tenants.get_mut(&namespace)?;
        let line = tenant.lines.get_mut(&function)?;
        let at = line.entries.binary_search_by_key(&ticket, |entry| entry.ticket).ok()?;
        let entry = line.entries.remove(at)?;
        if line.entries.is_empty() && line.start <= tenant.now {
            tenant.lines.remove(&function);
        }
        tenant.waiting -= 1;
        self.deadlines.remove(&(entry.deadline, ticket));
        if tenant.waiting == 0 {
            let start = tenant.start;
            self.turns.remove(&(start, namespace.clone()));
            self.resting.insert((start, namespace));
        }
        self.forget_resting();
        Some(entry)
    }

    /// Charges an entry's namespace for its run.
    fn charge(&mut self, ticket: DispatchTicket) {
        let Some(cost) = self.entry_mut(ticket).map(|entry| entry.cost) else { return };
        let Some((namespace, function)) = self.places.get(&ticket) else { return };
        let weight = self.weights.get(namespace).copied().unwrap_or(1);
        let Some(tenant) = self.tenants.get_mut(namespace) else { return };
        self.turns.remove(&(tenant.start, namespace.clone()));
        self.now = self.now.max(tenant.start);
        tenant.start += u128::from(cost) * SCALE / u128::from(weight);
        self.turns.insert((tenant.start, namespace.clone()));
        if let Some(line) = tenant.lines.get_mut(function) {
            tenant.now = tenant.now.max(line.start);
            line.start += u128::from(cost) * SCALE;
        }
        let now = tenant.now;
        tenant.lines.retain(|_, line| !line.entries.is_empty() || line.start > now);
    }

    /// Forgets namespaces that have no entries and owe nothing. When no entry waits, none owes anything.
    fn forget_resting(&mut self) {
        while let Some((start, namespace)) = self.resting.first()
            && (*start <= self.now || self.places.is_empty())
        {
            self.tenants.remove(namespace);
            self.resting.pop_first();
        }
    }
}
