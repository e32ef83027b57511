//! The memory that the state file takes. Alone in its process, whose memory it measures.

#![expect(clippy::unwrap_used, reason = "a test ends by panicking")]

use nigh_engine::{RecordLog, Retention, StateFile};
use nigh_terms::Namespace;

/// The process's memory that no file is behind.
fn anonymous_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[tokio::test]
async fn the_memory_for_the_state_file_is_bounded_whatever_the_file_holds() {
    const RECORD: usize = 1 << 20;
    let folder = tempfile::tempdir().unwrap();
    let state = StateFile::open(&folder.path().join("state.redb")).unwrap();
    let log = RecordLog::open(state, Retention::default()).unwrap();
    let namespace = Namespace::new("tenant").unwrap();
    let before = anonymous_bytes();
    for n in 0..200_u8 {
        log.append([n; 16], &namespace, vec![n; RECORD]);
        if n % 8 == 0 {
            log.flush().await;
        }
    }
    let read = log.newest(None, usize::MAX, |record| Some(record.len())).await.unwrap();
    assert_eq!(read, [RECORD; 200]);
    let grown = anonymous_bytes().saturating_sub(before);
    assert!(grown < 120 << 20, "the process grew by {} MiB", grown >> 20);
}
