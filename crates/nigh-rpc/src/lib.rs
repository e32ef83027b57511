//! Calls between the processes of a cluster, straight from one to the other: pooled connections, mutual TLS, bodies of any
//! size. The bytes are docs/design/rpc.md.
//!
//! A connection carries one call at a time: a large body holds nobody else up, and an abandoned call is a closed
//! connection. It knows nothing of objects or functions: a method is a number with limits, heads are opaque bytes.
//!
//! `Peers` calls, `serve` answers by a `Handler`. `Security::Tls` is what a cluster runs with; its certificates are made by
//! `certificates` and read anew when their files change. Every call has a deadline, and each failure says whether the
//! peer may have seen the call (`CallError::fate`).

mod accept;
mod answering;
mod body;
pub mod certificates;
mod connect;
mod error;
mod frame;
mod hello;
mod identity;
mod incoming;
mod link;
mod message;
mod meters;
mod peers;
mod pool;
mod security;
mod server;
mod settings;
mod x509;

pub use body::Body;
pub use error::{BodyError, CallError, ConnectError, Fate, Refusal, RefusalKind};
pub use frame::{BODY_MAX_BYTES, FORMAT, FrameError, HEAD_MAX_BYTES, HEADER_BYTES, Header, Kind};
pub use hello::Hello;
pub use identity::{Identity, NameError, Role};
pub use incoming::IncomingBody;
pub use peers::{CallAnswer, PeerAddress, Peers};
pub use security::{CertificateFiles, Credentials, Security};
pub use server::{Call, Handler, Method, Reply, serve};
pub use settings::{ClientSettings, Liveness, ServerSettings};
