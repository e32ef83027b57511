//! The files of a journal, behind two small traits, so that tests can shorten, tear and fail every write.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Advice, FallocateFlags};

use crate::LockFile;

/// The most parts of one `pwritev` (`IOV_MAX`).
const PARTS_MAX: usize = 1024;
/// The bytes zeroed and synced at a time, so that no commit waits for a whole segment of zeros.
const ZEROES: usize = 1 << 20;
/// The lock file of the process that has the journal open.
const LOCK: &str = "lock";

/// One segment's file.
pub(super) trait SegmentFile: Send + Sync {
    /// The file's length in bytes.
    fn bytes(&self) -> io::Result<u64>;
    /// Fills `to` from `offset`; fails if the file is too short.
    fn read_at(&self, to: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes `parts` one after another from `offset`. Not durable.
    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()>;
    /// Makes all written bytes durable.
    fn sync(&self) -> io::Result<()>;
    /// Hints that the disk should begin writing these bytes.
    fn begin_writing(&self, offset: u64, bytes: u64);
    /// Hints that later reads should come from the disk, not from the page cache.
    fn drop_cache(&self);
    /// Extends the file to `bytes` with durable zeros, so that later writes need no new metadata.
    fn extend(&self, bytes: u64) -> io::Result<()>;
}

/// The folder of the segments.
pub(super) trait Folder: Send + Sync {
    /// All names in the folder.
    fn names(&self) -> io::Result<Vec<String>>;
    /// Opens a file.
    fn open(&self, name: &str) -> io::Result<Arc<dyn SegmentFile>>;
    /// Creates an empty file, in place of a file of this name.
    fn create(&self, name: &str) -> io::Result<Arc<dyn SegmentFile>>;
    /// Renames a file durably.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Copies a file, durably.
    fn copy(&self, from: &str, to: &str) -> io::Result<()>;
}

/// A folder of the file system, locked by this process until it is dropped.
pub(super) struct DiskFolder {
    path: PathBuf,
    _lock: LockFile,
}

impl DiskFolder {
    /// Opens `path`, and creates it if `make`. None if another process has it open.
    pub(super) fn hold(path: &Path, make: bool) -> io::Result<Option<Self>> {
        if make {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        }
        let lock = LockFile::take(&path.join(LOCK), make)?;
        Ok(lock.map(|lock| Self { path: path.to_owned(), _lock: lock }))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }
}

impl Folder for DiskFolder {
    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            // A name that is not UTF-8 is none of the journal's.
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn SegmentFile>> {
        let file = OpenOptions::new().read(true).write(true).open(self.path.join(name))?;
        Ok(Arc::new(DiskFile(file)))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn SegmentFile>> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).mode(0o600).open(self.path.join(name))?;
        Ok(Arc::new(DiskFile(file)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path.join(from), self.path.join(to))?;
        self.sync()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path.join(name))
    }

    fn copy(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::copy(self.path.join(from), self.path.join(to))?;
        File::open(self.path.join(to))?.sync_all()?;
        self.sync()
    }
}

struct DiskFile(File);

impl SegmentFile for DiskFile {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, to: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(to, offset)
    }

    fn write_at(&self, parts: &[IoSlice<'_>], mut offset: u64) -> io::Result<()> {
        for parts in parts.chunks(PARTS_MAX) {
            let whole: usize = parts.iter().map(|part| part.len()).sum();
            let mut written = rustix::io::retry_on_intr(|| rustix::io::pwritev(&self.0, parts, offset))?;
            if written < whole {
                // A short write: a signal came, or the disk is full, which the next write reports.
                let mut at = 0;
                for part in parts {
                    let left = part.get(written.saturating_sub(at)..).unwrap_or_default();
                    self.0.write_all_at(left, offset + (at + part.len() - left.len()) as u64)?;
                    at += part.len();
                }
                written = whole;
            }
            offset += written as u64;
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn begin_writing(&self, offset: u64, bytes: u64) {
        let (Ok(offset), Ok(bytes)) = (i64::try_from(offset), i64::try_from(bytes)) else { return };
        // SAFETY: the descriptor is open as long as `self`, and the call takes no pointer. It only starts the writing
        // that the sync will wait for, so its failure needs no handling: the sync reports it.
        unsafe { libc::sync_file_range(self.0.as_raw_fd(), offset, bytes, libc::SYNC_FILE_RANGE_WRITE) };
    }

    fn drop_cache(&self) {
        // A file system that takes no advice has no cache that could be dropped.
        let _ = rustix::fs::fadvise(&self.0, 0, None, Advice::DontNeed);
    }

    fn extend(&self, bytes: u64) -> io::Result<()> {
        let old = self.bytes()?;
        // Allocated at once, so that a full disk is noticed before anything is written; then zeroed, so that no later
        // sync has extents to convert. Not every file system can allocate ahead.
        match rustix::fs::fallocate(&self.0, FallocateFlags::empty(), 0, bytes) {
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
            Err(errno) => return Err(errno.into()),
        }
        let zeroes = vec![0; ZEROES];
        let mut at = old;
        while at < bytes {
            let part = (bytes - at).min(ZEROES as u64);
            self.0.write_all_at(&zeroes[..part as usize], at)?;
            self.0.sync_data()?;
            at += part;
        }
        self.0.sync_all()
    }
}
