//! A body that a blocking writer makes while it is sent. The writer is at most a few chunks ahead.

use std::io::{self, BufWriter, Write};

use bytes::Bytes;
use futures::Stream;
use tokio::sync::mpsc;

/// The bytes of a chunk.
const CHUNK: usize = 256 * 1024;
/// The most chunks that wait for the reader.
const AHEAD: usize = 8;

struct Pipe(mpsc::Sender<io::Result<Bytes>>);

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let gone = |_| io::Error::new(io::ErrorKind::BrokenPipe, "the reader has gone");
        self.0.blocking_send(Ok(Bytes::copy_from_slice(bytes))).map_err(gone)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The body that `write` writes, on a thread that may block. An error of `write` cuts the body off.
pub(crate) fn of_writer(
    write: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'static,
) -> impl Stream<Item = io::Result<Bytes>> {
    let (sender, receiver) = mpsc::channel(AHEAD);
    tokio::task::spawn_blocking(move || {
        let mut to = BufWriter::with_capacity(CHUNK, Pipe(sender.clone()));
        let outcome = write(&mut to).and_then(|()| to.flush());
        // A dropped writer would send its buffer after the error.
        let _unwritten = to.into_parts();
        if let Err(error) = outcome {
            let _the_reader_has_gone = sender.blocking_send(Err(error));
        }
    });
    futures::stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)))
}

#[cfg(test)]
mod tests {
    use futures::StreamExt as _;

    use super::*;

    #[tokio::test]
    async fn all_that_is_written_comes_and_an_error_comes_last() {
        let written: Vec<u8> = (0..3 * CHUNK + 7).map(|n| n as u8).collect();
        let whole = written.clone();
        let parts: Vec<_> = of_writer(move |to| to.write_all(&whole)).collect().await;
        let came: Vec<u8> = parts.into_iter().flat_map(|part| part.unwrap()).collect();
        assert!(came == written);
        let parts: Vec<_> = of_writer(|to| {
            to.write_all(b"begun")?;
            Err(io::Error::other("the disk"))
        })
        .collect()
        .await;
        assert_eq!(parts.last().unwrap().as_ref().unwrap_err().to_string(), "the disk");
    }
}
