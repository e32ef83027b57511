//! Which node runs an invocation, whose turn it is when none can, and what becomes of it when its node is lost: pure.
//!
//! `schedule` decides over a list of `NodeView`: a warm sandbox first, never a node that has not shown to cover what the
//! dispatch carries, then what the invocation is expected to lose there in time (`cost`: bytes to fetch, processors that
//! are busy, memory, cache ways). Locality is bounded, so that a popular object cannot pile all work onto its holder
//! (bounded loads: Mirrokni, Thorup, Zadimoghaddam, SODA 2018), and among equals the function's own order of nodes decides
//! (rendezvous hashing: Thaler and Ravishankar, 1998). The criteria are OFC's (EuroSys 2021, section 6.5); their weights
//! come from `nigh experiment scheduling`. What it is told is kept elsewhere: `coverage_board`, `locality_hints`.
//!
//! Nothing here knows a node's name or address: nodes are places in the caller's list.

mod choose;
mod cost;
pub mod coverage_board;
pub mod dispatch_queue;
mod fingerprint;
pub mod locality_hints;
pub mod lost_invocation;
mod node_view;
mod placement;
#[cfg(test)]
mod properties;

pub use self::choose::{Choice, Decision, Judgement, Offer, Refusals, explain, schedule};
pub use self::cost::{Cost, Terms, Weights};
pub use self::fingerprint::Fingerprint;
pub use self::node_view::{NodeIndex, NodeRole, NodeView, Refusal};
pub use self::placement::{HeldInputs, Inputs, PerNode, Placement, WarmSandboxes};
