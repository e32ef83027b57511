//! Whatever a parser process and a recorder say to each other: no panic; an answer that is taken names features of an
//! object alone, and wishes for no more of it than there is.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nigh_sizing::object_features::frames::{LENGTH_BYTES, ParserMessage, answer_to, frame_of, permitted, question, said_of};
use nigh_learn::media::{ObjectHead, Window};

fuzz_target!(|input: (&[u8], &str, u64, Vec<(u64, &[u8])>)| {
    let (raw, name, size, windows) = input;
    let _ = answer_to(raw);
    if let Ok(ParserMessage::Looked { row, wants }) = said_of(raw) {
        assert!(row.iter().all(|(name, _)| name.as_str().starts_with("in_")));
        if let Some(range) = permitted(wants, size) {
            assert!(range.start < range.end && range.end <= size);
        }
    }
    let windows: Vec<Window<'_>> = windows.iter().map(|(from, bytes)| Window { from: *from, bytes }).collect();
    let Ok(frame) = question(&ObjectHead { size, windows: &windows, name, content_type: name }) else { return };
    let said = answer_to(&frame[LENGTH_BYTES..]).expect("a question that was asked is understood");
    let frame = frame_of(&said).expect("an answer can be written");
    assert_eq!(said_of(&frame[LENGTH_BYTES..]).expect("an answer that was given is taken"), said);
});
