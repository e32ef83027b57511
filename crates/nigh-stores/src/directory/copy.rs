//! Copies a whole store, object by object: a backup reads a store that is in use, and a restore makes a store of it.
//!
//! An object's file never changes once it has its name, so an open file is one whole version of the object. Objects that
//! are written or removed during the copy may be in it or not. Damaged files are reported and left out. The copy of an
//! object has its key in its metadata (`object_file`), so no name from outside becomes a path. Every function blocks.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use nigh_terms::{BucketName, Namespace, ObjectKey};
use thiserror::Error;

use super::bucket::{Bucket, DESCRIPTION, Description, FOLDERS_MAX, OBJECTS};
use super::key_path::{FOLDER_MARK, to_key, to_path};
use super::object_file::{FOOTER, FormatError, parse_footer};
use super::reader::{OpenObject, Want};
use super::{NAMESPACES, STAGING, check_format};

/// How many bytes are copied at a time.
const CHUNK: usize = 256 * 1024;

/// Why a store cannot be copied or restored.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each message says what the fields hold")]
pub enum CopyError {
    #[error("{what} {path}: {source}")]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    #[error(transparent)]
    Directory(#[from] super::DirectoryError),
    #[error("the copy of an object of bucket {bucket} is damaged: it {reason}")]
    Object { bucket: BucketName, reason: FormatError },
    #[error("the copy has the object {key} of bucket {bucket} twice; restore another copy")]
    Twice { bucket: BucketName, key: ObjectKey },
    #[error("the description of bucket {bucket} cannot be read: {reason}")]
    Bucket { bucket: BucketName, reason: String },
    #[error("the copy has objects of bucket {0} before the bucket's description; restore another copy")]
    NoBucket(BucketName),
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CopyError {
    move |source| CopyError::Io { what, path: path.to_owned(), source }
}

/// Receives a copy of a store, bucket by bucket.
pub trait CopyTo {
    /// The error with which the receiver stops the copy.
    type Error: From<CopyError>;
    /// Begins a bucket. The objects that follow are in this bucket.
    fn bucket(&mut self, namespace: &Namespace, bucket: &BucketName, description: &[u8]) -> Result<(), Self::Error>;
    /// Receives an object's file of `length` bytes.
    fn object(
        &mut self,
        namespace: &Namespace,
        bucket: &BucketName,
        file: &File,
        length: u64,
    ) -> Result<(), Self::Error>;
    /// Reports a damaged file, which is left out.
    fn damaged(&mut self, path: &Path, reason: String);
}

/// Gives `to` all buckets and objects of the store in `root`, which may be in use.
///
/// # Errors
/// If the folder holds no store of a known format, cannot be read, or `to` stops.
pub fn copy_out<T: CopyTo>(root: &Path, to: &mut T) -> Result<(), T::Error> {
    check_format(root).map_err(CopyError::Directory)?;
    for (name, folder) in folders(&root.join(NAMESPACES))? {
        let Ok(namespace) = Namespace::new(&name) else { continue };
        for (name, folder) in folders(&folder)? {
            let Ok(bucket) = BucketName::new(&name) else { continue };
            let path = folder.join(DESCRIPTION);
            let description = match fs::read(&path) {
                Ok(description) => description,
                // The bucket was deleted meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(failed("read", &path)(error).into()),
            };
            to.bucket(&namespace, &bucket, &description)?;
            objects_below(&folder.join(OBJECTS), &mut PathBuf::new(), 0, &namespace, &bucket, to)?;
        }
    }
    Ok(())
}

fn folders(path: &Path) -> Result<Vec<(String, PathBuf)>, CopyError> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed("read", path)(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed("read", path))?;
        if let Ok(name) = entry.file_name().into_string() {
            found.push((name, entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

fn objects_below<T: CopyTo>(
    objects: &Path,
    at: &mut PathBuf,
    depth: usize,
    namespace: &Namespace,
    bucket: &BucketName,
    to: &mut T,
) -> Result<(), T::Error> {
    let folder = objects.join(&at);
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        // The object was deleted meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed("read", &folder)(error).into()),
    };
    for entry in entries {
        let name = entry.map_err(failed("read", &folder))?.file_name();
        let is_folder = name.as_encoded_bytes().ends_with(FOLDER_MARK.to_string().as_bytes());
        at.push(&name);
        let path = objects.join(&at);
        if is_folder && depth < FOLDERS_MAX {
            objects_below(objects, at, depth + 1, namespace, bucket, to)?;
        } else if let Some(key) = to_key(at) {
            match OpenObject::open(path.clone(), &key, Want::Metadata) {
                Ok(Some(object)) => to.object(namespace, bucket, object.file(), object.length())?,
                // The bucket was deleted meanwhile.
                Ok(None) => {}
                Err(error) => to.damaged(&path, error.to_string()),
            }
        } else {
            to.damaged(&path, "its name is no object's".to_owned());
        }
        at.pop();
    }
    Ok(())
}

/// A store that is restored into a new folder.
pub struct StoreCopy {
    root: PathBuf,
    incoming: PathBuf,
    known: Option<(Namespace, BucketName)>,
}

impl StoreCopy {
    /// Begins a store in `root`, which must not exist.
    ///
    /// # Errors
    /// If the folder cannot be created.
    pub fn begin(root: &Path) -> Result<Self, CopyError> {
        let staging = root.join(STAGING);
        for folder in [root, &staging, &root.join(NAMESPACES)] {
            fs::create_dir(folder).map_err(failed("make", folder))?;
        }
        // Opening the store empties this folder.
        Ok(Self { root: root.to_owned(), incoming: staging.join("incoming"), known: None })
    }

    fn folder(&self, namespace: &Namespace, bucket: &BucketName) -> PathBuf {
        self.root.join(NAMESPACES).join(namespace.as_str()).join(bucket.as_str())
    }

    /// Creates an empty bucket from its description.
    ///
    /// # Errors
    /// If the description is damaged, the bucket exists, or its folder cannot be created.
    pub fn add_bucket(
        &mut self,
        namespace: &Namespace,
        bucket: &BucketName,
        description: &[u8],
    ) -> Result<(), CopyError> {
        let created = Description::read(description)
            .map_err(|reason| CopyError::Bucket { bucket: bucket.clone(), reason })?
            .created;
        let of_namespace = self.root.join(NAMESPACES).join(namespace.as_str());
        fs::create_dir_all(&of_namespace).map_err(failed("make", &of_namespace))?;
        let folder = self.folder(namespace, bucket);
        Bucket::write_new(&folder, created).map_err(failed("make", &folder))?;
        self.known = Some((namespace.clone(), bucket.clone()));
        Ok(())
    }

    /// Adds an object, from its file's content, to the bucket that was added last.
    ///
    /// # Errors
    /// If the content is no object, the object exists, or its file cannot be written.
    pub fn add_object(
        &mut self,
        namespace: &Namespace,
        bucket: &BucketName,
        body: &mut dyn Read,
    ) -> Result<(), CopyError> {
        if self.known.as_ref().is_none_or(|(of, name)| of != namespace || name != bucket) {
            return Err(CopyError::NoBucket(bucket.clone()));
        }
        let incoming = &self.incoming;
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(incoming)
            .map_err(failed("make", incoming))?;
        let length = copy(body, &file).map_err(failed("write", incoming))?;
        let refused = |reason| CopyError::Object { bucket: bucket.clone(), reason };
        let key = key_in(&file, length).map_err(failed("read", incoming))?.map_err(refused)?;
        let target = self.folder(namespace, bucket).join(OBJECTS).join(to_path(&key));
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).map_err(failed("make", parent))?;
        }
        if target.symlink_metadata().is_ok() {
            return Err(CopyError::Twice { bucket: bucket.clone(), key });
        }
        fs::rename(incoming, &target).map_err(failed("rename to", &target))
    }
}

fn copy(body: &mut dyn Read, mut file: &File) -> io::Result<u64> {
    let (mut buffer, mut length) = (vec![0; CHUNK], 0);
    loop {
        match body.read(&mut buffer) {
            Ok(0) => return Ok(length),
            Ok(read) => {
                file.write_all(&buffer[..read])?;
                length += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Reads the key of the object in `file`, which is `length` bytes long.
fn key_in(file: &File, length: u64) -> io::Result<Result<ObjectKey, FormatError>> {
    use std::os::unix::fs::FileExt as _;

    let mut end = [0; FOOTER];
    let Some(at) = length.checked_sub(FOOTER as u64) else { return Ok(Err(FormatError::Short { length })) };
    file.read_exact_at(&mut end, at)?;
    let footer = match parse_footer(&end, length) {
        Ok(footer) => footer,
        Err(error) => return Ok(Err(error)),
    };
    let mut metadata = vec![0; footer.metadata as usize];
    file.read_exact_at(&mut metadata, footer.payload)?;
    Ok(footer.parse_key(&metadata))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use futures::StreamExt as _;
    use nigh_terms::{SystemClock, Timestamp};

    use super::*;
    use crate::directory::DirectoryStore;
    use crate::{Payload, Store};
    use nigh_data::{ETag, ObjectId, ObjectMeta, Segment};

    /// Records everything that it receives.
    #[derive(Default)]
    struct CollectedCopy {
        buckets: Vec<(Namespace, BucketName, Vec<u8>)>,
        objects: Vec<(Namespace, BucketName, Vec<u8>)>,
        damaged: Vec<PathBuf>,
    }

    impl CopyTo for CollectedCopy {
        type Error = CopyError;

        fn bucket(&mut self, namespace: &Namespace, bucket: &BucketName, description: &[u8]) -> Result<(), CopyError> {
            self.buckets.push((namespace.clone(), bucket.clone(), description.to_vec()));
            Ok(())
        }

        fn object(
            &mut self,
            namespace: &Namespace,
            bucket: &BucketName,
            mut file: &File,
            length: u64,
        ) -> Result<(), CopyError> {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).unwrap();
            assert_eq!(bytes.len() as u64, length);
            self.objects.push((namespace.clone(), bucket.clone(), bytes));
            Ok(())
        }

        fn damaged(&mut self, path: &Path, _: String) {
            self.damaged.push(path.to_owned());
        }
    }

    fn id(bucket: &str, key: &str) -> ObjectId {
        ObjectId {
            namespace: Namespace::new("tenant").unwrap(),
            bucket: BucketName::new(bucket).unwrap(),
            key: ObjectKey::new(key).unwrap(),
        }
    }

    async fn put(store: &DirectoryStore, object: &ObjectId, bytes: &[u8]) {
        let meta = ObjectMeta {
            size: bytes.len() as u64,
            etag: ETag("e".to_owned()),
            modified: Timestamp(7),
            attributes: nigh_data::Attributes::default(),
            tags: BTreeMap::new(),
            checksums: Vec::new(),
            parts: vec![bytes.len() as u64],
            version: nigh_terms::Version::OUTSIDE,
            token: nigh_terms::Token::empty(),
        };
        let segment = Segment::copy_of(bytes).unwrap();
        store.put(object, &Payload::Segment(segment), &meta).await.unwrap();
    }

    fn open(root: &Path) -> DirectoryStore {
        DirectoryStore::open(root, Arc::new(SystemClock::new())).unwrap()
    }

    #[tokio::test]
    async fn a_store_made_of_a_copy_has_all_but_what_is_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("store");
        let store = open(&root);
        let tenant = Namespace::new("tenant").unwrap();
        let keys = ["a", "a/b", "../etc/passwd", &"k".repeat(700)];
        for bucket in ["empty", "full"] {
            store.create_bucket(&tenant, &BucketName::new(bucket).unwrap()).await.unwrap();
        }
        for key in keys {
            put(&store, &id("full", key), key.as_bytes()).await;
        }
        put(&store, &id("full", "cut"), b"to be cut off").await;
        let cut = root.join("namespaces/tenant/full/objects/cut");
        File::options().write(true).open(&cut).unwrap().set_len(20).unwrap();

        let mut kept = CollectedCopy::default();
        copy_out(&root, &mut kept).unwrap();
        assert_eq!((kept.buckets.len(), kept.objects.len()), (2, keys.len()));
        assert_eq!(kept.damaged, [cut]);

        let there = folder.path().join("there");
        let mut copy = StoreCopy::begin(&there).unwrap();
        let mut objects = kept.objects.iter();
        for (namespace, bucket, description) in &kept.buckets {
            copy.add_bucket(namespace, bucket, description).unwrap();
            if bucket.as_str() == "full" {
                for (namespace, bucket, bytes) in objects.by_ref() {
                    copy.add_object(namespace, bucket, &mut bytes.as_slice()).unwrap();
                }
            }
        }
        let (namespace, bucket, bytes) = &kept.objects[0];
        let twice = copy.add_object(namespace, bucket, &mut bytes.as_slice());
        assert!(matches!(twice, Err(CopyError::Twice { .. })), "{twice:?}");
        let none = copy.add_object(namespace, bucket, &mut &b"no object"[..]);
        assert!(matches!(none, Err(CopyError::Object { .. })), "{none:?}");
        let stranger = copy.add_object(namespace, &BucketName::new("other").unwrap(), &mut bytes.as_slice());
        assert!(matches!(stranger, Err(CopyError::NoBucket(_))), "{stranger:?}");

        let store = open(&there);
        assert_eq!(store.list_buckets(&tenant).await.unwrap().len(), 2);
        for key in keys {
            let (meta, mut body) = store.get(&id("full", key), None, None).await.unwrap();
            assert_eq!(meta.modified, Timestamp(7));
            assert_eq!(body.next().await.unwrap().unwrap(), key.as_bytes());
        }
    }
}
