//! How an execution passes from one process to the next.
//!
//! A process that leaves begins no more tasks. It lets those end that run, and stores which it has not begun: these the next
//! process begins. All other outstanding tasks may have run, so that the next process asks the nodes for them.

use std::collections::BTreeSet;

use super::super::row::Unbegun;
use super::{ExecutionDriver, StoredExecution};
use crate::event::{Command, ExecutionEvent, TaskId, TaskRun};

impl ExecutionDriver {
    /// True if this process leaves, and no task runs that it has begun.
    pub(super) fn is_at_rest(&self) -> bool {
        let is_unbegun = |task: &TaskRun| self.unbegun.contains(&task.task);
        self.kept.is_some() && self.inner.leaving.is_cancelled() && self.run.outstanding().all(is_unbegun)
    }

    /// Stores which tasks the next process has to begin. If that cannot be stored, the next process asks the nodes for them.
    pub(super) async fn leave(&mut self) {
        let Some(StoredExecution { id, head, events, .. }) = &mut self.kept else { return };
        if !self.unbegun.is_empty() {
            let tasks = self.run.outstanding().map(|task| task.task).collect();
            head.unbegun = Some(Unbegun { events: *events, tasks });
            match head.change(*id) {
                Ok(change) => drop(self.write(vec![change]).await),
                Err(error) => tracing::error!(%error, "the head of an execution cannot be encoded"),
            }
        }
        self.settle(0).await;
    }

    /// Continues the tasks that began before this process: each gets its outcome from its node, if that is known. Begins those
    /// of which the process before has said that it has not begun them.
    pub(super) async fn resume(&mut self) -> Option<()> {
        let tasks: Vec<TaskRun> = self.run.outstanding().cloned().collect();
        let unbegun = self.take_unbegun().await?;
        // Timers that are due fire first.
        self.happen(vec![ExecutionEvent::Time]).await?;
        let outstanding: BTreeSet<TaskId> = self.run.outstanding().map(|task| task.task).collect();
        let (unbegun, begun): (Vec<TaskRun>, Vec<TaskRun>) = tasks
            .into_iter()
            .filter(|task| outstanding.contains(&task.task))
            .partition(|task| unbegun.contains(&task.task));
        for task in begun {
            self.begin(task, true);
        }
        self.perform(unbegun.into_iter().map(Command::Invoke).collect()).await
    }

    /// The tasks that were certainly not begun. From now on they count as begun: this process may begin them at any time.
    async fn take_unbegun(&mut self) -> Option<BTreeSet<TaskId>> {
        let Some(StoredExecution { id, head, events, .. }) = &mut self.kept else { return Some(BTreeSet::new()) };
        let Some(Unbegun { events: then, tasks }) = head.unbegun.take() else { return Some(BTreeSet::new()) };
        if then != *events {
            return Some(BTreeSet::new());
        }
        let change = head.change(*id);
        match change {
            Ok(change) => self.write(vec![change]).await?,
            Err(error) => {
                tracing::error!(%error, "the head of an execution cannot be encoded");
                return Some(BTreeSet::new());
            }
        }
        self.settle(0).await?;
        Some(tasks.into_iter().collect())
    }
}
