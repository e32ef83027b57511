//! The Amazon States Language, version 1.0, with JSONPath. Pure.
//!
//! `read` makes a `Definition` from a text, or names each problem with its place. A definition's parts evaluate
//! themselves: `path` and `template` find and make values, `choice` and `retry` choose the next state.

pub(crate) mod chance;
pub(crate) mod choice;
pub(crate) mod context;
pub(crate) mod definition;
pub(crate) mod error_names;
mod intrinsic;
pub(crate) mod path;
pub(crate) mod problems;
pub(crate) mod read;
pub(crate) mod retry;
pub(crate) mod template;
pub(crate) mod timestamp;
