//! The version of a function's code in its models.

use std::borrow::Cow;

use nigh_functions::function::Function;
use nigh_learn::hash_bytes;

/// The longest version of a function without layers.
pub(super) const VERSION_BYTES_MAX: usize = 100;

/// The version: the digest of the archive, and of the layers if there are any.
pub(super) fn version(function: &Function) -> Cow<'_, str> {
    let is_name = (1..=VERSION_BYTES_MAX).contains(&function.code_sha256.len());
    if function.layers.is_empty() && is_name {
        return Cow::Borrowed(&function.code_sha256);
    }
    let layers: Vec<&str> = function.layers.iter().map(|layer| layer.sha256.as_str()).collect();
    let code: String = function.code_sha256.chars().take(VERSION_BYTES_MAX / 4).collect();
    Cow::Owned(format!(
        "{code}+{:016x}",
        hash_bytes(format!("{} {}", function.code_sha256, layers.join(" ")).as_bytes())
    ))
}
