//! Large folios: a segment's memory, sixteen pages of it at a time.
//!
//! The kernel needs more time to give a page of 4 KiB and take it back than to copy the page. Where it is set to, it
//! gives folios of 64 KiB to a mapping that asks for them (MADV_HUGEPAGE; `hugepages-64kB/shmem_enabled` in the
//! kernel's admin-guide/mm/transhuge.rst, Linux 6.11) and lies in memory as its file does. Bytes are received straight
//! into such a mapping; where there are none a write(2) is the cheapest way in, for a fault a page costs twice that.

use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::slice;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

/// The size of a large folio. A mapping must lie on a multiple of it.
const FOLIO_BYTES: usize = 64 << 10;
/// Bytes that are asked of the kernel at a time: few enough that those that the kernel has cleared are still in the
/// processor's cache when the object's bytes come.
const STEP_BYTES: usize = 256 << 10;
const SETTING: &str = "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/shmem_enabled";
const INHERITED: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

/// Whether the kernel gives large folios to mappings of memfds that ask for them: objects of 64 KiB and more are in
/// such then.
#[must_use]
pub fn are_offered() -> bool {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    says_so(&read(SETTING), &read(INHERITED))
}

/// The choice in brackets decides.
fn says_so(setting: &str, inherited: &str) -> bool {
    let chosen = |text: &str, choices: &[&str]| choices.iter().any(|choice| text.contains(&format!("[{choice}]")));
    let given = ["always", "within_size", "advise"];
    chosen(setting, &given)
        || chosen(setting, &["inherit"]) && (chosen(inherited, &given) || inherited.contains("[force]"))
}

/// A file that nobody else has, mapped for writing so that it gets large folios.
#[derive(Debug)]
pub(crate) struct Folios {
    /// What is mapped begins at the first multiple of a folio's size in this reservation.
    reserved: NonNull<u8>,
    reserved_bytes: usize,
    start: NonNull<u8>,
    bytes: usize,
    /// So many bytes from the start on have their memory.
    given: usize,
}

// SAFETY: the mapping belongs to this value alone, and memory may be written by any thread.
unsafe impl Send for Folios {}
// SAFETY: a shared reference gives no access to the mapping.
unsafe impl Sync for Folios {}

impl Folios {
    /// Maps `file`, which has `bytes` and no other holder. Its memory comes with `room`.
    pub(crate) fn map(file: &File, bytes: usize) -> io::Result<Self> {
        let reserved_bytes = bytes.checked_add(FOLIO_BYTES).ok_or(io::ErrorKind::OutOfMemory)?;
        let nowhere = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping, where the kernel likes, that nobody may touch.
        let reserved = unsafe { mmap_anonymous(std::ptr::null_mut(), reserved_bytes, ProtFlags::empty(), nowhere) }?;
        let reserved = NonNull::new(reserved.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the reservation is longer than the file by a folio, so that this is within it, and the file's end
        // too.
        let start = unsafe { reserved.add(reserved.align_offset(FOLIO_BYTES)) };
        // From here on it is unmapped when it is dropped.
        let folios = Self { reserved, reserved_bytes, start, bytes, given: 0 };
        let (access, fixed) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
        // SAFETY: it takes the place of a part of the reservation, which nothing else uses.
        unsafe { mmap(start.as_ptr().cast(), bytes, access, fixed, file, 0) }?;
        // SAFETY: as above. A kernel that has none refuses, and gives pages.
        let _asked = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
        Ok(folios)
    }

    /// Memory for the bytes from `at` on, `most` of them at most, and fewer if that takes long. It is there: whoever
    /// writes to it meets no want of memory.
    ///
    /// # Errors
    /// The kernel's, if it has no memory.
    pub(crate) fn room(&mut self, at: usize, most: usize) -> io::Result<&mut [u8]> {
        let end = self.bytes.min(at.saturating_add(most.min(STEP_BYTES)));
        let at = at.min(end);
        while self.given < end {
            let next = self.bytes.min(self.given + STEP_BYTES);
            // SAFETY: within the mapping, as `given` and `next` are at most `bytes`.
            let (from, count) = unsafe { (self.start.add(self.given), next - self.given) };
            // SAFETY: within the mapping; what is in it stays.
            unsafe { madvise(from.as_ptr().cast(), count, Advice::LinuxPopulateWrite) }?;
            self.given = next;
        }
        // SAFETY: within the mapping, whose memory is there and zero or written; nobody else has it or the file, which
        // keeps its length, and `self` is borrowed for as long.
        Ok(unsafe { slice::from_raw_parts_mut(self.start.add(at).as_ptr(), end - at) })
    }

    /// Copies `bytes` to `at`; what is beyond the end is left out.
    ///
    /// # Errors
    /// The kernel's, if it has no memory.
    pub(crate) fn write(&mut self, mut at: usize, mut bytes: &[u8]) -> io::Result<()> {
        loop {
            let room = self.room(at, bytes.len())?;
            if room.is_empty() {
                return Ok(());
            }
            let (now, later) = bytes.split_at(room.len());
            room.copy_from_slice(now);
            (at, bytes) = (at + now.len(), later);
        }
    }
}

impl Drop for Folios {
    fn drop(&mut self) {
        // SAFETY: made by `map`; no reference into it outlives `self`. What fails leaves it mapped, and harms nobody.
        let _unmapped = unsafe { munmap(self.reserved.as_ptr().cast(), self.reserved_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::memfd::memfd;

    #[test]
    fn what_is_written_into_the_room_is_in_the_file_whatever_its_length() {
        for bytes in [1, 4096, FOLIO_BYTES + 1, 3 * STEP_BYTES + 4097] {
            let file = memfd().unwrap();
            file.set_len(bytes as u64).unwrap();
            let mut folios = Folios::map(&file, bytes).unwrap();
            assert_eq!(folios.start.as_ptr() as usize % FOLIO_BYTES, 0);
            let mut at = 0;
            while at < bytes {
                let room = folios.room(at, usize::MAX).unwrap();
                assert!(!room.is_empty() && room.iter().all(|byte| *byte == 0));
                room.fill(1 + (at / STEP_BYTES) as u8);
                at += room.len();
            }
            assert!(folios.room(bytes, 1).unwrap().is_empty() && folios.room(bytes + 1, 1).unwrap().is_empty());
            assert!(folios.room(0, 1).unwrap() == [1]);
            drop(folios);
            let mut found = vec![0; bytes];
            file.read_exact_at(&mut found, 0).unwrap();
            assert!((0..).zip(&found).all(|(at, byte): (usize, _)| *byte == 1 + (at / STEP_BYTES) as u8));
        }
    }

    #[test]
    fn the_choice_in_brackets_decides() {
        let (never, always) = ("always within_size advise [never] deny force", "[always] within_size advise never");
        assert!(says_so("always inherit within_size [advise] never", never));
        assert!(says_so("[always] inherit within_size advise never", never));
        assert!(says_so("always [inherit] within_size advise never", always));
        assert!(!says_so("always [inherit] within_size advise never", never));
        assert!(!says_so("always inherit within_size advise [never]", always));
        assert!(!says_so("", "") && !says_so("", always));
    }
}
