//! The shared and durable state of nodes, a trait for each kind: `Registry` (documents), `Membership` (members), `Ledger`
//! (the order of writes); beside them the node's own `RecordLog` (records), `Outbox` (accepted work) and `AccessKeys`.
//!
//! The implementations here are for one machine; `nats` has those of a cluster.

mod access_keys;
mod commit_format;
mod group_writer;
mod histories;
pub mod journal;
mod ledger;
mod lock_file;
mod membership;
mod namespaces;
#[cfg(feature = "cluster")]
pub mod nats;
mod node_numbers;
mod outbox;
mod presence;
mod record_log;
mod registry;
mod registry_copy;
mod requests;
#[cfg(test)]
#[path = "../../../tests/skipped.rs"]
mod skipped;
mod state_file;
mod state_tables;
mod sync;

pub use access_keys::{
    ACCESS_KEYS_TABLE, AccessDenied, AccessKeys, Action, CallGuard, KEY_USES_WRITTEN_EVERY, KeyDescription, KeyError,
    KeyScope,
};
pub use group_writer::PendingCommit;
pub use histories::{
    Histories, HistoryChange, HistoryId, LocalHistories, SharedHistories, StoredHistory, TOGETHER_MAX,
};
pub use journal::{Journal, JournalError, JournalSettings};
pub use ledger::{
    ABOUT_MAX_BYTES, AppendResult, Body, Change, INLINE_MAX_BYTES, Ledger, LedgerError, PIECE_MAX_BYTES, PIECES_MAX,
    PieceId, Record, RequestId, StagedPiece, StagedRoom, WriteThrough,
};
pub use lock_file::LockFile;
pub use membership::{LocalMembership, Members, Membership};
pub use namespaces::{
    ListingStart, MemoryBooking, NAMESPACES_TABLE, NamespaceError, NamespaceQuota, Namespaces, OverQuota,
};
pub use node_numbers::{NODE_NUMBERS_TABLE, known_number, node_number};
pub use outbox::{Outbox, OutboxChange, OutboxId, StoredPromise};
pub use presence::{NodeRole, Presence, PresentMember};
pub use record_log::{RecordLog, Retention};
pub use registry::{LocalRegistry, Registry, RegistryChange, RegistryDocument, RegistryError, Revision};
pub use registry_copy::{RegistrySnapshot, StoredDocument};
pub use state_file::{StateError, StateFile};
