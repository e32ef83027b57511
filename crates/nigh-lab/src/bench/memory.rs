//! What a cached object takes beside its bytes: many small objects, read once each into the memory of this process, which
//! does nothing else. The store behind makes them up, so that no disk is measured.
//!
//! It tells the process's own memory (RssAnon, proc_pid_status(5)) an object, without the key's text; the objects' bytes
//! are in shared files, and told beside.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use clap::Args;
use futures::{StreamExt as _, TryStreamExt as _};
use nigh_objects::store::{Payload, Store};
use nigh_objects::{
    Attributes, BucketInfo, ByteStream, ETag, GetRequest, Listed, MemoryLimits, ObjectError, ObjectId, ObjectMemory,
    ObjectMeta, Tags, Writes,
};
use nigh_terms::{
    BucketName, ByteSize, Clock, Epoch, Namespace, ObjectKey, Principal, Sequence, SystemClock, Timestamp, Token,
    Version,
};
use serde::Serialize;

use super::Asked;
use crate::LabError;
use crate::machine::Machine;

/// What is asked: bytes an object, beside its pages and its key.
const OVERHEAD_MAX: f64 = 256.0;
const LENGTH: u64 = 100;
/// Reads at a time.
const READERS: usize = 16;

/// What `nigh bench memory` takes.
#[derive(Clone, Debug, Args)]
pub(super) struct MemoryLength {
    /// How many objects are read into memory
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1_000..=10_000_000))]
    objects: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct MemoryReport {
    machine: Machine,
    objects: u64,
    object_bytes: u64,
    key_bytes: u64,
    /// Of the process's own memory, for each object, its key's text left out.
    overhead_bytes: f64,
    /// What the cache's budget counts for all of them.
    counted_bytes: u64,
    summary: BTreeMap<&'static str, f64>,
    asked: BTreeMap<&'static str, Asked>,
}

fn failed(what: &str, reason: &dyn std::fmt::Display) -> LabError {
    LabError::Request { what: what.to_owned(), reason: reason.to_string() }
}

/// A store in which every object is there, and nothing can be changed.
struct MadeUp;

impl MadeUp {
    fn meta(object: &ObjectId) -> ObjectMeta {
        let number = object.key.as_str().bytes().fold(0_u64, |number, byte| number.wrapping_mul(31) + u64::from(byte));
        ObjectMeta {
            size: LENGTH,
            etag: ETag(format!("{number:032x}")),
            modified: Timestamp(1_700_000_000_000),
            attributes: Attributes::default(),
            tags: Tags::new(),
            checksums: Vec::new(),
            parts: Vec::new(),
            version: Version { epoch: Epoch(1), sequence: Sequence(number) },
            token: Token::empty(),
        }
    }

    fn info(bucket: &BucketName) -> BucketInfo {
        BucketInfo { name: bucket.clone(), created: Timestamp(0) }
    }
}

fn read_only<T>() -> Result<T, ObjectError> {
    Err(ObjectError::InvalidRequest("a store of made-up objects is not changed".to_owned()))
}

#[async_trait]
impl Store for MadeUp {
    fn kind(&self) -> &'static str {
        "made-up"
    }

    async fn create_bucket(&self, _: &Namespace, _: &BucketName) -> Result<(), ObjectError> {
        read_only()
    }

    async fn delete_bucket(&self, _: &Namespace, _: &BucketName) -> Result<(), ObjectError> {
        read_only()
    }

    async fn head_bucket(&self, _: &Namespace, bucket: &BucketName) -> Result<BucketInfo, ObjectError> {
        Ok(Self::info(bucket))
    }

    async fn list_buckets(&self, _: &Namespace) -> Result<Vec<BucketInfo>, ObjectError> {
        Ok(Vec::new())
    }

    async fn put(&self, _: &ObjectId, _: &Payload, _: &ObjectMeta) -> Result<(), ObjectError> {
        read_only()
    }

    async fn head(&self, object: &ObjectId) -> Result<ObjectMeta, ObjectError> {
        Ok(Self::meta(object))
    }

    async fn get(
        &self,
        object: &ObjectId,
        range: Option<Range<u64>>,
        _: Option<&ETag>,
    ) -> Result<(ObjectMeta, ByteStream), ObjectError> {
        let Range { start, end } = range.unwrap_or(0..LENGTH);
        let bytes = Bytes::from(vec![7; (end - start) as usize]);
        Ok((Self::meta(object), futures::stream::iter([Ok(bytes)]).boxed()))
    }

    async fn delete(&self, _: &ObjectId) -> Result<(), ObjectError> {
        read_only()
    }

    async fn put_tags(&self, _: &ObjectId, _: &Tags) -> Result<(), ObjectError> {
        read_only()
    }

    async fn list(
        &self,
        _: &Namespace,
        _: &BucketName,
        _: &str,
        _: Option<&str>,
        _: usize,
    ) -> Result<Vec<Listed>, ObjectError> {
        Ok(Vec::new())
    }
}

/// Memory of this process that is no file's and not shared.
fn own_memory() -> Result<u64, LabError> {
    let path = "/proc/self/status";
    let status = std::fs::read_to_string(path).map_err(|error| LabError::file(path, &error))?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|text| text.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.map(|kib| kib * 1024).ok_or_else(|| LabError::file(path, &"it has no RssAnon"))
}

fn key(number: u64) -> Result<ObjectKey, LabError> {
    ObjectKey::new(&format!("thumbnails/{number:010}.jpg")).map_err(|error| failed("a name", &error))
}

async fn read(memory: &ObjectMemory, numbers: Range<u64>) -> Result<(), LabError> {
    let namespace = Namespace::new("bench").map_err(|error| failed("a name", &error))?;
    let (who, bucket) =
        (Principal::outside(namespace), BucketName::new("pictures").map_err(|error| failed("a name", &error))?);
    let all = futures::stream::iter(numbers).map(|number| {
        let (who, bucket) = (&who, &bucket);
        async move {
            let got = memory.get(who, bucket, &key(number)?, GetRequest::default()).await;
            let body = got.map_err(|error| failed("a get", &error))?.body;
            body.try_for_each(|_| async { Ok(()) }).await.map_err(|error| failed("a get", &error))
        }
    });
    all.buffer_unordered(READERS).try_for_each(|()| async { Ok(()) }).await
}

pub(super) async fn run(length: &MemoryLength, machine: Machine) -> Result<MemoryReport, LabError> {
    let objects = length.objects;
    let folder = tempfile::tempdir().map_err(|error| LabError::file("a folder", &error))?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let cache = ByteSize(objects * 4096);
    let limits = MemoryLimits { cache, cached_object: ByteSize::mib(1), object: ByteSize::mib(1) };
    let writes = Writes::through(Epoch(1));
    let spool = folder.path().join("spool");
    let memory = ObjectMemory::open(Arc::new(MadeUp), writes, clock, Vec::new(), spool, limits).await;
    let memory = memory.map_err(|error| failed("the memory", &error))?;
    // What the first reads make and keep for all others does not count.
    let warm = objects / 100;
    read(&memory, 0..warm).await?;
    let (before, kept_before) = (own_memory()?, memory.usage().objects);
    read(&memory, warm..objects).await?;
    let after = own_memory()?;
    let usage = memory.usage();
    if usage.objects != objects || kept_before != warm {
        return Err(failed("filling the memory", &format!("{} of {objects} objects are kept", usage.objects)));
    }
    let key_bytes = key(0)?.as_str().len() as u64;
    let overhead_bytes = after.saturating_sub(before) as f64 / (objects - warm) as f64 - key_bytes as f64;
    let name = "overhead_bytes_per_object";
    Ok(MemoryReport {
        machine,
        objects,
        object_bytes: LENGTH,
        key_bytes,
        overhead_bytes,
        counted_bytes: usage.living.bytes(),
        summary: [(name, overhead_bytes)].into(),
        asked: [(name, Asked::AtMost(OVERHEAD_MAX))].into(),
    })
}

pub(super) fn text(report: &MemoryReport) -> String {
    format!(
        "{} objects of {} bytes: {:.0} bytes each beside pages and key (asked: at most {OVERHEAD_MAX:.0}); the budget \
         counts {} for all",
        report.objects,
        report.object_bytes,
        report.overhead_bytes,
        ByteSize(report.counted_bytes)
    )
}
