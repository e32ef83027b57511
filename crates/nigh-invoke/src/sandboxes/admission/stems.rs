//! Pre-warmed sandboxes (stems) in the pool: the room that one takes, and those that are to end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use nigh_functions::function::Runtime;
use nigh_sandbox::sandbox::PrewarmedSandbox;
use nigh_schedule::prewarm::PREWARMED_MEMORY;
use tokio::sync::Notify;

use super::{PoolState, Sandboxes};
use crate::node_memory::PrewarmedShare;
use crate::sandboxes::stem_stock::{Count, PendingPrewarmed};

/// A pre-warmed sandbox with its share of the node's memory.
pub(crate) struct HeldPrewarmed {
    pub(crate) stem: PrewarmedSandbox,
    pub(crate) memory: PrewarmedShare,
}

impl HeldPrewarmed {
    pub(super) fn has_ended(&self) -> bool {
        self.stem.has_ended()
    }
}

/// Room that a pre-warmed sandbox takes, or will take.
pub(crate) struct PrewarmedRoom {
    sandboxes: Arc<Sandboxes>,
    is_booked: bool,
    /// Its share of the node's memory, until the sandbox is made.
    memory: Option<PrewarmedShare>,
}

impl PrewarmedRoom {
    /// The sandbox is made, or could not be. It comes back if it is not wanted any more.
    pub(crate) fn filled(
        mut self,
        coming: &PendingPrewarmed,
        stem: Option<PrewarmedSandbox>,
    ) -> Option<SparePrewarmed> {
        let stem = stem.and_then(|stem| Some(HeldPrewarmed { stem, memory: self.memory.take()? }));
        let has_come = stem.is_some();
        let unwanted = self.sandboxes.state.lock().stems.came(coming, stem);
        // A sandbox that waits keeps the room until it is taken.
        self.is_booked = unwanted.is_some() || !has_come;
        unwanted.map(|stem| SparePrewarmed { stem, _room: self })
    }
}

impl Drop for PrewarmedRoom {
    fn drop(&mut self) {
        if self.is_booked {
            self.sandboxes.state.lock().pool.release_prewarmed(PREWARMED_MEMORY);
            self.sandboxes.serve();
        }
    }
}

/// A pre-warmed sandbox that is to end.
pub(crate) struct SparePrewarmed {
    stem: HeldPrewarmed,
    _room: PrewarmedRoom,
}

impl SparePrewarmed {
    /// Ends it; when this returns, nothing is left of it and its room is free.
    pub(crate) async fn end(self) {
        let HeldPrewarmed { stem, memory: _held } = self.stem;
        stem.end().await;
    }
}

impl Sandboxes {
    /// The pre-warmed sandboxes whose room has just been booked, and those that have ended.
    pub(super) fn surplus_stems(self: &Arc<Self>, state: &mut PoolState) -> Vec<SparePrewarmed> {
        let mut surplus = state.stems.take_those(HeldPrewarmed::has_ended);
        let count = state.pool.prewarmed_in_the_way(PREWARMED_MEMORY).saturating_sub(surplus.len());
        surplus.extend(state.stems.give_way(count));
        self.spare(surplus)
    }

    pub(super) fn spare(self: &Arc<Self>, stems: Vec<HeldPrewarmed>) -> Vec<SparePrewarmed> {
        let room = || PrewarmedRoom { sandboxes: Arc::clone(self), is_booked: true, memory: None };
        stems.into_iter().map(|stem| SparePrewarmed { stem, _room: room() }).collect()
    }

    /// Ends pre-warmed sandboxes in the background.
    pub(super) fn end_apart(&self, stems: Vec<SparePrewarmed>) {
        for stem in stems {
            tokio::spawn(stem.end());
        }
    }

    /// Notified when there may be one to make: at a cold start, and when one is made.
    pub(crate) fn stems_changed(&self) -> Arc<Notify> {
        Arc::clone(&self.stems_changed)
    }

    /// Room for a pre-warmed sandbox of `runtime`, unless `at_once` are being made or an invocation waits for the room.
    pub(crate) fn room_for_prewarmed(
        self: &Arc<Self>,
        runtime: &Runtime,
        at_once: usize,
    ) -> Option<(PrewarmedRoom, PendingPrewarmed)> {
        let mut state = self.state.lock();
        if state.stems.coming() >= at_once || !state.pool.book_prewarmed(PREWARMED_MEMORY) {
            return None;
        }
        let Some(memory) = self.memory.hold_prewarmed() else {
            state.pool.release_prewarmed(PREWARMED_MEMORY);
            return None;
        };
        let room = PrewarmedRoom { sandboxes: Arc::clone(self), is_booked: true, memory: Some(memory) };
        Some((room, state.stems.comes(runtime.clone())))
    }

    /// The pre-warmed sandboxes of the runtimes in `usable`.
    pub(crate) fn count_prewarmed(&self, usable: &BTreeSet<Runtime>) -> BTreeMap<Runtime, Count> {
        self.state.lock().stems.counts(usable, self.now())
    }
}
