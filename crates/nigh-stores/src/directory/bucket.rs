//! One bucket: a folder with a description, the objects' files, and their index. Every function blocks.
//!
//! ```text
//! <bucket>/bucket.json        {"format":1,"created":<ms since 1970>}
//! <bucket>/objects/<path>     a file for each object (`key_path`, `object_file`)
//! ```

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nigh_data::{BucketInfo, ListedObject, ObjectError, ObjectMeta, Tags};
use nigh_terms::{BucketName, ObjectKey, Timestamp};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use serde::{Deserialize, Serialize};

use super::commit::{CommitError, StagedFile, StagingFolder};
use super::key_index::{KeyIndex, ListedMeta};
use super::key_path::{FOLDER_MARK, to_key, to_path};
use super::landing::KeyLocks;
use super::object_file::encode_tail;
use super::reader::{OpenObject, Want};
use super::{io_error, refused, store_error};
use crate::Payload;

pub(super) const DESCRIPTION: &str = "bucket.json";
pub(super) const OBJECTS: &str = "objects";
const FORMAT: u32 = 1;
/// The most folders of a long key's path; `key_path` makes at most 13 for 1024 bytes.
pub(super) const FOLDERS_MAX: usize = 16;
/// A listing scans at most this often when the index is dropped meanwhile.
const SCANS_MAX: usize = 3;
/// How long the deletion of a bucket waits for commits and deletes in it; new ones wait meanwhile.
const RETIRE_WAIT: Duration = Duration::from_secs(2);

#[derive(Serialize, Deserialize)]
pub(super) struct Description {
    format: u32,
    pub(super) created: Timestamp,
}

/// The field that the description has in every format.
#[derive(Deserialize)]
struct Format {
    format: u32,
}

impl Description {
    /// Parses a description.
    pub(super) fn read(text: &[u8]) -> Result<Self, String> {
        let Format { format } = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        if format > FORMAT {
            return Err(format!(
                "has format {format}, this build reads up to {FORMAT}; start the newer nigh that wrote it"
            ));
        }
        serde_json::from_slice(text).map_err(|error| error.to_string())
    }
}

/// A bucket in use.
pub(super) struct Bucket {
    info: BucketInfo,
    folder: PathBuf,
    objects: PathBuf,
    /// The folder `objects`, open for syncing.
    handle: File,
    /// False once the bucket is deleted. Locked for reading while a file is added or removed, but not while bytes are
    /// copied, because copying may take long.
    alive: RwLock<bool>,
    /// Locked while a folder of a long key is created or removed.
    folders: Mutex<()>,
    /// The keys whose change is visible, but may not be on the disk yet.
    landing: KeyLocks,
    index: Mutex<KeyIndex>,
    /// Locked while the bucket is scanned, so that there is only one scan.
    scan: Mutex<()>,
}

impl Bucket {
    /// Writes a new, empty bucket into `folder`, which must not exist, and syncs it.
    pub(super) fn write_new(folder: &Path, created: Timestamp) -> io::Result<()> {
        fs::create_dir(folder)?;
        fs::create_dir(folder.join(OBJECTS))?;
        let description = File::create_new(folder.join(DESCRIPTION))?;
        serde_json::to_writer(&description, &Description { format: FORMAT, created })?;
        description.sync_all()?;
        File::open(folder)?.sync_all()
    }

    /// The bucket in `folder`; `None` if there is none.
    pub(super) fn open(folder: PathBuf, name: &BucketName) -> Result<Option<Self>, ObjectError> {
        let path = folder.join(DESCRIPTION);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(error) => return Err(io_error("open bucket", &path)(error)),
        };
        let description = Description::read(&text).map_err(|reason| store_error("open bucket", &path, &reason))?;
        let objects = folder.join(OBJECTS);
        let handle = File::open(&objects).map_err(io_error("open bucket", &objects))?;
        let info = BucketInfo { name: name.clone(), created: description.created };
        Ok(Some(Self {
            info,
            folder,
            objects,
            handle,
            alive: RwLock::new(true),
            folders: Mutex::new(()),
            landing: KeyLocks::default(),
            index: Mutex::default(),
            scan: Mutex::new(()),
        }))
    }

    /// The bucket's name and creation date.
    pub(super) const fn info(&self) -> &BucketInfo {
        &self.info
    }

    /// Moves the bucket to `away` if it has no objects. No object can be added meanwhile or afterwards. `SlowDown` if an
    /// object is being added or removed for long.
    pub(super) fn retire(&self, away: &Path) -> Result<(), ObjectError> {
        let alive = self.alive.try_write_for(RETIRE_WAIT);
        let mut alive = alive.ok_or(ObjectError::SlowDown("writes to the bucket are under way"))?;
        if !*alive {
            return Err(ObjectError::NoSuchBucket(self.info.name.clone()));
        }
        if has_file(&self.objects, 0).map_err(io_error("delete bucket", &self.objects))? {
            return Err(ObjectError::BucketNotEmpty(self.info.name.clone()));
        }
        fs::rename(&self.folder, away).map_err(refused("delete bucket", &self.folder))?;
        *alive = false;
        Ok(())
    }

    /// Writes an object.
    pub(super) fn put(
        &self,
        staging: &StagingFolder,
        key: &ObjectKey,
        payload: &Payload,
        meta: &ObjectMeta,
    ) -> Result<(), ObjectError> {
        drop(self.stay_alive()?);
        let target = self.objects.join(to_path(key));
        let lengths = match payload {
            Payload::Files(files) if files.len() != 1 => meta.parts.as_slice(),
            _ => std::slice::from_ref(&meta.size),
        };
        let length: u64 = match payload {
            Payload::Segment(segment) => segment.as_slice().len() as u64,
            Payload::Files(_) => lengths.iter().sum(),
        };
        if length != meta.size {
            let reason = format!("the payload has {length} bytes, the metadata speaks of {}", meta.size);
            return Err(store_error("put", &target, &reason));
        }
        staging.admit(match payload {
            Payload::Segment(_) => length,
            // The first file occupies its space already.
            Payload::Files(_) => lengths.iter().skip(1).sum(),
        })?;
        let staged = staging
            .stage(payload, lengths, |crc| encode_tail(key, meta, crc).map_err(io::Error::other))
            .map_err(refused("put", &target))?;
        let _alive = self.stay_alive()?;
        self.commit(staging, staged, key, &target, meta)
    }

    /// Replaces an object's tags. The kernel copies its bytes, because one rename must commit both.
    pub(super) fn put_tags(&self, staging: &StagingFolder, key: &ObjectKey, tags: &Tags) -> Result<(), ObjectError> {
        drop(self.stay_alive()?);
        let target = self.objects.join(to_path(key));
        let object = self.open_object(key, Want::Metadata)?;
        staging.admit(object.meta.size)?;
        let meta = ObjectMeta { tags: tags.clone(), ..object.meta.clone() };
        let tail =
            encode_tail(key, &meta, object.payload_crc()).map_err(|error| store_error("put tags", &target, &error))?;
        let staged = staging.stage_copy(object.file(), meta.size, &tail).map_err(refused("put tags", &target))?;
        let _alive = self.stay_alive()?;
        self.commit(staging, staged, key, &target, &meta)
    }

    /// Prevents the deletion of the bucket until the guard is dropped. Fails if the bucket was deleted.
    fn stay_alive(&self) -> Result<RwLockReadGuard<'_, bool>, ObjectError> {
        let alive = self.alive.read();
        if *alive { Ok(alive) } else { Err(ObjectError::NoSuchBucket(self.info.name.clone())) }
    }

    fn commit(
        &self,
        staging: &StagingFolder,
        staged: StagedFile,
        key: &ObjectKey,
        target: &Path,
        meta: &ObjectMeta,
    ) -> Result<(), ObjectError> {
        let done = match target.parent() {
            Some(parent) if parent != self.objects => {
                let _folders = self.folders.lock();
                let parent = self.make_folders(parent).map_err(refused("put", parent))?;
                staging.commit(staged, target, &parent, || self.landing.begin(key))
            }
            _ => staging.commit(staged, target, &self.handle, || self.landing.begin(key)),
        };
        match done {
            Ok(()) => {
                let shown = ListedMeta { size: meta.size, etag: meta.etag.clone(), modified: meta.modified };
                self.index.lock().written(key, shown);
                Ok(())
            }
            Err(CommitError::NotDone(error)) => Err(refused("put", target)(error)),
            Err(CommitError::InDoubt(error)) => {
                self.index.lock().forget();
                Err(io_error("put", target)(error))
            }
        }
    }

    /// Creates the folders down to `parent`, each on the disk before the next, and opens the last.
    fn make_folders(&self, parent: &Path) -> io::Result<File> {
        let mut at = self.objects.clone();
        let mut handle = self.handle.try_clone()?;
        for piece in parent.strip_prefix(&self.objects).map_err(io::Error::other)? {
            at.push(piece);
            match fs::create_dir(&at) {
                Ok(()) => handle.sync_all()?,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
            handle = File::open(&at)?;
        }
        Ok(handle)
    }

    /// Opens an object's file; `NoSuchKey` if there is none. The file that it opens is on the disk: this waits for a change
    /// of the key that is under way.
    pub(super) fn open_object(&self, key: &ObjectKey, want: Want) -> Result<OpenObject, ObjectError> {
        let found = OpenObject::open(self.objects.join(to_path(key)), key, want);
        self.landing.wait(key);
        found?.ok_or_else(|| ObjectError::NoSuchKey(key.clone()))
    }

    /// Removes an object; nothing happens if it is not there.
    pub(super) fn delete(&self, key: &ObjectKey) -> Result<(), ObjectError> {
        let _alive = self.stay_alive()?;
        let target = self.objects.join(to_path(key));
        let failed = io_error("delete", &target);
        let deep = target.parent().filter(|parent| *parent != self.objects);
        let _folders = deep.map(|_| self.folders.lock());
        let landing = self.landing.begin(key);
        match fs::remove_file(&target) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(refused("delete", &target)(error)),
        }
        let synced = match deep {
            None => self.handle.sync_all(),
            Some(parent) => File::open(parent).and_then(|parent| parent.sync_all()),
        };
        if let Err(error) = synced {
            self.index.lock().forget();
            return Err(failed(error));
        }
        drop(landing);
        self.index.lock().deleted(key);
        if let Some(parent) = deep {
            // Empty folders are removed; the first that is not empty cannot be, which ends the loop.
            for folder in parent.ancestors().take_while(|folder| *folder != self.objects) {
                if fs::remove_dir(folder).is_err() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// A page of the bucket, without files that are no objects; a warning names these.
    pub(super) fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ListedObject>, ObjectError> {
        let mut listed = Vec::new();
        let mut after = after.map(str::to_owned);
        while listed.len() < limit {
            let (page, more) = self.page(prefix, after.as_deref(), limit - listed.len())?;
            after = page.last().map(|(key, _)| key.as_str().to_owned());
            for (key, shown) in page {
                if let Some(ListedMeta { size, etag, modified }) = shown.or_else(|| self.look_up(&key)) {
                    listed.push(ListedObject { key, size, etag, modified });
                }
            }
            if !more {
                break;
            }
        }
        Ok(listed)
    }

    fn page(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<super::key_index::Page, ObjectError> {
        for _ in 0..=SCANS_MAX {
            if let Some(page) = self.index.lock().page(prefix, after, limit) {
                return Ok(page);
            }
            self.scan()?;
        }
        Err(ObjectError::SlowDown("the bucket's index is being rebuilt"))
    }

    /// Reads what a listing shows of an object of which the scan knows only the name. None if the object is gone or
    /// damaged.
    fn look_up(&self, key: &ObjectKey) -> Option<ListedMeta> {
        match OpenObject::open(self.objects.join(to_path(key)), key, Want::Metadata) {
            Ok(Some(object)) => {
                let shown =
                    ListedMeta { size: object.meta.size, etag: object.meta.etag, modified: object.meta.modified };
                self.index.lock().learned(key, &shown);
                Some(shown)
            }
            Ok(None) => None,
            Err(error) => {
                tracing::warn!(bucket = %self.info.name, %key, %error, "the listing lacks an object that cannot be read");
                None
            }
        }
    }

    fn scan(&self) -> Result<(), ObjectError> {
        let _one = self.scan.lock();
        if matches!(*self.index.lock(), KeyIndex::Known(_)) {
            return Ok(());
        }
        self.index.lock().begin_scan();
        let mut found = Vec::new();
        if let Err(error) = collect_keys(&self.objects, &mut PathBuf::new(), 0, &mut found) {
            self.index.lock().forget();
            return Err(io_error("list", &self.objects)(error));
        }
        self.index.lock().end_scan(found);
        Ok(())
    }
}

/// Adds the keys of all files below `objects/at`.
fn collect_keys(objects: &Path, at: &mut PathBuf, depth: usize, found: &mut Vec<ObjectKey>) -> io::Result<()> {
    let entries = match fs::read_dir(objects.join(&at)) {
        Ok(entries) => entries,
        // A long key's folder was removed with its last object.
        Err(error) if depth > 0 && error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let is_folder = name.as_encoded_bytes().ends_with(FOLDER_MARK.to_string().as_bytes());
        at.push(&name);
        if is_folder && depth < FOLDERS_MAX {
            collect_keys(objects, at, depth + 1, found)?;
        } else if let Some(key) = to_key(at) {
            found.push(key);
        } else {
            tracing::warn!(file = %objects.join(&at).display(), "the listing lacks a file that is no object");
        }
        at.pop();
    }
    Ok(())
}

/// True if there is anything but empty folders below `folder`.
fn has_file(folder: &Path, depth: usize) -> io::Result<bool> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if depth >= FOLDERS_MAX || !entry.file_type()?.is_dir() || has_file(&entry.path(), depth + 1)? {
            return Ok(true);
        }
    }
    Ok(false)
}
