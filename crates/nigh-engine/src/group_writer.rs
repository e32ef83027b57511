//! Changes the state file by one thread, which commits all waiting changes in one transaction. While a commit waits for the
//! disk the next group gathers. Callers wait while `QUEUE` jobs are queued.

use async_recursion::async_recursion as boxed;
use tokio::sync::{mpsc, oneshot};

use crate::{RegistryError, StateFile};

/// The most jobs that wait for the writer.
const QUEUE: usize = 1024;
/// The most jobs in one transaction.
const COMMIT_MAX: usize = 256;

type Commit<C> = fn(&StateFile, &mut dyn Iterator<Item = &C>) -> Result<(), RegistryError>;

#[derive(Debug)]
struct Job<C> {
    changes: Vec<C>,
    done: oneshot::Sender<Result<(), String>>,
}

/// Writes changes of one kind. A clone is another handle to it; its thread ends with the last handle.
#[derive(Debug)]
pub(crate) struct GroupWriter<C>(mpsc::Sender<Job<C>>);

impl<C> Clone for GroupWriter<C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// Queued changes. When they are durable, all changes queued before are durable too.
#[derive(Debug)]
pub struct PendingCommit(oneshot::Receiver<Result<(), String>>);

impl PendingCommit {
    /// Changes whose outcome the holder of the sender reports.
    #[cfg(feature = "cluster")]
    pub(crate) fn promised() -> (oneshot::Sender<Result<(), String>>, Self) {
        let (done, written) = oneshot::channel();
        (done, Self(written))
    }

    /// Returns when the changes are durable.
    ///
    /// # Errors
    /// If the changes cannot be written, and then none of them is; or if their writer has ended.
    #[boxed]
    pub async fn wait(self) -> Result<(), RegistryError> {
        self.0.await.map_err(|_| ended())?.map_err(RegistryError::Storage)
    }
}

pub(crate) fn ended() -> RegistryError {
    RegistryError::Storage("their writer has ended".to_owned())
}

impl<C: Send + Sync + 'static> GroupWriter<C> {
    /// Starts the thread `name`, which writes by `commit`.
    pub(crate) fn start(name: &str, state: StateFile, commit: Commit<C>) -> std::io::Result<Self> {
        let (jobs, queue) = mpsc::channel(QUEUE);
        std::thread::Builder::new().name(name.to_owned()).spawn(move || write_groups(&state, queue, commit))?;
        Ok(Self(jobs))
    }

    /// Queues `changes` behind all that were queued before.
    pub(crate) async fn queue(&self, changes: Vec<C>) -> Result<PendingCommit, RegistryError> {
        let (done, written) = oneshot::channel();
        self.0.send(Job { changes, done }).await.map_err(|_| ended())?;
        Ok(PendingCommit(written))
    }
}

fn write_groups<C>(state: &StateFile, mut queue: mpsc::Receiver<Job<C>>, commit: Commit<C>) {
    while let Some(first) = queue.blocking_recv() {
        let mut group = vec![first];
        while group.len() < COMMIT_MAX
            && let Ok(next) = queue.try_recv()
        {
            group.push(next);
        }
        let written = commit(state, &mut group.iter().flat_map(|job| &job.changes)).map_err(|error| error.to_string());
        for job in group {
            // The caller may no longer wait.
            let _ = job.done.send(written.clone());
        }
    }
}
