//! Standard output for objects. Their bytes stay as they are; on a terminal a last line without a newline gets one, so that
//! the prompt does not stand behind it.

use std::io::{self, IsTerminal as _};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncWrite, AsyncWriteExt as _, Stdout};

/// Standard output, and what was last written to it.
pub(super) struct StandardOutput<W = Stdout> {
    out: W,
    is_terminal: bool,
    last: Option<u8>,
}

impl StandardOutput {
    /// That of this process.
    pub(super) fn open() -> Self {
        Self { out: tokio::io::stdout(), is_terminal: io::stdout().is_terminal(), last: None }
    }
}

impl<W: AsyncWrite + Unpin> StandardOutput<W> {
    /// Ends the last line, on a terminal.
    pub(super) async fn end_line(&mut self) -> io::Result<()> {
        if self.is_terminal && self.last.is_some_and(|last| last != b'\n') {
            self.write_all(b"\n").await?;
        }
        self.flush().await
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for StandardOutput<W> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.out).poll_write(context, bytes);
        if let Poll::Ready(Ok(count)) = &written
            && let Some(last) = bytes[..*count].last()
        {
            self.last = Some(*last);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.out).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.out).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn printed(is_terminal: bool, parts: &[&[u8]]) -> Vec<u8> {
        let mut output = StandardOutput { out: Vec::<u8>::new(), is_terminal, last: None };
        for part in parts {
            output.write_all(part).await.unwrap();
        }
        output.end_line().await.unwrap();
        output.out
    }

    #[tokio::test]
    async fn a_last_line_is_ended_on_a_terminal_and_nowhere_else() {
        let cases: [(&[&[u8]], &[u8]); 4] =
            [(&[b"a", b"b"], b"ab\n"), (&[b"a\n"], b"a\n"), (&[b"a\n", b"", b"b\n"], b"a\nb\n"), (&[], b"")];
        for (parts, on_terminal) in cases {
            assert_eq!(printed(true, parts).await, on_terminal);
            assert_eq!(printed(false, parts).await, parts.concat());
        }
    }
}
