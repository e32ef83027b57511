//! What tests of other crates make functions of.

#![expect(clippy::unwrap_used, reason = "tests end by panicking")]

use nigh_terms::{ByteSize, FunctionName, Namespace};

use crate::function::Function;

/// A function without code, for tests of what only reads its description.
///
/// # Panics
/// If `name` is no name of a function.
#[must_use]
pub fn function(name: &str) -> Function {
    let (namespace, name) = (Namespace::new("tenant").unwrap(), FunctionName::new(name).unwrap());
    Function {
        runtime_name: "provided".to_owned(),
        handler: "app.handler".to_owned(),
        code_sha256: "code-1".to_owned(),
        revision_id: "revision-1".to_owned(),
        ..Function::made_up(namespace, name, ByteSize::mib(128))
    }
}
