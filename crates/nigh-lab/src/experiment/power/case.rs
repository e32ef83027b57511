//! What happens while the power is cut, and the settings that make it happen.

use clap::ValueEnum;
use rand::Rng;
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};

/// What a part of the run is about, beside the clients' load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Case {
    /// Puts, copies, deletions, uploads and reads as in `crash`, with the directory store.
    Load,
    /// Mostly multipart uploads, and uploads that are open during the cut and completed after it.
    Uploads,
    /// Large writes and a small journal, whose segments are used again and again.
    Rotation,
    /// A disk that is full, or almost.
    Full,
    /// Backups during the load, each restored to a disk whose power is cut the moment that the restore is done.
    Backup,
    /// Starts of a node that migrate a state file of the first format; the power is cut during them.
    Upgrade,
}

impl Case {
    /// Cases of one node, in the order of the parts.
    pub(super) const OF_ONE: [Self; 6] =
        [Self::Load, Self::Uploads, Self::Rotation, Self::Full, Self::Backup, Self::Upgrade];
    /// Cases of three nodes: journals are NATS streams there, and the store is a node of its own.
    pub(super) const OF_THREE: [Self; 2] = [Self::Load, Self::Uploads];

    /// The share of uploads in what clients do.
    pub(super) const fn uploads(self) -> f64 {
        match self {
            Self::Uploads => 0.4,
            _ => 0.0,
        }
    }

    pub(super) fn has_large_writes(self) -> bool {
        self == Self::Rotation
    }

    /// How often the power is cut once more during the start after a cut.
    pub(super) const fn cuts_in_start(self) -> f64 {
        match self {
            Self::Upgrade => 0.7,
            _ => 0.25,
        }
    }

    /// The settings of a node that differ from a usual one's, by name.
    pub(super) const fn settings(self) -> &'static [(&'static str, &'static str)] {
        match self {
            // Three segments, the least that there can be.
            Self::Rotation => &[("writes.journal_max", "48 MiB"), ("cache.object_max", "8 MiB")],
            _ => &[("writes.journal_max", "64 MiB")],
        }
    }
}

/// What is drawn for a life of the machines, from a start to the next cut.
#[derive(Clone, Debug)]
pub(super) struct Life {
    /// `lazy`, mostly, or `through`.
    pub(super) mode: &'static str,
    /// How long a lazy write waits before it goes to the store.
    pub(super) delay_ms: u32,
    /// The kernel writes dirty pages to the disk all the time, not only when it is told to sync: a cut then finds much in
    /// the disk's cache, and leaves half of it.
    pub(super) eager: bool,
    /// The cut meets a sync: all that the sync is about is in the disk's cache then.
    pub(super) in_sync: bool,
    /// How much room the disk has, where the case leaves little.
    pub(super) room: Option<u64>,
    /// The room is there again before the next start.
    pub(super) room_before_start: bool,
}

impl Life {
    /// `margin`: bytes that a node leaves free of objects.
    pub(super) fn draw(draw: &mut StdRng, case: Case, margin: u64) -> Self {
        let rooms = [0, 64 << 10, 2 << 20, margin, margin + (4 << 20), margin + (24 << 20)];
        let room = (case == Case::Full).then(|| rooms[draw.random_range(0..rooms.len())]);
        Self {
            mode: if draw.random_bool(0.7) { "lazy" } else { "through" },
            delay_ms: draw.random_range(1..800),
            eager: draw.random_bool(0.6),
            in_sync: draw.random_bool(0.6),
            room,
            room_before_start: draw.random_bool(0.5),
        }
    }

    pub(super) fn is_lazy(&self) -> bool {
        self.mode == "lazy"
    }
}
