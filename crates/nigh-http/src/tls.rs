//! TLS of doors and of their clients, by rustls.
//!
//! A door has its certificate in files, and uses new ones from the next connection on; files that cannot be used leave the
//! old certificate in use. `client` trusts the authorities of a file, or those of the system.

pub mod client;
pub mod server;
mod stream;

pub use nigh_rpc::certificates::CertificateError;
pub use rustls::ServerConfig;
pub use stream::DoorStream;

/// The only protocol over TLS.
const HTTP_1: &[u8] = b"http/1.1";
