//! Calls, peers and faults, with real sockets.

#![expect(clippy::unwrap_used, reason = "a test ends by panicking")]

mod calls;
mod faults;
mod identity;
mod revocation;
mod support;
