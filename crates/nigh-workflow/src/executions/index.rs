//! The index of executions, by name and by age. Pure, except for the inboxes of running ones.

use std::collections::{BTreeMap, HashMap, VecDeque};

use nigh_engine::HistoryId;
use nigh_terms::Namespace;
use tokio::sync::mpsc;

use super::leading::Message;
use super::row::{End, Head};
use crate::arn::WorkflowName;

/// An execution in the index.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) head: Head,
    /// The inbox of its driver; none if it does not run.
    pub(crate) inbox: Option<mpsc::Sender<Message>>,
}

impl Entry {
    pub(super) const fn of_ended(head: Head) -> Self {
        Self { head, inbox: None }
    }

    pub(super) const fn of_running(head: Head, inbox: mpsc::Sender<Message>) -> Self {
        Self { head, inbox: Some(inbox) }
    }
}

type Name = (Namespace, WorkflowName, WorkflowName);

/// The ended executions of a namespace.
#[derive(Default)]
struct EndedExecutions {
    /// The oldest end first.
    ids: VecDeque<HistoryId>,
    bytes: u64,
}

/// The index of the executions.
#[derive(Default)]
pub(crate) struct Index {
    all: BTreeMap<HistoryId, Entry>,
    names: HashMap<Name, HistoryId>,
    ended: BTreeMap<Namespace, EndedExecutions>,
    /// Running executions of each namespace that has some, those in memory only included.
    running: HashMap<Namespace, usize>,
}

fn name_of(head: &Head) -> Name {
    (head.namespace.clone(), head.machine.clone(), head.name.clone())
}

impl Index {
    pub(super) fn insert(&mut self, id: HistoryId, entry: Entry) {
        self.names.insert(name_of(&entry.head), id);
        if entry.head.end.is_some() {
            self.add_ended(id, entry.head.namespace.clone(), entry.head.bytes);
        } else {
            self.begin_running(&entry.head.namespace);
        }
        self.all.insert(id, entry);
    }

    /// Removes an execution that never started.
    pub(super) fn remove(&mut self, id: HistoryId) {
        if let Some(entry) = self.all.remove(&id) {
            self.names.remove(&name_of(&entry.head));
            self.end_running(&entry.head.namespace);
        }
    }

    fn add_ended(&mut self, id: HistoryId, namespace: Namespace, bytes: u64) {
        let ended = self.ended.entry(namespace).or_default();
        ended.ids.push_back(id);
        ended.bytes += bytes;
    }

    fn begin_running(&mut self, namespace: &Namespace) {
        *self.running.entry(namespace.clone()).or_default() += 1;
    }

    fn end_running(&mut self, namespace: &Namespace) {
        if let Some(running) = self.running.get_mut(namespace) {
            *running -= 1;
            if *running == 0 {
                self.running.remove(namespace);
            }
        }
    }

    pub(super) fn find(
        &self,
        namespace: &Namespace,
        machine: &WorkflowName,
        name: &WorkflowName,
    ) -> Option<(HistoryId, &Entry)> {
        let id = *self.names.get(&(namespace.clone(), machine.clone(), name.clone()))?;
        Some((id, self.all.get(&id)?))
    }

    /// How many of the namespace run, those in memory only included.
    pub(super) fn running(&self, namespace: &Namespace) -> usize {
        self.running.get(namespace).copied().unwrap_or_default()
    }

    /// An execution that is in memory only begins, unless too many of its namespace run.
    pub(super) fn begin_unkept(&mut self, namespace: &Namespace, running_max: usize) -> bool {
        let may = self.running(namespace) < running_max;
        if may {
            self.begin_running(namespace);
        }
        may
    }

    pub(super) fn end_unkept(&mut self, namespace: &Namespace) {
        self.end_running(namespace);
    }

    /// A running execution has ended.
    pub(super) fn end(&mut self, id: HistoryId, end: End, bytes: u64) {
        let Some(entry) = self.all.get_mut(&id) else { return };
        entry.head.end = Some(end);
        entry.head.bytes = bytes;
        entry.inbox = None;
        let namespace = entry.head.namespace.clone();
        self.end_running(&namespace);
        self.add_ended(id, namespace, bytes);
    }

    /// Removes the oldest ended executions while there are more than `kept_max`, or they have more bytes than
    /// `kept_bytes`.
    pub(super) fn take_surplus(&mut self, kept_max: usize, kept_bytes: u64) -> Vec<HistoryId> {
        let mut gone = Vec::new();
        while let Some(namespace) = self.beyond(kept_max, kept_bytes).cloned()
            && let Some(ended) = self.ended.get_mut(&namespace)
            && let Some(id) = ended.ids.pop_front()
        {
            if let Some(entry) = self.all.remove(&id) {
                self.names.remove(&name_of(&entry.head));
                ended.bytes -= entry.head.bytes;
            }
            if ended.ids.is_empty() {
                self.ended.remove(&namespace);
            }
            gone.push(id);
        }
        gone
    }

    /// The namespace whose oldest ended execution has to go; none if all are within the limits.
    fn beyond(&self, kept_max: usize, kept_bytes: u64) -> Option<&Namespace> {
        let most = |of: fn(&EndedExecutions) -> u64| self.ended.iter().max_by_key(|(_, ended)| of(ended));
        let largest = if self.ended.values().map(|ended| ended.bytes).sum::<u64>() > kept_bytes {
            most(|ended| ended.bytes)
        } else if self.ended.values().map(|ended| ended.ids.len()).sum::<usize>() > kept_max {
            most(|ended| ended.ids.len() as u64)
        } else {
            None
        };
        largest.map(|(namespace, _)| namespace)
    }

    pub(super) fn list(
        &self,
        namespace: &Namespace,
        machine: &WorkflowName,
        status: Option<&str>,
        before: Option<HistoryId>,
        limit: usize,
    ) -> (Vec<Entry>, Option<HistoryId>) {
        let is_it = |entry: &Entry| {
            let found = entry.head.end.as_ref().map_or("RUNNING", |end| &end.status);
            entry.head.namespace == *namespace
                && entry.head.machine == *machine
                && status.is_none_or(|status| status == found)
        };
        let older = self.all.range(..before.unwrap_or([0xff; 16])).rev();
        let mut found: Vec<(HistoryId, Entry)> =
            older.filter(|(_, entry)| is_it(entry)).take(limit + 1).map(|(id, entry)| (*id, entry.clone())).collect();
        let more = (found.len() > limit).then(|| found.pop()).flatten();
        let last = found.last().map(|(id, _)| *id).filter(|_| more.is_some());
        (found.into_iter().map(|(_, entry)| entry).collect(), last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nigh_terms::Timestamp;

    fn head_of(namespace: &str, n: u8) -> Head {
        let name = |text: &str| WorkflowName::new(text).unwrap();
        let namespace = Namespace::new(namespace).unwrap();
        Head::new(namespace, name("m"), name(&format!("n{n}")), String::new(), Timestamp(u64::from(n)), String::new())
    }

    fn head(n: u8) -> Head {
        head_of("tenant", n)
    }

    fn end(status: &str) -> End {
        End { status: status.to_owned(), stopped: Timestamp(9), error: None, cause: None }
    }

    #[test]
    fn the_newest_are_listed_first_and_the_oldest_ends_go_first() {
        let mut index = Index::default();
        let (sender, _inbox) = mpsc::channel(1);
        for n in 1..=4 {
            index.insert([n; 16], Entry::of_running(head(n), sender.clone()));
        }
        for n in [3, 1, 2] {
            index.end([n; 16], end(if n == 3 { "FAILED" } else { "SUCCEEDED" }), 10);
        }
        let head = head(1);
        let names = |(found, more): (Vec<Entry>, Option<HistoryId>)| {
            (found.into_iter().map(|entry| entry.head.name.to_string()).collect::<Vec<_>>(), more)
        };
        let list = |index: &Index, status, before, limit| {
            names(index.list(&head.namespace, &head.machine, status, before, limit))
        };
        assert_eq!(list(&index, None, None, 3), (vec!["n4".into(), "n3".into(), "n2".into()], Some([2; 16])));
        assert_eq!(list(&index, None, Some([2; 16]), 3), (vec!["n1".into()], None));
        assert_eq!(list(&index, Some("RUNNING"), None, 3), (vec!["n4".into()], None));
        assert_eq!((index.running(&head.namespace), index.take_surplus(2, 100)), (1, vec![[3; 16]]));
        assert_eq!(index.take_surplus(2, 10), [[1; 16]]);
        assert!(index.find(&head.namespace, &head.machine, &head.name).is_none());
        assert!(index.begin_unkept(&head.namespace, 2) && !index.begin_unkept(&head.namespace, 2));
    }

    #[test]
    fn a_namespace_with_many_executions_pushes_out_and_keeps_out_its_own_only() {
        let mut index = Index::default();
        let (sender, _inbox) = mpsc::channel(1);
        for n in 0..10 {
            let namespace = if n == 0 { "quiet" } else { "busy" };
            index.insert([n; 16], Entry::of_running(head_of(namespace, n), sender.clone()));
            index.end([n; 16], end("SUCCEEDED"), 10);
        }
        let gone = |ids: std::ops::RangeInclusive<u8>| ids.map(|n| [n; 16]).collect::<Vec<HistoryId>>();
        assert_eq!(index.take_surplus(100, 60), gone(1..=4));
        assert_eq!(index.take_surplus(4, 60), gone(5..=6));
        // An execution of the quiet one is larger than all others together.
        index.insert([10; 16], Entry::of_running(head_of("quiet", 10), sender.clone()));
        index.end([10; 16], end("SUCCEEDED"), 50);
        assert_eq!(index.take_surplus(100, 80), [[0; 16]]);
        assert_eq!(index.take_surplus(100, 79), gone(10..=10));

        let (quiet, busy) = (head_of("quiet", 0).namespace, head_of("busy", 0).namespace);
        assert!((0..3).all(|_| index.begin_unkept(&busy, 3)) && !index.begin_unkept(&busy, 3));
        assert!(index.begin_unkept(&quiet, 3));
        index.end_unkept(&busy);
        index.insert([11; 16], Entry::of_running(head_of("busy", 11), sender));
        assert_eq!((index.running(&busy), index.running(&quiet)), (3, 1));
        index.remove([11; 16]);
        assert!(index.begin_unkept(&busy, 3));
    }
}
