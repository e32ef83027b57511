//! Splits what a sandbox prints into lines, in bounded memory.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::net::unix::pipe;

use super::LogSink;

/// A longer line is passed on in pieces of this length.
pub const LINE_MAX_BYTES: usize = 256 << 10;
const READ_BYTES: usize = 64 << 10;

/// The pipe that a sandbox prints into, and the sink that its lines go to.
pub(super) struct Output {
    pipe: pipe::Receiver,
    log: Arc<dyn LogSink>,
    /// Locked from before bytes leave the pipe until their lines have reached the sink, because two tasks read it.
    lines: Mutex<Lines>,
}

impl Output {
    pub(super) fn new(pipe: pipe::Receiver, log: Arc<dyn LogSink>) -> Self {
        Self { pipe, log, lines: Mutex::default() }
    }

    /// Reads to the end and gives each line to the sink.
    pub(super) async fn pass_on(&self) {
        let mut buffer = vec![0; READ_BYTES];
        while self.pipe.readable().await.is_ok() {
            match self.read(&mut buffer, |buffer| self.pipe.try_read(buffer)) {
                // Yields, so that endless output does not keep the thread from others.
                Ok(1..) => tokio::task::yield_now().await,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The only error of a pipe is its end.
                Ok(0) | Err(_) => break,
            }
        }
        self.finish_line();
    }

    /// Delivers everything in the pipe to the sink before it returns. An unfinished line is delivered as a line: later
    /// output belongs to another invocation and must not be joined to it. The end of an invocation waits for this, so
    /// it reads only what is in the pipe now, and waits for nothing else.
    pub(super) fn drain(&self) {
        let mut left = rustix::io::ioctl_fionread(&self.pipe).map_or(0, |bytes| bytes as usize);
        let mut buffer = vec![0; left.min(READ_BYTES)];
        while left > 0 {
            let most = left.min(READ_BYTES);
            // Read directly: the async runtime may not have noticed the data yet.
            match self.read(&mut buffer[..most], |buffer| Ok(rustix::io::read(&self.pipe, buffer)?)) {
                Ok(length @ 1..) => left -= length,
                // The other reader has read it.
                Ok(0) | Err(_) => break,
            }
        }
        self.finish_line();
    }

    /// Reads bytes by `take` and gives the complete lines to the sink.
    fn read(&self, buffer: &mut [u8], take: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<usize> {
        let mut lines = self.lines.lock();
        let length = take(buffer)?;
        lines.push(&buffer[..length], &mut |line| self.log.line(line));
        Ok(length)
    }

    fn finish_line(&self) {
        self.lines.lock().finish(&mut |line| self.log.line(line));
    }
}

/// The unfinished line.
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

    fn finish(&mut self, line: &mut dyn FnMut(&[u8])) {
        if !self.begun.is_empty() {
            line(&self.begun);
            self.begun.clear();
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

    #[derive(Default)]
    struct Sink(Mutex<Vec<Vec<u8>>>);

    impl LogSink for Sink {
        fn line(&self, line: &[u8]) {
            self.0.lock().push(line.to_vec());
        }
    }

    /// A pipe whose lines the task passes to the sink.
    fn output() -> (io::PipeWriter, Arc<Output>, Arc<Sink>, tokio::task::JoinHandle<()>) {
        let (ours, theirs) = io::pipe().unwrap();
        let sink = Arc::new(Sink::default());
        let pipe = pipe::Receiver::from_owned_fd(ours.into()).unwrap();
        let output = Arc::new(Output::new(pipe, Arc::clone(&sink) as Arc<dyn LogSink>));
        let reader = Arc::clone(&output);
        let task = tokio::spawn(async move { reader.pass_on().await });
        (theirs, output, sink, task)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_was_printed_before_has_come_when_the_pipe_is_drained() {
        let (theirs, output, sink, reader) = output();
        for n in 1..=200 {
            io::Write::write_all(&mut &theirs, b"line\n").unwrap();
            output.drain();
            assert_eq!(sink.0.lock().len(), n);
        }
        drop(theirs);
        reader.await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_line_that_has_no_end_when_the_pipe_is_drained_is_not_joined_to_the_next() {
        let (theirs, output, sink, reader) = output();
        io::Write::write_all(&mut &theirs, b"whole\nhalf").unwrap();
        output.drain();
        assert_eq!(*sink.0.lock(), [&b"whole"[..], b"half"]);
        output.drain();
        io::Write::write_all(&mut &theirs, b"other\n").unwrap();
        drop(theirs);
        reader.await.unwrap();
        assert_eq!(*sink.0.lock(), [&b"whole"[..], b"half", b"other"]);
    }

    #[tokio::test]
    async fn draining_waits_for_no_reader_and_ends_though_somebody_prints_on() {
        let (ours, theirs) = io::pipe().unwrap();
        let sink = Arc::new(Sink::default());
        let pipe = pipe::Receiver::from_owned_fd(ours.into()).unwrap();
        let output = Output::new(pipe, Arc::clone(&sink) as Arc<dyn LogSink>);
        let full = Arc::new(std::sync::Barrier::new(2));
        let printed = Arc::clone(&full);
        let prints = std::thread::spawn(move || {
            io::Write::write_all(&mut &theirs, b"first\n").unwrap();
            printed.wait();
            while io::Write::write_all(&mut &theirs, b"more\n").is_ok() {}
        });
        full.wait();
        output.drain();
        assert_eq!(sink.0.lock()[0], b"first");
        drop(output);
        prints.join().unwrap();
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
