//! An input on its way to a sandbox, as the body of an answer. It is given back if nobody takes its bytes: the
//! connection that asked for it may go at any time.
//!
//! Once its bytes are handed to the connection it counts as taken, whether they arrive or not: an input must not run
//! twice.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::runtime_api::Dispatch;

/// Takes an input that was not taken.
pub(crate) type GiveBack = Box<dyn FnOnce(Dispatch) + Send>;

/// The input.
pub(crate) struct Input(Option<(Dispatch, GiveBack)>);

impl Input {
    /// An input that goes to `back` if it is dropped before its bytes are taken.
    pub(crate) fn new(dispatch: Dispatch, back: GiveBack) -> Self {
        Self(Some((dispatch, back)))
    }

    /// What it is.
    pub(crate) fn dispatch(&self) -> Option<&Dispatch> {
        self.0.as_ref().map(|(dispatch, _)| dispatch)
    }

    /// Takes it: it is not given back any more.
    pub(crate) fn take(&mut self) -> Option<Dispatch> {
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
