//! The two that are compared: this machine's kernel and the emulator.

use std::io;

use nigh_llc::resctrl::conformance;
use nigh_llc::resctrl::emulator::{Emulator, Fault, MachineConfig};
use nigh_llc::resctrl::{KernelFs, MOUNTINFO, MountOptions, ResctrlFs};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::lockstep::Side;
use crate::threads::own_tid;

/// Where the kernel's resctrl is mounted.
pub(crate) const MOUNT: &str = "/sys/fs/resctrl";

/// The kernel.
pub(crate) struct Kernel {
    fs: KernelFs,
}

impl Kernel {
    /// Mounts resctrl.
    pub(crate) fn mounted() -> io::Result<Self> {
        remount(MountOptions::default())?;
        let fs = KernelFs::find(MOUNTINFO)?.ok_or_else(|| io::Error::other(format!("{MOUNT} is not mounted")))?;
        Ok(Self { fs })
    }

    /// The mount, for a driver to own.
    pub(crate) fn handle(&self) -> KernelFs {
        self.fs.clone()
    }
}

/// Unmounts resctrl; fails while somebody has a file of it open.
pub(crate) fn umount() -> io::Result<()> {
    Ok(unmount(MOUNT, UnmountFlags::empty())?)
}

/// Unmounts resctrl at once for everybody new; for who has a file of it open when that is closed.
pub(crate) fn umount_lazily() -> io::Result<()> {
    Ok(unmount(MOUNT, UnmountFlags::DETACH)?)
}

/// Mounts resctrl.
pub(crate) fn mount_resctrl(options: MountOptions) -> io::Result<()> {
    let options = std::ffi::CString::new(options.to_string()).map_err(io::Error::other)?;
    Ok(mount("resctrl", MOUNT, "resctrl", MountFlags::empty(), Some(options.as_c_str()))?)
}

/// Mounts resctrl afresh.
fn remount(options: MountOptions) -> io::Result<()> {
    if_mounted(umount())?;
    mount_resctrl(options)
}

/// The end of an umount; that there was no mount is no error.
fn if_mounted(unmounted: io::Result<()>) -> io::Result<()> {
    unmounted.or_else(|error| if has_errno(&error, Errno::INVAL) { Ok(()) } else { Err(error) })
}

/// Whether it is this error of the kernel's.
pub(crate) fn has_errno(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

impl Side for Kernel {
    fn fs(&self) -> &dyn ResctrlFs {
        &self.fs
    }

    fn make_group(&self, path: &str) -> io::Result<()> {
        conformance::make_group(&self.fs, path, || Ok(()))
    }

    fn remount(&self, options: MountOptions) -> io::Result<()> {
        remount(options)
    }

    fn forked(&self, _of: u32, _tid: u32) {}

    fn ended(&self, _tid: u32) {}

    fn placement(&self, tid: u32) -> io::Result<String> {
        std::fs::read_to_string(format!("/proc/{tid}/cpu_resctrl_groups"))
    }
}

/// The emulator of a machine as the kernel's, with the writing process in it.
pub(crate) struct EmulatedSide {
    emulator: Emulator,
}

impl EmulatedSide {
    pub(crate) fn new(machine: MachineConfig) -> Self {
        let emulator = Emulator::unmounted(machine);
        emulator.inject(Fault::Spawn { pid: own_tid(), uid: 0 });
        emulator.set_writer(own_tid(), 0);
        Self { emulator }
    }
}

impl Side for EmulatedSide {
    fn fs(&self) -> &dyn ResctrlFs {
        &self.emulator
    }

    fn make_group(&self, path: &str) -> io::Result<()> {
        self.emulator.make_group(path)
    }

    fn remount(&self, options: MountOptions) -> io::Result<()> {
        if_mounted(self.emulator.unmount())?;
        self.emulator.mount(options)
    }

    fn forked(&self, of: u32, tid: u32) {
        self.emulator.inject(Fault::Thread { of, tid });
    }

    fn ended(&self, tid: u32) {
        self.emulator.inject(Fault::Exit { tid });
    }

    fn placement(&self, tid: u32) -> io::Result<String> {
        self.emulator.cpu_resctrl_groups(tid)
    }
}
