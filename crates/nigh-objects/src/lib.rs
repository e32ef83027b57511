//! The object memory: caches the objects that functions read and write.
//!
//! Every door uses `ObjectMemory`. Behind it are the protocol, which decides what may be cached and shown
//! (`nigh_protocol`), the room for copies (`cache` and `eviction`, pure), the order of writes (`nigh_engine::Ledger`),
//! and the system of record (`nigh_stores`).

mod assembly;
mod bucket_documents;
mod cache;
mod completed;
mod doubts;
pub mod eviction;
#[cfg(test)]
mod gated_store;
mod hand_over;
mod holdings;
mod kept;
mod memory;
mod meter;
mod notification;
mod outside;
mod shards;
mod spool;
mod stamps;
mod sync;
mod transaction_part;
mod uploads;
mod write_back;
mod write_order;

pub use cache::LargeCopy;
pub use holdings::{HoldingChange, HoldingsCursor, HoldingsPage};
/// The memory as a member of a cluster.
pub mod cluster {
    pub use crate::memory::cluster::{
        CoherenceProtocol, Frontiers, HandedOver, HomeEvent, Neighbours, Place, TakenShard, fuzz,
    };
}
pub use memory::{
    AbandonedSegment, CachedVersion, CommittedTransaction, KnownCopies, MemoryLimits, NewTransaction,
    NotificationTargets, Notifications, ObjectMemory, OpenSegment, ReservedEvents, SealOutcome, SealedSegment,
    SegmentPut, ShrinkResult, TransactionName, Whereabouts, Writer, WrittenObject,
};
pub use meter::MemoryUsage;
pub use notification::{EventPattern, NotificationConfig, NotificationError, NotificationRule, ObjectChange};
pub use shards::Shards;
pub use write_back::{
    Access, BucketPolicy, DirtyUsage, EntityTag, Freshness, ModeRule, ParseFreshnessError, ParseWriteModeError,
    PolicyError, PushOutcome, StoreChange, UnpushedObject, WriteMode, WriteSettings, Writes,
};

/// Decisions of the memory that do no I/O, so that tests can drive them: the order in which a home is told of its
/// writes, which writes are pushed when, and which keys a listing has.
pub mod behind {
    pub use crate::memory::{AppendNumber, AppendOrder};
    pub use crate::write_back::{
        Base, DirtyLimits, NextPush, ObjectState, PagePart, PossibleBases, Push, Side, StoreState, TrimmableVersions,
        UnpushedWrite, WriteBackQueue, merge, waiting,
    };
}
