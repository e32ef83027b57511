//! Why a call, a connection or a body fails.

use std::io;

use thiserror::Error;

use crate::frame::FrameError;

/// Why a peer refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusalKind {
    /// It has reached a limit of calls or connections.
    Busy,
    /// It is ending, or has closed the connection.
    Closing,
    /// It has no such method.
    UnknownMethod,
    /// The head or the body is longer than the method allows.
    TooLarge,
    /// This peer may not call it, or not call this method.
    Forbidden,
    /// The call took longer than its deadline.
    Late,
    /// The handler failed.
    Failed,
}

const CODES: [(RefusalKind, u16); 7] = [
    (RefusalKind::Busy, 1),
    (RefusalKind::Closing, 2),
    (RefusalKind::UnknownMethod, 3),
    (RefusalKind::TooLarge, 4),
    (RefusalKind::Forbidden, 5),
    (RefusalKind::Late, 6),
    (RefusalKind::Failed, 7),
];

impl RefusalKind {
    pub(crate) fn code(self) -> u16 {
        CODES.iter().find(|(kind, _)| *kind == self).map_or(0, |(_, code)| *code)
    }

    /// The kind of `code`; `Failed` for a code of a later build.
    pub(crate) fn of_code(code: u16) -> Self {
        CODES.iter().find(|(_, known)| *known == code).map_or(Self::Failed, |(kind, _)| *kind)
    }
}

/// A peer's refusal.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text}")]
pub struct Refusal {
    /// Its kind.
    pub kind: RefusalKind,
    /// The reason, cut at about 1,000 bytes when sent.
    pub text: String,
}

impl Refusal {
    /// A refusal.
    pub fn new(kind: RefusalKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    /// A handler's failure.
    pub fn failed(text: impl Into<String>) -> Self {
        Self::new(RefusalKind::Failed, text)
    }
}

/// Why a connection could not be made.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The network failed, or no process listens at the address.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The time for connecting is over.
    #[error("the connection was not made in time")]
    TimedOut,
    /// A certificate was rejected, or the peer does not speak TLS.
    #[error("TLS: {0}; both sides need certificates of the same authority (`nigh certificates`)")]
    Tls(String),
    /// The peer's bytes are no frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The peer is in another cluster.
    #[error("the peer is in the cluster {theirs:?}, not in {ours:?}; certificates must be of one cluster")]
    OtherCluster {
        /// The peer's cluster.
        theirs: String,
        /// This side's cluster.
        ours: String,
    },
    /// Another process has the address.
    #[error("another process, {theirs}, has the address now")]
    OtherName {
        /// The process.
        theirs: String,
    },
    /// The peer runs in another incarnation.
    #[error("the peer runs in incarnation {theirs}, not {wanted}")]
    OtherIncarnation {
        /// The peer's incarnation.
        theirs: u64,
        /// The requested incarnation.
        wanted: u64,
    },
    /// The peer's hello and its certificate differ.
    #[error("the peer calls itself {said}, but its certificate is of {certified}")]
    NotItself {
        /// The identity in the hello.
        said: String,
        /// The identity in the certificate.
        certified: String,
    },
    /// The peer does not admit this process.
    #[error("the peer refused the connection: {0}")]
    Refused(Refusal),
}

/// Whether the peer may have seen a call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The peer has not begun the call: it may be repeated.
    NotSent,
    /// The peer may have done the call, or may still do it.
    Unknown,
}

/// Why a call fails.
#[derive(Debug, Error)]
pub enum CallError {
    /// The connection could not be made.
    #[error("{peer}: {reason}")]
    Connect {
        /// The peer.
        peer: String,
        /// The reason.
        reason: ConnectError,
    },
    /// All connections to the peer were in use until the deadline, or too many calls wait for one.
    #[error("{peer}: all connections are in use; try again later")]
    Crowded {
        /// The peer.
        peer: String,
    },
    /// The peer refused.
    #[error("{peer} refused: {refusal}")]
    Refused {
        /// The peer.
        peer: String,
        /// The refusal.
        refusal: Refusal,
    },
    /// The head is too long for a frame.
    #[error("{peer}: a head of {bytes} bytes is too long to send")]
    LongHead {
        /// The peer.
        peer: String,
        /// Its length.
        bytes: usize,
    },
    /// The connection broke.
    #[error("{peer}: {reason}")]
    Broken {
        /// The peer.
        peer: String,
        /// The system's reason.
        reason: io::Error,
    },
    /// The deadline is over.
    #[error("{peer} did not answer in time; the outcome is unknown")]
    Late {
        /// The peer.
        peer: String,
    },
    /// The body to send could not be read.
    #[error("{peer}: the body to send could not be read: {reason}")]
    Source {
        /// The peer.
        peer: String,
        /// The reader's error.
        reason: io::Error,
    },
}

impl CallError {
    /// Whether the peer may have seen the call.
    #[must_use]
    pub const fn fate(&self) -> Fate {
        match self {
            Self::Connect { .. } | Self::Crowded { .. } | Self::LongHead { .. } => Fate::NotSent,
            Self::Refused { refusal, .. } => match refusal.kind {
                RefusalKind::Late | RefusalKind::Failed => Fate::Unknown,
                _ => Fate::NotSent,
            },
            Self::Broken { .. } | Self::Late { .. } | Self::Source { .. } => Fate::Unknown,
        }
    }

    /// The peer's refusal, if it is one.
    #[must_use]
    pub const fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused { refusal, .. } => Some(refusal),
            _ => None,
        }
    }
}

/// Why a body cannot be received.
#[derive(Debug, Error)]
pub enum BodyError {
    /// The connection broke.
    #[error("the body broke off: {0}")]
    Broken(#[from] io::Error),
    /// The deadline is over.
    #[error("the body did not arrive before the deadline of the call")]
    Late,
    /// The reader wants more than is left.
    #[error("the reader needs {wanted} bytes, but only {left} of the body are left")]
    Short {
        /// The bytes that are left.
        left: u64,
        /// The bytes that are wanted.
        wanted: u64,
    },
    /// The body is longer than the receiver accepts.
    #[error("the body has {bytes} bytes; at most {max} are accepted")]
    TooLarge {
        /// Its length.
        bytes: u64,
        /// The receiver's limit.
        max: u64,
    },
}
