//! Real kernels in virtual machines: what this machine's own kernel or hardware cannot show.
//!
//! QEMU (TCG, no KVM) boots Debian kernels whose `native_cpuid()` is patched to report Intel RDT, so that the kernel's
//! resctrl runs on a machine without cache allocation. No cache effect is emulated, and no latency is taken from it.

mod cpuid_patch;
mod error;
mod guest;
mod initrd;
mod kernel_image;
mod resctrl_check;
pub use cpuid_patch::{PatchSites, report_rdt};
pub use error::VmError;
pub use guest::{Guest, GuestEnd};
use initrd::{Initrd, Kind};
pub use kernel_image::{KernelFolder, PinnedKernel, installed_below, pinned};
pub use resctrl_check::resctrl_check_installed;
#[cfg_attr(not(feature = "all"), allow(unused_imports, reason = "the demonstration boots no kernels"))]
pub(crate) use resctrl_check::{KernelReport, ResctrlCheck};
