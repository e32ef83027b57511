//! Invocations that no node can run now, and whose turn it is when one can. Pure: time is an argument, and whether an
//! invocation can be placed is asked of the caller.
//!
//! Tenants share by weight, and a tenant's functions evenly: self-clocked fair queueing (Golestani, INFOCOM 1994) on both
//! levels, by the time that invocations are expected to run. Whose turn would end first goes first, so that short work
//! waits less, and nobody has less than a share for it. A tenant with a full line holds no other tenant up, and a
//! function with a full line no other function. Within a function the order is that of arrival; a function whose next one
//! fits nowhere is passed by others, its own tenant's too, but not for ever: who was passed `passes_max` times is waited
//! for, so that room for it can gather. That is the one case in which a node that has room may stand idle, and it lasts
//! `hold_max`. What is not placed by its deadline comes out as expired.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use nigh_terms::{FunctionName, Monotonic, Namespace};
use thiserror::Error;

/// What a queue may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DispatchLimits {
    /// Entries of all tenants.
    pub entries_max: usize,
    /// Entries of one tenant.
    pub tenant_entries_max: usize,
    /// How often an entry is passed by others before all wait for it.
    pub passes_max: u32,
    /// How long all wait for it then; after that it may be passed as often again.
    pub hold_max: Duration,
}

impl Default for DispatchLimits {
    fn default() -> Self {
        Self { entries_max: 100_000, tenant_entries_max: 10_000, passes_max: 256, hold_max: Duration::from_secs(1) }
    }
}

/// Why an invocation may not even wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DispatchRefusal {
    /// The queue is full.
    #[error("{0} invocations wait for a node, as many as may; invoke again later, or add nodes")]
    Full(usize),
    /// The tenant's part is full.
    #[error("{0} invocations of this namespace wait for a node, as many as may; invoke again later")]
    TenantFull(usize),
    /// Its deadline has passed.
    #[error("its time was up before it could wait for a node")]
    Late,
}

/// Names an entry: a later one has a higher number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DispatchTicket(u64);

/// What is to wait.
#[derive(Clone, Debug)]
pub struct NewEntry<T> {
    /// The tenant.
    pub namespace: Namespace,
    /// The function.
    pub function: FunctionName,
    /// How long it is expected to run; its share of what the tenant may use.
    pub run: Duration,
    /// When it is of no use to its caller any more.
    pub deadline: Monotonic,
    /// What the caller keeps of it.
    pub item: T,
}

/// What becomes of the next one of a function when its turn has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place<P> {
    /// It is placed so.
    Here(P),
    /// It had better wait, though there may be room: others pass it, for as long as that is so.
    Later,
    /// It fits nowhere: others pass it, but not for ever.
    Nowhere,
    /// It is to be placed before all whose turn is later.
    First,
}

/// What comes out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn<T, P> {
    /// It was placed so.
    Placed(DispatchTicket, T, P),
    /// Its deadline has passed.
    Expired(DispatchTicket, T),
}

#[derive(Debug)]
struct Entry<T> {
    ticket: DispatchTicket,
    cost: u64,
    deadline: Monotonic,
    /// When half of its time is over.
    late_from: Monotonic,
    passes: u32,
    /// Since it was passed often enough, all wait for it until then.
    waited_for: Monotonic,
    item: T,
}

impl<T> Entry<T> {
    /// By how much it moves its function's time on.
    const fn cost(&self) -> VirtualTime {
        self.cost as VirtualTime * SCALE
    }

    /// By how much its turn comes later for what it takes. When half of its time is over that counts no more: else long ones
    /// would never be first among many short ones.
    fn lead(&self, now: Monotonic) -> VirtualTime {
        if now >= self.late_from { 0 } else { self.cost() }
    }

    fn is_waited_for(&self, now: Monotonic, limits: &DispatchLimits) -> bool {
        self.passes >= limits.passes_max && now < self.waited_for
    }

    fn pass(&mut self, now: Monotonic, limits: &DispatchLimits) {
        // Passed though it was waited for: that has lasted long enough, and begins anew later.
        self.passes = if self.passes >= limits.passes_max { 1 } else { self.passes + 1 };
        if self.passes >= limits.passes_max {
            self.waited_for = now.after(limits.hold_max);
        }
    }
}

/// A point in the queue's own time, in which every tenant's share runs as fast.
type VirtualTime = u128;

impl<T> Tenant<T> {
    /// The first of each function with how many there are, in the order of their turns.
    fn heads(&self, now: Monotonic) -> impl Iterator<Item = (&Entry<T>, usize)> {
        let head = |line: &'_ Line<T>| line.entries.front().map(|entry| (line.start + entry.lead(now), entry.ticket));
        let mut lines: Vec<_> = self.lines.values().filter_map(|line| Some((head(line)?, line))).collect();
        lines.sort_unstable_by_key(|(turn, _)| *turn);
        lines.into_iter().filter_map(|(_, line)| Some((line.entries.front()?, line.entries.len())))
    }
}

/// One unit of weight and a microsecond: fine enough for weights into the thousands.
const SCALE: u128 = 1 << 16;

/// The entries of one function.
#[derive(Debug)]
struct Line<T> {
    entries: VecDeque<Entry<T>>,
    /// When its next one may start, in its tenant's time.
    start: VirtualTime,
}

#[derive(Debug)]
struct Tenant<T> {
    /// Functions with entries, and those that have had more than their share of this busy time.
    lines: BTreeMap<FunctionName, Line<T>>,
    waiting: usize,
    /// When its next one may start.
    start: VirtualTime,
    /// The time that its functions share.
    now: VirtualTime,
}

/// The first entry of a function, and how many stand behind it.
#[derive(Debug)]
pub struct Head<'a, T> {
    /// It.
    pub ticket: DispatchTicket,
    /// What the caller keeps of it.
    pub item: &'a T,
    /// Entries of its function, itself included.
    pub waiting: usize,
}

/// The queue; `T` is what the caller keeps of an entry.
#[derive(Debug)]
pub struct DispatchQueue<T> {
    limits: DispatchLimits,
    weights: BTreeMap<Namespace, u32>,
    /// Those with entries, and those that have had more than their share of this busy time.
    tenants: BTreeMap<Namespace, Tenant<T>>,
    /// Those with entries, in the order of their turns.
    turns: BTreeSet<(VirtualTime, Namespace)>,
    /// Those without, by when they may be forgotten.
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

    /// `namespace` has so many shares from now on; one, if nothing was said. None is as one.
    pub fn set_weight(&mut self, namespace: Namespace, weight: u32) {
        self.weights.insert(namespace, weight.max(1));
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// True if nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// When `next` is to be asked even if no node has become free.
    #[must_use]
    pub fn first_deadline(&self) -> Option<Monotonic> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// One more waits.
    ///
    /// # Errors
    /// If it may not, with the reason.
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
            // Who was away has saved nothing, and owes what he had beyond his share.
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

    /// What comes out next at `now`: an expired one if there is one, else the first in turn that `place` finds a place
    /// for. Nothing, if there is none: ask again when a node has more room, or at `first_deadline`.
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

    /// `ticket` waits no longer. Nothing, if it did not.
    pub fn leave(&mut self, ticket: DispatchTicket) -> Option<T> {
        self.take(ticket).map(|entry| entry.item)
    }

    /// The first in turn that has a place, and those before it that have none.
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

    /// The first of each function, in the order of their turns.
    pub fn heads(&self, now: Monotonic) -> impl Iterator<Item = Head<'_, T>> {
        self.in_turn(now).map(|(entry, waiting)| Head { ticket: entry.ticket, item: &entry.item, waiting })
    }

    /// The first of each function with how many there are, in the order of their turns.
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

    /// How many of a tenant wait.
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

    /// An entry's tenant has its share of what it is about to use.
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

    /// Who has nothing here and owes nothing is nobody's concern; when nobody waits, nobody owes.
    fn forget_resting(&mut self) {
        while let Some((start, namespace)) = self.resting.first()
            && (*start <= self.now || self.places.is_empty())
        {
            self.tenants.remove(namespace);
            self.resting.pop_first();
        }
    }
}
