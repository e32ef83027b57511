//! Clients that record what they write, read and delete, and the judgement of that record: for experiments that end a
//! node at any moment and ask what it still has.

pub(crate) mod body;
pub(crate) mod client;
pub(crate) mod fast_calls;
pub(crate) mod history;
pub(crate) mod recorded_run;
mod s3_calls;
pub(crate) mod store_behind;

pub(crate) use s3_calls::get;

/// The bucket of all clients.
pub(crate) const BUCKET: &str = "judged";
/// How many clients there are.
pub(crate) const CLIENTS: u32 = 4;
/// How many violations a report names.
pub(crate) const DETAILS_MAX: usize = 20;
