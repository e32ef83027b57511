//! The last-level cache: a way-partitioned, set-associative cache shared by many cores.

mod access;

pub use access::{AccessKind, LlcAccess};
