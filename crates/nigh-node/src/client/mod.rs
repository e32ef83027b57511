//! Clients of a node's doors, for the command: S3, Lambda, and the admin API; and of services' metrics.
//!
//! Each request has a connection of its own: these are for people and scripts, not for load.

mod admin;
mod documents;
mod fetch;
mod http_call;
mod lambda;
mod s3;
mod scheduler;
mod signer;
mod states;

use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

pub use admin::{AdminClient, Lines, Pieces};
pub use fetch::fetch;
pub use lambda::{CodeUpload, DescribedFunction, FunctionChange, InvokeReply, LambdaClient, NewLayer};
pub use nigh_functions::function_network::{NETWORK_VARIABLE, NONE, OUTBOUND};
pub use nigh_functions::schedule::{ScheduleName, ScheduleTimes, Timetable};
pub use nigh_schedule::activation::idempotence::IDEMPOTENT_VARIABLE;
pub use s3::{BucketEntry, BucketNotifications, FunctionTrigger, ObjectEntry, ObjectPage, S3Client, TriggerFilter};
pub use scheduler::SchedulerClient;
pub use states::StatesClient;

/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The most bytes of an answer in memory; streamed objects do not count.
const ANSWER_MAX: usize = 64 << 20;

/// The address of a door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoorAddress {
    /// `http://host:port` or `https://host:port`.
    pub url: String,
    /// The PEM file of the authorities that are trusted with `https`; those of the system if absent.
    pub ca_bundle: Option<PathBuf>,
}

/// Why a call failed.
#[derive(Debug, Error)]
pub enum ClientError {
    /// Nobody listens at the endpoint.
    #[error("{endpoint} cannot be reached: {reason}; is Nigh running? start it with `nigh up`")]
    Connect {
        /// The endpoint: a URL, or the path of a Unix socket.
        endpoint: String,
        /// The system's reason.
        reason: String,
    },
    /// The connection broke, or the answer is not HTTP.
    #[error("{endpoint}: {reason}")]
    Http {
        /// The endpoint: a URL, or the path of a Unix socket.
        endpoint: String,
        /// The reason.
        reason: String,
    },
    /// The door refused the request.
    #[error("{message} ({code})")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// AWS's error code.
        code: String,
        /// The door's message.
        message: String,
    },
    /// The request could not be built.
    #[error("the request cannot be made: {0}")]
    Request(String),
    /// The answer cannot be understood.
    #[error("the answer of {endpoint} is not understood: {reason}")]
    Answer {
        /// The endpoint: a URL, or the path of a Unix socket.
        endpoint: String,
        /// Why it cannot be understood.
        reason: String,
    },
    /// A local file or stream failed.
    #[error("{what}: {source}")]
    Local {
        /// The file or stream.
        what: String,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
}

impl ClientError {
    /// True if the requested item does not exist.
    #[must_use]
    pub const fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { status: 404, .. })
    }
}
