//! Clients of a node's doors, as the command uses them: S3, Lambda, and the admin API; and of what services export.
//!
//! One connection a request: these are for people and scripts, not for load.

mod admin;
mod documents;
mod fetch;
mod http_call;
mod lambda;
mod s3;
mod signer;
mod states;

use std::time::Duration;

use thiserror::Error;

pub use admin::{AdminClient, Lines, Pieces};
pub use fetch::fetch;
pub use lambda::{CodeUpload, FunctionChange, InvokeReply, LambdaClient};
pub use nigh_functions::function_network::{NETWORK_VARIABLE, NONE, OUTBOUND};
pub use nigh_schedule::activation::idempotence::IDEMPOTENT_VARIABLE;
pub use s3::{BucketEntry, ObjectEntry, ObjectPage, S3Client};
pub use states::StatesClient;

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The largest answer that is taken into memory; objects stream and do not count.
const ANSWER_MAX: usize = 64 << 20;

/// Why a call failed.
#[derive(Debug, Error)]
pub enum ClientError {
    /// Nobody listens.
    #[error("{endpoint} cannot be reached: {reason}; is Nigh running? start it with `nigh up`")]
    Connect {
        /// Where.
        endpoint: String,
        /// The system's reason.
        reason: String,
    },
    /// The connection broke, or what came is no HTTP.
    #[error("{endpoint}: {reason}")]
    Http {
        /// Where.
        endpoint: String,
        /// What happened.
        reason: String,
    },
    /// The door refused, with its code and words.
    #[error("{message} ({code})")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// AWS's error code.
        code: String,
        /// What the door says.
        message: String,
    },
    /// The request could not be put together.
    #[error("the request cannot be made: {0}")]
    Request(String),
    /// The answer is none that is understood.
    #[error("the answer of {endpoint} is not understood: {reason}")]
    Answer {
        /// Where.
        endpoint: String,
        /// Why.
        reason: String,
    },
    /// A local file or stream failed.
    #[error("{what}: {source}")]
    Local {
        /// What was touched.
        what: String,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
}

impl ClientError {
    /// True if what was asked for is not there.
    #[must_use]
    pub const fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { status: 404, .. })
    }
}
