//! Why a call, a connection or a body fails.

use std::io;

use thiserror::Error;

use crate::frame::FrameError;

/// Why a peer refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusalKind {
    /// It does as much as it may.
    Busy,
    /// It ends, or has closed the connection.
    Closing,
    /// It has no such method.
    UnknownMethod,
    /// The head or the body is longer than the method allows.
    TooLarge,
    /// It does not speak with this peer, or not of this.
    Forbidden,
    /// The call took longer than its deadline.
    Late,
    /// It tried and failed.
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

    /// A code of a later build is a failure.
    pub(crate) fn of_code(code: u16) -> Self {
        CODES.iter().find(|(_, known)| *known == code).map_or(Self::Failed, |(kind, _)| *kind)
    }
}

/// A peer's refusal: its kind and its words.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text}")]
pub struct Refusal {
    /// Which.
    pub kind: RefusalKind,
    /// In words; cut at about 1,000 bytes when sent.
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

/// Why there is no connection.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The network, or nobody there.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Nothing was heard in time.
    #[error("no connection in time")]
    TimedOut,
    /// TLS: a certificate that does not do, or no TLS at all.
    #[error("TLS: {0}; both need certificates of the same authority (`nigh certificates`)")]
    Tls(String),
    /// The other side's bytes.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The other side is of another cluster.
    #[error("it is of the cluster {theirs:?}, not of {ours:?}")]
    OtherCluster {
        /// Its cluster.
        theirs: String,
        /// This side's.
        ours: String,
    },
    /// Somebody else is at that address.
    #[error("it is {theirs}; the address is somebody else's now")]
    OtherName {
        /// Who.
        theirs: String,
    },
    /// It has begun a new life, or an older one is still there.
    #[error("it is in incarnation {theirs}, not {wanted}")]
    OtherIncarnation {
        /// Its own.
        theirs: u64,
        /// The one asked for.
        wanted: u64,
    },
    /// What it says of itself is not what its certificate says.
    #[error("it says it is {said}, and its certificate {certified}")]
    NotItself {
        /// Its words.
        said: String,
        /// Its certificate's.
        certified: String,
    },
    /// It does not speak with this process.
    #[error("refused: {0}")]
    Refused(Refusal),
}

/// Whether the peer may have seen a call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It has not begun it: it may be made again.
    NotSent,
    /// It may have done it, or do it yet.
    Unknown,
}

/// Why a call fails.
#[derive(Debug, Error)]
pub enum CallError {
    /// There is no connection.
    #[error("{peer}: {reason}")]
    Connect {
        /// Whom.
        peer: String,
        /// Why.
        reason: ConnectError,
    },
    /// All connections to the peer are in use, and as many calls wait for one as may, or the deadline came.
    #[error("{peer}: no connection became free; all are in use")]
    Crowded {
        /// Whom.
        peer: String,
    },
    /// The peer refused.
    #[error("{peer} refused: {refusal}")]
    Refused {
        /// Whom.
        peer: String,
        /// How.
        refusal: Refusal,
    },
    /// The head is longer than frames may have.
    #[error("{peer}: a head of {bytes} bytes is too long to send")]
    LongHead {
        /// Whom.
        peer: String,
        /// How long.
        bytes: usize,
    },
    /// The connection broke.
    #[error("{peer}: {reason}")]
    Broken {
        /// Whom.
        peer: String,
        /// The system's reason.
        reason: io::Error,
    },
    /// The deadline came.
    #[error("{peer}: no answer in time")]
    Late {
        /// Whom.
        peer: String,
    },
    /// The body to be sent could not be read.
    #[error("{peer}: the body could not be read: {reason}")]
    Source {
        /// Whom.
        peer: String,
        /// Its reason.
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
    /// The deadline came.
    #[error("the body did not come in time")]
    Late,
    /// More is asked for than there is.
    #[error("{wanted} bytes are asked for, and {left} are left of the body")]
    Short {
        /// What is left.
        left: u64,
        /// What is asked for.
        wanted: u64,
    },
    /// It is longer than the receiver takes.
    #[error("a body of {bytes} bytes, where at most {max} are taken")]
    TooLarge {
        /// Its length.
        bytes: u64,
        /// The receiver's limit.
        max: u64,
    },
}
