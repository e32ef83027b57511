//! Nigh's own policy: the classes of service are fitted to the running invocations.
//!
//! An invocation is placed at its start into the present classes. Whenever one starts or ends, a background task fits
//! the classes again and moves invocations that belong elsewhere. The fit needs miss curves. While a function runs
//! whose model has none, the classes are CASY's.

use std::collections::HashMap;
use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use nigh_llc::{
    CasyRequest, ClosLayout, MixEntry, PlacedInvocation, Refit, RunningKind, SharedPlacement, Ticket, Tolerance,
    WayLoads, refit,
};
use nigh_terms::{ClosId, InvocationId};

use super::CacheWays;
use super::books::{Books, Classes};
use super::running_invocation::InvocationKind;

/// The result of a refit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefitResult {
    /// Present classes without the default class.
    pub classes: usize,
    /// Running invocations that were moved to another class.
    pub moved: usize,
}

/// New classes, and the class of each running invocation.
struct Plan {
    layout: ClosLayout,
    classes: Classes,
    places: Vec<(Ticket, ClosId)>,
}

impl CacheWays {
    /// Waits until an invocation that the classes may be fitted to has started or ended since the last return.
    #[boxed]
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Fits the classes to the running invocations. Makes blocking system calls; must not be called during an
    /// invocation.
    ///
    /// # Errors
    /// The system's reason. The classes are unchanged.
    pub fn refit(&self) -> Result<Option<RefitResult>, String> {
        let Some(guard) = self.parts.fit_guard else { return Ok(None) };
        let _gate = self.gate.lock();
        let plan = {
            let books = self.books.lock();
            if books.suspended { None } else { self.plan(&books, guard)? }
        };
        let Some(Plan { layout, classes, places }) = plan else { return Ok(None) };
        let beside_the_default = layout.classes().len() - 1;
        let is_same = *self.books.lock().loads.layout() == layout;
        if !is_same {
            self.lay_out(&layout)?;
        }
        let moves = {
            let mut books = self.books.lock();
            if !is_same {
                books.adopt(Arc::new(layout));
            }
            books.classes = classes;
            for (ticket, clos) in places {
                // An invocation that has ended meanwhile is not moved.
                let _ = books.loads.move_to(ticket, clos);
            }
            books.follow_classes(self.parts.clock.monotonic());
            books.moves()
        };
        let moved = moves.into_iter().filter(|invocation| self.follow(*invocation)).count();
        metrics::counter!("nigh_llc_refits_total").increment(1);
        metrics::counter!("nigh_llc_moves_total").increment(moved as u64);
        Ok(Some(RefitResult { classes: beside_the_default, moved }))
    }

    /// Moves a running invocation's tasks to its class. `false` if the invocation has ended or the move failed.
    fn follow(&self, invocation: InvocationId) -> bool {
        let Some(binder) = &self.parts.binder else { return false };
        let Some((sandbox, tasks, clos)) = self.books.lock().move_of(invocation) else { return false };
        let bound = binder.bind(&tasks, clos);
        let mut books = self.books.lock();
        books.record(sandbox, bound.is_ok().then_some(clos));
        let is_bound = bound.is_ok();
        if let Err(reason) = bound {
            metrics::counter!("nigh_llc_bind_failures_total").increment(1);
            tracing::warn!(%sandbox, reason, "a running sandbox was not moved to its class of service");
            if let Some(running) = books.running.get_mut(&invocation) {
                running.class.refused(reason);
            }
        }
        is_bound
    }

    fn plan(&self, books: &Books, guard: Tolerance) -> Result<Option<Plan>, String> {
        let running = books.loads.running();
        let by_ways_alone = |one: &PlacedInvocation| one.need.predicted.is_some() && one.need.sharing.is_none();
        if running.iter().any(by_ways_alone) {
            return if books.classes == Classes::Casy { Ok(None) } else { self.back_to_casy(books).map(Some) };
        }
        let kind_of: HashMap<Ticket, &InvocationKind> =
            books.running.values().filter_map(|one| Some((one.ticket, one.kind.as_ref()?))).collect();
        // Kinds, ordered by their longest running invocation.
        let mut places: HashMap<&InvocationKind, usize> = HashMap::new();
        let mut kinds: Vec<(RunningKind, Vec<Ticket>)> = Vec::new();
        let mut without_a_model = 0.0_f32;
        for one in running {
            let (Some(&kind), Some(profile)) = (kind_of.get(&one.ticket), &one.need.sharing) else {
                without_a_model += 1.0;
                continue;
            };
            let at = *places.entry(kind).or_insert_with(|| {
                let entry = MixEntry { profile: Arc::clone(profile), running: 0.0 };
                kinds.push((RunningKind { entry, classes: Vec::new() }, Vec::new()));
                kinds.len() - 1
            });
            let (kind, tickets) = &mut kinds[at];
            kind.entry.running += 1.0;
            kind.classes.push(one.clos);
            tickets.push(one.ticket);
        }
        if kinds.is_empty() {
            return Ok(None);
        }
        let beside = (without_a_model > 0.0).then(|| MixEntry {
            profile: Arc::new(SharedPlacement::new(self.parts.lines_per_way).unknown),
            running: without_a_model,
        });
        let (kinds, tickets): (Vec<_>, Vec<_>) = kinds.into_iter().unzip();
        let shape = books.loads.layout().shape();
        let Refit { layout, classes, .. } =
            refit(&kinds, beside.as_ref(), shape, guard).map_err(|error| error.to_string())?;
        let places =
            tickets.into_iter().zip(classes).flat_map(|(tickets, clos)| tickets.into_iter().map(move |of| (of, clos)));
        Ok(Some(Plan { layout, classes: Classes::Fitted, places: places.collect() }))
    }

    /// CASY's classes for the present split. All running invocations are placed again, in the order of their starts.
    fn back_to_casy(&self, books: &Books) -> Result<Plan, String> {
        let shape = *books.loads.layout().shape();
        let request = CasyRequest::of(shape, books.split.insensitive());
        let layout = ClosLayout::casy(&request).map_err(|refusal| refusal.to_string())?;
        let mut loads = WayLoads::new(Arc::new(layout.clone()), books.loads.unknown());
        let mut places = Vec::with_capacity(books.loads.running().len());
        for one in books.loads.running() {
            let placed = self.parts.policy.place(&loads, &one.need);
            loads.commit(placed.clos, one.need.clone()).map_err(|error| error.to_string())?;
            places.push((one.ticket, placed.clos));
        }
        Ok(Plan { layout, classes: Classes::Casy, places })
    }
}
