//! Keys, made of the bytes that a terminal sends. Pure.

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Enter,
    Escape,
    Backspace,
    Up,
    Down,
    PageUp,
    PageDown,
}

/// The most bytes of a sequence; longer ones are no key.
const SEQUENCE_MAX: usize = 8;

/// Makes keys of bytes.
#[derive(Debug, Default)]
pub(super) struct KeyDecoder {
    /// The beginning of a key.
    begun: Vec<u8>,
}

impl KeyDecoder {
    /// The key that ends with `byte`; none if it goes on, or is none that is known.
    pub(super) fn push(&mut self, byte: u8) -> Option<Key> {
        self.begun.push(byte);
        let key = match self.begun.as_slice() {
            [0x1b] | [0x1b, b'[' | b'O'] => return None,
            // A sequence ends with a letter or a tilde (ECMA-48).
            [0x1b, b'[', .., b'0'..=b'9' | b';'] if self.begun.len() < SEQUENCE_MAX => return None,
            [0x1b, b'[' | b'O', b'A'] => Some(Key::Up),
            [0x1b, b'[' | b'O', b'B'] => Some(Key::Down),
            [0x1b, b'[', b'5', b'~'] => Some(Key::PageUp),
            [0x1b, b'[', b'6', b'~'] => Some(Key::PageDown),
            [0x1b, ..] => None,
            [b'\n' | b'\r'] => Some(Key::Enter),
            [0x7f | 0x08] => Some(Key::Backspace),
            bytes => match std::str::from_utf8(bytes) {
                Ok(text) => text.chars().next().filter(|c| !c.is_control()).map(Key::Char),
                // The rest of a character comes.
                Err(error) if error.error_len().is_none() => return None,
                Err(_) => None,
            },
        };
        self.begun.clear();
        key
    }

    /// True if a key has begun.
    pub(super) fn is_begun(&self) -> bool {
        !self.begun.is_empty()
    }

    /// Nothing more came for a while: a lone escape is the key of that name.
    pub(super) fn settle(&mut self) -> Option<Key> {
        let is_escape = self.begun == [0x1b];
        self.begun.clear();
        is_escape.then_some(Key::Escape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(bytes: &[u8]) -> Vec<Key> {
        let mut decoder = KeyDecoder::default();
        let mut keys: Vec<Key> = bytes.iter().filter_map(|byte| decoder.push(*byte)).collect();
        keys.extend(decoder.settle());
        keys
    }

    #[test]
    fn letters_sequences_and_a_lone_escape_are_keys() {
        assert_eq!(keys(b"q\n\x7f"), [Key::Char('q'), Key::Enter, Key::Backspace]);
        assert_eq!(keys(b"\x1b[A\x1bOB\x1b[5~\x1b[6~"), [Key::Up, Key::Down, Key::PageUp, Key::PageDown]);
        assert_eq!(keys("ü".as_bytes()), [Key::Char('ü')]);
        assert_eq!(keys(b"\x1b"), [Key::Escape]);
    }

    #[test]
    fn what_is_no_key_that_is_known_is_swallowed_whole() {
        assert_eq!(keys(b"\x1b[1;5Cx"), [Key::Char('x')]);
        assert_eq!(keys(b"\x1b[11111111111"), [Key::Char('1'); 5], "no sequence is that long");
        assert_eq!(keys(&[0xff, b'a', 0x01]), [Key::Char('a')]);
    }
}
