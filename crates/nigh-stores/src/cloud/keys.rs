//! Which keys opendal and the services keep unchanged. Pure.
//!
//! opendal trims paths and folds slashes (`normalize_path`), and takes a slash at the end for a folder; Azure drops dots at
//! the end of a path's parts and turns backslashes into slashes; listings in XML cannot carry control characters.

/// Why the service or opendal would alter `key`; none if they keep it.
pub(super) fn altered(key: &str) -> Option<&'static str> {
    if key.trim() != key {
        return Some("it begins or ends with a blank");
    }
    if key.split('/').any(str::is_empty) {
        return Some("it begins or ends with a slash, or has two in a row");
    }
    // Azure drops a dot at the end of each part.
    if key.split('/').any(|part| part.ends_with('.')) {
        return Some("a part of it ends with a dot");
    }
    if key.contains('\\') || key.chars().any(|c| c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}')) {
        return Some("it has a backslash or a character that cannot be printed");
    }
    None
}

/// The folder of all keys that begin with `prefix`, if opendal keeps its name.
pub(super) fn folder_of(prefix: &str) -> &str {
    let folder = prefix.rfind('/').map_or("", |at| &prefix[..=at]);
    match folder.strip_suffix('/') {
        Some(inner) if altered(inner).is_none() => folder,
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_would_be_altered_are_told_from_those_that_are_kept() {
        for altered_key in
            ["/a", "a/", "a//b", " a", "a ", ".", "..", "a/../b", "a./b", "a\\b", "a\nb", "/", "\u{ffff}"]
        {
            assert!(altered(altered_key).is_some(), "{altered_key:?}");
        }
        for kept in ["a", "a/b", "a b", "a+b?c#d%2F", "ü/日本", ".hidden", "a..b", "<&\"'>", "~t*!'()"] {
            assert_eq!(altered(kept), None, "{kept:?}");
        }
    }

    #[test]
    fn listings_begin_at_a_folder_that_is_kept() {
        for (prefix, folder) in
            [("", ""), ("a", ""), ("a/", "a/"), ("a/b", "a/"), ("a//b", ""), ("/a", ""), ("../x", "")]
        {
            assert_eq!(folder_of(prefix), folder, "{prefix:?}");
        }
    }
}
