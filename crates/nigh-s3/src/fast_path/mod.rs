//! The fast path: objects over a Unix socket, as descriptors of sealed segments (docs/design/fast-path.md).
//!
//! The fast path answers what the S3 door would answer, through the same handlers, conditions, headers and errors. This
//! module has what differs: the packets (`wire`), what a holder may hold (`held`, `holdings`), the form of requests
//! (`questions`) and answers (`replies`), one connection (`session`), the sockets (`server`, `socket`) and the counts
//! (`usage`). The fast path never accepts memory from a client, and never hands out memory in which other objects could
//! be seen.

mod held;
mod holdings;
mod questions;
mod replies;
mod server;
mod session;
mod socket;
mod usage;
mod wire;

/// Returns true if a packet is a request with valid fields. For the fuzz target.
pub(crate) fn reads_packet(packet: &[u8]) -> bool {
    match wire::parse(packet) {
        Ok((_, wire::Request::Get(read) | wire::Request::Head(read))) => questions::of_read(read).is_ok(),
        Ok((_, wire::Request::Put(put, body))) => questions::of_put(&put.headers, body.len() as u64).is_ok(),
        Ok((_, wire::Request::Commit(commit))) => questions::of_put(&commit.headers, 0).is_ok(),
        Ok(_) => true,
        Err(_) => false,
    }
}

pub use holdings::Payer;
pub use server::{FastPath, FastPathLimits};
pub use socket::{bind, listener};
pub use usage::FastPathUsage;
