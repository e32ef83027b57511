//! Messages between the recorder and a parser process: frames of a length and that many bytes.
//!
//! A question is an object's bytes that are at hand; it comes from the node, and the process takes it for what it is.
//! An answer is JSON from a process that has read a tenant's bytes, and may be anything: it is bounded, its numbers and
//! names are checked as they are read, and a name that is no `in_...` is refused. All numbers are little endian.
//!
//! ```text
//! frame     u32 length, then so many bytes
//! question  u64 size, u16 + name, u16 + content type, u8 windows, each u64 from, u32 + bytes
//! answer    {"ready":true} | {"failed":"..."} | {"looked":{"row":[["in_width",640.0],...],"wants":[from,to]}}
//! ```

use std::ops::Range;

use nigh_learn::FeatureRow;
use nigh_learn::media::{Look, ObjectHead, Window};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Bytes of the length before a frame.
pub const LENGTH_BYTES: usize = 4;
/// Bytes of a question at most.
pub const QUESTION_MAX: usize = 512 * 1024;
/// Bytes of an answer at most: a full row of long names and words takes a quarter of it.
pub const ANSWER_MAX: usize = 32 * 1024;
/// Windows of a question at most.
pub const WINDOWS_MAX: usize = 8;
/// The most bytes of a name or content type that are sent: the end of the name, the beginning of the type.
const WORD_MAX: usize = 256;

/// Why a frame is not taken.
#[derive(Debug, Error)]
pub enum FrameError {
    /// The frame is shorter or longer than its lengths say.
    #[error("a frame is cut off or too long")]
    Length,
    /// A word is no text.
    #[error("a text in a frame is not UTF-8")]
    Word,
    /// The message is longer than the limit.
    #[error("a frame is larger than {0} bytes")]
    Large(usize),
    /// The answer is invalid.
    #[error("an answer is not understood: {0}")]
    Answer(String),
}

/// A message of a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ParserMessage {
    /// The process is isolated and ready.
    Ready(bool),
    /// The isolation or a question failed, for this reason.
    Failed(String),
    /// The result of a look.
    Looked {
        /// The features found.
        row: FeatureRow,
        /// The range of bytes that would give more features.
        wants: Option<(u64, u64)>,
    },
}

impl From<Look> for ParserMessage {
    fn from(Look { row, wants }: Look) -> Self {
        Self::Looked { row, wants: wants.map(|range| (range.start, range.end)) }
    }
}

/// A question as a frame.
///
/// # Errors
/// `Large` for more than may be asked at a time.
pub fn question(object: &ObjectHead<'_>) -> Result<Vec<u8>, FrameError> {
    let mut frame = vec![0; LENGTH_BYTES];
    frame.extend(object.size.to_le_bytes());
    // The end of a name is sent, since it shows the kind of file.
    let tail = object.name.len().saturating_sub(WORD_MAX);
    let name = (tail..).find_map(|at| object.name.get(at..)).unwrap_or_default();
    let content_type = if object.content_type.len() > WORD_MAX { "" } else { object.content_type };
    for word in [name, content_type] {
        frame.extend((word.len() as u16).to_le_bytes());
        frame.extend(word.as_bytes());
    }
    if object.windows.len() > WINDOWS_MAX {
        return Err(FrameError::Large(QUESTION_MAX));
    }
    frame.push(object.windows.len() as u8);
    for Window { from, bytes } in object.windows {
        if frame.len() + bytes.len() > QUESTION_MAX {
            return Err(FrameError::Large(QUESTION_MAX));
        }
        frame.extend(from.to_le_bytes());
        frame.extend((bytes.len() as u32).to_le_bytes());
        frame.extend_from_slice(bytes);
    }
    let length = (frame.len() - LENGTH_BYTES) as u32;
    frame[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
    Ok(frame)
}

/// Reads bytes from the front of a frame.
struct Cutter<'f>(&'f [u8]);

impl<'f> Cutter<'f> {
    fn bytes(&mut self, length: usize) -> Result<&'f [u8], FrameError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(FrameError::Length)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N)?);
        Ok(array)
    }

    fn word(&mut self) -> Result<&'f str, FrameError> {
        let length = u16::from_le_bytes(self.array()?);
        std::str::from_utf8(self.bytes(length.into())?).map_err(|_| FrameError::Word)
    }
}

/// Looks at the object of a question (the frame without its length). Returns the result.
///
/// # Errors
/// If the question is invalid.
pub fn answer_to(question: &[u8]) -> Result<ParserMessage, FrameError> {
    let mut cutter = Cutter(question);
    let size = u64::from_le_bytes(cutter.array()?);
    let (name, content_type) = (cutter.word()?, cutter.word()?);
    let [count] = cutter.array()?;
    if usize::from(count) > WINDOWS_MAX {
        return Err(FrameError::Large(QUESTION_MAX));
    }
    let mut windows = Vec::with_capacity(count.into());
    for _ in 0..count {
        let from = u64::from_le_bytes(cutter.array()?);
        let length = u32::from_le_bytes(cutter.array()?);
        windows.push(Window { from, bytes: cutter.bytes(length as usize)? });
    }
    if !cutter.0.is_empty() {
        return Err(FrameError::Length);
    }
    Ok(nigh_learn::media::look(&ObjectHead { size, windows: &windows, name, content_type }).into())
}

/// A message as a frame.
///
/// # Errors
/// `Answer` if it cannot be written, which no row can cause.
pub fn frame_of(said: &ParserMessage) -> Result<Vec<u8>, FrameError> {
    let json = serde_json::to_vec(said).map_err(|error| FrameError::Answer(error.to_string()))?;
    if json.len() > ANSWER_MAX {
        return Err(FrameError::Large(ANSWER_MAX));
    }
    Ok([&(json.len() as u32).to_le_bytes()[..], &json].concat())
}

/// A message from a frame without its length.
///
/// # Errors
/// `Answer` if the message is invalid or names a feature that objects do not have.
pub fn said_of(frame: &[u8]) -> Result<ParserMessage, FrameError> {
    let said: ParserMessage = serde_json::from_slice(frame).map_err(|error| FrameError::Answer(error.to_string()))?;
    if let ParserMessage::Looked { row, .. } = &said
        && let Some((name, _)) = row.iter().find(|(name, _)| !name.as_str().starts_with("in_"))
    {
        return Err(FrameError::Answer(format!("{name} is no feature of an object")));
    }
    Ok(said)
}

/// The part of `wanted` within the limits of an object of `size` bytes; none if that is empty.
#[must_use]
pub fn permitted(wanted: Option<(u64, u64)>, size: u64) -> Option<Range<u64>> {
    let (from, to) = wanted?;
    let to = to.min(size).min(from.saturating_add(nigh_learn::media::WANTED_BYTES_MAX));
    (from < to).then_some(from..to)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_question_comes_as_it_was_asked_and_its_answer_back() {
        let table = b"a,b\n1,2\n3,4\n";
        let windows = [Window { from: 0, bytes: table }];
        let long = format!("{}ä.csv", "x".repeat(1000));
        let object = ObjectHead { size: table.len() as u64, windows: &windows, name: &long, content_type: "" };
        let frame = question(&object).unwrap();
        let said = answer_to(&frame[LENGTH_BYTES..]).unwrap();
        let frame = frame_of(&said).unwrap();
        assert_eq!(said_of(&frame[LENGTH_BYTES..]).unwrap(), said);
        let ParserMessage::Looked { row, wants: None } = said else { panic!("{said:?}") };
        assert_eq!(row.get("in_rows"), Some(&nigh_learn::FeatureValue::Number(2.0)));
    }

    #[test]
    fn more_than_may_be_asked_is_refused() {
        let bytes = vec![0; QUESTION_MAX];
        let windows = [Window { from: 0, bytes: &bytes }];
        let object = ObjectHead { size: 1 << 40, windows: &windows, name: "", content_type: "" };
        assert!(matches!(question(&object), Err(FrameError::Large(_))));
    }

    #[test]
    fn an_answer_that_names_other_features_or_no_numbers_is_refused() {
        for bad in [
            r#"{"looked":{"row":[["input_size",1.0]],"wants":null}}"#,
            r#"{"looked":{"row":[["arg_sigma",1.0]],"wants":null}}"#,
            r#"{"looked":{"row":[["in_width",1e300]],"wants":null}}"#,
            r#"{"looked":{"row":[["in_width",1.0]],"wants":null,"more":1}}"#,
            r#"{"looked":3}"#,
            "",
        ] {
            assert!(said_of(bad.as_bytes()).is_err(), "{bad}");
        }
        assert_eq!(permitted(Some((5, u64::MAX)), 100), Some(5..100));
        assert_eq!(permitted(Some((0, 1 << 40)), 1 << 40), Some(0..nigh_learn::media::WANTED_BYTES_MAX));
        assert_eq!((permitted(Some((100, 200)), 100), permitted(Some((9, 3)), 100)), (None, None));
    }

    proptest! {
        #[test]
        fn whatever_comes_as_a_frame_is_refused_or_answered(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = said_of(&bytes);
            if let Ok(said) = answer_to(&bytes) {
                prop_assert!(frame_of(&said).is_ok());
            }
        }
    }
}
