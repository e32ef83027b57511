//! A body to send: its length is known, its bytes are in memory or come from a reader.

use std::fmt;
use std::pin::Pin;

use bytes::Bytes;
use tokio::io::AsyncRead;

pub(crate) enum Source {
    Pieces(Vec<Bytes>),
    Reader(Pin<Box<dyn AsyncRead + Send>>),
}

/// A body to send.
pub struct Body {
    pub(crate) source: Source,
    pub(crate) bytes: u64,
}

impl Body {
    /// No bytes.
    #[must_use]
    pub const fn empty() -> Self {
        Self { source: Source::Pieces(Vec::new()), bytes: 0 }
    }

    /// These pieces, one after the other; without TLS they are sent without a copy.
    pub fn pieces(pieces: impl IntoIterator<Item = Bytes>) -> Self {
        let pieces: Vec<Bytes> = pieces.into_iter().filter(|piece| !piece.is_empty()).collect();
        let bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
        Self { source: Source::Pieces(pieces), bytes }
    }

    /// The next `bytes` of `reader`. If the reader ends before, the call fails.
    pub fn reader(bytes: u64, reader: impl AsyncRead + Send + 'static) -> Self {
        Self { source: Source::Reader(Box::pin(reader)), bytes }
    }

    /// Its length.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.bytes
    }

    /// True if it has no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::pieces([bytes])
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Body({} bytes)", self.bytes)
    }
}
