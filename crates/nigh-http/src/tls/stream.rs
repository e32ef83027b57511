//! A connection of a door: TCP, or TLS over it after the handshake.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The bytes that are read at once under TLS, which itself asks for 4 KiB at a time.
const READ_AHEAD_BYTES: usize = 32 << 10;
/// The first byte of a TLS connection: a record of the handshake (RFC 8446, 5.1).
const HANDSHAKE: u8 = 22;
/// The answer to a client that speaks HTTP without TLS (RFC 9110, 15.5.22).
const WITHOUT_TLS: &[u8] = b"HTTP/1.1 426 Upgrade Required\r\nContent-Type: text/plain\r\nContent-Length: 60\r\n\
    Upgrade: TLS/1.2\r\nConnection: Upgrade, close\r\n\r\nThis door speaks HTTPS: write https:// in the endpoint URL.\n";
/// The most bytes of such a client's request that are read before the answer, which the kernel would drop otherwise.
const REQUEST_BYTES: usize = 16 << 10;

/// A connection of a door.
#[derive(Debug)]
pub enum DoorStream {
    /// Without TLS.
    Plain(TcpStream),
    /// With TLS.
    Tls(Box<TlsStream<BufReader<TcpStream>>>),
}

impl DoorStream {
    /// Takes up an accepted connection; with `tls` it waits for the handshake, without a limit of time.
    ///
    /// # Errors
    /// If the connection breaks, or the client does not speak TLS, or not as `tls` requires.
    pub async fn take_up(mut tcp: TcpStream, tls: Option<Arc<ServerConfig>>) -> io::Result<Self> {
        let Some(config) = tls else { return Ok(Self::Plain(tcp)) };
        let mut first = [0];
        if tcp.peek(&mut first).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if first[0] != HANDSHAKE {
            let mut request = vec![0; REQUEST_BYTES];
            // What is not read costs the client the answer at worst.
            let _ = tcp.try_read(&mut request);
            tcp.write_all(WITHOUT_TLS).await?;
            tcp.shutdown().await?;
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the client does not speak TLS"));
        }
        let ahead = BufReader::with_capacity(READ_AHEAD_BYTES, tcp);
        // Boxed: most connections are without TLS, and need no room for this.
        let stream = Box::pin(TlsAcceptor::from(config).accept(ahead)).await?;
        Ok(Self::Tls(Box::new(stream)))
    }
}

impl AsyncRead for DoorStream {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(tcp) => Pin::new(tcp).poll_read(context, into),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_read(context, into),
        }
    }
}

impl AsyncWrite for DoorStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Plain(tcp) => Pin::new(tcp).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Plain(tcp) => Pin::new(tcp).poll_write_vectored(context, pieces),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_write_vectored(context, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        // TLS copies all pieces into its records.
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(tcp) => Pin::new(tcp).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(tcp) => Pin::new(tcp).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_shutdown(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_to_a_client_without_tls_has_the_length_that_it_states() {
        let text = str::from_utf8(WITHOUT_TLS).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{}", body.len());
    }
}
