//! The calls of one connection, one after the other.

use std::future::poll_fn;
use std::time::Duration;

use nigh_trace::{Span, SpanKind, trailer};
use tokio::time::{Instant, timeout, timeout_at};

use crate::accept::{AdmittedPeer, Door};
use crate::error::{Refusal, RefusalKind};
use crate::frame::{HEAD_MAX_BYTES, Header, Kind};
use crate::handler::{Call, Reply};
use crate::hello::Hello;
use crate::incoming::IncomingBody;
use crate::link::{LINGER_TIME, LITTLE_BYTES, Link};
use crate::message::{ReadError, read_head, read_header, write_message, write_refusal};
use crate::method::Method;

/// What happens to the connection after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterCall {
    Next,
    /// The connection is closed once the peer had time to read the answer.
    Linger,
    Close,
}

/// Answers calls until the connection or the server ends.
pub(crate) async fn answer_calls(door: &Door, mut admitted: AdmittedPeer) {
    loop {
        let AdmittedPeer { link, peer, .. } = &mut admitted;
        let heard = timeout(door.settings.idle_max, read_header(link));
        let header = match door.ending.run_until_cancelled(heard).await {
            Some(Ok(Ok(header))) => header,
            Some(Ok(Err(ReadError::Io(_)))) => return,
            Some(Ok(Err(ReadError::Frame(error)))) => {
                tracing::warn!("the connection of {} is closed: {error}", peer.identity);
                return;
            }
            None | Some(Err(_)) => {
                // The refusal tells a caller whose call is on its way that it has not begun.
                let goodbye = Refusal::new(RefusalKind::Closing, "the connection is being closed");
                if let Ok(Ok(())) = timeout(LINGER_TIME, write_refusal(link, 0, &goodbye)).await {
                    link.linger().await;
                }
                return;
            }
        };
        match answer(door, peer, link, header).await {
            AfterCall::Next => {}
            AfterCall::Linger => return link.linger().await,
            AfterCall::Close => return,
        }
    }
}

/// Answers one call, of which only the header has been read.
async fn answer(door: &Door, peer: &Hello, link: &mut Link, header: Header) -> AfterCall {
    if header.kind != Kind::Call {
        tracing::warn!("the connection of {} is closed: it sent a message that is no call", peer.identity);
        return AfterCall::Close;
    }
    let patience = Duration::from_millis(u64::from(header.patience_ms)).min(door.settings.call_max);
    let deadline = Instant::now() + patience;
    let refused = |kind, text: String| Refusal::new(kind, text);
    let Some(method) = door.handler.method(header.method) else {
        let unknown = refused(RefusalKind::UnknownMethod, format!("there is no method {}", header.method));
        return refuse(link, &header, true, &unknown).await;
    };
    let watch = door.meters.call(method);
    if let Some(long) = too_large(method, &header) {
        watch.refused();
        return refuse(link, &header, true, &long).await;
    }
    let Ok(_permit) = door.calls.try_acquire() else {
        watch.refused();
        let busy = format!("{} calls are under way, as many as may be", door.settings.calls_max);
        return refuse(link, &header, true, &refused(RefusalKind::Busy, busy)).await;
    };
    let reply = match timeout_at(deadline, Box::pin(handled(door, peer, link, method, &header, deadline))).await {
        Ok(Some(reply)) => reply,
        Ok(None) => return AfterCall::Close,
        Err(_) => Err(refused(RefusalKind::Late, format!("{} took longer than its deadline", method.name))),
    };
    let reply = reply.and_then(|reply| match reply.head.len() {
        0..=HEAD_MAX => Ok(reply),
        long => Err(Refusal::failed(format!("the answer to {} has a head of {long} bytes", method.name))),
    });
    let Reply { head, body } = match reply {
        Ok(reply) => reply,
        Err(refusal) => {
            watch.refused();
            return refuse(link, &header, false, &refusal).await;
        }
    };
    let (called, answered) = (u64::from(header.head_bytes) + header.body_bytes, head.len() as u64 + body.len());
    let answer = Header { kind: Kind::Answer, patience_ms: 0, ..header };
    // The rest of the call is read after the answer: a caller that first sends everything has done so by then.
    match timeout_at(deadline, write_message(link, answer, &head, body, false)).await {
        Ok(Ok(_)) => watch.answered(called, answered),
        Ok(Err(error)) => {
            tracing::debug!("the answer to {} was cut off: {error}", peer.identity);
            return AfterCall::Close;
        }
        Err(_) => return AfterCall::Close,
    }
    settle(link).await
}

const HEAD_MAX: usize = HEAD_MAX_BYTES as usize;

/// The reply of the handler; none if the peer closed the connection.
async fn handled(
    door: &Door,
    peer: &Hello,
    link: &mut Link,
    method: &'static Method,
    header: &Header,
    deadline: Instant,
) -> Option<Result<Reply, Refusal>> {
    let head = read_head(link, header).await.ok()?;
    let mut span = Span::under(trailer::find(&head), method.name, SpanKind::Server);
    span.record(|span| {
        span.set("rpc.system.name", "nigh");
        span.set("rpc.method", method.name);
        span.set("nigh.peer", peer.identity.to_string());
    });
    let call = |body| Call { peer, method, head, body, deadline };
    if header.body_bytes > 0 {
        return Some(span.scope(door.handler.call(call(IncomingBody::of_call(link, header.body_bytes)))).await);
    }
    tokio::select! {
        biased;
        said = span.scope(door.handler.call(call(IncomingBody::nothing()))) => Some(said),
        () = poll_fn(|cx| link.poll_heard(cx)) => None,
    }
}

fn too_large(method: &Method, header: &Header) -> Option<Refusal> {
    let Header { head_bytes, body_bytes, .. } = header;
    let long = *head_bytes > method.head_max || *body_bytes > method.body_max;
    let text = || {
        let Method { name, head_max, body_max, .. } = method;
        format!("{name} takes a head of {head_max} bytes and a body of {body_max}, not {head_bytes} and {body_bytes}")
    };
    long.then(|| Refusal::new(RefusalKind::TooLarge, text()))
}

/// Refuses the call. `head_too`: the head has not been read either.
async fn refuse(link: &mut Link, header: &Header, head_too: bool, refusal: &Refusal) -> AfterCall {
    if head_too {
        link.left += u64::from(header.head_bytes);
    }
    match timeout(LINGER_TIME, write_refusal(link, header.number, refusal)).await {
        Ok(Ok(())) => settle(link).await,
        _ => AfterCall::Close,
    }
}

/// Reads the rest of the call's body, if it is little.
async fn settle(link: &mut Link) -> AfterCall {
    if link.left > LITTLE_BYTES {
        return AfterCall::Linger;
    }
    if link.left == 0 || link.drain().await { AfterCall::Next } else { AfterCall::Close }
}
