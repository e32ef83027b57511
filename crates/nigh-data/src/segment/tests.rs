use std::io::Write;
use std::os::unix::fs::MetadataExt;

use super::*;
use crate::skipped::skip;

fn segment_of(account: &Arc<Account>, bytes: &[u8]) -> Segment {
    let mut filling = SegmentWriter::new(account, bytes.len() as u64).unwrap();
    filling.append(bytes).unwrap();
    filling.seal().unwrap()
}

/// With large folios and without; where the kernel gives none, pages take their place.
fn accounts() -> impl Iterator<Item = Arc<Account>> {
    [false, true].into_iter().map(|large_folios| Account::open_with(large_folios).unwrap())
}

#[test]
fn a_sealed_segment_cannot_be_changed_by_who_holds_its_file() {
    accounts().for_each(|account| cannot_be_changed(&account));
}

fn cannot_be_changed(account: &Arc<Account>) {
    let bytes = vec![7; OWN_MIN as usize];
    let segment = segment_of(account, &bytes);
    let mut file = File::from(segment.hand_out().unwrap().unwrap());
    assert!(file.write_all(b"other").is_err());
    assert!(file.set_len(0).is_err() && file.set_len(100).is_err());
    // Whoever has it can open it anew, and gains nothing.
    let mut anew = File::from(crate::handed_out::reopen(file.as_fd(), OFlags::RDWR).unwrap());
    assert!(anew.write_all(b"other").is_err());
    // SAFETY: never reached with a mapping: the seal refuses it.
    assert!(unsafe { memmap2::MmapMut::map_mut(&anew) }.is_err());
    // SAFETY: nobody can change or shorten the file.
    assert!(unsafe { Mmap::map(&anew) }.unwrap().make_mut().is_err());
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    assert_eq!(rustix::fs::fallocate(&anew, hole, 0, OWN_MIN), Err(rustix::io::Errno::PERM));
    assert_eq!(segment.as_slice(), bytes);
}

#[test]
fn a_segment_is_executed_by_nobody_and_cannot_be_made_executable() {
    let account = Account::open().unwrap();
    let sealed = segment_of(&account, b"#!/bin/sh\n".repeat(OWN_MIN as usize).as_slice());
    let lent = ClientSegment::new(&account, OWN_MIN).unwrap();
    for file in [sealed.hand_out().unwrap().unwrap(), lent.hand_out().unwrap()] {
        if !rustix::fs::fcntl_get_seals(&file).unwrap().contains(SealFlags::EXEC) {
            let test = "a_segment_is_executed_by_nobody_and_cannot_be_made_executable";
            return skip(test, "this kernel cannot bar it; Linux 6.3 and newer can");
        }
        assert_eq!(File::from(file.try_clone().unwrap()).metadata().unwrap().mode() & 0o111, 0);
        for mode in [0o755, 0o100] {
            assert_eq!(rustix::fs::fchmod(&file, mode.into()), Err(rustix::io::Errno::PERM));
        }
        let path = format!("/proc/{}/fd/{}", std::process::id(), std::os::fd::AsRawFd::as_raw_fd(&file));
        let refused = std::process::Command::new(path).spawn().unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
    }
}

#[test]
fn a_small_object_has_no_file_that_could_show_its_neighbours() {
    for length in [0, 1, OWN_MIN as usize - 1] {
        let segment = Segment::copy_of(&vec![1; length]).unwrap();
        assert!(segment.hand_out().unwrap().is_none() && segment.name().is_none(), "{length}");
    }
}

#[test]
fn a_slice_shares_the_bytes_and_keeps_them_alive() {
    for (account, length) in accounts().flat_map(|account| [(Arc::clone(&account), 10), (account, OWN_MIN)]) {
        let mut filling = SegmentWriter::new(&account, length).unwrap();
        filling.append(b"01234").unwrap();
        filling.append(&vec![b'5'; length as usize - 5]).unwrap();
        let segment = filling.seal().unwrap();
        let cost = segment.cost();
        assert_eq!(cost, account.cost(length));
        let slice = segment.slice(3..6);
        let address = slice.as_ref().as_ptr();
        let bytes = slice.into_bytes();
        assert_eq!((&bytes[..], bytes.as_ptr()), (&b"345"[..], address));
        assert_eq!(segment.slice(length - 2..length + 99).as_ref(), b"55");
        assert_eq!(segment.slice(length + 20..length + 99).as_ref(), b"");
        drop(segment);
        assert_eq!(account.living().minus(account.slack()).bytes, cost.bytes);
        assert_eq!(&bytes[..], b"345");
        drop(bytes);
        assert_eq!(account.living(), Cost::default());
    }
}

#[test]
fn a_segment_takes_exactly_the_bytes_announced() {
    for (account, length) in accounts().flat_map(|account| [(Arc::clone(&account), 3), (account, OWN_MIN)]) {
        let mut filling = SegmentWriter::new(&account, length).unwrap();
        filling.append(b"ab").unwrap();
        let short = filling.seal();
        assert!(matches!(short, Err(ObjectError::IncompleteBody { expected, received: 2 }) if expected == length));
        let mut filling = SegmentWriter::new(&account, length).unwrap();
        assert!(filling.append(&vec![0; length as usize + 1]).is_err());
        drop(filling);
        assert_eq!(account.living(), Cost::default());
    }
    assert_eq!(Segment::copy_of(b"").unwrap().as_slice(), b"");
}

#[test]
fn bytes_are_received_where_they_stay_or_appended() {
    const LENGTH: usize = 3 << 20;
    for large_folios in [false, true] {
        let account = Account::open_with(large_folios).unwrap();
        let mut filling = SegmentWriter::new(&account, LENGTH as u64).unwrap();
        filling.append(&[1; 5]).unwrap();
        while filling.filled() < LENGTH as u64 - 7 {
            let left = LENGTH as u64 - 7 - filling.filled();
            let Some(room) = filling.room(left).unwrap() else {
                assert!(!large_folios);
                filling.append(&vec![2; left as usize]).unwrap();
                break;
            };
            room.fill(2);
            let received = room.len();
            filling.received(received);
        }
        assert!(filling.room(8).is_err());
        filling.append(&[3; 7]).unwrap();
        let expected = [vec![1; 5], vec![2; LENGTH - 12], vec![3; 7]].concat();
        assert!(filling.seal().unwrap().as_slice() == expected);
    }
}

#[test]
fn a_cost_is_what_the_kernel_takes() {
    let lengths = [OWN_MIN, OWN_MIN + 1, 1 << 20, (3 << 20) + 4097];
    for (account, length) in accounts().flat_map(|account| lengths.map(|length| (Arc::clone(&account), length))) {
        let segment = segment_of(&account, &vec![1; length as usize]);
        let blocks = File::from(segment.hand_out().unwrap().unwrap()).metadata().unwrap().blocks();
        assert_eq!(account.cost(length).bytes, blocks * 512, "{length}");
    }
}

#[test]
fn a_segment_that_a_client_fills_has_its_memory_and_its_length_from_the_node() {
    let account = Account::open().unwrap();
    let lent = ClientSegment::new(&account, 100_000).unwrap();
    let mut file = File::from(lent.hand_out().unwrap());
    assert_eq!(file.metadata().unwrap().blocks() * 512, account.cost_of_own(100_000).bytes);
    assert!(file.set_len(100_001).is_err() && file.set_len(1).is_err());
    file.write_all(&[3; 100_000]).unwrap();
    assert!(file.write_all(b"more").is_err());
    let SealResult::Sealed(segment) = lent.seal().unwrap() else { panic!() };
    assert_eq!(segment.as_slice(), [3; 100_000]);
    assert!(file.write_all(b"late").is_err());
    assert_eq!(account.living(), account.cost_of_own(100_000));
}

#[test]
fn what_is_mapped_for_writing_is_not_sealed_until_it_is_unmapped() {
    let account = Account::open().unwrap();
    let lent = ClientSegment::new(&account, OWN_MIN).unwrap();
    let file = File::from(lent.hand_out().unwrap());
    // SAFETY: the file's length cannot change; only this test writes to it.
    let map = unsafe { memmap2::MmapMut::map_mut(&file) }.unwrap();
    let SealResult::Busy(lent) = lent.seal().unwrap() else { panic!() };
    drop(map);
    assert!(matches!(lent.seal().unwrap(), SealResult::Sealed(_)));
}

#[test]
fn a_segment_that_its_client_closed_for_seals_is_refused() {
    let account = Account::open().unwrap();
    let lent = ClientSegment::new(&account, OWN_MIN).unwrap();
    let file = lent.hand_out().unwrap();
    rustix::fs::fcntl_add_seals(&file, SealFlags::SEAL).unwrap();
    assert!(matches!(lent.seal().unwrap(), SealResult::Refused(_)));
    assert_eq!(account.living(), Cost::default());
}
