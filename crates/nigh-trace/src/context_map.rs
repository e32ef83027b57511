//! Contexts of work that goes on apart from its request: a bounded map.

use std::collections::HashMap;
use std::hash::Hash;

use parking_lot::Mutex;

use crate::context::SpanContext;

/// Contexts by what their work is about. At the limit all are forgotten, because those of work that never comes would stay
/// for ever: what was forgotten has no spans.
#[derive(Debug)]
pub struct ContextMap<K> {
    known: Mutex<HashMap<K, SpanContext>>,
    most: usize,
}

impl<K: Eq + Hash> ContextMap<K> {
    /// A map of `most` contexts at most.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { known: Mutex::default(), most }
    }

    /// Remembers the context of `key`.
    pub fn insert(&self, key: K, context: SpanContext) {
        let mut known = self.known.lock();
        if known.len() >= self.most && !known.contains_key(&key) {
            known.clear();
        }
        known.insert(key, context);
    }

    /// The context of `key`.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<SpanContext> {
        self.known.lock().get(key).copied()
    }

    /// The context of `key`, which is forgotten.
    pub fn take(&self, key: &K) -> Option<SpanContext> {
        self.known.lock().remove(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::{SpanId, TraceId, Trigger};

    #[test]
    fn a_full_map_begins_anew() {
        let map = ContextMap::new(2);
        let context =
            || SpanContext { trace: TraceId::random(), span: SpanId::random(), sampled: true, trigger: Trigger::Other };
        let (first, second) = (context(), context());
        map.insert(1, context());
        map.insert(2, second);
        map.insert(1, first);
        assert_eq!((map.get(&1), map.get(&2)), (Some(first), Some(second)));
        map.insert(3, second);
        assert_eq!((map.get(&1), map.get(&2), map.get(&3)), (None, None, Some(second)));
        assert_eq!((map.take(&3), map.take(&3)), (Some(second), None));
    }
}
