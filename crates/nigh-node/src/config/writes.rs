//! When writes are acknowledged, how they are pushed to the store, and how this node learns of outside writes.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use nigh_objects::WriteMode;
use nigh_terms::ByteSize;
use serde::{Deserialize, Serialize};

use super::Span;

/// When writes are acknowledged, and how they are pushed to the store.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WritesSettings {
    /// Where a write is when it is acknowledged: `through` in the store, `shadow` in the journal with a placeholder in the
    /// store, `lazy` in the journal, `ephemeral` in memory.
    pub mode: WriteMode,
    /// The folder of the journal.
    pub journal: PathBuf,
    /// The most bytes of the journal. If unpushed writes fill half of it, further writes wait, and are rejected after
    /// `wait`.
    pub journal_max: ByteSize,
    /// The most unpushed objects.
    pub objects_max: usize,
    /// How long a write waits for a newer write of its object before its push.
    pub delay: Span,
    /// How long a write waits for room before it is rejected (`SlowDown`).
    pub wait: Span,
    /// The wait after a failed push; it doubles up to `back_off_max`.
    pub back_off: Span,
    /// The longest wait after failed pushes.
    pub back_off_max: Span,
    /// The most pushes at a time.
    pub pushes_max: usize,
    /// What to do at the start if acknowledged writes in the journal are damaged.
    pub on_damage: DamagedJournal,
}

/// The door at which a store reports outside reads and writes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutsideSettings {
    /// The address of its listener; if absent, the door is closed. Port 0 takes a free one.
    pub listen: Option<SocketAddr>,
    /// The file with the token of S3 events; if absent, events are rejected.
    pub events_token_file: Option<PathBuf>,
    /// The most by which the clocks of Swift's proxies may differ from this node's.
    pub clock_skew: Span,
}

/// What to do with a damaged journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DamagedJournal {
    /// Do not start; `nigh journal verify` says what is damaged.
    Refuse,
    /// Move the damaged files aside and use the undamaged writes. Reads of an object whose last write is damaged fail
    /// until it is written again.
    KeepAside,
}

impl WritesSettings {
    pub(super) fn defaults(state: &Path) -> Self {
        Self {
            mode: WriteMode::Lazy,
            journal: state.join("journal"),
            journal_max: ByteSize::gib(2),
            objects_max: 100_000,
            delay: Span::seconds(1),
            wait: Span::seconds(10),
            back_off: Span::millis(500),
            back_off_max: Span::seconds(60),
            pushes_max: 8,
            on_damage: DamagedJournal::Refuse,
        }
    }
}

impl Default for OutsideSettings {
    fn default() -> Self {
        Self { listen: None, events_token_file: None, clock_skew: Span::seconds(60) }
    }
}
