//! Changes that are visible but not on the disk: between a rename or removal and the sync of its folder.
//!
//! A reader that opens a file at that time waits until the change is on the disk, so that a power cut never takes back what
//! a reader has seen. It waits for this change only, not for a later one.

use std::collections::HashMap;

use nigh_terms::ObjectKey;
use parking_lot::{Condvar, Mutex};

/// The keys of one bucket that are being changed. A key has one change at a time.
#[derive(Debug, Default)]
pub(super) struct KeyLocks {
    /// Each key with the number of its change, so that readers do not wait for a later change.
    keys: Mutex<(HashMap<ObjectKey, u64>, u64)>,
    landed: Condvar,
}

/// A change that is under way until it is dropped.
#[derive(Debug)]
pub(super) struct Change<'a> {
    landing: &'a KeyLocks,
    key: ObjectKey,
}

impl KeyLocks {
    /// Marks a change of `key` that becomes visible.
    pub(super) fn begin(&self, key: &ObjectKey) -> Change<'_> {
        let mut keys = self.keys.lock();
        keys.1 += 1;
        let number = keys.1;
        keys.0.insert(key.clone(), number);
        Change { landing: self, key: key.clone() }
    }

    /// Waits for the end of the change of `key` that is under way, if there is one. Call it after opening the file: the
    /// open file is then on the disk. Blocks for the time of a folder's sync.
    pub(super) fn wait(&self, key: &ObjectKey) {
        let mut keys = self.keys.lock();
        let met = keys.0.get(key).copied();
        while met.is_some() && keys.0.get(key).copied() == met {
            self.landed.wait(&mut keys);
        }
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.landing.keys.lock().0.remove(&self.key);
        self.landing.landed.notify_all();
    }
}
