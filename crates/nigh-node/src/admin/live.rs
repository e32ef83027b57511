//! `GET /live?view=`: a view's document as a snapshot, then what changes in it as JSON Merge Patches (RFC 7396), each with
//! the time by the node's clock.
//!
//! However many clients watch a view, one task makes its document, as often as `View::every` says and only while somebody
//! watches. A client that is slow misses steps in between and gets the difference to what it has, so nothing queues up.

mod merge_patch;

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{Query, State};
use axum::response::Response;
use futures::{Stream, StreamExt as _};
use nigh_terms::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::merge_patch::{diff, strip_nulls};
use super::refusal::Refusal;
use super::views::{View, ViewParams};
use super::{AdminSource, event_stream};

/// A view's document at one step.
#[derive(Clone, Debug, PartialEq)]
struct Frame {
    /// Counts the steps of the task that makes it.
    number: u64,
    document: Arc<Value>,
    /// What changed since the step before; none if nothing did.
    patch: Option<Value>,
    /// Why the document could not be made now: then it is that of an earlier step.
    trouble: Option<String>,
}

impl Frame {
    /// A first frame.
    fn first(mut document: Value) -> Self {
        strip_nulls(&mut document);
        Self { number: 0, document: Arc::new(document), patch: None, trouble: None }
    }

    /// The frame after this one.
    fn next(&self, made: Result<Value, String>) -> Self {
        let number = self.number + 1;
        match made {
            Ok(mut document) => {
                strip_nulls(&mut document);
                match diff(&self.document, &document) {
                    Some(patch) => Self { number, document: Arc::new(document), patch: Some(patch), trouble: None },
                    None => Self { number, document: Arc::clone(&self.document), patch: None, trouble: None },
                }
            }
            Err(trouble) => Self { number, document: Arc::clone(&self.document), patch: None, trouble: Some(trouble) },
        }
    }

    /// What a client that has `self` is told when `newer` is there; none if it knows all of it.
    fn message(&self, newer: &Self) -> Option<Value> {
        let patch = match newer.number.checked_sub(self.number) {
            Some(1) => newer.patch.clone(),
            _ => diff(&self.document, &newer.document),
        };
        let trouble = (self.trouble != newer.trouble).then_some(&newer.trouble);
        match (patch, trouble) {
            (None, None) => None,
            (Some(patch), None) => Some(json!({ "patch": patch })),
            (None, Some(trouble)) => Some(json!({ "trouble": trouble })),
            (Some(patch), Some(trouble)) => Some(json!({ "patch": patch, "trouble": trouble })),
        }
    }
}

/// The views that somebody watches.
#[derive(Default)]
pub(crate) struct LiveViews(Mutex<HashMap<View, watch::Sender<Arc<Frame>>>>);

impl LiveViews {
    /// Watches a view that somebody watches already.
    fn join(&self, view: &View) -> Option<watch::Receiver<Arc<Frame>>> {
        self.0.lock().get(view).map(watch::Sender::subscribe)
    }

    /// Watches a view. The second value must be run, if there is one: it is the sender for the view's frames.
    fn begin(&self, view: &View, first: Frame) -> (watch::Receiver<Arc<Frame>>, Option<watch::Sender<Arc<Frame>>>) {
        let mut watched = self.0.lock();
        if let Some(sender) = watched.get(view) {
            return (sender.subscribe(), None);
        }
        let (sender, receiver) = watch::channel(Arc::new(first));
        watched.insert(view.clone(), sender.clone());
        (receiver, Some(sender))
    }

    /// Forgets a view if nobody watches it any more. True if it is forgotten.
    fn end_if_unwatched(&self, view: &View) -> bool {
        let mut watched = self.0.lock();
        let unwatched = watched.get(view).is_none_or(|sender| sender.receiver_count() == 0);
        if unwatched {
            watched.remove(view);
        }
        unwatched
    }
}

/// `GET /live`.
pub(super) async fn live<N: AdminSource>(
    State(node): State<Arc<N>>,
    Query(asked): Query<ViewParams>,
) -> Result<Response, Refusal> {
    let name = asked.view.ok_or_else(|| Refusal::bad_request("name a view: /live?view=hierarchy"))?;
    let view = View::of(name, asked, node.namespace().clone())?;
    let frames = match node.live().join(&view) {
        Some(frames) => frames,
        None => {
            let first = Frame::first(Box::pin(view.document(&*node)).await?);
            let (frames, sender) = node.live().begin(&view, first);
            if let Some(sender) = sender {
                tokio::spawn(make_frames(Arc::clone(&node), view, sender));
            }
            frames
        }
    };
    let (stop, recent) = (node.stop().clone(), node.recent().clone());
    Ok(event_stream::events(messages(frames, stop).map(move |message| timed(message, recent.now()))))
}

/// The message, with the time at which it is sent: the client's clock may differ from the node's.
fn timed(mut message: Value, now: Timestamp) -> Value {
    if let Value::Object(members) = &mut message {
        members.insert("time".to_owned(), now.millis().into());
    }
    message
}

/// Makes the frames of a view while somebody watches it and the node runs.
async fn make_frames<N: AdminSource>(node: Arc<N>, view: View, sender: watch::Sender<Arc<Frame>>) {
    let stop = node.stop().clone();
    while stop.run_until_cancelled(tokio::time::sleep(view.every())).await.is_some() {
        if node.live().end_if_unwatched(&view) {
            return;
        }
        let made = Box::pin(view.document(&*node)).await.map_err(|refusal| refusal.to_string());
        let next = sender.borrow().next(made);
        sender.send_replace(Arc::new(next));
    }
}

struct Messages {
    frames: watch::Receiver<Arc<Frame>>,
    /// What the client has; none before the snapshot.
    sent: Option<Arc<Frame>>,
    stop: CancellationToken,
}

/// The snapshot, then the changes, until the node stops or the client leaves.
fn messages(
    frames: watch::Receiver<Arc<Frame>>,
    stop: CancellationToken,
) -> impl Stream<Item = Value> + Send + 'static {
    let messages = Messages { frames, sent: None, stop };
    futures::stream::unfold(messages, async |mut messages| {
        let message = messages.next().await?;
        Some((message, messages))
    })
}

impl Messages {
    async fn next(&mut self) -> Option<Value> {
        let Some(mut sent) = self.sent.take() else {
            let first = Arc::clone(&self.frames.borrow_and_update());
            let snapshot = json!({ "snapshot": &*first.document, "trouble": first.trouble });
            self.sent = Some(first);
            return Some(snapshot);
        };
        loop {
            // An error would mean that the task that makes the frames was lost.
            self.stop.run_until_cancelled(self.frames.changed()).await?.ok()?;
            let newer = Arc::clone(&self.frames.borrow_and_update());
            let message = sent.message(&newer);
            sent = newer;
            if message.is_some() {
                self.sent = Some(sent);
                return message;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_missed_steps_gets_the_difference_to_what_it_has() {
        let frames: Vec<Frame> = (1..4).fold(vec![Frame::first(json!({"n": 0, "gone": null}))], |mut frames, n| {
            let made = Ok(json!({"n": n, "even": n % 2 == 0}));
            frames.push(frames[frames.len() - 1].next(made));
            frames
        });
        assert_eq!(frames[0].message(&frames[1]), Some(json!({"patch": {"n": 1, "even": false}})));
        assert_eq!(frames[1].message(&frames[3]), Some(json!({"patch": {"n": 3}})));
        assert_eq!(frames[3].message(&frames[3].next(Ok(json!({"n": 3, "even": false})))), None);
    }

    #[test]
    fn a_document_that_cannot_be_made_leaves_the_last_one_and_says_why_once() {
        let first = Frame::first(json!({"n": 0}));
        let failed = first.next(Err("the store is away".to_owned()));
        assert_eq!(first.message(&failed), Some(json!({"trouble": "the store is away"})));
        let again = failed.next(Err("the store is away".to_owned()));
        assert_eq!(failed.message(&again), None);
        let back = again.next(Ok(json!({"n": 1})));
        assert_eq!(again.message(&back), Some(json!({"patch": {"n": 1}, "trouble": null})));
    }

    #[tokio::test]
    async fn watchers_share_a_view_until_the_last_has_left() {
        let (views, stop) = (LiveViews::default(), CancellationToken::new());
        assert!(views.join(&View::Cluster).is_none());
        let (first, sender) = views.begin(&View::Cluster, Frame::first(json!({"n": 0})));
        let sender = sender.unwrap();
        let mut messages = Box::pin(messages(first, stop.clone()));
        assert_eq!(messages.next().await, Some(json!({"snapshot": {"n": 0}, "trouble": null})));
        let second = views.join(&View::Cluster).unwrap();
        assert!(views.begin(&View::Cluster, Frame::first(json!({}))).1.is_none());
        assert!(!views.end_if_unwatched(&View::Cluster));
        let next = sender.borrow().next(Ok(json!({"n": 1})));
        sender.send_replace(Arc::new(next));
        assert_eq!(messages.next().await, Some(json!({"patch": {"n": 1}})));
        drop((second, messages));
        assert!(views.end_if_unwatched(&View::Cluster));
        assert!(views.join(&View::Cluster).is_none());
    }

    #[tokio::test]
    async fn the_stream_ends_when_the_node_stops() {
        let (views, stop) = (LiveViews::default(), CancellationToken::new());
        let (frames, _sender) = views.begin(&View::Hierarchy, Frame::first(json!({})));
        let mut messages = Box::pin(messages(frames, stop.clone()));
        assert!(messages.next().await.is_some());
        stop.cancel();
        assert_eq!(messages.next().await, None);
    }
}
