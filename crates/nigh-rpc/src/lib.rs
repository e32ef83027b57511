//! Direct calls between the processes of a cluster: pooled connections, mutual TLS, bodies of any size. docs/design/rpc.md
//! draws the frames.
//!
//! A connection carries one call at a time: a large body delays no other call, and a client abandons a call by closing its
//! connection. The crate knows nothing of objects or functions: a method is a number with limits, heads are opaque bytes.
//!
//! `Peers` calls; `serve` gives calls to a `Handler`. A cluster runs with `Security::Tls`; `certificates` issues its
//! certificates, and processes read them again when their files change. Every call has a deadline, and each failure says
//! whether the peer may have seen the call (`CallError::fate`).

mod accept;
mod answering;
mod body;
mod certificate_files;
pub mod certificates;
mod connect;
mod error;
mod file_stamps;
mod frame;
mod handler;
mod hello;
mod identity;
mod incoming;
mod link;
mod message;
mod meters;
mod method;
mod peers;
mod pool;
mod revocations;
mod security;
mod server;
mod settings;
mod x509;

pub use body::Body;
pub use certificate_files::CertificateFiles;
pub use error::{BodyError, CallError, ConnectError, Fate, Refusal, RefusalKind};
pub use frame::{BODY_MAX_BYTES, FORMAT, FrameError, HEAD_MAX_BYTES, HEADER_BYTES, Header, Kind};
pub use handler::{Call, Handler, Reply};
pub use hello::Hello;
pub use identity::{Identity, NameError, PeerAddress, Role};
pub use incoming::IncomingBody;
pub use method::Method;
pub use peers::{CallAnswer, Peers};
pub use security::{Credentials, Security};
pub use server::serve;
pub use settings::{ClientSettings, Liveness, ServerSettings};
