//! Files in memory.

use std::fs::File;
use std::sync::Once;

use rustix::fs::MemfdFlags;

use crate::ObjectError;

/// The log says once that this kernel cannot bar execution.
static SAID: Once = Once::new();

/// What the system says of an operation on memory.
pub(crate) fn failed(operation: &'static str) -> impl Fn(std::io::Error) -> ObjectError {
    move |error| ObjectError::Memory { operation, reason: error.to_string() }
}

/// A file in memory that can be sealed, and not be executed where the kernel can bar it (since Linux 6.3).
pub(crate) fn memfd() -> Result<File, ObjectError> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let barred = rustix::fs::memfd_create("nigh-segment", flags | MemfdFlags::NOEXEC_SEAL);
    let memfd = match barred {
        Err(rustix::io::Errno::INVAL) => {
            SAID.call_once(|| tracing::info!("objects in memory could be executed: that is barred since Linux 6.3"));
            rustix::fs::memfd_create("nigh-segment", flags)
        }
        made => made,
    };
    Ok(File::from(memfd.map_err(|error| failed("memfd_create")(error.into()))?))
}
