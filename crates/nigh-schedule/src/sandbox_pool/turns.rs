//! What a function gets in its turn: a sandbox to run in, a further sandbox, or the reason why it waits. Pure.

use std::hash::Hash;
use std::sync::Arc;

use nigh_functions::function::Function;
use nigh_terms::{ByteSize, Monotonic, invariant};

use super::command::{ColdReason, PoolLimits, StartId, WaitsFor};
use super::gathering::gathered;
use super::pool_state::{PendingStart, PoolState, State, Victims};
use super::room::RoomShortage;
use super::{STARVES_AFTER, Waiter};
use crate::scheduler::dispatch_queue::Place;

/// The number of processors that corresponds to the memory `booked`, at least one.
pub(super) fn processors_taken(booked: ByteSize, limits: &PoolLimits) -> f64 {
    let part = limits.memory().bytes() as f64 / limits.processors.max(1) as f64;
    (booked.bytes() as f64 / part.max(1.0)).max(1.0)
}

/// The sandbox, the sandboxes that end before it runs, and what they free.
pub(super) type RunPlace<S> = (S, Victims<S>, RoomShortage);

/// Chooses the idle sandbox in which `waiter` runs now, if there is one.
pub(super) fn run_in<S: Clone + Eq + Hash>(
    state: &PoolState<S>,
    waiter: &Waiter,
    now: Monotonic,
) -> Place<RunPlace<S>> {
    let (function, waited) = (&*waiter.function, now.since(waiter.since));
    let has_turn = state.running.free(function, state.limits.invocations_max) > 0;
    let Some(sandbox) = state.warmest(function).filter(|_| has_turn) else { return Place::Later };
    if !state.may_begin(function, waited, now) {
        // An invocation whose time is nearly over goes before shorter ones whose turn is later.
        let is_late = waited >= state.limits.wait_max * 9 / 10;
        return if is_late { Place::First } else { Place::Later };
    }
    run_there(state, waiter, sandbox, now).map_or(Place::Later, Place::Here)
}

/// Lets `waiter` run in this idle sandbox, if there is memory for it.
fn run_there<S: Clone + Eq + Hash>(
    state: &PoolState<S>,
    waiter: &Waiter,
    sandbox: &S,
    now: Monotonic,
) -> Option<RunPlace<S>> {
    let (function, sandbox) = (&*waiter.function, sandbox.clone());
    let record = state.records.get(&sandbox)?;
    if matches!(record.state, State::Idle(_)) {
        // The sandbox's booking counts already, so it runs, unless memory gathers for another function.
        state.fits(function, ByteSize::ZERO).then_some(())?;
        return Some((sandbox, Victims { sandboxes: Vec::new(), loss_s: 0.0 }, RoomShortage::default()));
    }
    let lack = state.lack(function, Some(record.takes))?;
    let starves = now.since(waiter.since) >= STARVES_AFTER;
    let victims = state.victims(lack, Some(&sandbox), starves, now)?;
    let waited_s = state.want(function, now).waited_s;
    let pays = victims.loss_s <= waited_s && state.budget.can_pay(victims.loss_s);
    (lack.is_none() || pays).then_some((sandbox, victims, lack))
}

/// Decides whether to make a further sandbox for `function` now. If so, the restart budget has paid for it, and the result
/// names the idle sandboxes that must end for it.
pub(super) fn started_for<S: Clone + Eq + Hash>(
    state: &mut PoolState<S>,
    function: &Function,
    starving: bool,
    now: Monotonic,
) -> Option<(Victims<S>, RoomShortage)> {
    let making = state.making_of(function, now);
    let turns = state.running.free(function, state.limits.invocations_max);
    if !state.may_start(&function.namespace, now) || turns <= making || state.warmest(function).is_some() {
        return None;
    }
    let want = state.want(function, now);
    if starving && want.sandboxes > 0 {
        return None;
    }
    let lack = state.lack(function, None)?;
    let victims = state.victims(lack, None, starving, now)?;
    let pay = want.pays(victims.loss_s, state.processors(now))?;
    if pay > 0.0 && !state.budget.can_pay(pay) {
        return None;
    }
    state.budget.pay(pay);
    Some((victims, lack))
}

/// Records that a sandbox is being made, which needs the memory that its function books.
pub(super) fn begin_start<S: Clone + Eq + Hash>(state: &mut PoolState<S>, id: StartId, starting: PendingStart) {
    let function = Arc::clone(&starting.function);
    state.room.sandboxes += 1;
    state.room.busy += function.memory;
    let before = state.starts.insert(id, starting);
    // Ids are numbers that only grow.
    invariant!(before.is_none(), "{id:?} names two starts");
    state.of(&function).making += 1;
    state.room.check(&state.limits);
    gathered(state, &function);
}

/// Why a new sandbox of `function` is needed.
pub(super) fn cold_reason<S: Clone + Eq + Hash>(
    state: &mut PoolState<S>,
    function: &Function,
    now: Monotonic,
) -> ColdReason {
    let sandboxes = state.sandboxes_of(function, now);
    if sandboxes > 0 {
        return ColdReason::Busy(sandboxes);
    }
    state.of(function).lost.take().map_or(ColdReason::First, ColdReason::Ended)
}

/// What an invocation of `function` waits for.
pub(super) fn waits_for<S: Clone + Eq + Hash>(state: &PoolState<S>, function: &Function, now: Monotonic) -> WaitsFor {
    if state.running.free(function, state.limits.invocations_max) == 0 {
        return WaitsFor::Turn;
    }
    let fits = state.room.busy + function.memory <= state.limits.memory();
    if state.warmest(function).is_some() {
        return if fits { WaitsFor::Room } else { WaitsFor::Memory };
    }
    if state.making_of(function, now) > 0 {
        return WaitsFor::Making;
    }
    if state.sandboxes_of(function, now) > 0 {
        return WaitsFor::Sandbox;
    }
    match () {
        () if !state.may_start(&function.namespace, now) => WaitsFor::Starts,
        () if !fits => WaitsFor::Memory,
        () => WaitsFor::Room,
    }
}
