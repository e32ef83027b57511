//! Backup and restore of a node's state, as one archive that one pass writes and one pass reads.
//!
//! What is in it: the registry (functions, models, lives, and, unless left out, keys), events that are not done (they
//! were promised), the executions of state machines that this node keeps, the archives of deployed code, the settings of the state folder, and, if asked for, the objects of
//! the directory store. What is not: records of invocations, uploads and profiles under way.
//!
//! `archive` is the form, `writer` and `reader` its two directions over any stream, `source` what of a node goes in,
//! `restore` what becomes of it, `placing` the crash-safe last step. docs/design/formats.md draws the archive.

pub mod archive;
pub mod reader;
pub mod restore;
pub mod source;
pub mod writer;

#[cfg(test)]
mod tests;
