//! What has its power cut: disks and the processes above them.

use std::path::Path;
use std::time::Duration;

use super::case::Life;
use super::write_cache::Syncs;
use crate::LabError;
use crate::experiment::client_calls::Door;
use crate::experiment::judged_clients::fast_calls::FastDoor;
use crate::experiment::judged_clients::history::ReadFinding;
use crate::experiment::judged_clients::store_behind::BackingStore;

/// Machines that lose their power all at once.
pub(super) trait Machines {
    /// The S3 doors, each with the fast path of the same node where clients may use that.
    fn doors(&self) -> Result<Vec<(Door, Option<FastDoor>)>, LabError>;

    /// Power on, and processes until their doors answer. Returns how long that took.
    fn start(&mut self, life: &Life) -> Result<Duration, LabError>;

    /// Power on, processes, and so long `after` that a cut, wherever they are in their start.
    fn start_and_cut(&mut self, life: &Life, after: Duration) -> Result<(), LabError>;

    /// Kills all processes and cuts the power of all disks, and forgets what these were not told to keep.
    fn cut(&mut self) -> Result<(), LabError>;

    /// What the disks do with syncs from now on.
    fn set_syncs(&mut self, syncs: Syncs) -> Result<(), LabError>;

    /// Has the kernel begin to write all dirty pages to the disks, without a sync.
    fn write_back(&self);

    /// Leaves the next sync of each disk without an answer.
    fn hold_next_sync(&self);

    /// Whether a sync waits in vain: the moment for a cut.
    fn holds_a_sync(&self) -> bool;

    /// Leaves the disk so much room, where that is drawn.
    fn take_room(&mut self, life: &Life) -> Result<(), LabError>;

    /// The state folder of the one node that `nigh backup` can be asked of.
    fn state(&self) -> Option<&Path>;

    /// Syncs so far, and sectors that cuts have taken.
    fn counts(&self) -> (u64, u64);

    /// Waits until the store has everything that `through_nigh` shows, and returns that store; nodes may have ended then.
    fn settle(&mut self, through_nigh: &[ReadFinding]) -> Result<BackingStore, LabError>;
}
