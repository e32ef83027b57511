//! A disk in memory that records every write and sync, and can show its state after a crash at any of them.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::sync::Arc;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::super::disk::{Folder, SegmentFile};

const SECTOR: usize = 512;

#[derive(Clone, Debug)]
enum Op {
    Write {
        file: usize,
        offset: usize,
        bytes: Vec<u8>,
    },
    Sync {
        file: usize,
    },
    /// Durable when it returns, like the real one.
    Extend {
        file: usize,
        bytes: usize,
    },
    Create {
        file: usize,
        name: String,
    },
    Rename {
        from: String,
        to: String,
    },
    Remove {
        name: String,
    },
}

/// The faults of the disk.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    /// Syncs fail.
    pub(super) sync: bool,
    /// No file can grow.
    pub(super) full: bool,
    /// Syncs do nothing, and report success.
    pub(super) lies: bool,
}

/// Files by number, and their names.
#[derive(Clone, Default)]
struct State {
    files: Vec<Vec<u8>>,
    names: BTreeMap<String, usize>,
}

#[derive(Default)]
struct Disk {
    /// The state at the beginning, all of it durable.
    base: State,
    now: State,
    log: Vec<Op>,
    faults: Faults,
}

impl State {
    fn apply(&mut self, op: &Op) {
        match op {
            Op::Write { file, offset, bytes } => {
                self.files[*file][*offset..offset + bytes.len()].copy_from_slice(bytes)
            }
            Op::Sync { .. } => {}
            Op::Extend { file, bytes } => self.files[*file].resize(*bytes, 0),
            Op::Create { file, name } => {
                assert_eq!(*file, self.files.len());
                self.files.push(Vec::new());
                self.names.insert(name.clone(), *file);
            }
            Op::Rename { from, to } => {
                let file = self.names.remove(from).unwrap();
                self.names.insert(to.clone(), file);
            }
            Op::Remove { name } => drop(self.names.remove(name)),
        }
    }
}

impl Disk {
    fn act(&mut self, op: Op) {
        self.now.apply(&op);
        self.log.push(op);
    }
}

/// The effect of a crash on unsynced bytes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Crash {
    /// Only the process died.
    KeepAll,
    DropAll,
    /// Each sector is as it was at a random moment since the last sync.
    Torn(u64),
}

#[derive(Default)]
pub(super) struct MemoryFolder(Arc<Mutex<Disk>>);

impl MemoryFolder {
    pub(super) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// The number of writes and syncs so far.
    pub(super) fn ops(&self) -> usize {
        self.0.lock().log.len()
    }

    pub(super) fn set_faults(&self, faults: Faults) {
        self.0.lock().faults = faults;
    }

    pub(super) fn bytes_of(&self, name: &str) -> Vec<u8> {
        let disk = self.0.lock();
        disk.now.files[disk.now.names[name]].clone()
    }

    pub(super) fn change(&self, name: &str, how: impl FnOnce(&mut Vec<u8>)) {
        let mut disk = self.0.lock();
        let file = disk.now.names[name];
        how(&mut disk.now.files[file]);
    }

    /// The disk after a crash that follows the first `ops` writes and syncs.
    pub(super) fn crashed(&self, ops: usize, how: Crash) -> Arc<Self> {
        let disk = self.0.lock();
        let log = &disk.log[..ops];
        let mut image = disk.base.clone();
        for (at, op) in log.iter().enumerate() {
            let lost = match op {
                Op::Write { file, .. } => {
                    !log[at..].iter().any(|later| matches!(later, Op::Sync { file: synced } if synced == file))
                }
                _ => false,
            };
            if !lost || matches!(how, Crash::KeepAll) {
                image.apply(op);
            }
        }
        if let Crash::Torn(seed) = how {
            tear(&mut image, log, &mut StdRng::seed_from_u64(seed));
        }
        let disk = Disk { base: image.clone(), now: image, ..Disk::default() };
        Arc::new(Self(Arc::new(Mutex::new(disk))))
    }
}

/// Sets each unsynced sector to its state at a random moment between the last sync and now.
fn tear(image: &mut State, log: &[Op], random: &mut StdRng) {
    for file in 0..image.files.len() {
        let since = log.iter().rposition(|op| matches!(op, Op::Sync { file: synced } if *synced == file));
        let mut sectors: BTreeMap<usize, Vec<(usize, &[u8])>> = BTreeMap::new();
        for op in &log[since.map_or(0, |at| at + 1)..] {
            let Op::Write { file: written, offset, bytes } = op else { continue };
            if *written != file {
                continue;
            }
            let mut at = 0;
            while at < bytes.len() {
                let place = offset + at;
                let part = (SECTOR - place % SECTOR).min(bytes.len() - at);
                sectors.entry(place / SECTOR).or_default().push((place, &bytes[at..at + part]));
                at += part;
            }
        }
        for writes in sectors.values() {
            let kept = random.random_range(0..=writes.len());
            for (place, part) in &writes[..kept] {
                image.files[file][*place..place + part.len()].copy_from_slice(part);
            }
        }
    }
}

impl Folder for MemoryFolder {
    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.0.lock().now.names.keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn SegmentFile>> {
        let disk = self.0.lock();
        let file = *disk.now.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(MemoryFile { disk: Arc::clone(&self.0), file }))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn SegmentFile>> {
        let mut disk = self.0.lock();
        let file = disk.now.files.len();
        disk.act(Op::Create { file, name: name.to_owned() });
        Ok(Arc::new(MemoryFile { disk: Arc::clone(&self.0), file }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.lock().act(Op::Rename { from: from.to_owned(), to: to.to_owned() });
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.lock().act(Op::Remove { name: name.to_owned() });
        Ok(())
    }

    fn copy(&self, from: &str, to: &str) -> io::Result<()> {
        let mut disk = self.0.lock();
        let (file, bytes) = (disk.now.files.len(), disk.now.files[disk.now.names[from]].clone());
        disk.act(Op::Create { file, name: to.to_owned() });
        disk.act(Op::Extend { file, bytes: bytes.len() });
        disk.act(Op::Write { file, offset: 0, bytes });
        disk.act(Op::Sync { file });
        Ok(())
    }
}

struct MemoryFile {
    disk: Arc<Mutex<Disk>>,
    file: usize,
}

impl SegmentFile for MemoryFile {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.disk.lock().now.files[self.file].len() as u64)
    }

    fn read_at(&self, to: &mut [u8], offset: u64) -> io::Result<()> {
        let disk = self.disk.lock();
        let from = disk.now.files[self.file].get(offset as usize..offset as usize + to.len());
        to.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        self.disk.lock().act(Op::Write { file: self.file, offset: offset as usize, bytes });
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut disk = self.disk.lock();
        if disk.faults.sync {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        if !disk.faults.lies {
            disk.act(Op::Sync { file: self.file });
        }
        Ok(())
    }

    fn begin_writing(&self, _offset: u64, _bytes: u64) {}

    fn drop_cache(&self) {}

    fn extend(&self, bytes: u64) -> io::Result<()> {
        let mut disk = self.disk.lock();
        if disk.faults.full {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        disk.act(Op::Extend { file: self.file, bytes: bytes as usize });
        Ok(())
    }
}
