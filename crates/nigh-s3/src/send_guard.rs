//! A connection that fails once its peer has taken nothing for too long while something was to be sent.
//!
//! Whoever asks for an object and never reads the answer would hold the object's bytes in memory for as long as it
//! likes. A peer that reads slowly is let be: each byte it takes begins the time anew.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// The connection.
#[derive(Debug)]
pub(crate) struct SendGuard<S> {
    stream: S,
    silence_max: Duration,
    /// Made at the first write that has to wait: most connections never have one.
    silence: Option<Pin<Box<Sleep>>>,
    /// The last write could not be done at once; `silence` runs.
    waits: bool,
}

impl<S> SendGuard<S> {
    /// A connection on which a write that waits for more than `silence_max` fails.
    pub(crate) const fn new(stream: S, silence_max: Duration) -> Self {
        Self { stream, silence_max, silence: None, waits: false }
    }

    /// What a write came to, or that it has waited for too long.
    fn guard<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waits = false;
            return written;
        }
        let deadline = Instant::now() + self.silence_max;
        let silence = self.silence.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if !self.waits {
            silence.as_mut().reset(deadline);
            self.waits = true;
        }
        ready!(silence.as_mut().poll(context));
        let message = format!("the client took nothing for {:?}", self.silence_max);
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, message)))
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
        self.guard(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.guard(context, written)
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const SILENCE: Duration = Duration::from_millis(200);

    #[tokio::test]
    async fn a_peer_that_takes_nothing_is_given_up() {
        let (near, _far) = tokio::io::duplex(10);
        let mut near = SendGuard::new(near, SILENCE);
        let refused = tokio::time::timeout(Duration::from_secs(60), near.write_all(&[0; 11])).await;
        assert_eq!(refused.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_peer_that_takes_little_at_a_time_is_let_be() {
        let (near, mut far) = tokio::io::duplex(1);
        // What it takes in all lasts longer than the silence allowed, and no pause does.
        let mut near = SendGuard::new(near, SILENCE * 10);
        let began = Instant::now();
        let reader = tokio::spawn(async move {
            let mut taken = 0;
            while began.elapsed() < SILENCE * 12 {
                tokio::time::sleep(SILENCE / 4).await;
                taken += far.read(&mut [0; 1]).await.unwrap();
            }
            taken
        });
        let mut written = 0;
        // It ends when the reader goes, and then for that reason.
        let ended = loop {
            match near.write(&[0; 1]).await {
                Ok(one) => written += one,
                Err(error) => break error.kind(),
            }
        };
        assert_eq!(ended, io::ErrorKind::BrokenPipe);
        assert!(reader.await.unwrap() > 1 && written > 1);
    }
}
