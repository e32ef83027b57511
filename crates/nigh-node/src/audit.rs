//! The file of the audit trail: a thread appends the events of the doors, in their order.
//!
//! A request never waits for the file: events wait in a bounded queue. An event beyond it, or one that cannot be written, is
//! lost; it is counted, and the log says so once until a later one is written. `reopen` follows a rotation that has renamed
//! the file, as logrotate does it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use nigh_http::audit::AuditSink;
use tokio::sync::oneshot;

use crate::config::AuditSettings;
use crate::state_folder::StateFolderError;

/// The word for the standard error in `audit.file`.
const STDERR: &str = "stderr";
/// Events that may wait to be written: at a kilobyte each, 16 MB.
const QUEUE_MAX: usize = 16 << 10;
/// Events are written together up to so many bytes.
const BATCH_BYTES: usize = 64 << 10;
/// How long the end of the node waits for the last events.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(5);

enum Command {
    Event(String),
    /// Look at `reopens`.
    Wake,
    /// Tell when all earlier events are written.
    Flush(oneshot::Sender<()>),
}

/// The writer of the audit trail.
pub(crate) struct AuditLog {
    queue: SyncSender<Command>,
    reopens: Arc<AtomicBool>,
}

impl AuditLog {
    /// Opens the trail; none if the settings name no file.
    pub(crate) fn open(settings: &AuditSettings) -> Result<Option<Arc<Self>>, StateFolderError> {
        let Some(path) = &settings.file else { return Ok(None) };
        let failed = |source| StateFolderError::Io { path: path.clone(), source };
        let output = if path == Path::new(STDERR) { Output::Stderr } else { Output::open(path).map_err(failed)? };
        Ok(Some(Self::start(output).map_err(failed)?))
    }

    fn start(output: Output) -> io::Result<Arc<Self>> {
        let (queue, commands) = sync_channel(QUEUE_MAX);
        let reopens = Arc::new(AtomicBool::new(false));
        let mut writer = Writer { output, reopens: Arc::clone(&reopens), is_failing: false };
        std::thread::Builder::new().name("nigh-audit".to_owned()).spawn(move || writer.run(&commands))?;
        Ok(Arc::new(Self { queue, reopens }))
    }

    /// Opens the file anew by its name: later events go there.
    pub(crate) fn reopen(&self) {
        self.reopens.store(true, Ordering::Release);
        // If the queue is full, the thread has something to do, and looks after that.
        let _ = self.queue.try_send(Command::Wake);
    }

    /// Returns when all events are written, or cannot be written in time.
    pub(crate) async fn flush(&self) {
        let (done, written) = oneshot::channel();
        let queue = self.queue.clone();
        // The queue may be full.
        tokio::task::spawn_blocking(move || queue.send(Command::Flush(done)));
        if tokio::time::timeout(FLUSH_TIME_MAX, written).await.is_err() {
            tracing::warn!("the last events of the audit trail are not written: its file is too slow");
        }
    }
}

impl AuditSink for AuditLog {
    fn write(&self, line: String) {
        if self.queue.try_send(Command::Event(line)).is_err() {
            lost(1);
        }
    }
}

fn lost(events: u64) {
    metrics::counter!("nigh_audit_events_dropped_total").increment(events);
}

enum Output {
    File { path: PathBuf, file: File },
    Stderr,
}

impl Output {
    fn open(path: &Path) -> io::Result<Self> {
        Ok(Self::File { path: path.to_owned(), file: opened(path)? })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::File { file, .. } => file.write_all(bytes),
            Self::Stderr => io::stderr().lock().write_all(bytes),
        }
    }

    fn reopen(&mut self) -> io::Result<()> {
        if let Self::File { path, file } = self {
            *file = opened(path)?;
        }
        Ok(())
    }
}

/// Names in events may be secret to other users of the machine.
fn opened(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

struct Writer {
    output: Output,
    reopens: Arc<AtomicBool>,
    /// Whether the last batch was not written, and may have left the part of a line.
    is_failing: bool,
}

impl Writer {
    /// Writes until the queue has no sender.
    fn run(&mut self, commands: &Receiver<Command>) {
        let (mut batch, mut flushed) = (String::new(), Vec::new());
        while let Ok(first) = commands.recv() {
            let (mut events, mut next) = (0, Some(first));
            while let Some(command) = next {
                match command {
                    Command::Event(line) => {
                        batch.push_str(&line);
                        batch.push('\n');
                        events += 1;
                    }
                    Command::Wake => {}
                    Command::Flush(done) => flushed.push(done),
                }
                next = if batch.len() < BATCH_BYTES { commands.try_recv().ok() } else { None };
            }
            if self.reopens.swap(false, Ordering::AcqRel)
                && let Err(error) = self.output.reopen()
            {
                tracing::error!(%error, "the audit trail cannot be opened anew: it goes on in the old file");
            }
            if events > 0 {
                self.write(&batch, events);
                batch.clear();
            }
            for done in flushed.drain(..) {
                // Nobody may wait any more.
                let _ = done.send(());
            }
        }
    }

    fn write(&mut self, batch: &str, events: u64) {
        let ends_a_part = if self.is_failing { "\n" } else { "" };
        match self.output.write(format!("{ends_a_part}{batch}").as_bytes()) {
            Ok(()) => {
                metrics::counter!("nigh_audit_events_total").increment(events);
                self.is_failing = false;
            }
            Err(error) => {
                lost(events);
                if !self.is_failing {
                    tracing::error!(
                        %error,
                        "the audit trail cannot be written: its events are lost until it can be, and \
                         nigh_audit_events_dropped_total counts them; make room on the disk of audit.file"
                    );
                }
                self.is_failing = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(file: &Path) -> AuditSettings {
        AuditSettings { file: Some(file.to_owned()), data: false }
    }

    fn lines(file: &Path) -> Vec<String> {
        std::fs::read_to_string(file).unwrap().lines().map(str::to_owned).collect()
    }

    #[tokio::test]
    async fn events_are_appended_in_order_and_only_their_owner_may_read_them() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("audit.log");
        std::fs::write(&file, "{\"before\": 1}\n").unwrap();
        let log = AuditLog::open(&settings(&file)).unwrap().unwrap();
        for number in 0..1000 {
            log.write(number.to_string());
        }
        log.flush().await;
        let lines = lines(&file);
        assert_eq!((lines.len(), lines[1].as_str(), lines[1000].as_str()), (1001, "0", "999"));
        let fresh = folder.path().join("fresh.log");
        let _log = AuditLog::open(&settings(&fresh)).unwrap().unwrap();
        let mode = std::os::unix::fs::PermissionsExt::mode(&fresh.metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
    }

    #[tokio::test]
    async fn after_a_rotation_events_go_to_the_new_file_once_it_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let (file, rotated) = (folder.path().join("audit.log"), folder.path().join("audit.log.1"));
        let log = AuditLog::open(&settings(&file)).unwrap().unwrap();
        log.write("first".to_owned());
        log.flush().await;
        std::fs::rename(&file, &rotated).unwrap();
        log.write("second".to_owned());
        log.flush().await;
        log.reopen();
        log.write("third".to_owned());
        log.flush().await;
        assert_eq!((lines(&rotated), lines(&file)), (vec!["first".into(), "second".into()], vec!["third".into()]));
    }

    #[tokio::test]
    async fn what_cannot_be_written_is_lost_and_later_events_begin_a_line() {
        // Every write to it fails as on a full disk.
        let log = AuditLog::open(&settings(Path::new("/dev/full"))).unwrap().unwrap();
        log.write("lost".to_owned());
        log.flush().await;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("audit.log");
        let mut writer = Writer {
            output: Output::open(Path::new("/dev/full")).unwrap(),
            reopens: Arc::default(),
            is_failing: false,
        };
        writer.write("lost\n", 1);
        assert!(writer.is_failing);
        writer.output = Output::open(&file).unwrap();
        writer.write("written\n", 1);
        assert_eq!(lines(&file), ["", "written"]);
        assert!(!writer.is_failing);
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_named_and_without_one_there_is_no_trail() {
        let path = Path::new("/nowhere/audit.log");
        let error = AuditLog::open(&settings(path)).err().unwrap().to_string();
        assert!(error.contains("/nowhere/audit.log"), "{error}");
        assert!(AuditLog::open(&AuditSettings::default()).unwrap().is_none());
        assert!(AuditLog::open(&settings(Path::new(STDERR))).unwrap().is_some());
    }
}
