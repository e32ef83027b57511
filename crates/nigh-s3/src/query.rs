//! Query strings, read where `s3s` does not read them for us.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// Reads `text` as a form would: `+` is a space, `%xx` a byte. None if that is no UTF-8.
fn decode(text: &str) -> Option<Cow<'_, str>> {
    if text.contains('+') {
        let spaced = text.replace('+', " ");
        return Some(Cow::Owned(percent_decode_str(&spaced).decode_utf8().ok()?.into_owned()));
    }
    percent_decode_str(text).decode_utf8().ok()
}

/// The names and values of `query`, in order; those that are no UTF-8 are left out.
pub(crate) fn pairs(query: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    query.split('&').filter(|pair| !pair.is_empty()).filter_map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((decode(name)?, decode(value)?))
    })
}

/// The first value of `name` in `query`.
pub(crate) fn value<'q>(query: &'q str, name: &str) -> Option<Cow<'q, str>> {
    pairs(query).find_map(|(candidate, value)| (candidate == name).then_some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_decoded() {
        let query = "a=1&%62=x+y%2B&&flag&c=%C3%BC&bad=%FF";
        let read: Vec<_> = pairs(query).map(|(name, value)| format!("{name}>{value}")).collect();
        assert_eq!(read, ["a>1", "b>x y+", "flag>", "c>ü"]);
        assert_eq!(value(query, "b").as_deref(), Some("x y+"));
        assert_eq!(value(query, "bad"), None);
    }
}
