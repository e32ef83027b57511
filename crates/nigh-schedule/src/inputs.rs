//! Knowledge of an invocation's data before it runs: the objects that its input names, the objects that it will
//! probably read, and which of them are prefetched. Pure.

pub mod application_objects;
pub mod latest_inputs;
pub mod named_objects;
pub mod payload_walk;
pub mod prefetch;
