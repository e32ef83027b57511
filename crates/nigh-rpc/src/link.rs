//! One connection: TCP or TLS over it, read in large pieces and written by vectors.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf, sink};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsStream;

use crate::settings::Liveness;

/// The most bytes that are read at once without TLS: more than a header and a small head and body; larger reads go straight to
/// where they are wanted.
const PLAIN_READ_AHEAD_BYTES: usize = 16 << 10;
/// The same with TLS, which itself asks for 4 KiB at a time.
const TLS_READ_AHEAD_BYTES: usize = 64 << 10;
/// What TLS encrypts before it is written: two of its records, which are in the processor's cache yet when the kernel copies
/// them (128 KiB took half as long again for 1 MiB).
const TLS_WRITE_BYTES: usize = 32 << 10;

/// The rest of a body up to this length is read and dropped, so that the connection can stay open.
pub(crate) const LITTLE_BYTES: u64 = 64 << 10;
/// The time to read that rest.
const LITTLE_TIME: Duration = Duration::from_secs(1);
/// The time that a peer has to read the last message of a connection.
pub(crate) const LINGER_TIME: Duration = Duration::from_secs(1);

/// A TCP connection, read ahead.
pub(crate) struct ReadAheadStream {
    tcp: TcpStream,
    buffer: Box<[u8]>,
    from: usize,
    to: usize,
}

/// A connection.
pub(crate) struct Link {
    stream: Stream,
    /// Bytes of the body that comes in now and were not read yet.
    pub(crate) left: u64,
}

enum Stream {
    Plain(ReadAheadStream),
    Tls(Box<TlsStream<ReadAheadStream>>),
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteEnd {
    All,
    /// The peer has sent something or closed before it had everything: it does not read the rest.
    CutShort,
}

/// Makes the kernel detect a dead peer, and send written bytes without delay.
pub(crate) fn prepare(tcp: &TcpStream, liveness: Liveness) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    let probes = liveness.silence_max.as_secs().div_ceil(liveness.probe_every.as_secs().max(1));
    sockopt::set_socket_keepalive(tcp, true)?;
    sockopt::set_tcp_keepidle(tcp, liveness.probe_every)?;
    sockopt::set_tcp_keepintvl(tcp, liveness.probe_every)?;
    sockopt::set_tcp_keepcnt(tcp, probes.max(1) as u32)?;
    sockopt::set_tcp_user_timeout(tcp, liveness.silence_max.as_millis() as u32)?;
    Ok(())
}

impl ReadAheadStream {
    pub(crate) fn new(tcp: TcpStream, tls: bool) -> Self {
        let bytes = if tls { TLS_READ_AHEAD_BYTES } else { PLAIN_READ_AHEAD_BYTES };
        Self { tcp, buffer: vec![0; bytes].into_boxed_slice(), from: 0, to: 0 }
    }
}

impl AsyncRead for ReadAheadStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.from == this.to {
            if into.remaining() >= this.buffer.len() {
                return Pin::new(&mut this.tcp).poll_read(cx, into);
            }
            let mut buffer = ReadBuf::new(&mut this.buffer);
            ready!(Pin::new(&mut this.tcp).poll_read(cx, &mut buffer))?;
            (this.from, this.to) = (0, buffer.filled().len());
        }
        let count = into.remaining().min(this.to - this.from);
        into.put_slice(&this.buffer[this.from..this.from + count]);
        this.from += count;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ReadAheadStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}

impl Link {
    pub(crate) fn plain(ahead: ReadAheadStream) -> Self {
        Self { stream: Stream::Plain(ahead), left: 0 }
    }

    pub(crate) fn tls(mut stream: TlsStream<ReadAheadStream>) -> Self {
        match &mut stream {
            TlsStream::Client(stream) => stream.get_mut().1.set_buffer_limit(Some(TLS_WRITE_BYTES)),
            TlsStream::Server(stream) => stream.get_mut().1.set_buffer_limit(Some(TLS_WRITE_BYTES)),
        }
        Self { stream: Stream::Tls(Box::new(stream)), left: 0 }
    }

    fn ahead(&self) -> &ReadAheadStream {
        match &self.stream {
            Stream::Plain(ahead) => ahead,
            Stream::Tls(stream) => stream.get_ref().0,
        }
    }

    fn io(&mut self) -> Pin<&mut dyn LinkStream> {
        match &mut self.stream {
            Stream::Plain(ahead) => Pin::new(ahead),
            Stream::Tls(stream) => Pin::new(stream.as_mut()),
        }
    }

    /// Ready if the peer has sent something that nobody requested, or has closed the connection.
    pub(crate) fn poll_heard(&self, cx: &mut Context<'_>) -> Poll<()> {
        let ahead = self.ahead();
        if ahead.from < ahead.to {
            return Poll::Ready(());
        }
        let mut byte = [0];
        ahead.tcp.poll_peek(cx, &mut ReadBuf::new(&mut byte)).map(drop)
    }

    /// True if the peer has sent something that nobody requested, or has closed the connection.
    pub(crate) fn has_heard(&self) -> bool {
        self.poll_heard(&mut Context::from_waker(std::task::Waker::noop())).is_ready()
    }

    /// Writes and flushes all of `parts`. If `listens`, the write ends early when the peer sends something.
    pub(crate) async fn write(&mut self, mut parts: &mut [IoSlice<'_>], listens: bool) -> io::Result<WriteEnd> {
        IoSlice::advance_slices(&mut parts, 0);
        poll_fn(|cx| {
            loop {
                if parts.is_empty() {
                    match self.io().poll_flush(cx)? {
                        Poll::Ready(()) => return Poll::Ready(Ok(WriteEnd::All)),
                        Poll::Pending => break,
                    }
                }
                match self.io().poll_write_vectored(cx, parts)? {
                    Poll::Ready(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    Poll::Ready(count) => IoSlice::advance_slices(&mut parts, count),
                    Poll::Pending => break,
                }
            }
            if listens && self.poll_heard(cx).is_ready() {
                return Poll::Ready(Ok(WriteEnd::CutShort));
            }
            Poll::Pending
        })
        .await
    }

    /// Reads the rest of a body and drops it; false if it does not arrive.
    pub(crate) async fn drain(&mut self) -> bool {
        let left = self.left;
        let mut rest = (&mut *self).take(left);
        let read = timeout(LITTLE_TIME, tokio::io::copy(&mut rest, &mut sink())).await;
        self.left = 0;
        matches!(read, Ok(Ok(count)) if count == left)
    }

    /// Ends the connection, but first gives the peer time to read the last message: drops what the peer still sends.
    pub(crate) async fn linger(&mut self) {
        let rest = async {
            self.io().shutdown().await?;
            tokio::io::copy(&mut self.take(u64::MAX), &mut sink()).await
        };
        // It ends when the peer closes.
        let _ = timeout(LINGER_TIME, rest).await;
    }
}

/// What `Link` asks of its stream.
trait LinkStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> LinkStream for T {}

impl AsyncRead for Link {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.get_mut().io().poll_read(cx, into)
    }
}
