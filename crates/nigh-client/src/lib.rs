//! A client of a node's fast path (docs/design/fast-path.md): objects without HTTP and, from 64 KiB on, without a copy.
//!
//! `Client::get` gives a `View`: the object's bytes as the node has them, mapped for reading. `Client::create` gives
//! a `Created`: memory of the node's to be filled, which `commit` makes an object; `Client::open` gives an `ObjectFile`,
//! which reads and seeks. It decides nothing: what may be read
//! or written, and how it is answered, is the node's.
//!
//! A client is one connection and serves one process; each method waits for its answer. Where the node says so
//! (`ClientError::UseHttp`) ask the S3 door instead.
//!
//! ```no_run
//! # fn main() -> Result<(), nigh_client::ClientError> {
//! let mut client = nigh_client::Client::from_environment()?;
//! let view = client.get("bucket", "key", &Default::default())?;
//! println!("{} bytes of {}", view.len(), view.header("content-type").unwrap_or("?"));
//! # Ok(())
//! # }
//! ```

mod address;
mod client;
mod created;
mod error;
mod object_file;
mod packet;
mod view;

pub use address::Address;
pub use client::{Answered, Client, Conditions, Headers};
pub use created::Created;
pub use error::ClientError;
pub use object_file::ObjectFile;
pub use packet::{Connection, Message};
pub use view::View;
