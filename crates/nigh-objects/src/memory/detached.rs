//! Work that goes on to its end although its caller waits no more.

use std::future::Future;
use std::sync::Arc;

use nigh_data::ObjectError;
use tokio::sync::Notify;

use crate::sync::spawn;

tokio::task_local! {
    /// Ends the wait of whoever runs this task's work by `to_the_end`.
    static WAIT_IS_OVER: Arc<Notify>;
}

/// Runs `work` to its end, even if the caller stops waiting: a client that hangs up leaves nothing half done.
///
/// # Errors
/// The work's, or `OutcomeUnknown` once the work has called `stop_waiting`.
pub(super) async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, ObjectError>> + Send + 'static,
) -> Result<T, ObjectError> {
    let wait_is_over = Arc::new(Notify::new());
    let ended = spawn(nigh_trace::follow(WAIT_IS_OVER.scope(Arc::clone(&wait_is_over), work)));
    tokio::select! {
        biased;
        ended = ended => {
            ended.unwrap_or_else(|error| Err(ObjectError::Memory { operation: "commit", reason: error.to_string() }))
        }
        () = wait_is_over.notified() => Err(ObjectError::OutcomeUnknown("its home does not answer")),
    }
}

/// The work of this task waits for a home that gives no answer: `to_the_end` returns `OutcomeUnknown` to its caller, and
/// the work goes on.
pub(super) fn stop_waiting() {
    // Nobody waits for work that was not begun by `to_the_end`.
    let _told = WAIT_IS_OVER.try_with(|wait_is_over| wait_is_over.notify_one());
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_caller_who_need_not_wait_is_told_so_and_the_work_goes_on() {
        let (ends, ended) = oneshot::channel();
        let (done, is_done) = oneshot::channel();
        let told = to_the_end(async move {
            stop_waiting();
            ended.await.unwrap();
            done.send(()).unwrap();
            Ok(())
        });
        assert!(matches!(told.await, Err(ObjectError::OutcomeUnknown(_))));
        ends.send(()).unwrap();
        is_done.await.unwrap();
        assert_eq!(to_the_end(async { Ok(7) }).await.unwrap(), 7);
    }
}
