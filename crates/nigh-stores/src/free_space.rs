//! The free space that writes must leave, because a full file system would stop the node's other writers too.
//!
//! The free space is checked before bytes are written and while a body arrives. Concurrent writes may leave a little
//! less, which is harmless.

use std::path::Path;
use std::sync::Arc;

use nigh_data::ObjectError;

/// The share of a file system that must stay free is one divided by this number.
const FLOOR_SHARE: u64 = 20;
/// The most space that must stay free, in bytes.
const FLOOR_MAX: u64 = 1 << 30;

/// The space that must stay free on a file system of `total` bytes, in bytes.
const fn floor(total: u64) -> u64 {
    let share = total / FLOOR_SHARE;
    if share < FLOOR_MAX { share } else { FLOOR_MAX }
}

/// A folder's file system.
#[derive(Clone, Debug)]
pub struct FreeSpace {
    folder: Arc<Path>,
    floor: fn(u64) -> u64,
}

impl FreeSpace {
    /// The file system of `folder`.
    pub fn of(folder: impl Into<Arc<Path>>) -> Self {
        Self { folder: folder.into(), floor }
    }

    /// A file system that is always too full.
    #[cfg(any(test, feature = "test-support"))]
    pub fn none(folder: impl Into<Arc<Path>>) -> Self {
        Self { folder: folder.into(), floor: |_| u64::MAX }
    }

    /// `SlowDown` if too little space would be free after `bytes` more. Blocks briefly.
    pub fn admit(&self, bytes: u64) -> Result<(), ObjectError> {
        let found = rustix::fs::statvfs(&*self.folder)
            .map_err(|error| ObjectError::Memory { operation: "ask for free space", reason: error.to_string() })?;
        let (total, free) =
            (found.f_blocks.saturating_mul(found.f_frsize), found.f_bavail.saturating_mul(found.f_frsize));
        // Some file systems have no size.
        if total == 0 || free >= bytes.saturating_add((self.floor)(total)) {
            Ok(())
        } else {
            Err(ObjectError::SlowDown("the file system is nearly full; free space on it"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_twentieth_is_kept_free_and_no_more_than_a_gibibyte() {
        assert_eq!((floor(0), floor(2000), floor(1 << 40)), (0, 100, FLOOR_MAX));
    }

    #[test]
    fn more_than_the_file_system_has_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let space = FreeSpace::of(folder.path());
        assert!(matches!(space.admit(u64::MAX), Err(ObjectError::SlowDown(_))));
        let missing = FreeSpace::of(folder.path().join("missing"));
        assert!(matches!(missing.admit(0), Err(ObjectError::Memory { .. })));
    }
}
