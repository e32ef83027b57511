//! The path of an object's file below its bucket's `objects` folder: key to path and back. Pure.
//!
//! Every key has one path and every path at most one key:
//! - letters, digits, `-`, `_` and `.` are unchanged, `/` is written `+`, every other byte `%XX`;
//! - the text is cut into pieces of at most `PIECE_MAX` bytes, never inside a `%XX`; a `.` that begins a piece is
//!   `%2E`, so that no piece is `.`, `..` or hidden;
//! - all pieces but the last are folders, marked by a `@` behind them; the last is the file.
//!
//! So `a` and `a/b` are two files side by side (`a`, `a+b`), `..` is `%2E.`, and no folder has a file's name.

use std::path::{Path, PathBuf};

use nigh_terms::ObjectKey;

/// The longest name in a path, in bytes. File systems allow 255, and a folder's name also has a mark.
pub const PIECE_MAX: usize = 240;
/// Marks a folder, which holds the continuations of its name.
pub const FOLDER_MARK: char = '@';

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// The path of `key` below `objects`, relative.
#[must_use]
pub fn to_path(key: &ObjectKey) -> PathBuf {
    let mut pieces = vec![String::new()];
    for &byte in key.as_str().as_bytes() {
        let piece = pieces.last().map_or(0, String::len);
        let width = if is_plain(byte) && !(byte == b'.' && (piece == 0 || piece >= PIECE_MAX)) { 1 } else { 3 };
        if piece + width > PIECE_MAX {
            pieces.push(String::new());
        }
        if let Some(piece) = pieces.last_mut() {
            let first = piece.is_empty();
            push_byte(piece, byte, first);
        }
    }
    let mut path = PathBuf::new();
    let last = pieces.len() - 1;
    for (index, mut piece) in pieces.into_iter().enumerate() {
        if index < last {
            piece.push(FOLDER_MARK);
        }
        path.push(piece);
    }
    path
}

const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/')
}

fn push_byte(piece: &mut String, byte: u8, first: bool) {
    match byte {
        b'/' => piece.push('+'),
        b'.' if first => piece.push_str("%2E"),
        _ if is_plain(byte) => piece.push(char::from(byte)),
        _ => {
            piece.push('%');
            piece.push(char::from(HEX[usize::from(byte >> 4)]));
            piece.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
}

/// The key that a path stands for. None for a path that `to_path` never returns.
#[must_use]
pub fn to_key(path: &Path) -> Option<ObjectKey> {
    let mut bytes = Vec::with_capacity(path.as_os_str().len());
    let mut components = path.components().peekable();
    while let Some(component) = components.next() {
        let piece = component.as_os_str().to_str()?;
        let piece = if components.peek().is_some() { piece.strip_suffix(FOLDER_MARK)? } else { piece };
        push_decoded(&mut bytes, piece)?;
    }
    let key = ObjectKey::new(&String::from_utf8(bytes).ok()?).ok()?;
    // Only the canonical spelling counts: another would be a second file for the same key.
    (to_path(&key) == path).then_some(key)
}

fn push_decoded(bytes: &mut Vec<u8>, piece: &str) -> Option<()> {
    let mut rest = piece.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b'/'),
            b'%' => {
                let (high, low) = (hex_digit(rest.next()?)?, hex_digit(rest.next()?)?);
                bytes.push(high << 4 | low);
            }
            _ => bytes.push(byte),
        }
    }
    Some(())
}

fn hex_digit(byte: u8) -> Option<u8> {
    HEX.iter().position(|&digit| digit == byte).map(|at| at as u8)
}

#[cfg(test)]
mod tests {
    use std::path::Component;

    use proptest::prelude::*;

    use super::*;

    fn path(key: &str) -> PathBuf {
        to_path(&ObjectKey::new(key).unwrap())
    }

    #[test]
    fn plain_keys_stay_readable() {
        assert_eq!(path("photos/2024/cat.jpg"), Path::new("photos+2024+cat.jpg"));
        assert_eq!(path("a b+c@d%"), Path::new("a%20b%2Bc%40d%25"));
    }

    #[test]
    fn keys_that_look_like_folders_become_plain_files() {
        assert_eq!(path("."), Path::new("%2E"));
        assert_eq!(path("../../etc/passwd"), Path::new("%2E.+..+etc+passwd"));
        assert_eq!(path("a/"), Path::new("a+"));
        assert_eq!(path("//"), Path::new("++"));
        assert_eq!(path("\u{0}"), Path::new("%00"));
    }

    #[test]
    fn a_long_key_is_cut_into_folders_that_no_file_can_be() {
        let long = path(&"k".repeat(1024));
        assert_eq!(long.components().count(), 5);
        assert_eq!(path(&"k".repeat(PIECE_MAX)).components().count(), 1);
        let dots = path(&".".repeat(1024));
        assert!(dots.components().all(|piece| !piece.as_os_str().to_str().unwrap().starts_with('.')));
    }

    #[test]
    fn other_spellings_of_a_key_are_no_path() {
        for foreign in ["%61", "a%2Fb", "a%2eb", ".a", "a@", "a@/b", "a%", "a%4", "", "a b", "ü", "/a", "a/../b"] {
            assert_eq!(to_key(Path::new(foreign)), None, "{foreign}");
        }
    }

    fn keys() -> impl Strategy<Value = String> {
        let any = proptest::collection::vec(any::<char>(), 1..300).prop_map(String::from_iter);
        let nasty =
            proptest::collection::vec(proptest::sample::select(vec!['.', '/', 'a', '+', '@', '%', 'ü', '\0']), 1..1024)
                .prop_map(String::from_iter);
        prop_oneof![any, nasty].prop_map(|mut text| {
            while text.len() > 1024 {
                text.pop();
            }
            text
        })
    }

    proptest! {
        #[test]
        fn every_key_comes_back_from_its_path(text in keys()) {
            let key = ObjectKey::new(&text).unwrap();
            let path = to_path(&key);
            prop_assert_eq!(to_key(&path), Some(key));
            prop_assert!(path.as_os_str().len() < 3200);
            for component in path.components() {
                prop_assert!(matches!(component, Component::Normal(_)));
                prop_assert!(component.as_os_str().len() <= PIECE_MAX + 1);
            }
        }

        #[test]
        fn a_path_that_has_a_key_is_that_keys_path(text in "[a-c+%@./0-9A-F]{1,40}") {
            if let Some(key) = to_key(Path::new(&text)) {
                prop_assert_eq!(to_path(&key), PathBuf::from(&text));
            }
        }
    }
}
