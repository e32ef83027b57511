//! The spool: files for bodies that are too large for memory, or whose length is not known.
//!
//! A spooled file is hashed and written by a blocking thread, a batch at a time, while the next batch comes
//! in; two batches are all the memory a body takes. Nothing here is durable until `SpoolFile::sync`.
//! Files left by a crash are removed when the spool is opened: none was acknowledged.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures::StreamExt;
use nigh_data::digest::Digest;
use nigh_data::{ByteStream, ObjectError};
use nigh_stores::free_space::FreeSpace;

use crate::sync::{TaskHandle, spawn_blocking};

/// The bytes handed to the blocking thread at a time.
const BATCH_BYTES: usize = 1 << 20;
/// The most pieces in a batch: a client that sends tiny chunks costs no more than these.
const BATCH_PIECES: usize = 1024;

/// The error of a file operation, for the caller.
pub(crate) fn failed(operation: &'static str) -> impl Fn(std::io::Error) -> ObjectError {
    move |error| match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => ObjectError::SlowDown("the spool's file system is full"),
        ErrorKind::ReadOnlyFilesystem => {
            ObjectError::SlowDown("the spool's file system is read-only; mount it for writing")
        }
        ErrorKind::PermissionDenied => {
            ObjectError::SlowDown("the spool cannot be written: its folder must belong to the user nigh runs as")
        }
        _ => ObjectError::Memory { operation, reason: error.to_string() },
    }
}

/// Runs file work on a thread that may block.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ObjectError> + Send + 'static,
) -> Result<T, ObjectError> {
    let ended = spawn_blocking(work).await;
    ended.unwrap_or_else(|error| Err(ObjectError::Memory { operation: "spool", reason: error.to_string() }))
}

/// A folder of spooled files.
#[derive(Clone, Debug)]
pub(crate) struct Spool {
    folder: Arc<Path>,
    /// Distinguishes this opening's files from those of an earlier one, whose removal may come late.
    opening: uuid::Uuid,
    files: Arc<AtomicU64>,
    space: FreeSpace,
}

/// A spooled file. Dropping it removes the file, unless a store took it.
#[derive(Debug)]
pub(crate) struct SpoolFile {
    path: PathBuf,
}

impl SpoolFile {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the file's bytes durable. Blocks.
    pub(crate) fn sync(&self) -> std::io::Result<()> {
        File::open(&self.path)?.sync_data()
    }
}

impl Drop for SpoolFile {
    fn drop(&mut self) {
        let path = std::mem::take(&mut self.path);
        // Freeing a large file takes a while. A file that a store took no longer exists here.
        let remove = move || drop(std::fs::remove_file(path));
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(remove)),
            Err(_) => remove(),
        }
    }
}

/// A body in the spool, with its checksums.
pub(crate) struct SpooledBody {
    pub(crate) file: SpoolFile,
    pub(crate) size: u64,
    pub(crate) digest: Digest,
}

struct Writing {
    file: File,
    digest: Digest,
    space: FreeSpace,
}

impl Writing {
    fn write(mut self, batch: &[Bytes]) -> Result<Self, ObjectError> {
        self.space.admit(batch.iter().map(|bytes| bytes.len() as u64).sum())?;
        for bytes in batch {
            self.digest.update(bytes);
            self.file.write_all(bytes).map_err(failed("write a spooled body"))?;
        }
        Ok(self)
    }
}

impl Spool {
    /// Opens the spool in `folder` and removes the files there.
    pub(crate) async fn open(folder: PathBuf) -> Result<Self, ObjectError> {
        let opened = folder.clone();
        blocking(move || {
            std::fs::create_dir_all(&opened).map_err(failed("make the spool"))?;
            for entry in std::fs::read_dir(&opened).map_err(failed("read the spool"))? {
                let path = entry.map_err(failed("read the spool"))?.path();
                match std::fs::remove_file(&path) {
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed("empty the spool")(error)),
                    _ => {}
                }
            }
            Ok(())
        })
        .await?;
        let folder: Arc<Path> = folder.into();
        let space = FreeSpace::of(Arc::clone(&folder));
        Ok(Self { folder, opening: uuid::Uuid::new_v4(), files: Arc::default(), space })
    }

    /// A new, empty file. Blocks.
    pub(crate) fn create(&self) -> Result<(SpoolFile, File), ObjectError> {
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        let path = self.folder.join(format!("{}-{number}", self.opening.simple()));
        let file = File::create_new(&path).map_err(failed("make a file in the spool"))?;
        Ok((SpoolFile { path }, file))
    }

    /// Receives a whole body, of which `announced` bytes are known to come. A body longer than `limit` is refused with
    /// `too_long` of its length so far; a body that would fill the file system is refused with `SlowDown`.
    pub(crate) async fn take(
        &self,
        mut body: ByteStream,
        digest: Digest,
        announced: u64,
        limit: u64,
        too_long: impl Fn(u64) -> ObjectError + Send,
    ) -> Result<SpooledBody, ObjectError> {
        let spool = self.clone();
        let (file, open) = blocking(move || {
            spool.space.admit(announced)?;
            spool.create()
        })
        .await?;
        let space = self.space.clone();
        let mut writing: TaskHandle<Result<Writing, ObjectError>> =
            spawn_blocking(move || Ok(Writing { file: open, digest, space }));
        let (mut size, mut batch, mut batched) = (0, Vec::new(), 0);
        while let Some(bytes) = body.next().await {
            let bytes = bytes?;
            size += bytes.len() as u64;
            if size > limit {
                return Err(too_long(size));
            }
            batched += bytes.len();
            batch.push(bytes);
            if batched >= BATCH_BYTES || batch.len() >= BATCH_PIECES {
                let (full, ready) = (std::mem::take(&mut batch), written(writing).await?);
                batched = 0;
                writing = spawn_blocking(move || ready.write(&full));
            }
        }
        let ready = written(writing).await?;
        let done = blocking(move || ready.write(&batch)).await?;
        Ok(SpooledBody { file, size, digest: done.digest })
    }
}

async fn written(writing: TaskHandle<Result<Writing, ObjectError>>) -> Result<Writing, ObjectError> {
    writing.await.unwrap_or_else(|error| Err(ObjectError::Memory { operation: "spool", reason: error.to_string() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(pieces: Vec<Result<Bytes, ObjectError>>) -> ByteStream {
        futures::stream::iter(pieces).boxed()
    }

    fn too_long(size: u64) -> ObjectError {
        ObjectError::EntityTooLarge { limit: size }
    }

    async fn files(folder: &Path) -> usize {
        // The removal runs on another thread, and awaiting the blocking pool orders nothing, so the test polls.
        for _ in 0..1000 {
            if std::fs::read_dir(folder).unwrap().count() == 0 {
                return 0;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        std::fs::read_dir(folder).unwrap().count()
    }

    #[tokio::test]
    async fn a_body_comes_out_as_it_went_in() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("left by a crash"), b"x").unwrap();
        let spool = Spool::open(folder.path().to_owned()).await.unwrap();
        let pieces: Vec<Bytes> = (0..5000u32).map(|n| Bytes::from(vec![n as u8; (n % 2000) as usize])).collect();
        let whole: Vec<u8> = pieces.concat();
        let spooled = spool
            .take(stream(pieces.into_iter().map(Ok).collect()), Digest::new(None), 0, u64::MAX, too_long)
            .await
            .unwrap();
        assert_eq!(spooled.size, whole.len() as u64);
        assert_eq!(std::fs::read(spooled.file.path()).unwrap(), whole);
        let mut digest = Digest::new(None);
        digest.update(&whole);
        assert_eq!(spooled.digest.verify(None, None).unwrap(), digest.verify(None, None).unwrap());
        drop(spooled.file);
        assert_eq!(files(folder.path()).await, 0);
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_or_is_too_long_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::open(folder.path().to_owned()).await.unwrap();
        let broken = vec![Ok(Bytes::from_static(b"begun")), Err(ObjectError::Body("reset".to_owned()))];
        let taken = spool.take(stream(broken), Digest::new(None), 0, u64::MAX, too_long).await;
        assert!(matches!(taken, Err(ObjectError::Body(_))));
        let long = vec![Ok(Bytes::from_static(b"12345")), Ok(Bytes::from_static(b"6"))];
        let taken = spool.take(stream(long), Digest::new(None), 0, 5, too_long).await;
        assert!(matches!(taken, Err(ObjectError::EntityTooLarge { limit: 6 })));
        assert_eq!(files(folder.path()).await, 0);
    }

    #[tokio::test]
    async fn a_body_that_would_fill_the_file_system_is_refused_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::open(folder.path().to_owned()).await.unwrap();
        let body = || stream(vec![Ok(Bytes::from_static(b"bytes"))]);
        let announced = spool.take(body(), Digest::new(None), u64::MAX / 2, u64::MAX, too_long).await;
        assert!(matches!(announced, Err(ObjectError::SlowDown(_))));
        // The file system fills up while the body arrives.
        let (file, open) = spool.create().unwrap();
        let writing = Writing { file: open, digest: Digest::new(None), space: FreeSpace::none(folder.path()) };
        assert!(matches!(writing.write(&[Bytes::from_static(b"bytes")]), Err(ObjectError::SlowDown(_))));
        drop(file);
        assert_eq!(files(folder.path()).await, 0);
    }

    #[test]
    fn a_spool_that_cannot_be_written_says_why() {
        for (kind, advice) in [
            (ErrorKind::StorageFull, "full"),
            (ErrorKind::ReadOnlyFilesystem, "mount it for writing"),
            (ErrorKind::PermissionDenied, "must belong to the user"),
        ] {
            let ObjectError::SlowDown(why) = failed("write a body")(kind.into()) else { panic!("{kind}") };
            assert!(why.contains(advice), "{kind}: {why}");
        }
        assert!(matches!(failed("write a body")(ErrorKind::NotFound.into()), ObjectError::Memory { .. }));
    }
}
