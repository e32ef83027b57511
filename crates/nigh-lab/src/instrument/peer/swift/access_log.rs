//! What a Swift says of the requests it has served: its own access log, sent as syslog over loopback, so that what was
//! written to it is known from itself, whatever was removed since.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

/// How long a listener sleeps on at most when it is to end.
const LISTEN: Duration = Duration::from_millis(200);
const LINE_MAX: usize = 64 << 10;

/// Bytes of bodies that were sent to a bucket's folders, by `bucket/folder`.
type ReceivedBytes = BTreeMap<String, u64>;

/// A listener on a free port; it ends when dropped.
#[derive(Debug)]
pub(crate) struct AccessLog {
    port: u16,
    received: Arc<Mutex<ReceivedBytes>>,
    over: Arc<AtomicBool>,
    listening: Option<JoinHandle<()>>,
}

impl AccessLog {
    /// Begins to listen.
    pub(crate) fn listen() -> std::io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.set_read_timeout(Some(LISTEN))?;
        let port = socket.local_addr()?.port();
        let (received, over) = (Arc::<Mutex<ReceivedBytes>>::default(), Arc::new(AtomicBool::new(false)));
        let (into, until) = (Arc::clone(&received), Arc::clone(&over));
        let listening = std::thread::spawn(move || {
            let mut line = vec![0; LINE_MAX];
            while !until.load(Ordering::Acquire) {
                let Ok(length) = socket.recv(&mut line) else { continue };
                if let Some((folder, bytes)) = read(&String::from_utf8_lossy(&line[..length])) {
                    *into.lock().entry(folder).or_default() += bytes;
                }
            }
        });
        Ok(Self { port, received, over, listening: Some(listening) })
    }

    pub(super) const fn port(&self) -> u16 {
        self.port
    }

    /// Bytes of the bodies of all requests so far about `folder`, `bucket/folder`.
    pub(crate) fn received(&self, folder: &str) -> u64 {
        self.received.lock().get(folder).copied().unwrap_or(0)
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        // It holds nothing that a panic of it could have left behind.
        let _ = self.listening.take().map(JoinHandle::join);
    }
}

/// The folder and the bytes of a line that tells of a write: the words of Swift's default format, from the method on.
fn read(line: &str) -> Option<(String, u64)> {
    let mut words = line.split(' ').skip_while(|word| !matches!(*word, "PUT" | "POST"));
    let path = words.nth(1)?;
    // After the path: protocol, status, referer, agent, token.
    let bytes = words.nth(5)?.parse().ok()?;
    let mut parts = path.trim_start_matches('/').split(['/', '?']);
    Some((format!("{}/{}", parts.next()?, parts.next()?), bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_write_tells_its_folder_and_bytes() {
        let line = "<134>proxy-server: 127.0.0.1 127.0.0.1 23/Nov/2026/05/04/10 PUT /bucket/scratch/a/b%20c HTTP/1.0 200 - \
                    Boto3/1.44 - 4194304 - - tx1 - 0.05 - - 1.0 2.0 0";
        assert_eq!(read(line), Some(("bucket/scratch".to_owned(), 4_194_304)));
        assert_eq!(read(&line.replace("PUT", "GET")), None);
        assert_eq!(read(&line.replace("4194304", "-")), None, "no body");
        assert_eq!(read(""), None);
    }

    #[test]
    fn what_is_told_is_added_up() {
        let log = AccessLog::listen().unwrap();
        let line = "x PUT /b/out/k HTTP/1.0 200 - a - 7 -";
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        for _ in 0..3 {
            socket.send_to(line.as_bytes(), (Ipv4Addr::LOCALHOST, log.port())).unwrap();
        }
        let begun = std::time::Instant::now();
        while log.received("b/out") < 21 && begun.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!((log.received("b/out"), log.received("b/in")), (21, 0));
    }
}
