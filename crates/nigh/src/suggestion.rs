//! What somebody probably meant who wrote a name that is not there. Pure.

/// Names that are less alike than this (Jaro-Winkler) are not suggested.
const ALIKE: f64 = 0.8;

/// The known name that is most like `given`, if one is.
pub(crate) fn alike<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let rated = known.into_iter().map(|name| (strsim::jaro_winkler(given, name), name));
    rated.filter(|(alike, _)| *alike >= ALIKE).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
}

/// The end of an error about the unknown name `given`: the name that was probably meant, else all of them after `all`.
pub(crate) fn hint(given: &str, known: &[&str], all: &str) -> String {
    match alike(given, known.iter().copied()) {
        Some(name) => format!("; did you mean {name}?"),
        None => format!("; {all} {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_told_and_another_name_gets_the_list() {
        let known = ["memory", "timeout", "handler"];
        assert_eq!(hint("memroy", &known, "there are"), "; did you mean memory?");
        assert_eq!(hint("colour", &known, "there are"), "; there are memory, timeout, handler");
        assert_eq!(alike("hander", known), Some("handler"));
        assert_eq!(alike("x", []), None);
    }
}
