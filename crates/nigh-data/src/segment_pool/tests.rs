use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

use memmap2::Mmap;
use proptest::prelude::*;
use rustix::fs::OFlags;
use rustix::pipe::{SpliceFlags, pipe, splice};

use super::*;
use crate::account::{Account, OWN_MIN};
use crate::segment::{ClientSegment, SealResult, Segment, SegmentWriter};

/// Two lengths of one class.
const LONG: u64 = 125_001;
const SHORT: u64 = 100_001;

fn with_pool() -> impl Iterator<Item = Arc<Account>> {
    [false, true].into_iter().map(|large_folios| {
        let account = Account::open_with(large_folios).unwrap();
        drop(account.set_pool_limit(Cost { bytes: 64 << 20, segments: 1000 }));
        account
    })
}

fn filled(account: &Arc<Account>, length: u64, with: u8) -> Segment {
    let mut filling = SegmentWriter::new(account, length).unwrap();
    filling.append(&vec![with; length as usize]).unwrap();
    filling.seal().unwrap()
}

fn from_pool(account: &Account) -> u64 {
    account.pool_counts().pooled
}

#[test]
fn the_next_object_of_a_class_gets_the_pages_of_the_last_one_and_nothing_more() {
    for account in with_pool() {
        for (first, second) in [(LONG, SHORT), (SHORT, LONG)] {
            drop(filled(&account, first, 1));
            assert_eq!((account.living(), account.pooled()), (Cost::default(), account.cost(first)));
            let before = from_pool(&account);
            let segment = filled(&account, second, 2);
            assert_eq!(from_pool(&account), before + 1);
            assert_eq!((account.living(), account.pooled()), (account.cost(second), Cost::default()));
            assert!(segment.as_slice() == vec![2; second as usize]);
            // Whoever has its file finds the object's size, and nothing beyond it.
            let file = File::from(segment.hand_out().unwrap().unwrap());
            let metadata = file.metadata().unwrap();
            assert_eq!((metadata.len(), metadata.blocks() * 512), (second, account.cost(second).bytes));
        }
    }
}

#[test]
fn a_reader_that_maps_to_the_end_of_the_last_page_sees_the_object_and_then_zeros() {
    for account in with_pool() {
        drop(filled(&account, LONG, 0xee));
        let segment = filled(&account, SHORT, 2);
        assert_eq!(from_pool(&account), 1);
        let file = File::from(segment.hand_out().unwrap().unwrap());
        let whole = SHORT.next_multiple_of(rustix::param::page_size() as u64) as usize;
        // SAFETY: nobody can change or shorten the file, and its last page is whole.
        let map = unsafe { memmap2::MmapOptions::new().len(whole).map(&file) }.unwrap();
        let (object, beyond) = map.split_at(SHORT as usize);
        assert!(object.iter().all(|byte| *byte == 2) && beyond.iter().all(|byte| *byte == 0));
    }
}

#[test]
fn what_a_reader_here_has_is_not_used_again_until_the_reader_lets_it_go() {
    for account in with_pool() {
        let segment = filled(&account, LONG, 1);
        let bytes = segment.slice(3..9).into_bytes();
        drop(segment);
        assert_eq!(account.pooled(), Cost::default());
        let other = filled(&account, LONG, 2);
        assert_eq!((&bytes[..], from_pool(&account)), (&[1; 6][..], 0));
        drop((bytes, other));
        assert_eq!(account.pooled().segments, 2);
    }
}

#[test]
fn a_descriptor_or_a_mapping_of_another_process_keeps_its_pages_for_good() {
    for account in with_pool() {
        let segment = filled(&account, LONG, 1);
        let file = File::from(segment.hand_out().unwrap().unwrap());
        // SAFETY: nobody can change or shorten the file.
        let map = unsafe { Mmap::map(&file) }.unwrap();
        drop(segment);
        let others: Vec<_> = (0..3).map(|_| filled(&account, LONG, 2)).collect();
        let mut read = vec![0; LONG as usize];
        file.read_exact_at(&mut read, 0).unwrap();
        drop(file);
        assert!(read == vec![1; LONG as usize] && map[..] == read[..]);
        assert_eq!((from_pool(&account), account.pooled()), (0, Cost::default()));
        drop((map, others));
        assert_eq!(account.pooled().segments, 3);
    }
}

#[test]
fn pages_that_a_reader_has_in_a_pipe_without_file_or_mapping_show_it_no_other_object() {
    const PIECE: usize = 16 << 10;
    for account in with_pool() {
        let segment = filled(&account, LONG, 1);
        let file = segment.hand_out().unwrap().unwrap();
        let (out, into) = pipe().unwrap();
        assert_eq!(splice(&file, None, &into, None, PIECE, SpliceFlags::empty()).unwrap(), PIECE);
        drop(file);
        assert!(!segment.is_held_elsewhere(), "the kernel says that nobody has it");
        drop(segment);
        let _others: Vec<_> = (0..3).map(|_| filled(&account, LONG, 2)).collect();
        let mut piece = vec![0; PIECE];
        File::from(out).read_exact(&mut piece).unwrap();
        assert!(piece == vec![1; PIECE]);
    }
}

#[test]
fn an_object_in_used_pages_cannot_be_changed_by_who_holds_its_file() {
    for account in with_pool() {
        drop(filled(&account, LONG, 1));
        let segment = filled(&account, SHORT, 2);
        assert_eq!(from_pool(&account), 1);
        let file = segment.hand_out().unwrap().unwrap();
        let mut anew = File::from(crate::handed_out::reopen(file.as_fd(), OFlags::RDWR).unwrap());
        assert!(anew.set_len(0).is_err() && anew.set_len(LONG).is_err());
        assert_eq!(anew.write(b"other").unwrap_err().raw_os_error(), Some(libc::EPERM));
        // SAFETY: never reached with a mapping: the seal refuses it.
        assert!(unsafe { memmap2::MmapMut::map_mut(&anew) }.is_err(), "a second writable mapping");
        assert!(segment.as_slice() == vec![2; SHORT as usize]);
    }
}

#[test]
fn what_a_client_has_filled_is_never_used_again() {
    for account in with_pool() {
        let open = ClientSegment::new(&account, OWN_MIN).unwrap();
        let SealResult::Sealed(segment) = open.seal().unwrap() else { panic!() };
        drop(segment);
        assert_eq!((account.living(), account.pooled()), (Cost::default(), Cost::default()));
    }
}

#[test]
fn what_a_client_fills_may_be_in_used_pages_which_show_it_nothing_and_can_be_sealed() {
    for account in with_pool() {
        drop(filled(&account, LONG, 0xee));
        let open = ClientSegment::new(&account, SHORT).unwrap();
        assert_eq!((from_pool(&account), account.pooled()), (1, Cost::default()));
        let file = File::from(open.hand_out().unwrap());
        assert!(file.set_len(LONG).is_err() && file.set_len(0).is_err());
        // SAFETY: the file's length cannot change, and this test alone writes to it.
        let mut map = unsafe { memmap2::MmapMut::map_mut(&file) }.unwrap();
        assert!(map.len() as u64 == SHORT && map.iter().all(|byte| *byte == 0));
        map.fill(5);
        drop(map);
        let SealResult::Sealed(segment) = open.seal().unwrap() else { panic!("the node maps it for writing still") };
        assert!(file.write_at(b"late", 0).is_err());
        assert!(segment.as_slice() == vec![5; SHORT as usize]);
        assert_eq!(segment.cost(), account.cost(SHORT));
    }
}

#[test]
fn spare_pages_are_made_when_the_last_ones_were_taken_and_not_beyond_the_limit() {
    for account in with_pool() {
        assert!(!account.wants_spares());
        let first = filled(&account, LONG, 1);
        assert!(account.wants_spares());
        account.make_spares();
        assert_eq!((account.pooled().segments, account.wants_spares()), (1, false));
        let second = filled(&account, SHORT, 2);
        account.make_spares();
        let open = ClientSegment::new(&account, LONG).unwrap();
        assert_eq!((from_pool(&account), account.pooled()), (2, Cost::default()));
        let mut found = vec![1; LONG as usize];
        File::from(open.hand_out().unwrap()).read_exact(&mut found).unwrap();
        assert!(found == vec![0; LONG as usize] && second.as_slice() == vec![2; SHORT as usize]);
        drop(account.set_pool_limit(account.living()));
        account.make_spares();
        assert_eq!((account.pooled(), account.wants_spares()), (Cost::default(), false));
        drop(first);
    }
}

#[test]
fn an_object_that_breaks_off_leaves_no_pages() {
    for account in with_pool() {
        let mut filling = SegmentWriter::new(&account, LONG).unwrap();
        filling.append(&[1; 10]).unwrap();
        assert!(filling.seal().is_err());
        assert_eq!((account.living(), account.pooled()), (Cost::default(), Cost::default()));
    }
}

#[test]
fn bytes_are_received_straight_into_used_large_folios_which_are_cleared_before() {
    for account in with_pool().skip(1) {
        drop(filled(&account, LONG, 0xee));
        let mut filling = SegmentWriter::new(&account, SHORT).unwrap();
        filling.append(&[7; 1000]).unwrap();
        while filling.filled() < SHORT {
            let room = filling.room(SHORT - filling.filled()).unwrap().expect("used pages");
            assert!(room.iter().all(|byte| *byte == 0));
            room.fill(7);
            let received = room.len();
            filling.received(received);
        }
        assert!(filling.seal().unwrap().as_slice() == vec![7; SHORT as usize]);
    }
}

#[test]
fn free_pages_yield_to_every_kind_of_object() {
    let account = Account::open_with(false).unwrap();
    let each = account.cost(LONG);
    let limit = Cost { bytes: 8 * each.bytes, segments: 100 };
    drop(account.set_pool_limit(limit));
    let mut living: Vec<_> = (0..9).map(|_| filled(&account, LONG, 1)).collect();
    living.pop();
    assert_eq!(account.pooled(), Cost::default(), "objects take all");
    living.pop();
    assert_eq!(account.pooled(), each);
    let small = Segment::copy_of(b"outside of the account").unwrap();
    assert_eq!(account.pooled(), each);
    drop(small);
    let small = filled(&account, 100, 1);
    assert_eq!(account.pooled(), Cost::default(), "a small object");
    drop((small, living.pop()));
    assert_eq!(account.pooled(), each);
    let open = ClientSegment::new(&account, 2 * LONG).unwrap();
    assert_eq!(account.pooled(), Cost::default(), "one that a client fills");
    drop((open, living.pop()));
    assert_eq!(account.pooled(), each);
    let _large = filled(&account, 3 * LONG, 1);
    assert_eq!(account.pooled(), Cost::default(), "one of another class");
}

#[test]
fn a_lower_limit_and_who_takes_memory_back_free_pages_at_once() {
    let account = Account::open_with(false).unwrap();
    let each = account.cost(LONG);
    let limit = |times: u64| Cost { bytes: 8 * times * each.bytes, segments: 100 };
    drop(account.set_pool_limit(limit(3)));
    let pages = |count| drop((0..count).map(|_| filled(&account, LONG, 1)).collect::<Vec<_>>());
    pages(4);
    assert_eq!(account.pooled().bytes, 3 * each.bytes, "an eighth");
    drop(account.set_pool_limit(limit(2)));
    assert_eq!(account.pooled().bytes, 2 * each.bytes);
    let closed = account.give_pool_back(1);
    assert_eq!(account.pooled().bytes, each.bytes);
    pages(3);
    assert_eq!(account.pooled().bytes, 0, "what is let go meanwhile is freed");
    drop(closed);
    pages(1);
    assert_eq!(account.pooled().bytes, each.bytes);
    drop(account.give_pool_back(u64::MAX));
    assert_eq!(account.pooled(), Cost::default());
}

#[test]
fn pages_that_nobody_needs_for_a_while_are_freed() {
    for account in with_pool() {
        let at = |seconds| Monotonic::default().after(Duration::from_secs(seconds));
        account.look_at_pool(at(100));
        drop(filled(&account, LONG, 1));
        account.look_at_pool(at(109));
        account.look_at_pool(at(110));
        assert_eq!(account.pooled().segments, 1);
        drop(filled(&account, LONG, 1));
        account.look_at_pool(at(120));
        assert_eq!(account.pooled().segments, 1, "they were needed");
        account.look_at_pool(at(130));
        assert_eq!(account.pooled(), Cost::default());
    }
}

#[test]
fn pages_are_freed_when_their_account_is_gone() {
    for account in with_pool() {
        let segment = filled(&account, LONG, 1);
        let pool = Arc::downgrade(&account.pool);
        drop(account);
        assert_eq!(segment.as_slice()[5], 1);
        assert!(pool.upgrade().is_none());
        drop(segment);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put { length: u64, room: bool },
    Drop { which: usize },
    HandOut { which: usize },
    Close { which: usize },
    Shrink { bytes: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let which = || any::<usize>();
    let step = prop_oneof![
        4 => (OWN_MIN..5 * OWN_MIN, any::<bool>()).prop_map(|(length, room)| Step::Put { length, room }),
        3 => which().prop_map(|which| Step::Drop { which }),
        1 => which().prop_map(|which| Step::HandOut { which }),
        1 => which().prop_map(|which| Step::Close { which }),
        1 => (0..8 * OWN_MIN).prop_map(|bytes| Step::Shrink { bytes }),
    ];
    prop::collection::vec(step, 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever comes and goes, every reader sees its object alone, and what is taken is within the limit or living.
    #[test]
    fn every_reader_sees_its_object_alone_and_all_pages_are_accounted(steps in steps(), large_folios in any::<bool>()) {
        let account = Account::open_with(large_folios).unwrap();
        let limit = Cost { bytes: 64 * OWN_MIN, segments: 100 };
        drop(account.set_pool_limit(limit));
        let mut segments: Vec<(Segment, u8)> = Vec::new();
        let mut files: Vec<(File, u8, u64)> = Vec::new();
        for (mark, step) in (1u8..).zip(steps) {
            match step {
                Step::Put { length, room } => {
                    let mut filling = SegmentWriter::new(&account, length).unwrap();
                    while filling.filled() < length {
                        let left = length - filling.filled();
                        if room && let Some(room) = filling.room(left).unwrap() {
                            prop_assert!(room.iter().all(|byte| *byte == 0));
                            room.fill(mark);
                            let received = room.len();
                            filling.received(received);
                        } else {
                            filling.append(&vec![mark; left.min(70_000) as usize]).unwrap();
                        }
                    }
                    segments.push((filling.seal().unwrap(), mark));
                }
                Step::Drop { which } if !segments.is_empty() => {
                    segments.swap_remove(which % segments.len());
                }
                Step::HandOut { which } if !segments.is_empty() => {
                    let (segment, mark) = &segments[which % segments.len()];
                    let length = segment.as_slice().len() as u64;
                    files.push((File::from(segment.hand_out().unwrap().unwrap()), *mark, length));
                }
                Step::Close { which } if !files.is_empty() => {
                    files.swap_remove(which % files.len());
                }
                Step::Shrink { bytes } => {
                    let before = account.pooled().bytes;
                    drop(account.give_pool_back(bytes));
                    prop_assert!(account.pooled().bytes <= before.saturating_sub(bytes));
                }
                Step::Drop { .. } | Step::HandOut { .. } | Step::Close { .. } => {}
            }
            let living = segments.iter().fold(Cost::default(), |sum, (segment, _)| sum.plus(segment.cost()));
            prop_assert_eq!(account.living(), living);
            let pooled = account.pooled();
            prop_assert!(pooled.bytes <= limit.bytes / 8);
            prop_assert!(pooled == Cost::default() || living.plus(pooled).fits(limit));
        }
        for (segment, mark) in &segments {
            prop_assert!(segment.as_slice().iter().all(|byte| byte == mark));
        }
        for (file, mark, length) in &files {
            prop_assert_eq!(file.metadata().unwrap().len(), *length);
            let mut read = vec![0; *length as usize];
            file.read_exact_at(&mut read, 0).unwrap();
            prop_assert!(read.iter().all(|byte| byte == mark));
        }
    }
}
