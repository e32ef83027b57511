//! What one function gets when its turn has come: a sandbox to run in, a further sandbox, or the reason why it waits. Pure.

use std::hash::Hash;
use std::sync::Arc;

use nigh_functions::function::Function;
use nigh_terms::{ByteSize, Monotonic};

use super::books::{Books, PendingStart, State, Victims};
use super::command::{ColdReason, PoolLimits, StartId, WaitsFor};
use super::concurrency::which;
use super::room::RoomShortage;
use super::{STARVES_AFTER, Waiter};
use crate::scheduler::dispatch_queue::Place;

/// How many processors' part of the memory one takes that books so much; one at least.
pub(super) fn processors_taken(booked: ByteSize, limits: &PoolLimits) -> f64 {
    let part = limits.memory().bytes() as f64 / limits.processors.max(1) as f64;
    (booked.bytes() as f64 / part.max(1.0)).max(1.0)
}

/// The sandbox, those that end before it runs, and what they make up for.
pub(super) type RunPlace<S> = (S, Victims<S>, RoomShortage);

/// Where `waiter` runs now.
pub(super) fn run_in<S: Clone + Eq + Hash>(books: &Books<S>, waiter: &Waiter, now: Monotonic) -> Place<RunPlace<S>> {
    let (function, waited) = (&*waiter.function, now.since(waiter.since));
    let has_turn = books.running.free(function, books.limits.invocations_max) > 0;
    let Some(sandbox) = books.warmest(function).filter(|_| has_turn) else { return Place::Later };
    if !books.may_begin(function, waited, now) {
        // Whose time is nearly over goes before those whose turn is later, however short they are.
        let is_late = waited >= books.limits.wait_max * 9 / 10;
        return if is_late { Place::First } else { Place::Later };
    }
    run_there(books, waiter, sandbox, now).map_or(Place::Later, Place::Here)
}

/// How `waiter` runs in this idle sandbox, if there is memory for it.
fn run_there<S: Clone + Eq + Hash>(
    books: &Books<S>,
    waiter: &Waiter,
    sandbox: &S,
    now: Monotonic,
) -> Option<RunPlace<S>> {
    let (function, sandbox) = (&*waiter.function, sandbox.clone());
    let record = books.records.get(&sandbox)?;
    if matches!(record.state, State::Idle(_)) {
        // Its booking still counts: it runs, unless memory is gathered for another function.
        books.fits(function, ByteSize::ZERO).then_some(())?;
        return Some((sandbox, Victims { sandboxes: Vec::new(), loss_s: 0.0 }, RoomShortage::default()));
    }
    let lack = books.lack(function, Some(record.takes))?;
    let starves = now.since(waiter.since) >= STARVES_AFTER;
    let victims = books.victims(lack, Some(&sandbox), starves, now)?;
    let waited_s = books.want(function, now).waited_s;
    let pays = victims.loss_s <= waited_s && books.budget.can_pay(victims.loss_s);
    (lack.is_none() || pays).then_some((sandbox, victims, lack))
}

/// Whose room a further sandbox of `function` is made in, if it is to be made now. It is paid for.
pub(super) fn started_for<S: Clone + Eq + Hash>(
    books: &mut Books<S>,
    function: &Function,
    starving: bool,
    now: Monotonic,
) -> Option<(Victims<S>, RoomShortage)> {
    let making = books.making_of(function, now);
    let turns = books.running.free(function, books.limits.invocations_max);
    if !books.may_start(&function.namespace, now) || turns <= making || books.warmest(function).is_some() {
        return None;
    }
    let want = books.want(function, now);
    if starving && want.sandboxes > 0 {
        return None;
    }
    let lack = books.lack(function, None)?;
    let victims = books.victims(lack, None, starving, now)?;
    let pay = want.pays(victims.loss_s, books.processors(now))?;
    if pay > 0.0 && !books.budget.can_pay(pay) {
        return None;
    }
    books.budget.pay(pay);
    Some((victims, lack))
}

/// A sandbox is being made from now on: it takes what it books.
pub(super) fn begin_start<S: Clone + Eq + Hash>(books: &mut Books<S>, id: StartId, starting: PendingStart) {
    let function = Arc::clone(&starting.function);
    books.room.sandboxes += 1;
    books.room.busy += function.memory;
    books.starts.insert(id, starting);
    books.of(&function).making += 1;
    gathered(books, &function);
}

/// What gathered for `function` is its now.
pub(super) fn gathered<S>(books: &mut Books<S>, function: &Function) {
    if books.gathers.as_ref().is_some_and(|(who, ..)| *who == which(function)) {
        books.gathers = None;
    }
}

/// Why a sandbox of `function` is made.
pub(super) fn cold_reason<S: Clone + Eq + Hash>(
    books: &mut Books<S>,
    function: &Function,
    now: Monotonic,
) -> ColdReason {
    let sandboxes = books.sandboxes_of(function, now);
    if sandboxes > 0 {
        return ColdReason::Busy(sandboxes);
    }
    books.of(function).lost.take().map_or(ColdReason::First, ColdReason::Ended)
}

/// For what an invocation of `function` waits.
pub(super) fn waits_for<S: Clone + Eq + Hash>(books: &Books<S>, function: &Function, now: Monotonic) -> WaitsFor {
    if books.running.free(function, books.limits.invocations_max) == 0 {
        return WaitsFor::Turn;
    }
    let fits = books.room.busy + function.memory <= books.limits.memory();
    if books.warmest(function).is_some() {
        return if fits { WaitsFor::Room } else { WaitsFor::Memory };
    }
    if books.making_of(function, now) > 0 {
        return WaitsFor::Making;
    }
    if books.sandboxes_of(function, now) > 0 {
        return WaitsFor::Sandbox;
    }
    match () {
        () if !books.may_start(&function.namespace, now) => WaitsFor::Starts,
        () if !fits => WaitsFor::Memory,
        () => WaitsFor::Room,
    }
}
