//! Object memory: what functions read and write, kept near.
//!
//! `ObjectMemory` is the one way in for every door. Behind it: segments in RAM (`segment`), the cache's
//! decisions (`cache`, pure), the order of writes (`nigh_engine::Ledger`), the system of record (`store`),
//! and the events of all this (`event`).

mod attributes;
mod checksum;
mod error;
mod event;
mod memory;
mod request;
mod segment;
pub mod store;

pub use attributes::{Attributes, ETag, ObjectMeta, Tags};
pub use checksum::{Checksum, ChecksumAlgorithm, ChecksumClaim, ClaimedValue};
pub use error::ObjectError;
pub use event::{DataCall, ObjectEvent, ObjectObserver, Served};
pub use memory::{MemoryLimits, ObjectMemory};
pub use request::{
    Body, BucketInfo, ByteRange, ByteStream, Copied, CopyRequest, Direction, GetRequest, Got, ListPage, ListRequest,
    Listed, MultipartRequest, ObjectId, PartInfo, PutDone, PutRequest, RangeSpec, ReadConditions, UploadId, UploadInfo,
    WriteConditions,
};
pub use segment::{Segment, SegmentSlice};
