//! The bytes of an archive: in memory, if they came in a request, or in a file without a name.

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use bytes::Bytes;
use nigh_terms::ByteSize;
use sha2::{Digest, Sha256};

const BUFFER_BYTES: usize = 64 << 10;

/// The bytes of an archive, wherever they are. Clones share them.
#[derive(Clone, Debug)]
pub struct Archive {
    source: Source,
    size: ByteSize,
}

#[derive(Clone, Debug)]
enum Source {
    Memory(Bytes),
    File(Arc<File>),
}

impl From<Bytes> for Archive {
    fn from(bytes: Bytes) -> Self {
        Self { size: ByteSize(bytes.len() as u64), source: Source::Memory(bytes) }
    }
}

impl From<Vec<u8>> for Archive {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl Archive {
    /// The whole of `file`, to which nobody writes any more.
    ///
    /// # Errors
    /// If its length cannot be told.
    pub fn in_file(file: File) -> io::Result<Self> {
        Ok(Self { size: ByteSize(file.metadata()?.len()), source: Source::File(Arc::new(file)) })
    }

    /// Its length.
    #[must_use]
    pub const fn size(&self) -> ByteSize {
        self.size
    }

    /// Reads from the beginning, independently of other readers.
    #[must_use]
    pub fn reader(&self) -> Reader {
        match &self.source {
            Source::Memory(bytes) => Reader::Memory(Cursor::new(bytes.clone())),
            Source::File(file) => {
                let positioned = FileCursor { file: Arc::clone(file), at: 0, end: self.size.bytes() };
                Reader::File(BufReader::with_capacity(BUFFER_BYTES, positioned))
            }
        }
    }

    /// Its SHA-256.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn sha256(&self) -> io::Result<[u8; 32]> {
        let (mut hash, mut reader, mut piece) = (Sha256::new(), self.reader(), vec![0; BUFFER_BYTES]);
        loop {
            match reader.read(&mut piece)? {
                0 => return Ok(hash.finalize().into()),
                length => hash.update(&piece[..length]),
            }
        }
    }
}

/// Reads an archive.
#[derive(Debug)]
pub enum Reader {
    /// From memory.
    Memory(Cursor<Bytes>),
    /// From its file.
    File(BufReader<FileCursor>),
}

impl Read for Reader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Memory(bytes) => bytes.read(into),
            Self::File(file) => file.read(into),
        }
    }
}

impl Seek for Reader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match self {
            Self::Memory(bytes) => bytes.seek(to),
            Self::File(file) => file.seek(to),
        }
    }
}

/// A file with a read offset of its own: clones of a descriptor share theirs.
#[derive(Debug)]
pub struct FileCursor {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Read for FileCursor {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(into, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl Seek for FileCursor {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let to = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.end.checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = to.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "before the archive's beginning"))?;
        Ok(self.at)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_file_reads_as_memory_does_and_readers_do_not_move_each_other() {
        let bytes: Vec<u8> = (0..200_000u32).flat_map(u32::to_le_bytes).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        let [lying, held] = [Archive::in_file(file).unwrap(), Bytes::from(bytes.clone()).into()];
        assert_eq!((lying.size(), lying.sha256().unwrap()), (held.size(), held.sha256().unwrap()));
        let (mut one, mut other) = (lying.reader(), lying.reader());
        let mut memory = held.reader();
        for to in [SeekFrom::Start(0), SeekFrom::End(-8), SeekFrom::Start(400_000), SeekFrom::Current(-100)] {
            assert_eq!(one.seek(to).unwrap(), memory.seek(to).unwrap());
            let mut both = [[0; 4]; 2];
            one.read_exact(&mut both[0]).unwrap();
            memory.read_exact(&mut both[1]).unwrap();
            assert_eq!(both[0], both[1], "{to:?}");
        }
        one.seek(SeekFrom::Start(3)).unwrap();
        assert!(one.seek(SeekFrom::Current(-4)).is_err());
        let mut all = Vec::new();
        other.read_to_end(&mut all).unwrap();
        assert_eq!(all, bytes);
    }
}
