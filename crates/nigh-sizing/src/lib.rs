//! Predicts the memory that an invocation needs, and whether caching pays, from the features of its inputs.
//!
//! `object_features` reads features of stored objects; `memory_sizing` learns and predicts.

pub mod memory_sizing;
pub mod object_features;
pub mod object_sizes;
