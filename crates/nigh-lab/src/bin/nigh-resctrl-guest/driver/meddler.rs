//! Somebody else on the same mount, who does one thing just before a chosen command of the driver's.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use nigh_llc::resctrl::{FsLock, KernelFs, MountOptions, ResctrlFs};

use super::exhaust;

/// Something done to the mount, once.
type Act = Box<dyn FnOnce(&KernelFs) -> io::Result<()> + Send>;

/// What is done, without the lock: whoever does it does not know of it.
pub(super) enum Interference {
    /// Anything.
    Act(Act),
    /// What makes the kernel refuse the command: others take every class before a `mkdir`, a write gets one line more that
    /// names no resource. Nothing makes it refuse an `rmdir`.
    Refuse,
}

impl Interference {
    pub(super) fn act(act: impl FnOnce(&KernelFs) -> io::Result<()> + Send + 'static) -> Self {
        Self::Act(Box::new(act))
    }
}

/// The kernel's mount, with somebody else on it.
pub(super) struct Meddler {
    kernel: KernelFs,
    before: usize,
    meddling: Mutex<Option<Interference>>,
    commands: AtomicUsize,
}

impl Meddler {
    pub(super) fn new(kernel: KernelFs, before: usize, meddling: Interference) -> Self {
        Self { kernel, before, meddling: Mutex::new(Some(meddling)), commands: AtomicUsize::new(0) }
    }

    /// Commands the driver gave so far.
    pub(super) fn commands(&self) -> usize {
        self.commands.load(Ordering::Relaxed)
    }

    /// Counts a command, and does what is to be done before it; whether the command is one to refuse.
    fn meddle(&self) -> io::Result<bool> {
        if self.commands.fetch_add(1, Ordering::Relaxed) != self.before {
            return Ok(false);
        }
        let meddling = self.meddling.lock().unwrap_or_else(PoisonError::into_inner).take();
        match meddling {
            None => Ok(false),
            Some(Interference::Refuse) => Ok(true),
            Some(Interference::Act(act)) => act(&self.kernel).map(|()| false).map_err(|error| {
                // Without an errno: no answer of the kernel's to the driver.
                io::Error::other(format!("what was to happen before the command failed: {error}"))
            }),
        }
    }
}

impl ResctrlFs for Meddler {
    fn mount_options(&self) -> io::Result<Option<MountOptions>> {
        self.kernel.mount_options()
    }

    fn read(&self, path: &str) -> io::Result<String> {
        self.kernel.read(path)
    }

    fn write(&self, path: &str, text: &str) -> io::Result<()> {
        if self.meddle()? {
            self.kernel.write(path, &format!("{text}NOTHING:0=1\n"))
        } else {
            self.kernel.write(path, text)
        }
    }

    fn make_group(&self, path: &str) -> io::Result<()> {
        if self.meddle()? {
            exhaust(&self.kernel)?;
        }
        self.kernel.make_group(path)
    }

    fn remove_group(&self, path: &str) -> io::Result<()> {
        self.meddle()?;
        self.kernel.remove_group(path)
    }

    fn rename_group(&self, from: &str, to: &str) -> io::Result<()> {
        self.meddle()?;
        self.kernel.rename_group(from, to)
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        self.kernel.list(path)
    }

    fn lock(&self) -> io::Result<Box<dyn FsLock + '_>> {
        self.kernel.lock()
    }
}
