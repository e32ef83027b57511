//! Names of documents as parts of NATS subjects.

/// Appends any text as a part of a subject: letters, digits and `-_/` as they are, other bytes as `=XX`.
pub(super) fn push_encoded(subject: &mut String, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_/".contains(&byte) {
            subject.push(char::from(byte));
        } else {
            subject.push_str(&format!("={byte:02X}"));
        }
    }
}

/// The text of an encoded part, which begins with `k`.
pub(super) fn decoded(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.strip_prefix('k')?.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        if first == b'=' {
            let (digits, behind) = rest.split_at_checked(2)?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = behind;
        } else {
            bytes.push(first);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_name_is_one_part_of_a_subject_and_comes_back(text in any::<String>()) {
            let mut part = "k".to_owned();
            push_encoded(&mut part, &text);
            prop_assert!(!part.contains(['.', '*', '>', ' ', '\0']) && part.is_ascii());
            prop_assert_eq!(decoded(&part), Some(text));
        }
    }
}
