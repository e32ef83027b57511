//! Which invocation a command is about: the one with an id, the only one whose id begins so, or the last.

use nigh_terms::{FunctionName, InvocationId, InvocationIdPrefix};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::activations::warn_of_unanswered;
use crate::context::Globals;
use crate::error::CliError;

/// Records that are asked for, to tell whether a prefix is of one invocation; an event has one for each attempt.
const RECORDS: usize = 12;
/// Invocations that are named if a prefix is of several.
const NAMED_MAX: usize = 4;

/// The part of a record that is looked at.
#[derive(Debug, Deserialize)]
struct FoundRecord {
    id: InvocationId,
    function: FunctionName,
}

/// The invocation that `text` means; none is the last one.
pub(crate) async fn chosen(text: Option<&str>, globals: &Globals) -> Result<InvocationId, CliError> {
    let prefix = text.map(prefix).transpose()?;
    if let Some(id) = prefix.as_ref().and_then(InvocationIdPrefix::whole) {
        return Ok(id);
    }
    let namespace = globals.namespace().await?;
    let path = match &prefix {
        Some(prefix) => format!("/activations?cluster=true&namespace={namespace}&limit={RECORDS}&prefix={prefix}"),
        None => format!("/activations?cluster=true&namespace={namespace}&limit=1"),
    };
    let (found, unanswered): (Vec<FoundRecord>, _) = globals.admin()?.get_of_cluster(&path).await?;
    warn_of_unanswered(&unanswered, globals.json);
    only(prefix.as_ref(), &found)
}

/// The invocation that `text` means, explained, as whatever `T` reads of it.
pub(crate) async fn explained<T: DeserializeOwned>(text: Option<&str>, globals: &Globals) -> Result<T, CliError> {
    let id = chosen(text, globals).await?;
    Ok(globals.admin()?.get(&format!("/explain/{id}")).await?)
}

fn prefix(text: &str) -> Result<InvocationIdPrefix, CliError> {
    text.parse().map_err(|error| CliError::Usage(format!("{error}; `nigh activations` lists the ids")))
}

/// The invocation of all records in `found`, newest first.
fn only(prefix: Option<&InvocationIdPrefix>, found: &[FoundRecord]) -> Result<InvocationId, CliError> {
    let Some(first) = found.first() else {
        return Err(CliError::Failed(match prefix {
            Some(prefix) => format!("no invocation's id begins with {prefix}; `nigh activations` lists the ids"),
            None => "no invocation has ended yet; `nigh invoke NAME` makes one".to_owned(),
        }));
    };
    if found.iter().all(|one| one.id == first.id) {
        return Ok(first.id);
    }
    let mut names: Vec<String> = found.iter().map(|one| format!("{} of {}", one.id, one.function)).collect();
    names.dedup();
    let more = if names.len() > NAMED_MAX { ", and more" } else { "" };
    names.truncate(NAMED_MAX);
    let prefix = prefix.map(ToString::to_string).unwrap_or_default();
    Err(CliError::Failed(format!("several ids begin with {prefix}: {}{more}; give more digits", names.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: &str, function: &str) -> FoundRecord {
        FoundRecord { id: id.parse().unwrap(), function: FunctionName::new(function).unwrap() }
    }

    #[test]
    fn a_prefix_means_the_only_invocation_that_has_it_and_all_its_attempts() {
        let [a, b] = ["01a20ebd-0000-7000-8000-000000000001", "01a20ebd-0000-7000-8000-000000000002"];
        let prefix = prefix("01a20ebd").unwrap();
        let attempts = [record(a, "blur"), record(a, "blur")];
        assert_eq!(only(Some(&prefix), &attempts).unwrap().to_string(), a);
        let words = only(Some(&prefix), &[record(a, "blur"), record(b, "csv")]).unwrap_err().to_string();
        assert_eq!(words, format!("several ids begin with 01a20ebd: {a} of blur, {b} of csv; give more digits"));
        let none = only(Some(&prefix), &[]).unwrap_err().to_string();
        assert!(none.starts_with("no invocation's id begins with 01a20ebd"), "{none}");
        assert!(only(None, &[]).unwrap_err().to_string().contains("nigh invoke"));
    }

    #[test]
    fn what_is_no_beginning_of_an_id_is_wrong_usage() {
        let error = prefix("last").unwrap_err();
        assert!(matches!(error, CliError::Usage(_)) && error.to_string().contains("nigh activations"), "{error}");
    }
}
