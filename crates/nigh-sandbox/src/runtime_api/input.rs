//! An input on its way to a sandbox, as the body of an HTTP response. The connection that asked for the input may close
//! at any time. If the connection has not taken the bytes by then, the input is given back.
//!
//! An input counts as taken as soon as the connection has its bytes, whether they arrive or not: no input runs twice.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::HeaderValue;
use http_body::{Body, Frame, SizeHint};
use nigh_terms::{InvocationId, Timestamp};
use nigh_trace::SpanContext;

/// One input for a sandbox.
#[derive(Debug)]
pub struct Dispatch {
    /// The id of the invocation.
    pub id: InvocationId,
    /// When the sandbox will be ended if it has not responded.
    pub deadline: Timestamp,
    /// The function's ARN.
    pub function_arn: HeaderValue,
    /// Lambda's `ClientContext`; none if the caller gave none.
    pub client_context: Option<HeaderValue>,
    /// The span of the handler's run; none if its caller belongs to no trace.
    pub trace: Option<SpanContext>,
    /// The handler's input.
    pub payload: Bytes,
}

/// Gets back an input that was not taken.
pub(super) type GiveBack = Box<dyn FnOnce(Dispatch) + Send>;

/// The input as a response body; none after it was taken.
pub(super) struct Input(Option<(Dispatch, GiveBack)>);

impl Input {
    /// An input that goes to `back` if it is dropped before its bytes are taken.
    pub(super) fn new(dispatch: Dispatch, back: GiveBack) -> Self {
        Self(Some((dispatch, back)))
    }

    /// The input; none after it was taken.
    pub(super) fn dispatch(&self) -> Option<&Dispatch> {
        self.0.as_ref().map(|(dispatch, _)| dispatch)
    }

    /// Takes the input. It is not given back any more.
    pub(super) fn take(&mut self) -> Option<Dispatch> {
        self.0.take().map(|(dispatch, _)| dispatch)
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        if let Some((dispatch, back)) = self.0.take() {
            back(dispatch);
        }
    }
}

impl Body for Input {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.get_mut().take().map(|dispatch| Ok(Frame::data(dispatch.payload))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.dispatch().map_or(0, |dispatch| dispatch.payload.len() as u64))
    }
}
