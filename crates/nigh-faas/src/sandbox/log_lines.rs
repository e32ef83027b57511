//! Splits what a sandbox prints into lines, in bounded memory.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::LogSink;

/// A longer line is passed on in pieces of this length.
pub const LINE_MAX_BYTES: usize = 256 << 10;
const READ_BYTES: usize = 64 << 10;

/// Reads `pipe` to its end and gives each line to `sink`.
pub(super) async fn pass_on(mut pipe: impl AsyncRead + Unpin, sink: Arc<dyn LogSink>) {
    let mut lines = Lines::default();
    let mut buffer = vec![0; READ_BYTES];
    // A pipe has no error but its end.
    while let Ok(length @ 1..) = pipe.read(&mut buffer).await {
        lines.push(&buffer[..length], &mut |line| sink.line(line));
    }
    lines.finish(&mut |line| sink.line(line));
}

/// A line that has begun.
#[derive(Default)]
struct Lines {
    begun: Vec<u8>,
}

impl Lines {
    fn push(&mut self, bytes: &[u8], line: &mut dyn FnMut(&[u8])) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (mut text, ends) = match piece.split_last() {
                Some((b'\n', text)) => (text, true),
                _ => (piece, false),
            };
            while self.begun.len() + text.len() > LINE_MAX_BYTES {
                let (fits, rest) = text.split_at(LINE_MAX_BYTES - self.begun.len());
                self.begun.extend_from_slice(fits);
                line(&self.begun);
                self.begun.clear();
                text = rest;
            }
            self.begun.extend_from_slice(text);
            if ends {
                line(&self.begun);
                self.begun.clear();
            }
        }
    }

    fn finish(self, line: &mut dyn FnMut(&[u8])) {
        if !self.begun.is_empty() {
            line(&self.begun);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut lines = Lines::default();
        let mut out = Vec::new();
        for piece in pieces {
            lines.push(piece, &mut |line| out.push(line.to_vec()));
        }
        lines.finish(&mut |line| out.push(line.to_vec()));
        out
    }

    #[test]
    fn lines_are_whole_however_they_arrive() {
        assert_eq!(split(&[b"one\ntw", b"o\n", b"\nlast"]), [&b"one"[..], b"two", b"", b"last"]);
        assert!(split(&[b""]).is_empty());
    }

    #[test]
    fn a_line_without_end_is_passed_on_in_pieces() {
        let long = vec![b'x'; LINE_MAX_BYTES * 2 + 5];
        let lengths: Vec<usize> = split(&[&long, b"\n"]).iter().map(Vec::len).collect();
        assert_eq!(lengths, [LINE_MAX_BYTES, LINE_MAX_BYTES, 5]);
        let exact = vec![b'x'; LINE_MAX_BYTES];
        assert_eq!(split(&[&exact, b"\n"]).len(), 1);
    }
}
