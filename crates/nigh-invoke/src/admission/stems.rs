//! Stems, as the node's books know them: the room that one takes, and those that are to be ended.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use nigh_functions::function::Runtime;
use nigh_sandbox::sandbox::Stem;
use nigh_schedule::prewarm::STEM_MEMORY;
use tokio::sync::Notify;

use super::{Books, Sandboxes};
use crate::node_memory::StemShare;
use crate::stem_stock::{Count, PendingStem};

/// A stem with its share of the node's memory.
pub(crate) struct HeldStem {
    pub(crate) stem: Stem,
    pub(crate) memory: StemShare,
}

impl HeldStem {
    pub(super) fn has_ended(&self) -> bool {
        self.stem.has_ended()
    }
}

/// Room that a stem may take, or takes.
pub(crate) struct StemRoom {
    sandboxes: Arc<Sandboxes>,
    is_booked: bool,
    /// Of the node's memory, until there is a stem that has it.
    memory: Option<StemShare>,
}

impl StemRoom {
    /// The stem that it was for, if it could be made. It comes back if it is not wanted any more.
    pub(crate) fn filled(mut self, coming: &PendingStem, stem: Option<Stem>) -> Option<SpareStem> {
        let stem = stem.and_then(|stem| Some(HeldStem { stem, memory: self.memory.take()? }));
        let has_come = stem.is_some();
        let unwanted = self.sandboxes.books.lock().stems.came(coming, stem);
        // One that waits keeps the room until it is taken.
        self.is_booked = unwanted.is_some() || !has_come;
        unwanted.map(|stem| SpareStem { stem, _room: self })
    }
}

impl Drop for StemRoom {
    fn drop(&mut self) {
        if self.is_booked {
            self.sandboxes.books.lock().pool.release_stem(STEM_MEMORY);
            self.sandboxes.serve();
        }
    }
}

/// A stem that is to be ended.
pub(crate) struct SpareStem {
    stem: HeldStem,
    _room: StemRoom,
}

impl SpareStem {
    /// Ends it; when this returns nothing is left of it and its room is free.
    pub(crate) async fn end(self) {
        let HeldStem { stem, memory: _held } = self.stem;
        stem.end().await;
    }
}

impl Sandboxes {
    /// The stems that stand in the way of what has just been booked, and those that have ended.
    pub(super) fn surplus_stems(self: &Arc<Self>, books: &mut Books) -> Vec<SpareStem> {
        let mut surplus = books.stems.take_those(HeldStem::has_ended);
        let count = books.pool.stems_in_the_way(STEM_MEMORY).saturating_sub(surplus.len());
        surplus.extend(books.stems.give_way(count));
        self.spare(surplus)
    }

    pub(super) fn spare(self: &Arc<Self>, stems: Vec<HeldStem>) -> Vec<SpareStem> {
        let room = || StemRoom { sandboxes: Arc::clone(self), is_booked: true, memory: None };
        stems.into_iter().map(|stem| SpareStem { stem, _room: room() }).collect()
    }

    /// Ends stems that nothing waits for.
    pub(super) fn end_apart(&self, stems: Vec<SpareStem>) {
        for stem in stems {
            tokio::spawn(stem.end());
        }
    }

    /// Notified when there may be one to make: a cold start, or one that has come and leaves its place among those made.
    pub(crate) fn stems_changed(&self) -> Arc<Notify> {
        Arc::clone(&self.stems_changed)
    }

    /// Room for a stem of `runtime`, unless `at_once` are being made, or somebody waits for the room.
    pub(crate) fn room_for_stem(
        self: &Arc<Self>,
        runtime: &Runtime,
        at_once: usize,
    ) -> Option<(StemRoom, PendingStem)> {
        let mut books = self.books.lock();
        if books.stems.coming() >= at_once || !books.pool.book_stem(STEM_MEMORY) {
            return None;
        }
        let Some(memory) = self.memory.hold_stem() else {
            books.pool.release_stem(STEM_MEMORY);
            return None;
        };
        let room = StemRoom { sandboxes: Arc::clone(self), is_booked: true, memory: Some(memory) };
        Some((room, books.stems.comes(runtime.clone())))
    }

    /// The stems of the runtimes in `usable`.
    pub(crate) fn count_stems(&self, usable: &BTreeSet<Runtime>) -> BTreeMap<Runtime, Count> {
        self.books.lock().stems.counts(usable, self.now())
    }
}
