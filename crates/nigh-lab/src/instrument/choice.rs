//! What a command's options name of what there is.

use crate::LabError;

/// Those of `all` that are `named`, in the order of `all`; all, if none is named. `name` says what one is called, `what` what
/// each is.
pub(crate) fn chosen<'a, T>(
    what: &str,
    named: &[String],
    all: &'a [T],
    name: impl Fn(&T) -> &str,
) -> Result<Vec<&'a T>, LabError> {
    if let Some(unknown) = named.iter().find(|one| all.iter().all(|known| name(known) != one.as_str())) {
        let reason = format!("there are {}", all.iter().map(name).collect::<Vec<_>>().join(", "));
        return Err(LabError::Request { what: format!("{what} {unknown}"), reason });
    }
    Ok(all.iter().filter(|one| named.is_empty() || named.iter().any(|named| named == name(one))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_is_taken_and_what_is_unknown_is_told_with_what_there_is() {
        let all = ["1k", "16k", "3072k"];
        let of = |named: &[&str]| {
            let named: Vec<String> = named.iter().map(|&name| name.to_owned()).collect();
            chosen("size", &named, &all, |name| name).map(|chosen| chosen.into_iter().copied().collect::<Vec<_>>())
        };
        assert_eq!(of(&[]).unwrap(), all);
        assert_eq!(of(&["3072k", "16k"]).unwrap(), ["16k", "3072k"]);
        let error = of(&["7k"]).unwrap_err().to_string();
        assert!(error.contains("size 7k") && error.contains("3072k"), "{error}");
    }
}
