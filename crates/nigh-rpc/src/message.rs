//! Frames on a connection: heads read within their limits, and messages written with as few calls of the kernel as may be.

use std::io::{self, IoSlice};

use bytes::{Bytes, BytesMut};
use thiserror::Error;
use tokio::io::AsyncReadExt as _;

use crate::body::{Body, Source};
use crate::error::{Refusal, RefusalKind};
use crate::frame::{FrameError, HEADER_BYTES, Header, Kind, is_tls};
use crate::link::{Link, WriteEnd};

/// What is read at once of a body that comes from a reader.
const PIECE_BYTES: usize = 256 << 10;
/// The longest text of a refusal.
const TEXT_MAX_BYTES: usize = 1000;

/// Why a frame cannot be read.
#[derive(Debug, Error)]
pub(crate) enum ReadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Frame(#[from] FrameError),
}

impl From<ReadError> for io::Error {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Io(error) => error,
            ReadError::Frame(error) => Self::new(io::ErrorKind::InvalidData, error),
        }
    }
}

/// Why a message cannot be sent.
#[derive(Debug, Error)]
pub(crate) enum SendError {
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The body's reader failed or ended: the connection is of no further use.
    #[error("the message body could not be read: {0}")]
    Source(io::Error),
}

/// Reads a header.
pub(crate) async fn read_header(link: &mut Link) -> Result<Header, ReadError> {
    let mut bytes = [0; HEADER_BYTES];
    let mut read = 0;
    while read < HEADER_BYTES {
        match link.read(&mut bytes[read..]).await? {
            // An alert of TLS is shorter than a header.
            0 if is_tls(&bytes) => return Err(FrameError::Tls.into()),
            0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            count => read += count,
        }
    }
    let header = Header::parse(&bytes)?;
    link.left = header.body_bytes;
    Ok(header)
}

/// Reads the head that `header` announces.
pub(crate) async fn read_head(link: &mut Link, header: &Header) -> io::Result<Bytes> {
    let length = header.head_bytes as usize;
    let mut head = BytesMut::with_capacity(length);
    while head.len() < length {
        let left = (length - head.len()) as u64;
        if (&mut *link).take(left).read_buf(&mut head).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(head.freeze())
}

/// Writes a frame without a body.
pub(crate) async fn write_short(link: &mut Link, header: Header, head: &[u8]) -> io::Result<()> {
    let header = Header { head_bytes: head.len() as u32, ..header }.encode();
    link.write(&mut [IoSlice::new(&header), IoSlice::new(head)], false).await.map(drop)
}

/// Writes a refusal of call `number`, or of none.
pub(crate) async fn write_refusal(link: &mut Link, number: u32, refusal: &Refusal) -> io::Result<()> {
    let text = &refusal.text.as_bytes()[..refusal.text.floor_char_boundary(TEXT_MAX_BYTES)];
    let method = refusal.kind.code();
    let header = Header { kind: Kind::Refusal, method, number, patience_ms: 0, head_bytes: 0, body_bytes: 0 };
    write_short(link, header, text).await
}

/// Reads the words of the refusal that `header` announces.
pub(crate) async fn read_refusal(link: &mut Link, header: &Header) -> io::Result<Refusal> {
    let text = read_head(link, header).await?;
    Ok(Refusal::new(RefusalKind::of_code(header.method), String::from_utf8_lossy(&text)))
}

/// Writes `header`, `head` and `body`, whose lengths are put into the header. One that `listens` ends early if the peer
/// speaks first.
pub(crate) async fn write_message(
    link: &mut Link,
    header: Header,
    head: &[u8],
    body: Body,
    listens: bool,
) -> Result<WriteEnd, SendError> {
    let Body { source, bytes } = body;
    let header = Header { head_bytes: head.len() as u32, body_bytes: bytes, ..header }.encode();
    let mut reader = match source {
        Source::Pieces(pieces) => {
            let front = [&header[..], head];
            let parts = front.into_iter().chain(pieces.iter().map(Bytes::as_ref)).map(IoSlice::new);
            return Ok(link.write(&mut parts.collect::<Vec<_>>(), listens).await?);
        }
        Source::Reader(reader) => reader,
    };
    let mut left = bytes;
    let mut piece = BytesMut::with_capacity(PIECE_BYTES.min(bytes as usize));
    let mut begun = false;
    while !begun || left > 0 {
        piece.clear();
        while piece.len() < PIECE_BYTES && (piece.len() as u64) < left {
            let wanted = (PIECE_BYTES - piece.len()).min((left - piece.len() as u64) as usize) as u64;
            let read = (&mut reader).take(wanted).read_buf(&mut piece).await.map_err(SendError::Source)?;
            if read == 0 {
                return Err(SendError::Source(io::ErrorKind::UnexpectedEof.into()));
            }
        }
        let front: [&[u8]; 2] = if begun { [&[], &[]] } else { [&header, head] };
        let mut parts = [front[0], front[1], &piece].map(IoSlice::new);
        if link.write(&mut parts, listens).await? == WriteEnd::CutShort {
            return Ok(WriteEnd::CutShort);
        }
        left -= piece.len() as u64;
        begun = true;
    }
    Ok(WriteEnd::All)
}
