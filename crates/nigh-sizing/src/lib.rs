//! What memory an invocation is expected to need, learned from the features of its inputs, and whether caching pays.
//!
//! `object_features` reads what stored objects say of themselves; `memory_sizing` learns and predicts.

pub mod memory_sizing;
pub mod object_features;
pub mod object_sizes;
