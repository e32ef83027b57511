//! How clients name a function: by name, by partial ARN or by ARN, each with or without a qualifier.
//!
//! Pure. Every function of a namespace lives in the one account that Nigh stands for, and has one version.

pub use nigh_terms::ACCOUNT;
use nigh_terms::FunctionName;
use percent_encoding::percent_decode_str;
use thiserror::Error;

/// The one version of a function.
pub const LATEST: &str = "$LATEST";
/// The longest text that is looked at (Lambda API reference, `FunctionName`).
const REFERENCE_BYTES_MAX: usize = 170;

/// Why a text names no function.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FunctionReferenceError {
    /// It has no form that a name may have.
    #[error("{0:?} is no function name, partial ARN or ARN")]
    Malformed(String),
    /// It has the form, but there is no such account or version here.
    #[error("function not found: {0}")]
    NotHere(String),
}

/// The ARN of a function.
#[must_use]
pub fn function_arn(region: &str, name: &FunctionName) -> String {
    format!("arn:aws:lambda:{region}:{ACCOUNT}:function:{name}")
}

/// The name in `text`, which is percent-encoded as in a path: `NAME`, `ACCOUNT:function:NAME` or
/// `arn:aws:lambda:REGION:ACCOUNT:function:NAME`, and behind each `:$LATEST` or nothing.
///
/// # Errors
/// If it has another form, or names another account or version.
pub fn parse_function_reference(text: &str) -> Result<FunctionName, FunctionReferenceError> {
    let malformed = || FunctionReferenceError::Malformed(text.chars().take(REFERENCE_BYTES_MAX).collect());
    if text.len() > 3 * REFERENCE_BYTES_MAX {
        return Err(malformed());
    }
    let decoded = percent_decode_str(text).decode_utf8().map_err(|_| malformed())?;
    let parts: Vec<&str> = decoded.split(':').collect();
    let (account, rest) = match parts.as_slice() {
        ["arn", "aws" | "aws-cn" | "aws-us-gov", "lambda", _, account, "function", rest @ ..]
        | [account, "function", rest @ ..] => (*account, rest),
        rest => (ACCOUNT, rest),
    };
    let (name, qualifier) = match rest {
        [name] => (*name, LATEST),
        [name, qualifier] => (*name, *qualifier),
        _ => return Err(malformed()),
    };
    let name = FunctionName::new(name).map_err(|_| malformed())?;
    if account.len() != ACCOUNT.len() || !account.bytes().all(|digit| digit.is_ascii_digit()) || qualifier.is_empty() {
        return Err(malformed());
    }
    if account != ACCOUNT || qualifier != LATEST {
        return Err(FunctionReferenceError::NotHere(decoded.into_owned()));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_found_by_name_partial_arn_and_arn() {
        let hello = FunctionName::new("hello").unwrap();
        for text in [
            "hello",
            "hello:$LATEST",
            "hello%3A%24LATEST",
            "000000000000:function:hello",
            "000000000000:function:hello:$LATEST",
            "arn:aws:lambda:eu-west-3:000000000000:function:hello",
            "arn%3Aaws%3Alambda%3Aus-east-1%3A000000000000%3Afunction%3Ahello%3A%24LATEST",
        ] {
            assert_eq!(parse_function_reference(text), Ok(hello.clone()), "{text}");
        }
        assert_eq!(parse_function_reference(&function_arn("us-east-1", &hello)), Ok(hello));
    }

    #[test]
    fn other_accounts_and_versions_are_not_here() {
        for text in ["hello:1", "hello:live", "function:hello", "123456789012:function:hello"] {
            assert!(matches!(parse_function_reference(text), Err(FunctionReferenceError::NotHere(_))), "{text}");
        }
    }

    #[test]
    fn slashes_dots_and_half_arns_are_malformed() {
        for text in [
            "",
            "a/b",
            "a%2Fb",
            "..",
            "a.b",
            "hello:",
            ":hello",
            "arn:aws:lambda:r:000000000000:function:",
            "arn:aws:s3:r:000000000000:function:hello",
            "1:function:hello",
            "%ff",
            &"x".repeat(65),
            &"x".repeat(5000),
        ] {
            assert!(matches!(parse_function_reference(text), Err(FunctionReferenceError::Malformed(_))), "{text}");
        }
    }
}
