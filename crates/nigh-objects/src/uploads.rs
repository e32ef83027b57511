//! Multipart uploads under way, kept in files so that they outlive this process.
//!
//! One folder an upload, named by its identifier:
//! ```text
//! upload.json           what it will become (`Manifest`); its rename into place is the upload's beginning
//! part-00001-<n>        the bytes of part 1; <n> tells a replaced part from its replacement
//! part-00001.json       what part 1 is and which file holds it (`Part`); its rename acknowledges the part
//! ```
//! Every rename is preceded by a sync of the file and followed by one of the folder. What no record names is
//! removed when the folder is opened. It keeps the files; `memory` decides what becomes of them.
//!
//! A store that makes an object of the parts may append to the first file, and takes it away when the object is
//! there. So a part counts to its length only, and an upload that lacks a part's file was completed by a process
//! that ended before it could remove it.

mod room;

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nigh_data::{
    Attributes, Checksum, ChecksumAlgorithm, ChecksumType, ETag, ObjectError, ObjectId, PartInfo, Tags, UploadId,
};
use nigh_terms::{BucketName, Namespace, ObjectKey, Timestamp};
use parking_lot::{Mutex, RwLock};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub(crate) use self::room::{ReservedRoom, UploadRoom};
use crate::spool::{SpoolFile, failed};
use crate::sync::timeout;

/// The most uploads of one namespace.
const UPLOADS_MAX: usize = 10_000;
/// After this time an upload is abandoned: its parts take space, and the client may never come back.
pub(crate) const UPLOAD_LASTS: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long a request waits for another one that completes, or changes, the same upload.
const LOCKED_WITHIN: Duration = Duration::from_secs(60);
/// The version of the files' format.
const FORMAT: u32 = 1;

/// The field that every version of the manifest has.
#[derive(Deserialize)]
struct Format {
    format: u32,
}

/// What the upload will become.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Manifest {
    format: u32,
    pub(crate) namespace: Namespace,
    pub(crate) bucket: BucketName,
    pub(crate) key: ObjectKey,
    pub(crate) attributes: Attributes,
    pub(crate) tags: Tags,
    pub(crate) checksum: Option<(ChecksumAlgorithm, ChecksumType)>,
    pub(crate) initiated: Timestamp,
}

impl Manifest {
    pub(crate) fn new(
        object: &ObjectId,
        attributes: Attributes,
        tags: Tags,
        checksum: Option<(ChecksumAlgorithm, ChecksumType)>,
        initiated: Timestamp,
    ) -> Self {
        let ObjectId { namespace, bucket, key } = object.clone();
        Self { format: FORMAT, namespace, bucket, key, attributes, tags, checksum, initiated }
    }

    fn writes(&self, object: &ObjectId) -> bool {
        self.namespace == object.namespace && self.bucket == object.bucket && self.key == object.key
    }
}

/// One part and the file that holds it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Part {
    number: u32,
    file: u64,
    size: u64,
    etag: ETag,
    modified: Timestamp,
    checksum: Option<Checksum>,
    /// Its CRC-64/NVME, if the upload was begun without a checksum: the object gets S3's default one. Builds that do not
    /// know this field ignore it; a part that such a build took lacks it, and the object then has no checksum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    crc64: Option<u64>,
}

impl Part {
    fn info(&self) -> PartInfo {
        PartInfo {
            number: self.number,
            size: self.size,
            etag: self.etag.clone(),
            modified: self.modified,
            checksum: self.checksum.clone(),
        }
    }

    fn data(&self) -> String {
        format!("part-{:05}-{}", self.number, self.file)
    }

    fn record(number: u32) -> String {
        format!("part-{number:05}.json")
    }
}

/// A part and the bytes that it takes of its namespace's room.
#[derive(Debug)]
struct KeptPart {
    part: Part,
    _room: ReservedRoom,
}

/// One upload.
#[derive(Debug)]
pub(crate) struct Upload {
    pub(crate) id: UploadId,
    pub(crate) manifest: Manifest,
    folder: PathBuf,
    parts: Mutex<BTreeMap<u32, KeptPart>>,
    /// Locked while the parts are changed or assembled; true once the upload has ended.
    pub(crate) ended: tokio::sync::Mutex<bool>,
}

/// All uploads.
#[derive(Debug)]
pub(crate) struct Uploads {
    folder: PathBuf,
    open: RwLock<HashMap<UploadId, Arc<Upload>>>,
    /// The bytes of their parts.
    pub(crate) room: UploadRoom,
}

/// Writes `value` to `folder/name` so that after a crash the file is whole or unchanged. Blocks.
fn write_record(folder: &Path, name: &str, value: &impl Serialize) -> Result<(), ObjectError> {
    let text = serde_json::to_vec(value)
        .map_err(|error| ObjectError::Memory { operation: "write an upload's record", reason: error.to_string() })?;
    let new = folder.join(format!("{name}.new"));
    let write = || {
        fs::write(&new, &text)?;
        File::open(&new)?.sync_all()?;
        fs::rename(&new, folder.join(name))?;
        File::open(folder)?.sync_all()
    };
    write().map_err(failed("write an upload's record"))
}

fn read_record<T: DeserializeOwned>(path: &Path) -> Result<T, String> {
    let text = fs::read(path).map_err(|error| error.to_string())?;
    serde_json::from_slice(&text).map_err(|error| error.to_string())
}

impl Uploads {
    /// Reads the uploads in `folder`. One that cannot be read stays where it is and is named in the log. Blocks.
    pub(crate) fn open(folder: PathBuf) -> Result<Self, ObjectError> {
        fs::create_dir_all(&folder).map_err(failed("make the folder of uploads"))?;
        if let Some(parent) = folder.parent() {
            sync_folder(parent)?;
        }
        let (mut open, room) = (HashMap::new(), UploadRoom::default());
        for entry in fs::read_dir(&folder).map_err(failed("read the folder of uploads"))? {
            let path = entry.map_err(failed("read the folder of uploads"))?.path();
            if !path.join("upload.json").exists() {
                // The process ended while the upload was begun or removed.
                fs::remove_dir_all(&path).map_err(failed("remove what is left of an upload"))?;
                continue;
            }
            match Upload::read(&path, &room) {
                Ok(Some(upload)) => drop(open.insert(upload.id.clone(), Arc::new(upload))),
                Ok(None) => fs::remove_dir_all(&path).map_err(failed("remove what is left of an upload"))?,
                Err(reason) => {
                    tracing::warn!(path = %path.display(), reason, "an upload cannot be read; it is left out")
                }
            }
        }
        Ok(Self { folder, open: RwLock::new(open), room })
    }

    /// Begins an upload, which is durable when this returns. Blocks.
    pub(crate) fn begin(&self, manifest: Manifest) -> Result<UploadId, ObjectError> {
        let of_namespace =
            self.open.read().values().filter(|upload| upload.manifest.namespace == manifest.namespace).count();
        if of_namespace >= UPLOADS_MAX {
            return Err(ObjectError::SlowDown("too many uploads are under way; complete or abort some"));
        }
        let id = UploadId(uuid::Uuid::new_v4().simple().to_string());
        let folder = self.folder.join(&id.0);
        fs::create_dir(&folder).map_err(failed("make an upload's folder"))?;
        write_record(&folder, "upload.json", &manifest)?;
        sync_folder(&self.folder)?;
        let upload = Upload { id: id.clone(), manifest, folder, parts: Mutex::default(), ended: false.into() };
        self.open.write().insert(id.clone(), Arc::new(upload));
        Ok(id)
    }

    /// The upload `id`, if it writes `object`.
    pub(crate) fn find(&self, id: &UploadId, object: &ObjectId) -> Result<Arc<Upload>, ObjectError> {
        let upload = self.open.read().get(id).filter(|upload| upload.manifest.writes(object)).cloned();
        upload.ok_or_else(|| ObjectError::NoSuchUpload(id.clone()))
    }

    /// The uploads to `bucket` whose keys begin with `prefix`, by key and time.
    pub(crate) fn list(&self, namespace: &Namespace, bucket: &BucketName, prefix: &str) -> Vec<Arc<Upload>> {
        let matches = |upload: &&Arc<Upload>| {
            let manifest = &upload.manifest;
            manifest.namespace == *namespace && manifest.bucket == *bucket && manifest.key.as_str().starts_with(prefix)
        };
        let mut uploads: Vec<Arc<Upload>> = self.open.read().values().filter(matches).cloned().collect();
        uploads.sort_by(|a, b| {
            let order = |upload: &Upload| (upload.manifest.key.clone(), upload.manifest.initiated, upload.id.clone());
            order(a).cmp(&order(b))
        });
        uploads
    }

    /// The uploads that must be abandoned at `now`, except those that are being changed or completed.
    pub(crate) fn stale(&self, now: Timestamp) -> Vec<Arc<Upload>> {
        let is_stale = |upload: &&Arc<Upload>| {
            let age = Duration::from_millis(now.millis().saturating_sub(upload.manifest.initiated.millis()));
            age > UPLOAD_LASTS && upload.ended.try_lock().is_ok()
        };
        self.open.read().values().filter(is_stale).cloned().collect()
    }

    /// Removes an upload that has ended. Blocks.
    pub(crate) fn remove(&self, upload: &Upload) -> Result<(), ObjectError> {
        self.open.write().remove(&upload.id);
        // Without its manifest the folder is no upload, whatever else a crash leaves of it.
        let remove = || {
            fs::remove_file(upload.folder.join("upload.json"))?;
            File::open(&upload.folder)?.sync_all()?;
            fs::remove_dir_all(&upload.folder)
        };
        remove().map_err(failed("remove an upload"))
    }
}

fn sync_folder(folder: &Path) -> Result<(), ObjectError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed("sync a folder of uploads"))
}

impl Upload {
    /// The upload in `folder`; nothing if it was completed.
    fn read(folder: &Path, room: &UploadRoom) -> Result<Option<Self>, String> {
        let path = folder.join("upload.json");
        let Format { format } = read_record(&path)?;
        if format > FORMAT {
            return Err(format!(
                "its format is {format}, and this build reads up to {FORMAT}; start the newer nigh that wrote it"
            ));
        }
        let manifest: Manifest = read_record(&path)?;
        let id = folder.file_name().and_then(|name| name.to_str()).ok_or("its folder's name is no text")?;
        let (mut parts, mut others) = (BTreeMap::new(), Vec::new());
        for entry in fs::read_dir(folder).map_err(|error| error.to_string())? {
            let path = entry.map_err(|error| error.to_string())?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                if !path.ends_with("upload.json") {
                    let part: Part = read_record(&path)?;
                    parts.insert(part.number, part);
                }
            } else {
                others.push(path);
            }
        }
        if !parts.values().all(|part: &Part| others.iter().any(|path| path.ends_with(part.data()))) {
            return Ok(None);
        }
        for path in others {
            if !parts.values().any(|part| path.ends_with(part.data())) {
                fs::remove_file(&path).map_err(|error| error.to_string())?;
            }
        }
        let counted = |part: Part| KeptPart { _room: room.found(&manifest.namespace, part.size), part };
        let parts = parts.into_iter().map(|(number, part)| (number, counted(part))).collect();
        let id = UploadId(id.to_owned());
        Ok(Some(Self { id, manifest, folder: folder.to_owned(), parts: Mutex::new(parts), ended: false.into() }))
    }

    /// Takes `file`, already synced, as part `number`, in the place of an earlier one. `crc64` is its CRC-64/NVME, if the
    /// upload was begun without a checksum; `room` has its bytes. The caller holds `ended` and it is false. Blocks.
    pub(crate) fn add(
        &self,
        file: &SpoolFile,
        info: &PartInfo,
        crc64: Option<u64>,
        room: ReservedRoom,
    ) -> Result<(), ObjectError> {
        let replaced = self.parts.lock().get(&info.number).map(|kept| kept.part.clone());
        let part = Part {
            number: info.number,
            file: replaced.as_ref().map_or(1, |replaced| replaced.file + 1),
            size: info.size,
            etag: info.etag.clone(),
            modified: info.modified,
            checksum: info.checksum.clone(),
            crc64,
        };
        fs::rename(file.path(), self.folder.join(part.data())).map_err(failed("keep a part"))?;
        // The record must never exist without its file: that would read as a completed upload.
        sync_folder(&self.folder)?;
        write_record(&self.folder, &Part::record(part.number), &part)?;
        self.parts.lock().insert(part.number, KeptPart { part, _room: room });
        if let Some(replaced) = replaced {
            fs::remove_file(self.folder.join(replaced.data())).map_err(failed("remove a replaced part"))?;
        }
        Ok(())
    }

    /// Part `number`, if it was uploaded.
    pub(crate) fn part(&self, number: u32) -> Option<PartInfo> {
        Some(self.parts.lock().get(&number)?.part.info())
    }

    /// The CRC-64/NVME of each of the parts `numbers`; none if one is not known.
    pub(crate) fn crc64s(&self, numbers: &[u32]) -> Option<Vec<u64>> {
        let parts = self.parts.lock();
        numbers.iter().map(|number| parts.get(number)?.part.crc64).collect()
    }

    /// The parts above `after`, at most `limit`; and whether there are more.
    pub(crate) fn parts(&self, after: u32, limit: usize) -> (Vec<PartInfo>, bool) {
        let parts = self.parts.lock();
        let mut above = parts.range(after.saturating_add(1)..).map(|(_, kept)| kept.part.info());
        let page: Vec<PartInfo> = above.by_ref().take(limit).collect();
        (page, above.next().is_some())
    }

    /// The files of the parts `numbers`, each checked to be complete. Blocks.
    pub(crate) fn files(&self, numbers: &[u32]) -> Result<Vec<PathBuf>, ObjectError> {
        let named = |number: &u32| {
            let found = self.parts.lock().get(number).map(|kept| (self.folder.join(kept.part.data()), kept.part.size));
            found.ok_or(ObjectError::InvalidPart(*number))
        };
        numbers
            .iter()
            .map(|number| {
                let (path, size) = named(number)?;
                match fs::metadata(&path).map_err(failed("find a part"))?.len() {
                    length if length >= size => Ok(path),
                    _ => Err(ObjectError::InvalidPart(*number)),
                }
            })
            .collect()
    }
    /// Locks `ended`.
    ///
    /// # Errors
    /// `SlowDown` if another request has the upload for long: the home of its object may not answer.
    pub(crate) async fn lock(&self) -> Result<tokio::sync::MutexGuard<'_, bool>, ObjectError> {
        let locked = timeout(LOCKED_WITHIN, self.ended.lock()).await;
        locked.map_err(|_| ObjectError::SlowDown("another request completes or changes the upload"))
    }
}

#[cfg(test)]
mod tests;
