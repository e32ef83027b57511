//! Monitoring ids that were freed and may not be used yet.
//!
//! A freed id stays in limbo until the kernel's worker, which runs every second, finds its lines gone from the cache;
//! newer kernels send each freed id there. While no other id is free, making a group is refused with EBUSY, which
//! depends on the clock alone. So comparisons wait (fs/resctrl/monitor.c).

use std::io;
use std::time::Duration;

use rustix::io::Errno;

use super::super::fs::ResctrlFs;

/// Longest wait for a monitoring id to leave limbo.
pub(super) const LIMBO_WAIT_MAX: Duration = Duration::from_secs(10);
/// Time between two looks.
const LIMBO_STEP: Duration = Duration::from_millis(100);

/// Whether an error means that monitoring ids are in limbo.
pub(super) fn is_limbo(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::BUSY.raw_os_error())
}

/// Makes a group; where freed monitoring ids are still in limbo, waits for the kernel's worker, and runs `between`
/// before every further try.
pub fn make_group(fs: &dyn ResctrlFs, path: &str, between: impl Fn() -> io::Result<()>) -> io::Result<()> {
    let mut waited = Duration::ZERO;
    loop {
        match fs.make_group(path) {
            Err(error) if is_limbo(&error) && waited < LIMBO_WAIT_MAX => {
                std::thread::sleep(LIMBO_STEP);
                waited += LIMBO_STEP;
                between()?;
            }
            other => return other,
        }
    }
}
