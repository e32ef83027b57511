//! What a copy takes of the node.

/// What a copy takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// In memory, rounded to pages.
    pub bytes: u64,
    /// In file descriptors and mappings.
    pub segments: u64,
}

impl Cost {
    pub const fn plus(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, segments: self.segments + other.segments }
    }

    pub const fn minus(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_sub(other.bytes), segments: self.segments.saturating_sub(other.segments) }
    }

    pub const fn fits(self, room: Self) -> bool {
        self.bytes <= room.bytes && self.segments <= room.segments
    }
}
