//! Which node runs an invocation: a pure function of what is known of the nodes.
//!
//! A warm sandbox first, then memory; never a node that does not cover what the dispatch carries.

use nigh_terms::{ByteSize, Incarnation, NodeId, Token};

/// What the scheduler knows of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// The node.
    pub node: NodeId,
    /// Its life; a dispatch names it.
    pub incarnation: Incarnation,
    /// Idle sandboxes of the function asked for.
    pub warm: usize,
    /// Memory that new sandboxes may book.
    pub memory_free: ByteSize,
    /// Memory of idle sandboxes that may be ended to make room.
    pub memory_idle: ByteSize,
    /// Sandboxes that may be added before the node's limit.
    pub sandboxes_free: usize,
    /// What it has shown to have applied.
    pub covered: Token,
}

/// What is to be placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The memory that a new sandbox would book.
    pub booked: ByteSize,
    /// What the dispatch carries.
    pub token: Token,
}

/// Where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// To an idle sandbox of this node.
    Warm(NodeId, Incarnation),
    /// To a new sandbox of this node.
    Cold(NodeId, Incarnation),
    /// To a new sandbox of this node, once idle ones have made room.
    Evict(NodeId, Incarnation),
    /// Nowhere now: each node with its reason.
    Refused(Vec<(NodeId, &'static str)>),
}
