//! Prepares segments ahead of need, on a thread of its own: a new segment is zeroed, an old one gets a new header.
//!
//! An old segment is not zeroed, because no old record has the new generation and salt.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvError, Sender, channel};
use std::thread::JoinHandle;

use super::disk::{Folder, SegmentFile};
use super::format::{SECTOR, SegmentHeader};
use super::newest::NewestFile;

/// The name of a file before it is a segment.
pub(super) const UNFINISHED: &str = ".new";

/// An empty segment.
pub(super) struct PreparedSegment {
    pub(super) name: String,
    pub(super) file: Arc<dyn SegmentFile>,
    pub(super) header: SegmentHeader,
}

/// A segment to prepare.
pub(super) struct SegmentRequest {
    pub(super) name: String,
    /// The file to use again; none for a new one.
    pub(super) file: Option<Arc<dyn SegmentFile>>,
    pub(super) header: SegmentHeader,
}

/// Why a segment could not be prepared.
#[derive(Debug)]
pub(super) enum NotReady {
    /// There is no room for a new segment; nothing is lost.
    New(io::Error),
    /// A write or a sync failed: the content of the disk is unknown.
    Fault(io::Error),
}

/// Prepares a segment. When this returns it is durable, and so is that it may have records.
pub(super) fn prepare(
    folder: &dyn Folder,
    newest: &mut NewestFile,
    wanted: SegmentRequest,
) -> Result<PreparedSegment, NotReady> {
    let SegmentRequest { name, file, header } = wanted;
    let file = match file {
        Some(file) => {
            begin_anew(&*file, &header).map_err(NotReady::Fault)?;
            file
        }
        None => {
            let unfinished = format!("{name}{UNFINISHED}");
            let made = (|| {
                let file = folder.create(&unfinished)?;
                begin_anew(&*file, &header)?;
                folder.rename(&unfinished, &name)?;
                Ok(file)
            })();
            made.map_err(|error| {
                // If this fails, the next start removes the file.
                let _ = folder.remove(&unfinished);
                NotReady::New(error)
            })?
        }
    };
    newest.raise(header.generation).map_err(NotReady::Fault)?;
    Ok(PreparedSegment { name, file, header })
}

/// Writes both copies of a header durably, and extends a file that is too short.
pub(super) fn begin_anew(file: &dyn SegmentFile, header: &SegmentHeader) -> io::Result<()> {
    if file.bytes()? < u64::from(header.bytes) {
        file.extend(u64::from(header.bytes))?;
    }
    let mut sector = [0; SECTOR as usize];
    let encoded = header.encode();
    sector[..encoded.len()].copy_from_slice(&encoded);
    for offset in [0, header.records_end()] {
        file.write_at(&[IoSlice::new(&sector)], u64::from(offset))?;
    }
    file.sync()
}

/// The client of the thread. When it is dropped, the thread has ended and has no open file.
pub(super) struct Preparer {
    jobs: Option<Sender<SegmentRequest>>,
    thread: Option<JoinHandle<()>>,
    done: Receiver<Result<PreparedSegment, NotReady>>,
    /// True while a segment is being prepared.
    busy: bool,
}

impl Preparer {
    pub(super) fn start(folder: Arc<dyn Folder>, mut newest: NewestFile) -> io::Result<Self> {
        let (jobs, queue) = channel::<SegmentRequest>();
        let (answers, done) = channel();
        let thread = std::thread::Builder::new().name("journal-ahead".to_owned()).spawn(move || {
            while let Ok(wanted) = queue.recv() {
                if answers.send(prepare(&*folder, &mut newest, wanted)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread), done, busy: false })
    }

    pub(super) const fn is_busy(&self) -> bool {
        self.busy
    }

    /// Begins to prepare a segment. No other one may be under way.
    pub(super) fn begin(&mut self, wanted: SegmentRequest) {
        debug_assert!(!self.busy, "one at a time");
        // If the thread has ended, `wait` reports that.
        self.busy = true;
        drop(self.jobs.as_ref().map(|jobs| jobs.send(wanted)));
    }

    /// The result of the segment under way; none if it is not ready.
    pub(super) fn poll(&mut self) -> Option<Result<PreparedSegment, NotReady>> {
        let done = self.done.try_recv().ok()?;
        self.busy = false;
        Some(done)
    }

    /// Waits for the segment under way.
    pub(super) fn wait(&mut self) -> Result<PreparedSegment, NotReady> {
        self.busy = false;
        let gone = |RecvError| NotReady::Fault(io::Error::other("the thread that prepares segments has ended"));
        self.done.recv().map_err(gone)?
    }
}

impl Drop for Preparer {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that prepares segments has panicked");
        }
    }
}
