//! The consistency contract as state machines: home, node cache, gate, and the scheduler's frontier.
//!
//! The machines decide which copy may be served, which copies are invalidated, which requests share a fetch, when a
//! node covers a token, and when an invocation may begin and has ended. They never wait, send, store, fetch bytes or
//! read a clock: inputs come in, outputs go out, and time is an argument. The same types run in a node, under `nigh
//! check`, and in any other shell. The design is docs/design/coherence.md.
//!
//! What the shell must guarantee: messages may be lost, doubled and reordered, but not altered; a message reaches the
//! machine of the shard or node that it names; appended records are reported to the home in the order of their
//! versions.

mod cache;
mod copies;
mod coverage;
mod frontier;
mod gate;
mod home;
mod message;
mod rules;
mod sharers;
mod table;
mod transaction;

pub use cache::{CacheLimits, CacheOutput, NodeCache, PutFailure, ReadDecision};
pub use copies::{Copy, CopyStore, PlainCopies};
pub use coverage::Coverage;
pub use frontier::{Dispatch, Frontier};
pub use gate::{Gate, GateLimits, GateOutput, GateRefusal};
pub use home::{AppendId, Home, HomeInput, HomeLimits, HomeOutput, LedgerRecord, ReplayedRecord, Takeover};
pub use message::{
    Attempt, Counter, Cover, FromHome, Member, NodeNumber, ObjectName, Refusal, Reply, Request, RequestId, Stamp,
    ToHome, Write,
};
pub use rules::{Contract, Rule, Rules};
pub use table::Table;
pub use transaction::{
    Coordinator, CoordinatorInput, CoordinatorOutput, Outcome, Ticket, TransactionHome, TransactionId,
    TransactionInput, TransactionOutput, TransactionRecord, TransactionRule,
};
