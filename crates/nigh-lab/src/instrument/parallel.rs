//! Work on many items, with a thread for each processor; and the ends of other threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::ScopedJoinHandle;

use crate::LabError;

/// Does `work` on all items, on as many threads as there are processors, the first items first; results in their order.
pub(crate) fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R, LabError> + Sync,
) -> Result<Vec<R>, LabError> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    by_workers(items, threads, || &work).into_iter().collect()
}

/// Has so many threads work on `items`, each by a worker of its own, the first items first; results in the items' order.
pub(crate) fn by_workers<'i, T: Sync, R: Send, W: FnMut(&'i T) -> R>(
    items: &'i [T],
    threads: usize,
    worker: impl Fn() -> W + Sync,
) -> Vec<R> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads.min(items.len()) {
            scope.spawn(|| {
                let mut work = worker();
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at) else { return };
                    let result = work(item);
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((at, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

/// The results of threads that run already, or the first error when all have ended.
pub(crate) fn joined<'s, T>(threads: Vec<ScopedJoinHandle<'s, Result<T, LabError>>>) -> Result<Vec<T>, LabError> {
    let panicked = |_| Err(LabError::Node("a thread of the experiment panicked".to_owned()));
    let ended: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect();
    ended.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_items_order_and_a_failure_is_kept() {
        let squares = in_parallel(&[3, 1, 2], |&number| Ok(number * number)).unwrap();
        assert_eq!(squares, [9, 1, 4]);
        let failed = in_parallel(&[1], |_| Err::<(), _>(LabError::Chart("no".to_owned())));
        assert!(failed.unwrap_err().to_string().contains("no"));
    }
}
