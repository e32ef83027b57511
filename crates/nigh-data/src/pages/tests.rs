use std::os::unix::fs::MetadataExt;

use super::*;

const LENGTHS: [usize; 4] = [1, 4096, FOLIO_BYTES + 1, 3 * STEP_BYTES + 4097];

fn filled(mut pages: Pages, with: u8) -> Pages {
    let length = pages.length();
    pages.write(0, &vec![with; length as usize]).unwrap();
    pages
}

fn of_file(pages: &Pages) -> Vec<u8> {
    let mut found = vec![0; pages.length];
    pages.file.read_exact_at(&mut found, 0).unwrap();
    found
}

#[test]
fn what_is_received_into_the_room_is_in_the_file_whatever_its_length() {
    for bytes in LENGTHS {
        let mut pages = Pages::new(bytes as u64, true).unwrap();
        assert_eq!(pages.mapping.start.as_ptr() as usize % FOLIO_BYTES, 0);
        let mut at = 0;
        while let Some(room) = pages.room(at, usize::MAX).unwrap() {
            assert!(!room.is_empty() && room.iter().all(|byte| *byte == 0));
            room.fill(1 + (at / STEP_BYTES) as u8);
            at += room.len();
        }
        assert_eq!(at, bytes);
        assert!(pages.room(bytes, 1).unwrap().is_none() && pages.room(bytes + 1, 1).unwrap().is_none());
        assert_eq!(pages.room(0, 1).unwrap().unwrap(), [1]);
        let found = of_file(&pages);
        assert!((0..).zip(&found).all(|(at, byte): (usize, _)| *byte == 1 + (at / STEP_BYTES) as u8));
        assert!(pages.as_slice() == found);
    }
}

#[test]
fn new_pages_without_large_folios_are_written_and_give_no_room() {
    for bytes in LENGTHS {
        let mut pages = Pages::new(bytes as u64, false).unwrap();
        assert!(pages.room(0, usize::MAX).unwrap().is_none());
        let pages = filled(pages, 3);
        assert!(pages.as_slice() == vec![3; bytes] && of_file(&pages) == vec![3; bytes]);
        assert_eq!(pages.entered, 0, "its pages are found when they are read");
    }
}

#[test]
fn nothing_is_written_beyond_the_end() {
    for in_folios in [false, true] {
        let mut pages = Pages::new(100, in_folios).unwrap();
        assert!(pages.write(1, &[7; 100]).is_err());
        assert_eq!(pages.file.metadata().unwrap().len(), 100);
    }
}

#[test]
fn a_former_objects_bytes_are_seen_by_nobody_and_its_pages_beyond_the_new_length_are_free() {
    let page = rustix::param::page_size();
    for (from, to, in_folios) in LENGTHS
        .into_iter()
        .flat_map(|from| LENGTHS.map(|to| (from, to)))
        .flat_map(|(from, to)| [false, true].map(|in_folios| (from, to, in_folios)))
    {
        let pages = filled(Pages::new(from as u64, in_folios).unwrap(), 0xee);
        let mut pages = pages.reuse(to as u64).unwrap();
        assert_eq!(pages.file.metadata().unwrap().len() as usize, to);
        let taken = pages.file.metadata().unwrap().blocks() as usize * 512;
        assert!(taken <= from.min(to).next_multiple_of(page), "{taken} of {from} for {to}");
        if let Some(room) = pages.room(to / 2, usize::MAX).unwrap() {
            assert!(room.iter().all(|byte| *byte == 0), "{from} for {to}");
        }
        let pages = filled(pages, 0x11).reuse(from as u64).unwrap();
        let pages = filled(pages, 0x22);
        assert!(pages.as_slice() == vec![0x22; from] && of_file(&pages) == vec![0x22; from], "{from} for {to}");
    }
}

#[test]
fn a_file_for_another_process_is_whole_and_zero() {
    for (from, to) in [(3 * STEP_BYTES, STEP_BYTES + 1), (STEP_BYTES + 1, 3 * STEP_BYTES)] {
        let pages = filled(Pages::new(from as u64, false).unwrap(), 0xee).reuse(to as u64).unwrap();
        let file = pages.into_cleared().unwrap();
        let mut found = vec![1; to];
        file.read_exact_at(&mut found, 0).unwrap();
        assert!(found == vec![0; to]);
        let taken = to.next_multiple_of(rustix::param::page_size()) as u64;
        assert_eq!((file.metadata().unwrap().len(), file.metadata().unwrap().blocks() * 512), (to as u64, taken));
    }
}

#[test]
fn spare_pages_have_all_their_memory_and_no_object_s_bytes() {
    let length = 3 * STEP_BYTES as u64 + 4097;
    for in_folios in [false, true] {
        let spare = Pages::spare(length, in_folios).unwrap();
        let taken = length.next_multiple_of(rustix::param::page_size() as u64);
        assert_eq!(spare.file.metadata().unwrap().blocks() * 512, taken);
        let pages = spare.reuse(length - 9).unwrap();
        assert!(pages.present == 0 && of_file(&pages) == vec![0; pages.length]);
        let pages = filled(pages, 4).reuse(length).unwrap();
        assert_eq!(pages.present as u64, length - 9, "an object was in them");
    }
}

#[test]
fn a_second_use_keeps_the_mapping() {
    let bytes = 3 * STEP_BYTES as u64;
    for (in_folios, length) in [(false, bytes - 5), (false, bytes - 70_000), (true, bytes - 5)] {
        let pages = filled(Pages::new(bytes, in_folios).unwrap(), 1);
        let before = pages.mapping.start;
        let pages = filled(pages.reuse(length).unwrap(), 2);
        assert_eq!((pages.mapping.start, pages.as_slice()[9]), (before, 2));
    }
}
