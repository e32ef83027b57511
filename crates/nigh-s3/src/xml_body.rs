//! What `s3s` (0.14.1) leaves wrong in the XML documents that it writes, put right before they are sent. Pure.

use std::borrow::Cow;

use crate::telemetry::Operation;

/// `document`, the answer to `operation`, as it must be sent; none if it is right already.
pub(crate) fn corrected(document: &[u8], operation: Operation) -> Option<String> {
    let has_tag = operation == Operation::GetObjectAttributes;
    if !has_tag && !document.iter().any(|&byte| may_be_wrong(byte)) {
        return None;
    }
    let text = std::str::from_utf8(document).ok()?;
    let mut corrected = escaped(text);
    if has_tag && let Some(unquoted) = without_quotes(&corrected) {
        corrected = Cow::Owned(unquoted);
    }
    match corrected {
        Cow::Owned(corrected) => Some(corrected),
        Cow::Borrowed(_) => None,
    }
}

/// A control character, or the first byte of U+FFFE and U+FFFF.
const fn may_be_wrong(byte: u8) -> bool {
    matches!(byte, 0..=0x1f | 0xef) && !matches!(byte, b'\t' | b'\n')
}

/// `text` with its carriage returns as references, since parsers turn raw ones into line feeds (XML 1.0, section 2.11),
/// and U+FFFD for each character that XML cannot carry in any form (section 2.2), as MinIO has it.
fn escaped(text: &str) -> Cow<'_, str> {
    let is_wrong = |c: char| matches!(c, '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}') && !matches!(c, '\t' | '\n');
    if !text.contains(is_wrong) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\r' => escaped.push_str("&#13;"),
            c if is_wrong(c) => escaped.push(char::REPLACEMENT_CHARACTER),
            c => escaped.push(c),
        }
    }
    Cow::Owned(escaped)
}

/// A document of GetObjectAttributes, in which S3 writes the entity tag without quotes, unlike everywhere else.
fn without_quotes(document: &str) -> Option<String> {
    let (head, rest) = document.split_once("<ETag>\"")?;
    let (tag, tail) = rest.split_once("\"</ETag>")?;
    Some(format!("{head}<ETag>{tag}</ETag>{tail}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_xml_cannot_carry_is_escaped_or_replaced_and_all_else_stays() {
        let corrected = |text: &str| corrected(text.as_bytes(), Operation::ListObjects);
        for right in ["", "<Key>a\tb\nc&lt;\u{7f}</Key>", "<Key>\u{feff}\u{fffd}ü日本</Key>"] {
            assert_eq!(corrected(right), None, "{right:?}");
        }
        assert_eq!(corrected("<Key>a\r\nb\r</Key>").unwrap(), "<Key>a&#13;\nb&#13;</Key>");
        let odd = "<Key>\0\u{1}\u{b}\u{c}\u{1f}\u{fffe}\u{ffff}ü</Key>";
        assert_eq!(corrected(odd).unwrap(), format!("<Key>{}ü</Key>", "\u{fffd}".repeat(7)));
    }

    #[test]
    fn only_the_entity_tag_of_an_object_s_attributes_loses_its_quotes() {
        let document = "<Answer><ETag>\"abc-2\"</ETag><Size>\"1\"</Size></Answer>";
        let unquoted = "<Answer><ETag>abc-2</ETag><Size>\"1\"</Size></Answer>";
        assert_eq!(corrected(document.as_bytes(), Operation::GetObjectAttributes).unwrap(), unquoted);
        assert_eq!(corrected(unquoted.as_bytes(), Operation::GetObjectAttributes), None);
        assert_eq!(corrected(document.as_bytes(), Operation::ListObjectsV2), None);
    }
}
