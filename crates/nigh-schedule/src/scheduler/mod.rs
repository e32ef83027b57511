//! Which node runs an invocation, whose turn it is when none can, and what happens to it when its node is lost: pure.
//!
//! `schedule` chooses from a list of `NodeView`: never a node that has not shown that it covers the dispatch's token, a
//! warm sandbox first, then the lowest cost (`cost`: bytes to fetch, busy processors, memory, cache ways). Locality is
//! bounded, so that a popular object cannot draw all work to its holder (bounded loads: Mirrokni, Thorup,
//! Zadimoghaddam, SODA 2018), and among equals the function's own order of nodes decides (rendezvous hashing: Thaler
//! and Ravishankar, 1998). The criteria are OFC's (EuroSys 2021, section 6.5); their weights come from `nigh experiment
//! scheduling`. `coverage_board` and `locality_hints` store the facts.
//!
//! Nodes have no name or address here, only indexes in the caller's list.

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
pub mod vacancy;

pub use self::choose::{Choice, Decision, Judgement, Offer, Refusals, explain, schedule};
pub use self::cost::{Cost, Terms, Weights};
pub use self::fingerprint::Fingerprint;
pub use self::node_view::{NodeIndex, NodeRole, NodeView, Refusal};
pub use self::placement::{HeldInputs, Inputs, PerNode, Placement, WarmSandboxes};
