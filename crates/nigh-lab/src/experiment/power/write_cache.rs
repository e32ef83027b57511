//! A disk with a volatile write cache: what was written since the last sync is in memory, and a power cut keeps a random
//! part of it, sector by sector, in no order.
//!
//! That is what a disk promises and no more: sectors of 512 bytes are written as a whole, a sync makes durable what was
//! written before it, and until then each sector may be on the medium or not, also in an older version. One thing is
//! kinder than a disk must be: the first 4 KiB survive together or not at all, because ext4 checks its superblock's checksum
//! before it replays its journal and cannot be mounted with half of one.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

pub(super) const SECTOR: usize = 512;
/// Sectors at the start that are written together: the block of the file system's superblock.
const TOGETHER: u64 = 8;
/// How often a sector that is overwritten in the cache is on the medium by then.
const WRITTEN_MEANWHILE: f64 = 0.125;
/// A cut keeps this share of the cache; which of them is drawn for each cut.
const KEPT: [f64; 5] = [0.0, 0.1, 0.5, 0.9, 1.0];

/// What a disk does with a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Syncs {
    /// It keeps what was written before.
    Honest,
    /// It acknowledges them and does nothing; a cut forgets all that was written since it began to lie.
    Lying,
}

/// The medium, a file, and the cache over it.
#[derive(Debug)]
pub(super) struct WriteCache {
    medium: File,
    bytes: u64,
    unsynced: BTreeMap<u64, Box<[u8; SECTOR]>>,
    syncs: Syncs,
    draw: StdRng,
    /// Syncs since the start.
    pub(super) synced: u64,
    /// Sectors that cuts have taken.
    pub(super) forgotten: u64,
}

impl WriteCache {
    /// `medium` is as long as the disk.
    pub(super) fn new(medium: File, seed: u64) -> io::Result<Self> {
        let bytes = medium.metadata()?.len();
        Ok(Self {
            medium,
            bytes,
            unsynced: BTreeMap::new(),
            syncs: Syncs::Honest,
            draw: StdRng::seed_from_u64(seed),
            synced: 0,
            forgotten: 0,
        })
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether a cut now would find something to forget.
    pub(super) fn has_unsynced(&self) -> bool {
        !self.unsynced.is_empty()
    }

    /// What syncs do from now on. What was written before is made durable, so that the medium is a disk's that was honest
    /// until now.
    pub(super) fn set_syncs(&mut self, syncs: Syncs) -> io::Result<()> {
        self.flush()?;
        self.syncs = syncs;
        Ok(())
    }

    /// Fills `into` with what is at `offset`; behind the end of the disk are zeros.
    pub(super) fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        into.fill(0);
        let mut done = 0;
        while done < into.len() {
            match self.medium.read_at(&mut into[done..], offset + done as u64)? {
                0 => break,
                many => done += many,
            }
        }
        let end = offset + into.len() as u64;
        let size = SECTOR as u64;
        for (&number, sector) in self.unsynced.range(offset / size..end.div_ceil(size)) {
            let at = number * size;
            let (from, to) = (at.max(offset), (at + size).min(end));
            into[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&sector[(from - at) as usize..(to - at) as usize]);
        }
        Ok(())
    }

    /// Writes into the cache.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        let size = SECTOR as u64;
        let end = offset + data.len() as u64;
        if end > self.bytes {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        for number in offset / size..end.div_ceil(size) {
            let at = number * size;
            let (from, to) = (at.max(offset), (at + size).min(end));
            let mut sector = Box::new([0; SECTOR]);
            if to - from < size {
                self.read(at, &mut sector[..])?;
            }
            sector[(from - at) as usize..(to - at) as usize]
                .copy_from_slice(&data[(from - offset) as usize..(to - offset) as usize]);
            let before = self.unsynced.insert(number, sector);
            let honest = self.syncs == Syncs::Honest && number >= TOGETHER;
            if let Some(before) = before.filter(|_| honest)
                && self.draw.random_bool(WRITTEN_MEANWHILE)
            {
                self.medium.write_all_at(&before[..], at)?;
            }
        }
        Ok(())
    }

    /// Makes durable what was written before, unless the disk lies.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.synced += 1;
        match self.syncs {
            Syncs::Honest => self.flush(),
            Syncs::Lying => Ok(()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let all = std::mem::take(&mut self.unsynced);
        self.keep(all.into_iter())
    }

    /// Writes sectors, given in their order, to the medium, neighbours together.
    fn keep(&self, sectors: impl Iterator<Item = (u64, Box<[u8; SECTOR]>)>) -> io::Result<()> {
        let (mut run, mut begin) = (Vec::new(), 0);
        for (number, sector) in sectors {
            if number * SECTOR as u64 != begin + run.len() as u64 {
                self.medium.write_all_at(&run, begin)?;
                run.clear();
                begin = number * SECTOR as u64;
            }
            run.extend_from_slice(&sector[..]);
        }
        self.medium.write_all_at(&run, begin)
    }

    /// The power is cut: of what was not synced a random part is kept, and of what a lying disk was given nothing.
    pub(super) fn lose_power(&mut self) -> io::Result<()> {
        let share = match self.syncs {
            Syncs::Honest => KEPT[self.draw.random_range(0..KEPT.len())],
            Syncs::Lying => 0.0,
        };
        let first = self.draw.random_bool(share);
        let all = std::mem::take(&mut self.unsynced);
        let had = all.len();
        let mut kept = Vec::new();
        for (number, sector) in all {
            let keeps = if number < TOGETHER { first } else { self.draw.random_bool(share) };
            if keeps {
                kept.push((number, sector));
            }
        }
        self.forgotten += (had - kept.len()) as u64;
        self.keep(kept.into_iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 64 * SECTOR;

    fn disk(seed: u64) -> WriteCache {
        let medium = tempfile::tempfile().unwrap();
        medium.set_len(SIZE as u64).unwrap();
        WriteCache::new(medium, seed).unwrap()
    }

    fn content(disk: &WriteCache) -> Vec<u8> {
        let mut all = vec![1; SIZE];
        disk.read(0, &mut all).unwrap();
        all
    }

    #[test]
    fn what_was_synced_survives_every_cut_and_of_the_rest_each_sector_is_whole_or_as_before() {
        let (mut kept, mut lost) = (0, 0);
        for seed in 0..40 {
            let mut disk = disk(seed);
            // From the middle of a sector to the middle of another.
            disk.write(700, &[7; 5000]).unwrap();
            disk.sync().unwrap();
            let durable = content(&disk);
            assert_eq!((durable[699], durable[700], durable[5699], durable[5700]), (0, 7, 7, 0));
            disk.write(0, &[9; SIZE]).unwrap();
            assert_eq!(content(&disk), [9; SIZE], "reads see the cache");
            disk.lose_power().unwrap();
            let after = content(&disk);
            for (now, before) in after.chunks(SECTOR).zip(durable.chunks(SECTOR)) {
                let is_new = now == [9; SECTOR];
                assert!(is_new || now == before, "seed {seed}");
                (kept, lost) = if is_new { (kept + 1, lost) } else { (kept, lost + 1) };
            }
            let first = &after[..TOGETHER as usize * SECTOR];
            assert!(*first == [9; 4096] || *first == durable[..4096], "the superblock's block is whole, seed {seed}");
            disk.lose_power().unwrap();
            assert_eq!(content(&disk), after, "nothing is forgotten twice");
        }
        assert!(kept > 300 && lost > 300, "{kept} kept, {lost} lost");
    }

    #[test]
    fn a_disk_that_lies_about_syncs_forgets_all_since_it_began_to() {
        let mut disk = disk(1);
        disk.write(0, &[1; 4096]).unwrap();
        disk.set_syncs(Syncs::Lying).unwrap();
        disk.write(512, &[2; 8192]).unwrap();
        disk.sync().unwrap();
        disk.lose_power().unwrap();
        let after = content(&disk);
        assert_eq!((after[0], after[512], after[4096], disk.forgotten), (1, 1, 0, 16));
    }

    #[test]
    fn a_sector_that_was_overwritten_may_be_found_in_its_older_version() {
        let mut older = 0;
        for seed in 0..200 {
            let mut disk = disk(seed);
            for version in 1..=3 {
                disk.write(SIZE as u64 / 2, &[version; SECTOR]).unwrap();
            }
            disk.lose_power().unwrap();
            older += u32::from(matches!(content(&disk)[SIZE / 2], 1 | 2));
        }
        assert!(older > 5, "{older}");
    }

    #[test]
    fn nothing_is_written_behind_the_end_and_what_is_read_there_is_zero() {
        let mut disk = disk(1);
        assert!(disk.write(SIZE as u64 - 10, &[1; 11]).is_err());
        let mut read = [7; 20];
        disk.write(SIZE as u64 - 10, &[1; 10]).unwrap();
        disk.read(SIZE as u64 - 10, &mut read).unwrap();
        assert_eq!((read[9], read[10]), (1, 0));
    }
}
