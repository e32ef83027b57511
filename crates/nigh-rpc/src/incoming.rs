//! An incoming body, read into the reader's memory, in pieces, or as a whole.

use std::fmt;
use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use async_recursion::async_recursion as boxed;
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::io::poll_read_buf;

use crate::error::BodyError;
use crate::link::Link;
use crate::pool::Lease;

/// The largest piece that `next` returns.
const PIECE_BYTES: usize = 256 << 10;

/// An incoming body. If it is dropped before its end and much is left, the connection is closed.
pub struct IncomingBody<'a> {
    from: BodySource<'a>,
    bytes: u64,
    deadline: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

#[expect(clippy::large_enum_variant, reason = "a box would be one allocation more a call")]
enum BodySource<'a> {
    /// There is no body.
    Nothing,
    Server(&'a mut Link),
    Client(Lease),
}

impl IncomingBody<'static> {
    pub(crate) const fn of_answer(lease: Lease, bytes: u64, deadline: Instant) -> Self {
        Self { from: BodySource::Client(lease), bytes, deadline: Some(deadline), timer: None }
    }

    pub(crate) const fn nothing() -> Self {
        Self { from: BodySource::Nothing, bytes: 0, deadline: None, timer: None }
    }
}

impl<'a> IncomingBody<'a> {
    pub(crate) const fn of_call(link: &'a mut Link, bytes: u64) -> Self {
        Self { from: BodySource::Server(link), bytes, deadline: None, timer: None }
    }

    fn link(&mut self) -> Option<&mut Link> {
        match &mut self.from {
            BodySource::Nothing => None,
            BodySource::Server(link) => Some(link),
            BodySource::Client(lease) => Some(lease.link()),
        }
    }

    /// The length of the whole.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.bytes
    }

    /// True if there is no body.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The bytes that have not been read yet.
    pub fn left(&mut self) -> u64 {
        self.link().map_or(0, |link| link.left)
    }

    /// Fills `into` with the next bytes; the kernel, or the decryption, writes large pieces directly into it.
    ///
    /// # Errors
    /// If less is left, the connection breaks, or the deadline is over.
    #[boxed]
    pub async fn read_exact(&mut self, into: &mut [u8]) -> Result<(), BodyError> {
        let (wanted, left) = (into.len() as u64, self.left());
        if wanted > left {
            return Err(BodyError::Short { left, wanted });
        }
        let mut into = ReadBuf::new(into);
        poll_fn(|cx| {
            while into.remaining() > 0 {
                ready!(self.poll_some(cx, |link, cx| {
                    let before = into.filled().len();
                    ready!(Pin::new(link).poll_read(cx, &mut into))?;
                    Poll::Ready(Ok(into.filled().len() - before))
                }))?;
            }
            Poll::Ready(Ok(()))
        })
        .await
    }

    /// The next piece; none at the end.
    ///
    /// # Errors
    /// If the connection breaks, or the deadline is over.
    #[boxed]
    pub async fn next(&mut self) -> Result<Option<Bytes>, BodyError> {
        let left = self.left();
        if left == 0 {
            return Ok(None);
        }
        let mut piece = BytesMut::with_capacity(PIECE_BYTES.min(left as usize));
        self.append(&mut piece).await?;
        Ok(Some(piece.freeze()))
    }

    /// The rest of the body, in one piece.
    ///
    /// # Errors
    /// If the rest is longer than `max_bytes`, the connection breaks, or the deadline is over.
    pub async fn collect(mut self, max_bytes: u64) -> Result<Bytes, BodyError> {
        let left = self.left();
        if left > max_bytes {
            return Err(BodyError::TooLarge { bytes: left, max: max_bytes });
        }
        let mut whole = BytesMut::with_capacity(left as usize);
        while self.left() > 0 {
            self.append(&mut whole).await?;
        }
        Ok(whole.freeze())
    }

    async fn append(&mut self, to: &mut BytesMut) -> Result<(), BodyError> {
        poll_fn(|cx| {
            self.poll_some(cx, |link, cx| {
                let left = link.left;
                poll_read_buf(Pin::new(&mut link.take(left)), cx, to)
            })
        })
        .await
    }

    /// Reads once by `read`, which returns the number of bytes that it read.
    fn poll_some(
        &mut self,
        cx: &mut Context<'_>,
        read: impl FnOnce(&mut Link, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<Result<(), BodyError>> {
        let Some(link) = self.link() else { return Poll::Ready(Ok(())) };
        match read(link, cx)? {
            Poll::Ready(0) => Poll::Ready(Err(io::Error::from(io::ErrorKind::UnexpectedEof).into())),
            Poll::Ready(count) => {
                link.left -= count as u64;
                Poll::Ready(Ok(()))
            }
            Poll::Pending => {
                let Some(deadline) = self.deadline else { return Poll::Pending };
                let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
                timer.as_mut().poll(cx).map(|()| Err(BodyError::Late))
            }
        }
    }
}

/// Failures are errors of kind `Other`, or `TimedOut` after the deadline.
impl AsyncRead for IncomingBody<'_> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.left() == 0 || into.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let read = this.poll_some(cx, |link, cx| {
            let (left, before) = (link.left, into.filled().len());
            ready!(Pin::new(&mut link.take(left)).poll_read(cx, into))?;
            Poll::Ready(Ok(into.filled().len() - before))
        });
        read.map_err(|error| match error {
            BodyError::Broken(error) => error,
            BodyError::Late => io::Error::new(io::ErrorKind::TimedOut, error),
            other => io::Error::other(other),
        })
    }
}

impl fmt::Debug for IncomingBody<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Incoming({} bytes)", self.bytes)
    }
}
