//! The body of a request on its way from the connection to `s3s`. It fails if the client is silent for too long or if
//! the invocation that sends it ends; it is re-framed and counted.
//!
//! The request's notes record how the body ended, because `s3s` passes on only the text of an error.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use metrics::Counter;
use nigh_data::Digest;
use nigh_http::least_rate::{LeastRate, TooSlow};
use thiserror::Error;
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::chunk_frames::{ChunkFrames, FrameError};
use crate::notes::{Fate, RequestNotes};

/// Why a body ended early. The request's notes record it too.
#[derive(Debug, Error)]
pub(crate) enum UploadBodyError {
    #[error(transparent)]
    Stalled(TooSlow),
    #[error("the connection: {0}")]
    Connection(#[from] hyper::Error),
    #[error("the aws-chunked encoding is broken, or a signed chunk is too large")]
    Chunks,
    #[error("the document is too large")]
    DocumentTooLarge,
    #[error("the invocation has ended")]
    InvocationEnded,
}

/// The body of one request.
pub(crate) struct UploadBody {
    inner: Incoming,
    notes: Arc<RequestNotes>,
    bytes_in: Counter,
    rate: LeastRate,
    /// Completes when the invocation ends. None until the body is first waited for.
    invocation: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    frames: Option<ChunkFrames>,
    /// How many bytes of a document may still arrive. None if the body is not a document.
    left: Option<usize>,
}

impl UploadBody {
    /// A body that fails if its client sends less than the least rate, and has paused for `patience` in all.
    pub(crate) const fn new(inner: Incoming, notes: Arc<RequestNotes>, bytes_in: Counter, patience: Duration) -> Self {
        let rate = LeastRate::new(patience);
        Self { inner, notes, bytes_in, rate, invocation: None, frames: None, left: None }
    }

    /// Makes this an aws-chunked body; `signed` is true if each chunk has a signature.
    pub(crate) fn chunked(mut self, signed: bool) -> Self {
        self.frames = Some(ChunkFrames::new(signed));
        self
    }

    /// Makes this a document of at most `bytes_max` bytes, over which `digest` is computed in the notes.
    pub(crate) fn document(mut self, bytes_max: usize, digest: Digest) -> Self {
        self.notes.set_digest(digest);
        self.left = Some(bytes_max);
        self
    }

    fn fail(&self, fate: Fate, error: UploadBodyError) -> Poll<Option<Result<Frame<Bytes>, UploadBodyError>>> {
        self.notes.set_fate(fate);
        Poll::Ready(Some(Err(error)))
    }

    /// Ready when the invocation that sends the body ends. Never ready if no invocation sends it.
    fn poll_invocation(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(call) = self.notes.call() else { return Poll::Pending };
        if self.invocation.is_none() {
            self.invocation = call.cancelled().map(Box::pin);
        }
        self.invocation.as_mut().map_or(Poll::Pending, |ended| ended.as_mut().poll(context))
    }

    fn poll_inner(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, UploadBodyError>>> {
        // This is polled first, because the client may send bytes as fast as they are read.
        if self.poll_invocation(context).is_ready() {
            return self.fail(Fate::InvocationEnded, UploadBodyError::InvocationEnded);
        }
        match Pin::new(&mut self.inner).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    self.bytes_in.increment(data.len() as u64);
                    if let Some(left) = &mut self.left {
                        match left.checked_sub(data.len()) {
                            Some(rest) => {
                                *left = rest;
                                self.notes.update_digest(data);
                            }
                            None => return self.fail(Fate::DocumentTooLarge, UploadBodyError::DocumentTooLarge),
                        }
                    }
                }
                self.rate.received(frame.data_ref().map_or(0, Bytes::len));
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => self.fail(Fate::Broken, error.into()),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => match self.rate.poll_too_slow(context) {
                Poll::Ready(too_slow) => self.fail(Fate::Stalled, UploadBodyError::Stalled(too_slow)),
                Poll::Pending => Poll::Pending,
            },
        }
    }
}

impl Body for UploadBody {
    type Data = Bytes;
    type Error = UploadBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadBodyError>>> {
        let this = self.get_mut();
        loop {
            if let Some(bytes) = this.frames.as_mut().and_then(ChunkFrames::pop) {
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            let frame = match std::task::ready!(this.poll_inner(context)) {
                Some(Ok(frame)) => frame,
                end => return Poll::Ready(end),
            };
            let Some(frames) = &mut this.frames else { return Poll::Ready(Some(Ok(frame))) };
            let Ok(data) = frame.into_data() else { continue };
            match frames.push(data) {
                Ok(()) => {}
                Err(FrameError::Malformed) => return this.fail(Fate::Malformed, UploadBodyError::Chunks),
                Err(FrameError::ChunkTooLarge) => return this.fail(Fate::ChunkTooLarge, UploadBodyError::Chunks),
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self.frames {
            Some(_) => SizeHint::default(),
            None => self.inner.size_hint(),
        }
    }
}
