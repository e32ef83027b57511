//! Tasks of shuttle while a scenario is explored, and of tokio otherwise.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::Step;
use super::explore::is_exploring;

thread_local! {
    static LEFT_OUT: Cell<Option<Step>> = const { Cell::new(None) };
}

/// Makes scenarios on this thread leave out `step`: the fault that a test seeds.
pub(crate) fn leave_out(step: Step) {
    LEFT_OUT.set(Some(step));
}

/// True if `step` is left out.
pub(crate) fn is_left_out(step: Step) -> bool {
    LEFT_OUT.get() == Some(step)
}

/// A task; awaiting it gives its result.
pub(crate) enum TaskHandle<T> {
    Tokio(tokio::task::JoinHandle<T>),
    Explored(shuttle::future::JoinHandle<T>),
    /// Work that would block is done at once in a schedule.
    Done(Option<Box<T>>),
}

/// The task panicked, or was aborted.
#[derive(Debug)]
pub(crate) struct TaskFailure(String);

impl fmt::Display for TaskFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<T> Future for TaskHandle<T> {
    type Output = Result<T, TaskFailure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Tokio(task) => Pin::new(task).poll(context).map_err(|error| TaskFailure(error.to_string())),
            Self::Explored(task) => Pin::new(task).poll(context).map_err(|error| TaskFailure(error.to_string())),
            Self::Done(done) => Poll::Ready(
                done.take().map(|done| *done).ok_or_else(|| TaskFailure("it was awaited before".to_owned())),
            ),
        }
    }
}

pub(crate) fn spawn<F>(work: F) -> TaskHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    match is_exploring() {
        true => TaskHandle::Explored(shuttle::future::spawn(work)),
        false => TaskHandle::Tokio(tokio::spawn(work)),
    }
}

pub(crate) fn spawn_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> TaskHandle<T> {
    match is_exploring() {
        true => TaskHandle::Done(Some(Box::new(work()))),
        false => TaskHandle::Tokio(tokio::task::spawn_blocking(work)),
    }
}

/// No time passes in a schedule.
pub(crate) async fn timeout<F: Future>(within: Duration, work: F) -> Result<F::Output, tokio::time::error::Elapsed> {
    match is_exploring() {
        true => Ok(work.await),
        false => tokio::time::timeout(within, work).await,
    }
}
