//! Values and the bytes that stand for them, the same as in `steps.py`: every byte of an object tells which write it is of.

use nigh_check::history::Value;

/// How many bytes the object has that a write makes.
pub(super) fn size_of(value: Value) -> usize {
    let drawn = value.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let (kind, rest) = ((drawn % 100) as usize, (drawn / 100) as usize);
    match kind {
        0..70 => 16 + rest % 2000,
        70..92 => 2000 + rest % 60_000,
        _ => 2000 + rest % 300_000,
    }
}

pub(super) fn body_of(value: Value) -> Vec<u8> {
    let (word, size) = (format!("{value};").into_bytes(), size_of(value));
    word.iter().copied().cycle().take(size).collect()
}

/// Which write an object is of; none if it is of no one.
pub(super) fn value_of(body: &[u8]) -> Option<Value> {
    let word = body.split(|byte| *byte == b';').next()?;
    let value: Value = std::str::from_utf8(word).ok()?.parse().ok()?;
    (body == body_of(value)).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_an_object_is_of_its_write() {
        for value in [0, 7, 1_234_567, 99_999_999] {
            let mut body = body_of(value);
            assert_eq!((value_of(&body), body.len()), (Some(value), size_of(value)));
            body.push(b'1');
            assert_eq!(value_of(&body), None);
            body.truncate(size_of(value) - 1);
            assert_eq!(value_of(&body), None);
        }
        // As steps.py reckons.
        assert_eq!([1, 2, 1000].map(size_of), [373, 1058, 1821]);
        assert_eq!(value_of(b""), None);
    }
}
