//! The S3 door: the S3 REST API onto the object memory, over TCP and Unix sockets.
//!
//! `s3s` parses, routes and checks signatures; `nigh_objects::ObjectMemory` keeps the objects. This crate decides what
//! stands between: who asks (`auth`), what is refused because it would change meaning and is not supported (`screen`),
//! how headers become requests (`conditions`, `payload`) and results become answers (`read`, `error`), which threads
//! connections live on (`lanes`). How long clients may be silent, and their shares, `nigh_http` decides. Beside HTTP there is a way to the
//! same answers without it (`fast_path`). It never touches a store and never decides where an object's bytes are.
//!
//! The reference is the Amazon S3 API reference, API version 2006-03-01.

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
mod screen;
mod serve;
mod tagging;
mod telemetry;
mod transaction_header;
mod transactions;
mod upload_body;
mod uploads;

pub use door::S3Door;
pub use fast_path::{
    FastPath, FastPathLimits, FastPathUsage, Payer as FastPathPayer, bind as bind_fast_path,
    listener as fast_path_listener,
};
pub use serve::DoorLimits;
