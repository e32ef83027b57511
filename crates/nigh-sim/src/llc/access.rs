//! One access that reaches the last-level cache: what a trace is made of.

/// Bytes of a cache line.
pub const LINE_BYTES: u64 = 64;

/// The requests of the private caches to the last-level cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AccessKind {
    /// An instruction fetch missed the second level.
    Fetch,
    /// A load missed the second level.
    Load,
    /// A store missed the second level.
    Store,
    /// The second level gave up a line that was never written.
    CleanEviction,
    /// The second level gave up a written line.
    DirtyEviction,
}

/// One access, after the private caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LlcAccess {
    /// Line number: virtual address / 64.
    pub line: u64,
    /// Instructions the core retired since the access before.
    pub instructions: u32,
    /// What is asked.
    pub kind: AccessKind,
}
