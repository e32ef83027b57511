//! Backup and restore of a node's state, as one archive that is written and read in one pass.
//!
//! A backup has the registry (functions, models, incarnations, and, unless left out, keys), accepted events that are
//! not done, the node's executions of state machines, the archives of deployed code, the settings of the state folder,
//! and on request the objects of the directory store. It lacks records of invocations, and unfinished uploads and
//! profiles.
//!
//! `archive` is the format, `writer` and `reader` write and read it over any stream, `source` chooses what goes in, and
//! `restore` makes a state folder of it. docs/design/formats.md draws the archive.

pub mod archive;
pub mod reader;
pub mod restore;
pub mod source;
pub mod writer;

#[cfg(test)]
mod tests;
