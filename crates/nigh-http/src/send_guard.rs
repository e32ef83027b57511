//! A connection's stream that notes in the connection's pulse whether the client takes what is sent.
//!
//! Whoever asks for an object and never reads the answer would hold the object's bytes in memory for as long as it
//! likes. `watch` closes such a connection.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::pulse::Pulse;

/// The stream.
#[derive(Debug)]
pub struct SendGuard<S> {
    stream: S,
    pulse: Arc<Pulse>,
}

impl<S> SendGuard<S> {
    /// A stream whose writes `pulse` tells of.
    #[must_use]
    pub const fn new(stream: S, pulse: Arc<Pulse>) -> Self {
        Self { stream, pulse }
    }

    fn note(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Ready(written) => self.pulse.sent(written.as_ref().map_or(0, |bytes| *bytes)),
            Poll::Pending => self.pulse.waits_to_send(),
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for SendGuard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for SendGuard<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.note(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    // Sockets have nothing to flush: what was written is the kernel's.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::pulse::{AnsweringGuard, Order, Patience};
    use crate::watch::Watch;

    #[tokio::test]
    async fn a_peer_that_takes_nothing_is_given_up_though_its_request_is_being_answered() {
        let hour = Duration::from_secs(3600);
        let patience = Patience { first_head: hour, head: hour, send: Duration::from_millis(50) };
        let watch = Watch::new(patience);
        let pulse = watch.add();
        let _answering = AnsweringGuard::begin(&pulse);
        let (near, _far) = tokio::io::duplex(10);
        let mut near = SendGuard::new(near, Arc::clone(&pulse));
        let closed = std::future::poll_fn(|context| match pulse.order(context) {
            Order::Close => Poll::Ready(()),
            Order::Serve | Order::MakeRoom | Order::Drain => Poll::Pending,
        });
        let given_up = async {
            tokio::select! {
                written = near.write_all(&[0; 11]) => panic!("it took everything: {written:?}"),
                never = watch.keep() => match never {},
                () = closed => {}
            }
        };
        tokio::time::timeout(Duration::from_secs(60), given_up).await.unwrap();
    }
}
