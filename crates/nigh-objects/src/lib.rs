//! Object memory: what functions read and write, kept near.
//!
//! `ObjectMemory` is the one way in for every door. Behind it: segments in RAM (`segment`), what may be kept and shown
//! (`protocol`, pure), what room copies have (`cache` and `eviction`, pure), the order of writes (`nigh_engine::Ledger`),
//! the system of record (`store`), and the events of all this (`event`).

mod account;
mod assembly;
mod attributes;
mod bucket_documents;
mod cache;
mod checksum;
mod completed;
mod conditions;
mod digest;
mod doubts;
mod error;
mod event;
pub mod eviction;
mod folios;
mod free_space;
#[cfg(test)]
mod gated_store;
mod hand_over;
mod handed_out;
mod holdings;
mod kept;
mod listing;
mod md5;
mod memory;
mod meter;
mod notification;
mod outside;
pub mod protocol;
mod range;
mod request;
mod segment;
mod shards;
mod slab;
mod spool;
pub mod store;
mod sync;
mod uploads;
mod write_back;
mod write_order;

pub use attributes::{Attributes, ETag, ObjectMeta, Tags};
pub use checksum::{Checksum, ChecksumAlgorithm, ChecksumClaim, ChecksumType, ClaimedValue};
pub use digest::Digest;
pub use error::ObjectError;
pub use event::{DataCall, ObjectEvent, ObjectObserver, Served};
pub use folios::are_offered as large_folios_are_offered;
pub use holdings::{HoldingChange, HoldingsCursor, HoldingsPage, NamePrint};
/// The memory as a member of a cluster.
pub mod cluster {
    pub use crate::memory::cluster::{
        CoherenceProtocol, Frontiers, HandedOver, HomeEvent, Neighbours, Place, TakenShard, fuzz,
    };
}
pub use memory::{
    Begun, Committed, MemoryLimits, NotificationTargets, Notifications, ObjectMemory, OpenSegment, Remains,
    ReservedEvents, SealOutcome, SealedSegment, SegmentPut, Shrunk, TransactionName, Writer, WrittenObject,
};
pub use meter::MemoryUsage;
pub use notification::{EventPattern, NotificationConfig, NotificationError, NotificationRule, ObjectChange};
pub use request::{
    Body, BucketInfo, ByteRange, ByteStream, CompleteRequest, CompletedPart, Copied, CopyRequest, Direction,
    GetRequest, Got, ListPage, ListRequest, Listed, MultipartRequest, ObjectId, PartInfo, PutDone, PutRequest,
    RangeSpec, ReadConditions, UploadId, UploadInfo, WriteConditions,
};
pub use segment::{Segment, SegmentName, SegmentSlice};
pub use shards::Shards;
pub use write_back::{
    Access, BucketPolicy, DirtyUsage, ModeRule, ParseWriteModeError, PolicyError, Pushed, StoreAbilities,
    UnpushedObject, WriteMode, WriteSettings, Writes,
};

/// Decisions behind the memory that do no I/O, so that whoever has a ledger and a store can drive them: the order in
/// which a home hears of its writes, what is pushed to the store when, and what a listing has.
pub mod behind {
    pub use crate::memory::{AppendOrder, Asked};
    pub use crate::write_back::{
        Base, Becomes, Below, Dirty, DirtyLimits, Merged, Next, Push, Seen, Settled, Side, Unpushed, merge, waiting,
    };
}
