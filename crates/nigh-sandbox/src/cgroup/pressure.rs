//! Waits for the kernel's notification that a group has reached its memory limit, and reports it.

use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd, OwnedFd, RawFd};

use nigh_schedule::memory::grant::OnPressure;
use nigh_terms::ByteSize;
use parking_lot::Mutex;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::JoinHandle;

use super::control_file::ControlFile;

/// Decides from the text of a changed file whether the change means pressure.
pub(super) type Counts = Box<dyn FnMut(&str) -> bool + Send>;

/// The kernel's notification.
pub(super) enum Wake {
    /// The kernel adds to an eventfd (v1).
    Counter(OwnedFd),
    /// The kernel marks a file as changed (v2).
    Changes(ControlFile, Counts),
}

impl AsRawFd for Wake {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Self::Counter(event) => event.as_raw_fd(),
            Self::Changes(file, _) => file.as_fd().as_raw_fd(),
        }
    }
}

impl Wake {
    fn interest(&self) -> Interest {
        match self {
            Self::Counter(_) => Interest::READABLE,
            Self::Changes(..) => Interest::PRIORITY,
        }
    }

    /// Clears the notification. True if it means pressure.
    fn take(&mut self) -> io::Result<bool> {
        match self {
            Self::Counter(event) => match rustix::io::read(event, &mut [0; 8]) {
                Err(rustix::io::Errno::AGAIN) => Ok(false),
                outcome => Ok(outcome? > 0),
            },
            Self::Changes(file, counts) => Ok(counts(&file.text()?)),
        }
    }
}

/// At most one waiter. It ends with its owner, with its group, or when the next one starts.
#[derive(Default)]
pub(super) struct PressureWatch(Mutex<Option<Waiter>>);

struct Waiter(JoinHandle<()>);

impl Drop for Waiter {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl PressureWatch {
    /// Calls `notice` with the value of `used` at each notification of `wake`. Must be called within the async runtime.
    pub(super) fn begin(
        &self,
        wake: Wake,
        used: impl Fn() -> io::Result<ByteSize> + Send + Sync + 'static,
        notice: OnPressure,
    ) -> io::Result<()> {
        let runtime = tokio::runtime::Handle::try_current().map_err(io::Error::other)?;
        let _entered = runtime.enter();
        let interest = wake.interest();
        // SAFETY: a `Wake` owns its descriptor, never changes it, and closes it only when it is dropped.
        let mut wake = unsafe { AsyncFd::register_with_interest(wake, interest) }?;
        let waiter = runtime.spawn(async move {
            // A group that is gone answers neither `take` nor `used`: that ends the waiter.
            while let Ok(mut ready) = wake.ready_mut(interest).await {
                ready.clear_ready();
                match ready.get_inner_mut().take().and_then(|counts| Ok(if counts { Some(used()?) } else { None })) {
                    Ok(Some(used)) => notice(used),
                    Ok(None) => {}
                    Err(_) => return,
                }
            }
        });
        *self.0.lock() = Some(Waiter(waiter));
        Ok(())
    }
}

impl fmt::Debug for PressureWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PressureWatch").field(&self.0.lock().is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::event::{EventfdFlags, eventfd};
    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn each_event_is_passed_on_and_a_second_notice_replaces_the_first() {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let watch = PressureWatch::default();
        let (first, mut first_calls) = mpsc::unbounded_channel();
        let (second, mut second_calls) = mpsc::unbounded_channel();
        let used = || Ok(ByteSize::kib(3));
        let own = Wake::Counter(event.try_clone().unwrap());
        watch.begin(own, used, Box::new(move |size| first.send(size).unwrap())).unwrap();
        rustix::io::write(&event, &1_u64.to_ne_bytes()).unwrap();
        assert_eq!(first_calls.recv().await, Some(ByteSize::kib(3)));
        let own = Wake::Counter(event.try_clone().unwrap());
        watch.begin(own, used, Box::new(move |size| second.send(size).unwrap())).unwrap();
        // The first waiter has ended and dropped its sender.
        assert_eq!(first_calls.recv().await, None);
        rustix::io::write(&event, &1_u64.to_ne_bytes()).unwrap();
        assert_eq!(second_calls.recv().await, Some(ByteSize::kib(3)));
    }

    #[tokio::test]
    async fn a_group_that_is_gone_ends_the_waiter() {
        let event = eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let watch = PressureWatch::default();
        let (calls, mut received) = mpsc::unbounded_channel();
        let gone = || Err(io::Error::from_raw_os_error(rustix::io::Errno::NODEV.raw_os_error()));
        watch.begin(Wake::Counter(event), gone, Box::new(move |size| calls.send(size).unwrap())).unwrap();
        let ended = tokio::time::timeout(Duration::from_secs(20), received.recv()).await;
        assert_eq!(ended, Ok(None));
    }
}
