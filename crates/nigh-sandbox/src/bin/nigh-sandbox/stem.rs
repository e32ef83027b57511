//! A pre-warmed runtime: a process that has done its imports and waits to become a function's.
//!
//! The process holds nothing of any function until `become_function`, and then belongs to one function.

use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;

use nigh_sandbox::sandbox::launch::{InitMessage, IsolationLevel, Launch, Order, prewarm_message};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, WaitOptions, wait};

use crate::failure::{Failure, Step as _};
use crate::init;

/// The byte that a waiting runtime sends, before a length and a text.
const READY: u8 = b'R';
/// The byte of a runtime that has received its order.
const BECOMES: u8 = b'B';
/// The longest text of a waiting runtime.
const SAID_MAX: usize = 64 << 10;

/// A pre-warmed runtime that waits.
pub(crate) struct PrewarmedRuntime {
    process: Pid,
    socket: UnixStream,
    said: String,
}

/// Starts the runtime and waits until it is ready. The root is entered and all privileges are dropped.
pub(crate) fn start(launch: &Launch) -> Result<PrewarmedRuntime, Failure> {
    let (mut socket, theirs) = UnixStream::pair().step("make a socket for the pre-warmed runtime")?;
    let theirs = OwnedFd::from(theirs);
    let process = init::start(launch, Some(&theirs))?;
    drop(theirs);
    let mut head = [0; 5];
    // A runtime that ends closes its end of the socket.
    socket
        .read_exact(&mut head)
        .step("wait for the pre-warmed runtime to be ready (what it printed says why it is not)")?;
    let [ready, length @ ..] = head;
    let length = u32::from_le_bytes(length) as usize;
    if ready != READY || length > SAID_MAX {
        return Err("it says something else").step("wait for the pre-warmed runtime to be ready");
    }
    let mut said = vec![0; length];
    socket.read_exact(&mut said).step("read the report of the pre-warmed runtime")?;
    Ok(PrewarmedRuntime { process, socket, said: String::from_utf8_lossy(&said).into_owned() })
}

impl PrewarmedRuntime {
    /// Reports that the runtime waits. If the init has entered its own root, it sends the engine its mount namespace.
    pub(crate) fn announce(&self, level: IsolationLevel, control: &UnixStream) -> Result<(), Failure> {
        let report = InitMessage::Warmed { said: self.said.clone() };
        if matches!(level, IsolationLevel::Container { .. }) {
            return init::send_with(control, &report, &[]);
        }
        let mounts = open("/proc/self/ns/mnt", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .step("open the mount namespace")?;
        init::send_with(control, &report, &[mounts.as_fd()])
    }

    /// Waits for the function and turns the runtime into the function's.
    pub(crate) fn become_function(
        mut self,
        control: &mut UnixStream,
        children: &OwnedFd,
        keeper: &OwnedFd,
    ) -> Result<Pid, Failure> {
        loop {
            let mut fds = [
                PollFd::new(&*control, PollFlags::IN),
                PollFd::new(children, PollFlags::IN),
                PollFd::new(keeper, PollFlags::empty()),
            ];
            match poll(&mut fds, None) {
                Ok(_) if !fds[2].revents().is_empty() => return Err("it has ended").step("wait for the keeper's word"),
                Ok(_) if !fds[1].revents().is_empty() => {
                    let _raised = rustix::io::read(children, &mut [0; 128]);
                    // A stopped child raises SIGCHLD too; and an orphan of the imports may have ended.
                    while let Ok(Some((ended, _))) = wait(WaitOptions::NOHANG) {
                        if ended == self.process {
                            return Err("it has ended").step("keep a pre-warmed runtime");
                        }
                    }
                }
                Ok(_) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error).step("wait for the function"),
            }
        }
        let Order::Launch(launch) = crate::receive(control).step("read what the sandbox shall be")? else {
            return Err("it is warmed already").step("warm a sandbox");
        };
        self.socket.write_all(&prewarm_message(&launch)).step("tell the pre-warmed runtime what to become")?;
        let mut word = [0];
        // If the runtime is killed at this moment, the engine makes another sandbox and callers notice nothing.
        self.socket.read_exact(&mut word).step("have the pre-warmed runtime become it")?;
        if word != [BECOMES] {
            return Err("it says something else").step("have the pre-warmed runtime become it");
        }
        Ok(self.process)
    }
}
