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

/// The index of the executions.
#[derive(Default)]
pub(crate) struct Index {
    all: BTreeMap<HistoryId, Entry>,
    names: HashMap<Name, HistoryId>,
    /// Ended executions, the oldest end first.
    ended: VecDeque<HistoryId>,
    ended_bytes: u64,
    running: usize,
    unkept: usize,
}

fn name_of(head: &Head) -> Name {
    (head.namespace.clone(), head.machine.clone(), head.name.clone())
}

impl Index {
    pub(super) fn insert(&mut self, id: HistoryId, entry: Entry) {
        self.names.insert(name_of(&entry.head), id);
        if entry.head.end.is_some() {
            self.ended.push_back(id);
            self.ended_bytes += entry.head.bytes;
        } else {
            self.running += 1;
        }
        self.all.insert(id, entry);
    }

    /// Removes an execution that never started.
    pub(super) fn remove(&mut self, id: HistoryId) {
        if let Some(entry) = self.all.remove(&id) {
            self.names.remove(&name_of(&entry.head));
            self.running -= 1;
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

    /// The number of running executions, with those that are in memory only.
    pub(super) const fn running(&self) -> usize {
        self.running + self.unkept
    }

    /// Counts an execution that is in memory only. False if too many run.
    pub(super) const fn begin_unkept(&mut self, running_max: usize) -> bool {
        let may = self.running() < running_max;
        if may {
            self.unkept += 1;
        }
        may
    }

    pub(super) const fn end_unkept(&mut self) {
        self.unkept -= 1;
    }

    /// A running execution has ended.
    pub(super) fn end(&mut self, id: HistoryId, end: End, bytes: u64) {
        let Some(entry) = self.all.get_mut(&id) else { return };
        entry.head.end = Some(end);
        entry.head.bytes = bytes;
        entry.inbox = None;
        self.running -= 1;
        self.ended.push_back(id);
        self.ended_bytes += bytes;
    }

    /// Removes the oldest ended executions while there are more than `kept_max`, or they have more bytes than
    /// `kept_bytes`.
    pub(super) fn take_surplus(&mut self, kept_max: usize, kept_bytes: u64) -> Vec<HistoryId> {
        let mut gone = Vec::new();
        while self.ended.len() > kept_max || self.ended_bytes > kept_bytes {
            let Some(id) = self.ended.pop_front() else { break };
            if let Some(entry) = self.all.remove(&id) {
                self.names.remove(&name_of(&entry.head));
                self.ended_bytes -= entry.head.bytes;
            }
            gone.push(id);
        }
        gone
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

    fn head(n: u8) -> Head {
        let name = |text: &str| WorkflowName::new(text).unwrap();
        let namespace = Namespace::new("tenant").unwrap();
        Head::new(namespace, name("m"), name(&format!("n{n}")), String::new(), Timestamp(u64::from(n)), String::new())
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
        assert_eq!((index.running(), index.take_surplus(2, 100)), (1, vec![[3; 16]]));
        assert_eq!(index.take_surplus(2, 10), [[1; 16]]);
        assert!(index.find(&head.namespace, &head.machine, &head.name).is_none());
        assert!(index.begin_unkept(2) && !index.begin_unkept(2));
    }
}
