//! The fast path: objects over a Unix socket, as descriptors of sealed segments (docs/design/fast-path.md).
//!
//! It answers what the S3 door would answer, through the same handlers, conditions, headers and errors; here is what
//! differs: packets (`wire`), what a holder may hold (`held`, `holdings`), how the same questions come and the same
//! answers go (`questions`, `replies`), one connection (`session`), the sockets (`server`, `socket`) and what is told
//! of it all (`usage`). It never takes memory from a client and never hands out memory in which other objects could be
//! seen.

mod held;
mod holdings;
mod questions;
mod replies;
mod server;
mod session;
mod socket;
mod usage;
mod wire;

/// Whether a packet is a request whose fields mean something: for the fuzz target.
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
