//! The memory and the descriptors that a cached copy takes.

/// The memory and the descriptors that a cached copy takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// In memory, rounded to pages.
    pub bytes: u64,
    /// In file descriptors and mappings.
    pub segments: u64,
}

impl Cost {
    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, segments: self.segments + other.segments }
    }

    /// Without `other`, and never below zero.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_sub(other.bytes), segments: self.segments.saturating_sub(other.segments) }
    }

    /// Whether it is no more than `room`.
    #[must_use]
    pub const fn fits(self, room: Self) -> bool {
        self.bytes <= room.bytes && self.segments <= room.segments
    }
}
