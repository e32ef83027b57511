//! What an object is: its name, metadata, conditions, ranges, the requests that name it, and the sealed memory that
//! holds its bytes.

pub mod account;
pub mod attributes;
mod checksum;
pub mod conditions;
pub mod digest;
mod error;
mod event;
mod fetch_time;
mod folios;
mod free_pages;
pub mod handed_out;
pub mod listing;
pub mod md5;
mod memfd;
mod memory_counters;
mod name_print;
mod pages;
pub mod range;
mod request;
pub mod segment;
pub mod segment_cost;
mod segment_pool;
#[cfg(test)]
#[path = "../../../tests/skipped.rs"]
mod skipped;
pub mod slab;

pub use attributes::{Attributes, ETag, ObjectMeta, Tags};
pub use checksum::{Checksum, ChecksumAlgorithm, ChecksumClaim, ChecksumType, ClaimedValue, PartChecksums};
pub use digest::Digest;
pub use error::ObjectError;
pub use event::{DataCall, DataOperation, ObjectEvent, ObjectObserver, ServeOutcome};
pub use fetch_time::fetch_us;
pub use folios::are_offered as large_folios_are_offered;
pub use name_print::NamePrint;
pub use request::{
    Body, BucketInfo, ByteRange, ByteStream, CompleteRequest, CompletedPart, CopyReply, CopyRequest, Direction,
    GetReply, GetRequest, ListPage, ListRequest, ListedObject, MultipartRequest, ObjectId, PartInfo, PutDone,
    PutRequest, RangeSpec, ReadConditions, UploadId, UploadInfo, WriteConditions,
};
pub use segment::{Segment, SegmentName, SegmentSlice};
pub use segment_cost::Cost;
