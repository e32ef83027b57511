//! Chooses the next object to look at. Pure.
//!
//! Each namespace has its own queue, and the queues take turns, so a namespace with many or slow objects delays only
//! itself. A full queue drops its oldest object. Urgent objects go first.

use std::collections::{HashMap, VecDeque};

use nigh_data::ObjectId;
use nigh_terms::Namespace;

/// Objects of a namespace that wait at most.
pub const LINE_MAX: usize = 256;
/// Namespaces of which objects wait at most.
pub const LINES_MAX: usize = 1024;

/// An object that is to be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookRequest {
    /// Which.
    pub object: ObjectId,
    /// Whether the object may be read from the store, because a trigger waits for it.
    pub from_store: bool,
}

/// The objects that wait.
#[derive(Default)]
pub struct LookQueue {
    lines: HashMap<Namespace, VecDeque<LookRequest>>,
    /// The namespaces with a line, whose turn it is first.
    turns: VecDeque<Namespace>,
    dropped: u64,
}

impl LookQueue {
    /// Adds an object at the end of its queue, or at the front if a trigger waits for it.
    pub fn push(&mut self, wanted: LookRequest) {
        let namespace = &wanted.object.namespace;
        if !self.lines.contains_key(namespace) {
            if self.lines.len() >= LINES_MAX {
                self.dropped += 1;
                return;
            }
            self.turns.push_back(namespace.clone());
        }
        let line = self.lines.entry(namespace.clone()).or_default();
        if wanted.from_store {
            line.push_front(wanted);
        } else {
            // One written again and again waits once.
            if line.back().is_some_and(|last| last.object == wanted.object) {
                return;
            }
            line.push_back(wanted);
        }
        if line.len() > LINE_MAX {
            // The oldest one without a waiting trigger.
            let oldest = line.iter().position(|one| !one.from_store).unwrap_or(0);
            line.remove(oldest);
            self.dropped += 1;
        }
    }

    /// The next object of a namespace that is not `busy`.
    pub fn next(&mut self, busy: impl Fn(&Namespace) -> bool) -> Option<LookRequest> {
        let at = self.turns.iter().position(|namespace| !busy(namespace))?;
        let namespace = self.turns.remove(at)?;
        let line = self.lines.get_mut(&namespace)?;
        let wanted = line.pop_front();
        if line.is_empty() {
            self.lines.remove(&namespace);
        } else {
            self.turns.push_back(namespace);
        }
        wanted
    }

    /// The numbers of queued and of dropped objects.
    #[must_use]
    pub fn counts(&self) -> (usize, u64) {
        (self.lines.values().map(VecDeque::len).sum(), self.dropped)
    }
}

#[cfg(test)]
mod tests {
    use nigh_terms::{BucketName, ObjectKey};

    use super::*;

    fn wanted(namespace: &str, key: &str) -> LookRequest {
        let object = ObjectId {
            namespace: Namespace::new(namespace).unwrap(),
            bucket: BucketName::new("bucket").unwrap(),
            key: ObjectKey::new(key).unwrap(),
        };
        LookRequest { object, from_store: false }
    }

    fn next(queue: &mut LookQueue, busy: &str) -> Option<String> {
        queue.next(|namespace| namespace.as_str() == busy).map(|next| next.object.to_string())
    }

    #[test]
    fn namespaces_have_their_turns_and_a_busy_one_holds_nobody_up() {
        let mut queue = LookQueue::default();
        for key in ["1", "2", "3"] {
            queue.push(wanted("a", key));
        }
        queue.push(wanted("b", "1"));
        queue.push(LookRequest { from_store: true, ..wanted("a", "urgent") });
        assert_eq!(next(&mut queue, "").as_deref(), Some("a/bucket/urgent"));
        assert_eq!(next(&mut queue, "").as_deref(), Some("b/bucket/1"));
        assert_eq!(next(&mut queue, "a"), None);
        assert_eq!(next(&mut queue, "b").as_deref(), Some("a/bucket/1"));
        assert_eq!(queue.counts(), (2, 0));
    }

    #[test]
    fn a_full_line_gives_up_its_oldest_and_counts_it() {
        let mut queue = LookQueue::default();
        for key in 0..LINE_MAX + 3 {
            queue.push(wanted("a", &key.to_string()));
        }
        queue.push(wanted("b", "1"));
        assert_eq!(queue.counts(), (LINE_MAX + 1, 3));
        assert_eq!(next(&mut queue, "b").as_deref(), Some("a/bucket/3"));
        for namespace in 0..LINES_MAX {
            queue.push(wanted(&format!("n{namespace}"), "1"));
        }
        assert_eq!(queue.counts(), (LINE_MAX + LINES_MAX - 2, 5));
    }

    #[test]
    fn an_object_that_is_written_again_and_again_waits_once() {
        let mut queue = LookQueue::default();
        for _ in 0..10 {
            queue.push(wanted("a", "1"));
        }
        assert_eq!(queue.counts(), (1, 0));
    }
}
