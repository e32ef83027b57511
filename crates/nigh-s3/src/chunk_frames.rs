//! Re-frames an aws-chunked body before `s3s` reads it, because `s3s` keeps each chunk in memory until the chunk is
//! complete. Pure.
//!
//! An unsigned chunk may be as large as the object, because some SDKs send one chunk. Each network read of an unsigned
//! chunk is passed on as a chunk of its own, so nothing is buffered. A signed chunk is passed on whole, because its
//! signature covers all of it; a signed chunk above `SIGNED_CHUNK_MAX` is refused. The trailer after the last chunk is
//! passed on unchanged. Format: S3 API reference, "Signature calculations: transferring payload in multiple chunks".

use std::collections::VecDeque;

use bytes::Bytes;

/// The largest chunk that has its own signature, in bytes. SDKs send chunks of 64 KiB to 1 MiB.
pub(crate) const SIGNED_CHUNK_MAX: u64 = 16 << 20;
/// The longest head of a chunk, in bytes: the size in hexadecimal digits and the signature.
const HEAD_MAX: usize = 256;

/// Why a body is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameError {
    /// The body is not aws-chunked.
    Malformed,
    /// A signed chunk is larger than `SIGNED_CHUNK_MAX`.
    ChunkTooLarge,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// The next byte belongs to the head of a chunk.
    Head,
    /// The next byte belongs to the data of a chunk. The number of data bytes that are still to come.
    Data(u64),
    /// The next byte belongs to the CRLF after a chunk's data. The number of CRLF bytes that are still to come.
    Edge(u8),
    /// The head of the last chunk has been read; everything that follows is the trailer.
    Trailer,
}

/// The state of a body that is still arriving.
#[derive(Debug)]
pub(crate) struct ChunkFrames {
    signed: bool,
    state: State,
    head: Vec<u8>,
    out: VecDeque<Bytes>,
}

impl ChunkFrames {
    /// The state before the first byte. `signed` is true if each chunk has a signature.
    pub(crate) fn new(signed: bool) -> Self {
        Self { signed, state: State::Head, head: Vec::with_capacity(96), out: VecDeque::with_capacity(4) }
    }

    /// Returns the next bytes to pass on. None until more of the body arrives.
    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        self.out.pop_front()
    }

    /// Accepts the next bytes of the body.
    pub(crate) fn push(&mut self, mut bytes: Bytes) -> Result<(), FrameError> {
        while !bytes.is_empty() {
            match self.state {
                State::Head => self.push_head(&mut bytes)?,
                State::Data(left) => {
                    let data = bytes.split_to(left.min(bytes.len() as u64) as usize);
                    let left = left - data.len() as u64;
                    self.push_data(data);
                    self.state = if left == 0 { State::Edge(2) } else { State::Data(left) };
                }
                State::Edge(left) => {
                    let expected = if left == 2 { b'\r' } else { b'\n' };
                    if bytes[0] != expected {
                        return Err(FrameError::Malformed);
                    }
                    let edge = bytes.split_to(1);
                    if self.signed {
                        self.out.push_back(edge);
                    }
                    self.state = if left == 1 { State::Head } else { State::Edge(left - 1) };
                }
                State::Trailer => self.out.push_back(std::mem::take(&mut bytes)),
            }
        }
        Ok(())
    }

    fn push_head(&mut self, bytes: &mut Bytes) -> Result<(), FrameError> {
        let line = bytes.iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |end| end + 1);
        if self.head.len() + line > HEAD_MAX {
            return Err(FrameError::Malformed);
        }
        self.head.extend_from_slice(&bytes.split_to(line));
        if self.head.last() != Some(&b'\n') {
            return Ok(());
        }
        let size = chunk_size(&self.head)?;
        if self.signed && size > SIGNED_CHUNK_MAX {
            return Err(FrameError::ChunkTooLarge);
        }
        if self.signed || size == 0 {
            self.out.push_back(Bytes::copy_from_slice(&self.head));
        }
        self.head.clear();
        self.state = if size == 0 { State::Trailer } else { State::Data(size) };
        Ok(())
    }

    fn push_data(&mut self, data: Bytes) {
        if self.signed {
            self.out.push_back(data);
        } else {
            self.out.push_back(format!("{:x}\r\n", data.len()).into());
            self.out.push_back(data);
            self.out.push_back(Bytes::from_static(b"\r\n"));
        }
    }
}

/// The size that a chunk's head states, in bytes. CRLF or an extension follows the size.
fn chunk_size(head: &[u8]) -> Result<u64, FrameError> {
    let line = head.strip_suffix(b"\r\n").ok_or(FrameError::Malformed)?;
    let digits = line.split(|&byte| byte == b';').next().unwrap_or_default();
    if !(1..=16).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(FrameError::Malformed);
    }
    let digits = std::str::from_utf8(digits).map_err(|_| FrameError::Malformed)?;
    u64::from_str_radix(digits, 16).map_err(|_| FrameError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `body` to the frames in pieces of `piece` bytes, and returns the bytes that come out, piece by piece.
    fn reframe(signed: bool, body: &[u8], piece: usize) -> Result<Vec<Bytes>, FrameError> {
        let mut frames = ChunkFrames::new(signed);
        let mut out = Vec::new();
        for piece in body.chunks(piece.max(1)) {
            frames.push(Bytes::copy_from_slice(piece))?;
            out.extend(std::iter::from_fn(|| frames.pop()));
        }
        Ok(out)
    }

    /// Decodes an aws-chunked body as the format says. Returns the payload, and what follows the head of the last
    /// chunk.
    fn decode(mut body: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let mut payload = Vec::new();
        loop {
            let end = body.windows(2).position(|pair| pair == b"\r\n").unwrap();
            let size = chunk_size(&body[..end + 2]).unwrap() as usize;
            body = &body[end + 2..];
            if size == 0 {
                return (payload, body.to_vec());
            }
            payload.extend_from_slice(&body[..size]);
            assert_eq!(&body[size..size + 2], b"\r\n");
            body = &body[size + 2..];
        }
    }

    #[test]
    fn a_signed_body_passes_byte_by_byte_as_it_is() {
        let body = b"5;chunk-signature=abc\r\nhello\r\n0;chunk-signature=def\r\nx-amz-checksum-crc32:a\r\n\r\n";
        for piece in 1..body.len() {
            assert_eq!(reframe(true, body, piece).unwrap().concat(), body);
        }
    }

    #[test]
    fn an_unsigned_chunk_is_passed_on_without_being_kept() {
        let mut frames = ChunkFrames::new(false);
        frames.push(Bytes::from_static(b"140000000\r\n")).unwrap();
        for _ in 0..3 {
            frames.push(Bytes::from(vec![7; 1000])).unwrap();
            assert_eq!(frames.pop().unwrap(), "3e8\r\n");
            assert_eq!(frames.pop().unwrap().len(), 1000);
            assert_eq!(frames.pop().unwrap(), "\r\n");
            assert_eq!(frames.pop(), None);
        }
    }

    #[test]
    fn a_signed_chunk_above_the_limit_is_refused() {
        assert!(reframe(true, b"1000000;chunk-signature=a\r\n", 100).is_ok());
        assert_eq!(reframe(true, b"1000001;chunk-signature=a\r\n", 100), Err(FrameError::ChunkTooLarge));
    }

    #[test]
    fn garbage_is_refused() {
        for bad in ["hello\r\n", "\r\n", "5\nhello", "3\r\nabcd\r\n", "11111111111111111\r\n", "+5\r\n", "-1\r\n"] {
            assert_eq!(reframe(false, bad.as_bytes(), 100), Err(FrameError::Malformed), "{bad:?}");
        }
        assert_eq!(reframe(false, &[b'1'; 1000], 10), Err(FrameError::Malformed));
    }

    proptest::proptest! {
        #[test]
        fn reframing_keeps_the_payload_and_the_trailer(
            chunks in proptest::collection::vec(proptest::collection::vec(0u8..=255, 1..300), 0..6),
            piece in 1usize..400,
        ) {
            let mut body = Vec::new();
            for chunk in &chunks {
                body.extend_from_slice(format!("{:X}\r\n", chunk.len()).as_bytes());
                body.extend_from_slice(chunk);
                body.extend_from_slice(b"\r\n");
            }
            body.extend_from_slice(b"0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n");
            let out = reframe(false, &body, piece).unwrap().concat();
            let (payload, trailer) = decode(&out);
            proptest::prop_assert_eq!(payload, chunks.concat());
            proptest::prop_assert_eq!(trailer, b"x-amz-checksum-crc32:AAAAAA==\r\n\r\n".to_vec());
        }

        #[test]
        fn no_bytes_make_it_panic(body in proptest::collection::vec(0u8..=255, 0..400), signed: bool) {
            let _ = reframe(signed, &body, 7);
        }
    }
}
