//! The S3 door: the S3 REST API onto the object memory, over TCP and Unix sockets.
//!
//! `s3s` parses and routes requests and checks signatures; `nigh_objects::ObjectMemory` keeps the objects. This crate
//! does the rest: it identifies the signer (`auth`), refuses unsupported requests whose meaning would change if they
//! were ignored (`screen`), turns headers into requests (`conditions`, `payload`) and results into answers (`read`,
//! `error`), gives each connection a thread (`lanes`) and closes silent connections (`watch`). The fast path
//! (`fast_path`) gives the same answers without HTTP. This crate never accesses a store, and never decides where an
//! object's bytes are.
//!
//! The reference is the Amazon S3 API reference, API version 2006-03-01.

mod actions;
mod audit;
mod auth;
mod buckets;
mod checksum_headers;
mod chunk_frames;
mod conditions;
mod door;
mod error;
mod fast_path;
#[doc(hidden)]
pub mod fuzzing;
mod handlers;
mod http_date;
mod lanes;
mod listing;
mod metadata;
mod notes;
mod notifications;
mod objects;
mod operations;
mod payload;
mod query;
mod read;
mod repeated;
mod request_id;
mod request_trace;
mod screen;
mod serve;
mod signed_date;
mod signed_read;
mod tagging;
mod telemetry;
mod transaction_header;
mod transactions;
mod upload_body;
mod uploads;
mod xml_body;

pub use door::S3Door;
pub use fast_path::{
    FastPath, FastPathLimits, FastPathUsage, Payer as FastPathPayer, bind as bind_fast_path,
    listener as fast_path_listener,
};
pub use serve::DoorLimits;
