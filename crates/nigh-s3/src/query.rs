//! Parses query strings that `s3s` does not parse for this crate.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// The undecoded value of a query parameter. It is decoded only when it is needed, because most values belong to a
/// signature.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueryValue<'q>(&'q str);

impl<'q> QueryValue<'q> {
    /// Decodes the value as an HTML form does: `+` is a space, `%xx` a byte. None if the result is not UTF-8.
    pub(crate) fn decode(self) -> Option<Cow<'q, str>> {
        // Nearly all values need no decoding, and this runs for every name of every request.
        if !self.0.bytes().any(|byte| matches!(byte, b'%' | b'+')) {
            return Some(Cow::Borrowed(self.0));
        }
        if self.0.contains('+') {
            let spaced = self.0.replace('+', " ");
            return Some(Cow::Owned(percent_decode_str(&spaced).decode_utf8().ok()?.into_owned()));
        }
        percent_decode_str(self.0).decode_utf8().ok()
    }
}

/// The names and values of `query`, in order. Parameters whose name is not UTF-8 are left out.
pub(crate) fn pairs(query: &str) -> impl Iterator<Item = (Cow<'_, str>, QueryValue<'_>)> {
    query.split('&').filter(|pair| !pair.is_empty()).filter_map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((QueryValue(name).decode()?, QueryValue(value)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_decoded() {
        let query = "a=1&%62=x+y%2B&&flag&c=%C3%BC&bad=%FF";
        let read: Vec<_> = pairs(query).map(|(name, value)| format!("{name}>{:?}", value.decode())).collect();
        let expected = ["a>Some(\"1\")", "b>Some(\"x y+\")", "flag>Some(\"\")", "c>Some(\"ü\")", "bad>None"];
        assert_eq!(read, expected);
    }
}
