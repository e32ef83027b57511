//! The records that wait for the writer: bounded in bytes, and a namespace may have half of them at most. Pure.

use std::collections::HashMap;

use nigh_terms::Namespace;

/// The bytes of all records that may wait for the writer.
pub(super) const WAITING_BYTES_MAX: u64 = 64 << 20;
/// The bytes of one namespace's records that may wait.
const NAMESPACE_BYTES_MAX: u64 = WAITING_BYTES_MAX / 2;
/// A record counts as at least so many bytes, so that their number is bounded too.
pub(super) const RECORD_BYTES_MIN: u64 = 4096;

/// The bytes that wait.
#[derive(Debug, Default)]
pub(super) struct WaitingRecords {
    all: u64,
    by_namespace: HashMap<Namespace, u64>,
}

fn counted(bytes: usize) -> u64 {
    (bytes as u64).max(RECORD_BYTES_MIN)
}

impl WaitingRecords {
    /// Counts a record that begins to wait; false if there is no room for it.
    pub(super) fn admit(&mut self, namespace: &Namespace, bytes: usize) -> bool {
        let bytes = counted(bytes);
        let own = self.by_namespace.get(namespace).copied().unwrap_or_default() + bytes;
        let fits = own <= NAMESPACE_BYTES_MAX && self.all + bytes <= WAITING_BYTES_MAX;
        if fits {
            self.all += bytes;
            self.by_namespace.insert(namespace.clone(), own);
        }
        fits
    }

    /// A record that was admitted waits no longer.
    pub(super) fn leave(&mut self, namespace: &Namespace, bytes: usize) {
        let bytes = counted(bytes);
        self.all -= bytes;
        if let Some(own) = self.by_namespace.get_mut(namespace) {
            *own -= bytes;
            if *own == 0 {
                self.by_namespace.remove(namespace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_namespace_has_waiting_leaves_room_for_the_others() {
        let (one, two) = (Namespace::new("one").unwrap(), Namespace::new("two").unwrap());
        let mut waiting = WaitingRecords::default();
        let mebibyte = 1 << 20;
        assert_eq!((0..100).filter(|_| waiting.admit(&one, mebibyte)).count(), 32);
        assert!(waiting.admit(&two, mebibyte));
        waiting.leave(&one, mebibyte);
        assert!(waiting.admit(&one, mebibyte) && !waiting.admit(&one, 1));
        for _ in 0..32 {
            waiting.leave(&one, mebibyte);
        }
        waiting.leave(&two, mebibyte);
        assert!(waiting.by_namespace.is_empty() && waiting.all == 0);
        assert_eq!((0..20_000).filter(|_| waiting.admit(&one, 1)).count(), 8192);
    }
}
