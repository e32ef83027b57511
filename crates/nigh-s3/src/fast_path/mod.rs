//! The fast path: objects over a Unix socket, as descriptors of sealed segments (docs/fast-path.md).
//!
//! It answers what the S3 door would answer, through the same handlers, conditions, headers and errors; here is what
//! differs: packets (`wire`), what a holder may hold (`held`, `holdings`), how the same questions come and the same
//! answers go (`questions`, `replies`), one connection (`session`) and the sockets (`server`, `socket`).
//! It never takes memory from a client and never hands out what others could be seen in.

mod held;
mod holdings;
mod questions;
mod replies;
mod server;
mod session;
mod socket;
pub(crate) mod wire;

pub use server::{FastPath, FastPathLimits};
pub use socket::{bind, listener};
