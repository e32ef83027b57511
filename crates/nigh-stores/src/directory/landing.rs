//! Changes that can be seen before the disk has them: between a rename or removal and the sync of its folder.
//!
//! A reader may open a file in that moment; it answers when the change is on the disk, so that no power cut takes
//! back what somebody was shown. It waits for the one change that it met, never for a later one's copy of bytes.

use std::collections::HashMap;

use nigh_terms::ObjectKey;
use parking_lot::{Condvar, Mutex};

/// The keys of one bucket that are being changed; one change of a key at a time.
#[derive(Debug, Default)]
pub(super) struct KeyLocks {
    /// Each with the number of its change: one that follows is not waited for.
    keys: Mutex<(HashMap<ObjectKey, u64>, u64)>,
    landed: Condvar,
}

/// A change under way, until it is dropped.
#[derive(Debug)]
pub(super) struct Change<'a> {
    landing: &'a KeyLocks,
    key: ObjectKey,
}

impl KeyLocks {
    /// Says that from now on a change of `key` may be seen.
    pub(super) fn begin(&self, key: &ObjectKey) -> Change<'_> {
        let mut keys = self.keys.lock();
        keys.1 += 1;
        let number = keys.1;
        keys.0.insert(key.clone(), number);
        Change { landing: self, key: key.clone() }
    }

    /// Waits until the change of `key` that is under way has ended. Called behind the look at the file: a change that it has seen
    /// had begun before, and one that has ended is on the disk. Blocks, for as long as a folder's sync takes.
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
