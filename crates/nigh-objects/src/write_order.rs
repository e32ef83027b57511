//! Write locks of objects: one write of an object at a time, in the order of the requests.
//!
//! This module decides nothing else. Writes of different objects do not wait for each other.

use std::collections::HashMap;
use std::sync::Arc;

use nigh_data::{ObjectError, ObjectId};
use tokio::sync::OwnedMutexGuard;

use crate::sync::{Mutex, Step, is_left_out};

/// The most waiting writes of one object; further ones must come back later.
const WAITING_MAX: usize = 1024;

type Turns = Mutex<HashMap<ObjectId, Arc<tokio::sync::Mutex<()>>>>;

/// The write locks of all objects that are being written.
#[derive(Debug, Default)]
pub(crate) struct WriteOrder(Arc<Turns>);

/// The write lock of an object; dropping it unlocks.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Arc<Turns>,
    object: ObjectId,
    turn: Option<Arc<tokio::sync::Mutex<()>>>,
    guard: Option<OwnedMutexGuard<()>>,
}

impl WriteOrder {
    /// Waits until every earlier write of `object` has ended.
    pub(crate) async fn turn(&self, object: &ObjectId) -> Result<Turn, ObjectError> {
        let turn = Arc::clone(self.0.lock().entry(object.clone()).or_default());
        // Each waiting write has two handles, and the map has one.
        let crowded = Arc::strong_count(&turn) > 2 * WAITING_MAX;
        let mut waiting = Turn { turns: Arc::clone(&self.0), object: object.clone(), turn: Some(turn), guard: None };
        if crowded {
            return Err(ObjectError::SlowDown("too many writes of one key are waiting"));
        }
        if let Some(turn) = waiting.turn.as_ref().filter(|_| !is_left_out(Step::Turn)) {
            let guard = Arc::clone(turn).lock_owned().await;
            waiting.guard = Some(guard);
        }
        Ok(waiting)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.guard = None;
        self.turn = None;
        let mut turns = self.turns.lock();
        // Handles are only taken from the map under its lock: if it has the only one, nobody waits.
        if turns.get(&self.object).is_some_and(|turn| Arc::strong_count(turn) == 1) {
            turns.remove(&self.object);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::FutureExt;
    use nigh_terms::{BucketName, Namespace, ObjectKey};

    use super::*;
    use crate::sync::explore::explore;
    use crate::sync::leave_out;

    fn object(key: &str) -> ObjectId {
        ObjectId {
            namespace: Namespace::new("n").unwrap(),
            bucket: BucketName::new("bucket").unwrap(),
            key: ObjectKey::new(key).unwrap(),
        }
    }

    #[tokio::test]
    async fn writes_of_one_object_follow_each_other_and_leave_nothing_behind() {
        let order = WriteOrder::default();
        let first = order.turn(&object("a")).await.unwrap();
        let mut second = Box::pin(async { order.turn(&object("a")).await });
        let mut third = Box::pin(async { order.turn(&object("a")).await });
        assert!(second.as_mut().now_or_never().is_none() && third.as_mut().now_or_never().is_none());
        assert!(order.turn(&object("b")).now_or_never().is_some(), "another object does not wait");
        drop(first);
        assert!(third.as_mut().now_or_never().is_none(), "the second asked first");
        let turn = second.as_mut().now_or_never().unwrap().unwrap();
        drop(turn);
        drop(third.as_mut().now_or_never().unwrap().unwrap());
        assert!(order.0.lock().is_empty());
    }

    #[tokio::test]
    async fn one_who_gives_up_waiting_is_forgotten() {
        let order = WriteOrder::default();
        let first = order.turn(&object("a")).await.unwrap();
        let mut second = Box::pin(async { order.turn(&object("a")).await });
        assert!(second.as_mut().now_or_never().is_none());
        drop(second);
        drop(first);
        assert!(order.0.lock().is_empty());
    }

    /// Three tasks write in turn, and one gives up while it waits.
    fn turns() {
        let (shared, written) = (Arc::new(WriteOrder::default()), Arc::new(AtomicUsize::new(0)));
        shuttle::future::block_on(async {
            let write = || {
                let (order, written) = (Arc::clone(&shared), Arc::clone(&written));
                shuttle::future::spawn(async move {
                    let _turn = order.turn(&object("a")).await.unwrap();
                    let before = written.load(Ordering::Relaxed);
                    shuttle::future::yield_now().await;
                    written.store(before + 1, Ordering::Relaxed);
                })
            };
            let writers = [write(), write(), write()];
            let order = Arc::clone(&shared);
            let gives_up = shuttle::future::spawn(async move { order.turn(&object("a")).await.map(drop) });
            gives_up.abort();
            drop(gives_up.await);
            for writer in writers {
                writer.await.unwrap();
            }
        });
        assert_eq!(written.load(Ordering::Relaxed), 3, "a write was lost");
        assert!(shared.0.lock().is_empty(), "a turn is left behind");
    }

    #[test]
    fn under_every_schedule_writes_of_one_object_follow_each_other_and_leave_nothing_behind() {
        explore(300, turns).unwrap();
    }

    #[test]
    fn writes_without_an_order_are_found_to_lose_one() {
        let found = explore(300, || {
            leave_out(Step::Turn);
            turns();
        });
        assert!(found.as_ref().is_err_and(|panic| panic.contains("a write was lost")), "{found:?}");
    }

    #[tokio::test]
    async fn the_queue_of_one_object_is_limited() {
        let order = WriteOrder::default();
        let _first = order.turn(&object("a")).await.unwrap();
        let mut waiting = Vec::new();
        let refused = loop {
            let mut next = Box::pin(async { order.turn(&object("a")).await.map(drop) });
            match next.as_mut().now_or_never() {
                None => waiting.push(next),
                Some(answer) => break answer,
            }
            assert!(waiting.len() <= WAITING_MAX);
        };
        assert!(matches!(refused, Err(ObjectError::SlowDown(_))));
    }
}
