//! Endless answers end when whoever asked has lost their role: their key was disabled or removed, or their session is over.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::header;
use axum::response::Response;
use futures::StreamExt as _;

use super::Caller;
use crate::admin::AdminSource;

/// How often it is looked whether whoever asked still has their role.
const LOOKED_EVERY: Duration = Duration::from_millis(500);
/// The content types of answers that may be endless.
const ENDLESS: [&str; 2] = ["text/event-stream", "application/x-ndjson"];

/// The answer, which ends when `caller` has lost their role.
pub(super) fn ends_with_role<N: AdminSource>(node: &Arc<N>, caller: Caller, response: Response) -> Response {
    let kind = response.headers().get(header::CONTENT_TYPE);
    let is_endless = kind.is_some_and(|kind| ENDLESS.iter().any(|endless| kind == endless));
    if !is_endless {
        return response;
    }
    // An open answer keeps no node alive.
    let node = Arc::downgrade(node);
    response.map(|body| Body::from_stream(body.into_data_stream().take_until(loses_role(node, caller))))
}

/// Returns when `caller` has lost their role, or the node has ended.
async fn loses_role<N: AdminSource>(node: Weak<N>, caller: Caller) {
    while node.upgrade().is_some_and(|node| caller.has_role_still(&*node, Instant::now())) {
        tokio::time::sleep(LOOKED_EVERY).await;
    }
}
