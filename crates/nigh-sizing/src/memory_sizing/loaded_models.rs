//! The models that are at hand: bounded in number and in bytes, the one used longest ago goes first.
//!
//! This table decides which models are dropped and does no I/O. The keeper (`model_keeper`) loads missing models in the
//! background and stores a model before it is dropped. A model belongs to one version of a function's code; the model
//! of a later deployed version replaces it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use nigh_learn::{Predictor, TrainingRow};
use nigh_terms::{FunctionName, Monotonic, Namespace, Timestamp};
use parking_lot::{Mutex, RwLock};

use super::input_rules::InputRules;

/// Functions whose models are at hand at most.
pub const LOADED_MAX: usize = 10_000;
/// The most memory of models and unstored rows together.
pub const LOADED_BYTES_MAX: usize = 128 << 20;
/// Rows of a function that wait to be learned from; then the oldest that was no miss goes.
const PENDING_MAX: usize = 64;
/// When the table is full, this part of it is dropped at once, so that not every new model has to drop one.
const DROPPED_ONE_IN: usize = 16;

/// A function's name.
pub(super) type Name = (Namespace, FunctionName);

/// The loaded state of one function.
#[derive(Clone, Debug)]
pub(super) struct CachedModel {
    pub(super) predictor: Predictor,
    pub(super) rules: InputRules,
    /// Rows that no stored set has yet.
    pub(super) pending: Vec<TrainingRow>,
    /// Whether it differs from the stored state.
    pub(super) dirty: bool,
    /// Whether the keeper has a job to fit it.
    pub(super) queued: bool,
    /// When it was fitted last.
    pub(super) fitted_at: Monotonic,
    /// When this version was deployed.
    pub(super) deployed: Timestamp,
    /// The bytes of `predictor`, counted when it is replaced.
    pub(super) model_bytes: usize,
    /// Whether it was dropped from the table. Changes to a dropped state are lost.
    pub(super) dropped: bool,
}

impl CachedModel {
    pub(super) fn new(predictor: Predictor, rules: InputRules, deployed: Timestamp) -> Self {
        let model_bytes = predictor.bytes();
        let (pending, fitted_at) = (Vec::new(), Monotonic::default());
        Self {
            predictor,
            rules,
            pending,
            dirty: false,
            queued: false,
            fitted_at,
            deployed,
            model_bytes,
            dropped: false,
        }
    }

    /// Adds a row that is to be learned from.
    pub(super) fn keep(&mut self, row: TrainingRow) {
        if self.pending.len() >= PENDING_MAX {
            let oldest_good = self.pending.iter().position(|row| !row.missed).unwrap_or(0);
            self.pending.remove(oldest_good);
        }
        self.pending.push(row);
        self.dirty = true;
    }

    fn bytes(&self) -> usize {
        let rows: usize = self.pending.iter().map(TrainingRow::bytes).sum();
        size_of::<Self>() + self.model_bytes + self.rules.bytes() + rows
    }
}

pub(super) struct Slot {
    pub(super) loaded: Mutex<CachedModel>,
    used: AtomicU64,
    counted: AtomicUsize,
}

/// The models at hand.
pub(super) struct LoadedModels {
    slots: RwLock<HashMap<Name, Arc<Slot>>>,
    uses: AtomicU64,
    bytes: AtomicUsize,
    max: usize,
    bytes_max: usize,
}

impl LoadedModels {
    pub(super) fn new(max: usize, bytes_max: usize) -> Self {
        Self { slots: RwLock::default(), uses: AtomicU64::new(0), bytes: AtomicUsize::new(0), max, bytes_max }
    }

    /// The function's model; it counts as used.
    pub(super) fn find(&self, name: &Name) -> Option<Arc<Slot>> {
        let slot = self.slots.read().get(name).cloned()?;
        slot.used.store(self.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        Some(slot)
    }

    /// The same, without counting as a use.
    pub(super) fn peek(&self, name: &Name) -> Option<Arc<Slot>> {
        self.slots.read().get(name).cloned()
    }

    /// Puts a model in the place of any that the function has. What has to go for it: those with their names that are
    /// to be stored.
    pub(super) fn put(&self, name: Name, loaded: CachedModel) -> (Arc<Slot>, Vec<(Name, CachedModel)>) {
        let bytes = loaded.bytes();
        let used = AtomicU64::new(self.uses.fetch_add(1, Ordering::Relaxed));
        let slot = Arc::new(Slot { loaded: Mutex::new(loaded), used, counted: AtomicUsize::new(bytes) });
        let mut slots = self.slots.write();
        if let Some(old) = slots.insert(name.clone(), Arc::clone(&slot)) {
            self.put_out(&old);
        }
        let sum = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if slots.len() <= self.max && sum <= self.bytes_max {
            return (slot, Vec::new());
        }
        let mut by_use: Vec<(u64, Name)> = slots
            .iter()
            .filter(|(other, _)| **other != name)
            .map(|(name, slot)| (slot.used.load(Ordering::Relaxed), name.clone()))
            .collect();
        by_use.sort_unstable_by_key(|(used, _)| *used);
        let (least, mut gone) = ((slots.len() / DROPPED_ONE_IN).max(1), Vec::new());
        for (at, (_, other)) in by_use.into_iter().enumerate() {
            let fits = slots.len() <= self.max && self.bytes.load(Ordering::Relaxed) <= self.bytes_max;
            if at >= least && fits {
                break;
            }
            gone.extend(self.take_out(&mut slots, other));
        }
        gone.retain(|(_, loaded)| loaded.dirty);
        (slot, gone)
    }

    /// Removes a function's model. True if there was one.
    pub(super) fn remove(&self, name: &Name) -> bool {
        self.take_out(&mut self.slots.write(), name.clone()).is_some()
    }

    fn take_out(&self, slots: &mut HashMap<Name, Arc<Slot>>, name: Name) -> Option<(Name, CachedModel)> {
        let slot = slots.remove(&name)?;
        Some((name, self.put_out(&slot)))
    }

    /// Marked under its lock, so that `recount` no longer counts it.
    fn put_out(&self, slot: &Slot) -> CachedModel {
        let mut loaded = slot.loaded.lock();
        self.bytes.fetch_sub(slot.counted.load(Ordering::Relaxed), Ordering::Relaxed);
        loaded.dropped = true;
        loaded.clone()
    }

    /// Updates the count of a changed model's bytes.
    pub(super) fn recount(&self, slot: &Slot, loaded: &CachedModel) {
        if loaded.dropped {
            return;
        }
        let now = loaded.bytes();
        let before = slot.counted.swap(now, Ordering::Relaxed);
        self.bytes.fetch_add(now, Ordering::Relaxed);
        self.bytes.fetch_sub(before, Ordering::Relaxed);
    }

    /// Models whose state is not stored, at most `max` of them.
    pub(super) fn dirty(&self, max: usize) -> Vec<Name> {
        let slots = self.slots.read();
        let dirty = slots.iter().filter(|(_, slot)| slot.loaded.lock().dirty);
        dirty.map(|(name, _)| name.clone()).take(max).collect()
    }

    /// The number of models and their bytes.
    pub(super) fn taken(&self) -> (usize, usize) {
        (self.slots.read().len(), self.bytes.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use nigh_learn::{FeatureRow, FunctionModel, Interval, Learner, Start};
    use nigh_terms::ByteSize;

    use super::*;

    fn name(at: usize) -> Name {
        (Namespace::new("tenant").unwrap(), FunctionName::new(&format!("f{at}")).unwrap())
    }

    fn loaded(rows: usize) -> CachedModel {
        let predictor = FunctionModel::new("1", Learner::default(), Interval::OFC).unwrap().predictor();
        let mut loaded = CachedModel::new(predictor, InputRules::default(), Timestamp(0));
        for _ in 0..rows {
            loaded.keep(TrainingRow::new(FeatureRow::default(), ByteSize(1), Start::Warm).unwrap());
        }
        loaded
    }

    #[test]
    fn ten_thousand_functions_have_models_at_hand_and_those_used_longest_ago_make_room() {
        let models = LoadedModels::new(LOADED_MAX, LOADED_BYTES_MAX);
        for at in 0..LOADED_MAX {
            assert!(models.put(name(at), loaded(0)).1.is_empty());
        }
        assert_eq!(models.taken().0, LOADED_MAX);
        assert!(models.find(&name(0)).is_some(), "used now");
        assert!(models.put(name(LOADED_MAX), loaded(0)).1.is_empty(), "nothing of those that went is to be stored");
        assert!(models.find(&name(0)).is_some() && models.find(&name(LOADED_MAX)).is_some());
        assert!(models.find(&name(1)).is_none());
        let (count, bytes) = models.taken();
        assert!(count < LOADED_MAX && count > LOADED_MAX * 9 / 10 && bytes < LOADED_BYTES_MAX, "{count} {bytes}");
    }

    #[test]
    fn models_are_bounded_in_bytes_and_what_is_not_stored_yet_is_given_back() {
        let each = loaded(PENDING_MAX).bytes();
        let models = LoadedModels::new(100, each * 10);
        let mut gone = 0;
        for at in 0..50 {
            gone += models.put(name(at), loaded(PENDING_MAX + 10)).1.len();
            assert!(models.taken().1 <= each * 10);
        }
        assert_eq!(gone, 50 - models.taken().0);
        for at in 0..50 {
            models.remove(&name(at));
        }
        assert_eq!(models.taken(), (0, 0));
    }

    #[test]
    fn bytes_follow_what_a_model_holds() {
        let models = LoadedModels::new(10, LOADED_BYTES_MAX);
        models.put(name(0), loaded(0));
        let slot = models.find(&name(0)).unwrap();
        let before = models.taken().1;
        let mut held = slot.loaded.lock();
        held.pending = loaded(3).pending;
        models.recount(&slot, &held);
        assert!(models.taken().1 > before);
        drop(held);
        models.remove(&name(0));
        models.recount(&slot, &slot.loaded.lock());
        assert_eq!(models.taken(), (0, 0));
    }
}
