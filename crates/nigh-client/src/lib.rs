//! A client of a node's fast path (docs/design/fast-path.md): objects without HTTP and, from 64 KiB on, without a copy.
//!
//! `Client::get` returns a `View`: the object's bytes in the node's memory, mapped for reading. `Client::create` returns a
//! `Created`: memory of the node to fill, which `commit` makes an object. `Client::open` returns an `ObjectFile`, which
//! reads and seeks. The node decides what a client may read or write.
//!
//! A client is one connection of one process; each method waits for its answer. After `ClientError::UseHttp` use the S3
//! door instead.
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
mod socket;
mod spin;
mod view;

pub use address::Address;
pub use client::{Answered, Client, Conditions, Headers};
pub use created::Created;
pub use error::ClientError;
pub use object_file::ObjectFile;
pub use packet::{Connection, Message, Reply, request_header};
pub use socket::{Arrived, Inbox, Socket};
pub use view::View;
