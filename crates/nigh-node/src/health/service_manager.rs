//! Tells systemd how the node does (sd_notify(3)): that it is ready, what it waits for, that it lives and that it ends.
//!
//! The protocol is a datagram of `NAME=value` lines to the socket in `NOTIFY_SOCKET`. Without that variable nobody is told.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::time::Duration;

/// By so much a start or end that takes longer is extended, again and again while the node lives.
const EXTENSION: Duration = Duration::from_secs(30);

/// What a service manager wants to know of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServiceState {
    /// The node lives.
    pub(super) lives: bool,
    /// It is ready.
    pub(super) is_ready: bool,
    /// It ends.
    pub(super) ends: bool,
    /// One line for people.
    pub(super) status: String,
}

/// What a service manager was told. Pure.
#[derive(Debug, Default)]
struct ToldStates {
    ready: bool,
    ends: bool,
    status: Option<String>,
}

impl ToldStates {
    /// The lines to send now.
    fn lines(&mut self, now: &ServiceState, has_watchdog: bool) -> Vec<String> {
        let mut lines = Vec::new();
        if now.ends && !self.ends {
            self.ends = true;
            lines.push("STOPPING=1".to_owned());
        }
        if now.is_ready && !self.ready && !self.ends {
            self.ready = true;
            lines.push("READY=1".to_owned());
        }
        if self.status.as_deref() != Some(&now.status) {
            lines.push(format!("STATUS={}", now.status.replace('\n', " ")));
            self.status = Some(now.status.clone());
        }
        if now.lives {
            if self.ends || !self.ready {
                lines.push(format!("EXTEND_TIMEOUT_USEC={}", EXTENSION.as_micros()));
            }
            if has_watchdog {
                lines.push("WATCHDOG=1".to_owned());
            }
        }
        lines
    }
}

/// The service manager that started this process.
#[derive(Debug)]
pub(super) struct ServiceManager {
    socket: UnixDatagram,
    address: SocketAddr,
    has_watchdog: bool,
    told: ToldStates,
}

impl ServiceManager {
    /// The one that the environment names; None if there is none.
    pub(super) fn of_environment() -> Option<Self> {
        let named = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty())?;
        let has_watchdog = watchdog(|name| std::env::var(name).ok(), std::process::id());
        match Self::open(Path::new(&named), has_watchdog) {
            Ok(manager) => Some(manager),
            Err(error) => {
                tracing::warn!(%error, socket = %named.display(), "the service manager cannot be told how the node does");
                None
            }
        }
    }

    fn open(named: &Path, has_watchdog: bool) -> io::Result<Self> {
        let bytes = named.as_os_str().as_bytes();
        let address = match bytes.strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(named)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, address, has_watchdog, told: ToldStates::default() })
    }

    /// Tells what is new.
    pub(super) fn tell(&mut self, now: &ServiceState) {
        let lines = self.told.lines(now, self.has_watchdog);
        if lines.is_empty() {
            return;
        }
        if let Err(error) = self.socket.send_to_addr(lines.join("\n").as_bytes(), &self.address) {
            tracing::debug!(%error, "the service manager was not told how the node does");
        }
    }
}

/// True if systemd wants to hear of this process regularly (sd_watchdog_enabled(3)). It is told every second, so the time
/// itself does not matter.
fn watchdog(variable: impl Fn(&str) -> Option<String>, process: u32) -> bool {
    let is_ours = variable("WATCHDOG_PID").is_none_or(|pid| pid == process.to_string());
    is_ours && variable("WATCHDOG_USEC").is_some_and(|micros| micros.parse::<u64>().is_ok_and(|micros| micros > 0))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn state(is_ready: bool, ends: bool, status: &str) -> ServiceState {
        ServiceState { lives: true, is_ready, ends, status: status.to_owned() }
    }

    #[test]
    fn a_service_manager_learns_of_ready_once_and_hears_of_a_start_and_an_end_that_take_long() {
        let mut told = ToldStates::default();
        let mut lines = |now: &ServiceState| told.lines(now, true).join(" ");
        assert_eq!(lines(&state(false, false, "starting")), "STATUS=starting EXTEND_TIMEOUT_USEC=30000000 WATCHDOG=1");
        assert_eq!(lines(&state(true, false, "ok")), "READY=1 STATUS=ok WATCHDOG=1");
        assert_eq!(lines(&state(false, false, "cut_off")), "STATUS=cut_off WATCHDOG=1");
        assert_eq!(lines(&state(true, false, "ok")), "STATUS=ok WATCHDOG=1");
        assert_eq!(
            lines(&state(false, true, "draining\nfor 3 s")),
            "STOPPING=1 STATUS=draining for 3 s EXTEND_TIMEOUT_USEC=30000000 WATCHDOG=1"
        );
        // A node that does not live is not said to, and is not waited for.
        assert_eq!(lines(&ServiceState { lives: false, ..state(false, true, "stalled") }), "STATUS=stalled");
    }

    #[test]
    fn a_watchdog_of_another_process_is_not_ours() {
        let with = |pid: Option<&'static str>, micros: Option<&'static str>| {
            let value = move |name: &str| if name == "WATCHDOG_PID" { pid } else { micros };
            watchdog(|name| value(name).map(str::to_owned), 7)
        };
        assert!(with(Some("7"), Some("30000000")) && with(None, Some("1")));
        assert!(!with(Some("8"), Some("1")) && !with(None, None) && !with(None, Some("0")));
    }

    #[test]
    fn a_datagram_arrives_at_a_socket_of_a_path_and_at_an_abstract_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("nigh-test-{}", std::process::id());
        let receivers = [
            (UnixDatagram::bind(&path).unwrap(), path),
            (
                UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap(),
                PathBuf::from(format!("@{name}")),
            ),
        ];
        for (receiver, named) in receivers {
            let mut manager = ServiceManager::open(&named, false).unwrap();
            manager.tell(&state(true, false, "ok"));
            let mut buffer = [0; 128];
            let length = receiver.recv(&mut buffer).unwrap();
            assert_eq!(std::str::from_utf8(&buffer[..length]).unwrap(), "READY=1\nSTATUS=ok");
        }
    }
}
