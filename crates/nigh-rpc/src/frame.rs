//! The header of every frame (docs/design/rpc.md), checked before memory is allocated for the frame. Pure.

use thiserror::Error;

/// The format of this build; every header has it.
pub const FORMAT: u16 = 1;
/// Bytes of a header.
pub const HEADER_BYTES: usize = 32;
/// The longest head.
pub const HEAD_MAX_BYTES: u32 = 1 << 20;
/// The longest body that any method may allow: 1 TiB.
pub const BODY_MAX_BYTES: u64 = 1 << 40;
/// The longest head of a hello or a refusal.
const SHORT_HEAD_MAX_BYTES: u32 = 1 << 10;
const MAGIC: [u8; 4] = *b"NRPC";
/// The first bytes of TLS records, for a handshake and an alert.
const TLS_RECORDS: [[u8; 2]; 2] = [[0x16, 3], [0x15, 3]];

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The sender's identity; the first frame of each side.
    Hello,
    /// A call: head, then body.
    Call,
    /// The answer to a call: head, then body.
    Answer,
    /// A refusal, in place of an answer or a hello.
    Refusal,
}

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The kind of the frame.
    pub kind: Kind,
    /// The method of a call or an answer; the code of a refusal; else 0.
    pub method: u16,
    /// The number of a call on this connection, also in its answer or refusal; else 0.
    pub number: u32,
    /// The milliseconds for which the caller waits; 0 if the frame is no call.
    pub patience_ms: u32,
    /// Bytes of the head, which follows.
    pub head_bytes: u32,
    /// Bytes of the body, which follows the head.
    pub body_bytes: u64,
}

/// Why bytes are no valid header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// The peer speaks TLS.
    #[error("the peer speaks TLS and this side does not; give both the same security")]
    Tls,
    /// The bytes do not begin as a frame does.
    #[error("the peer does not speak Nigh's protocol; check the peer's address")]
    Magic,
    /// The peer speaks another format.
    #[error("the peer speaks format {theirs} and this build {FORMAT}; run the same release of Nigh on both")]
    Format {
        /// The peer's format.
        theirs: u16,
    },
    /// The format has no such kind.
    #[error("the peer sent a frame of unknown kind {0}")]
    UnknownKind(u8),
    /// Unused bits are set, or a field is set that the kind does not have.
    #[error("the peer sent a frame with unused bits or fields set")]
    Unused,
    /// The head is too long.
    #[error("the peer sent a frame with a head of {0} bytes, which is too long")]
    LongHead(u32),
    /// The body is too long.
    #[error("the peer sent a frame with a body of {0} bytes, which is too long")]
    LongBody(u64),
}

impl Kind {
    const fn code(self) -> u8 {
        match self {
            Self::Hello => 1,
            Self::Call => 2,
            Self::Answer => 3,
            Self::Refusal => 4,
        }
    }

    const fn of_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Hello),
            2 => Some(Self::Call),
            3 => Some(Self::Answer),
            4 => Some(Self::Refusal),
            _ => None,
        }
    }
}

impl Header {
    /// The bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[6] = self.kind.code();
        bytes[8..10].copy_from_slice(&self.method.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.patience_ms.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.head_bytes.to_le_bytes());
        bytes[24..].copy_from_slice(&self.body_bytes.to_le_bytes());
        bytes
    }

    /// Parses a header.
    ///
    /// # Errors
    /// If the bytes are no header of this format.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, FrameError> {
        let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if bytes[..4] != MAGIC {
            return Err(if is_tls(bytes) { FrameError::Tls } else { FrameError::Magic });
        }
        if short(4) != FORMAT {
            return Err(FrameError::Format { theirs: short(4) });
        }
        let kind = Kind::of_code(bytes[6]).ok_or(FrameError::UnknownKind(bytes[6]))?;
        let header = Self {
            kind,
            method: short(8),
            number: word(12),
            patience_ms: word(16),
            head_bytes: word(20),
            body_bytes: u64::from(word(24)) | u64::from(word(28)) << 32,
        };
        let head_max = match kind {
            Kind::Hello | Kind::Refusal => SHORT_HEAD_MAX_BYTES,
            Kind::Call | Kind::Answer => HEAD_MAX_BYTES,
        };
        let bodiless = matches!(kind, Kind::Hello | Kind::Refusal) && header.body_bytes > 0;
        let waits = kind != Kind::Call && header.patience_ms > 0;
        let named = kind == Kind::Hello && (header.method > 0 || header.number > 0);
        if bytes[7] != 0 || short(10) != 0 || bodiless || waits || named {
            return Err(FrameError::Unused);
        }
        if header.head_bytes > head_max {
            return Err(FrameError::LongHead(header.head_bytes));
        }
        if header.body_bytes > BODY_MAX_BYTES {
            return Err(FrameError::LongBody(header.body_bytes));
        }
        Ok(header)
    }
}

/// Whether `bytes` begin as a TLS record does.
pub(crate) fn is_tls(bytes: &[u8; HEADER_BYTES]) -> bool {
    TLS_RECORDS.contains(&[bytes[0], bytes[1]])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn call() -> Header {
        Header { kind: Kind::Call, method: 7, number: 3, patience_ms: 1000, head_bytes: 10, body_bytes: 1 << 33 }
    }

    proptest! {
        #[test]
        fn whatever_is_taken_is_written_the_same(raw in any::<[u8; HEADER_BYTES]>(), framed in any::<bool>()) {
            let mut raw = raw;
            if framed {
                raw[..6].copy_from_slice(&call().encode()[..6]);
                raw[6] %= 6;
                (raw[7], raw[10], raw[11], raw[23], raw[30], raw[31]) = (0, 0, 0, 0, 0, 0);
            }
            if let Ok(header) = Header::parse(&raw) {
                prop_assert_eq!(header.encode(), raw);
                prop_assert!(header.head_bytes <= HEAD_MAX_BYTES);
            }
        }
    }

    #[test]
    fn each_field_keeps_its_place() {
        assert_eq!(Header::parse(&call().encode()), Ok(call()));
        assert_eq!(&call().encode()[..12], b"NRPC\x01\0\x02\0\x07\0\0\0");
        let newer = {
            let mut raw = call().encode();
            raw[4] = 9;
            raw[6] = 77;
            raw
        };
        assert_eq!(Header::parse(&newer), Err(FrameError::Format { theirs: 9 }));
    }

    #[test]
    fn what_is_too_long_or_not_of_its_kind_is_refused() {
        let long = Header { head_bytes: HEAD_MAX_BYTES + 1, ..call() };
        assert_eq!(Header::parse(&long.encode()), Err(FrameError::LongHead(HEAD_MAX_BYTES + 1)));
        let long = Header { body_bytes: u64::MAX, ..call() };
        assert_eq!(Header::parse(&long.encode()), Err(FrameError::LongBody(u64::MAX)));
        for kind in [Kind::Hello, Kind::Refusal, Kind::Answer] {
            assert_eq!(Header::parse(&Header { kind, ..call() }.encode()), Err(FrameError::Unused));
        }
        assert_eq!(Header::parse(b"\x16\x03\x01 a client that speaks TLS...."), Err(FrameError::Tls));
        assert_eq!(Header::parse(b"GET / HTTP/1.1\r\nhost: somebody\r\n"), Err(FrameError::Magic));
    }
}
