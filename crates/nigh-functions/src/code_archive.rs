//! A function's archive: what a zip from outside may hold, and how it becomes a folder.
//!
//! Refuses every archive that could write outside its folder, or exceed its limits in bytes, entries or time. The sizes that an
//! archive states are not trusted: unpacked bytes are counted. The folder has no links, devices or set-id bits. Unpacking
//! executes nothing and touches nothing but the new folder. An archive may be larger than a node should hold in memory: it is
//! read piece by piece.
//! Format: PKWARE APPNOTE 6.3.9; limits: Lambda quotas (50 MB zipped in a request, 250 MB unzipped).

mod plan;
mod source;
mod tree;

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use nigh_terms::ByteSize;
use thiserror::Error;
use zip::ZipArchive;
use zip::result::ZipError;

use self::plan::{Kind, plan};
pub use self::source::Archive;
use self::tree::{sync_tree, write_tree};

/// The limits of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveLimits {
    /// The archive itself, in a request.
    pub uploaded: ByteSize,
    /// The archive itself, wherever it comes from.
    pub zipped: ByteSize,
    /// All files together, unpacked.
    pub unpacked: ByteSize,
    /// Files and folders, also those that are only implied by a file's path.
    pub entries: usize,
}

impl ArchiveLimits {
    /// Lambda's. Incompressible data takes a little more zipped than unpacked.
    pub const LAMBDA: Self = Self {
        uploaded: ByteSize::mib(50),
        zipped: ByteSize::mib(256),
        unpacked: ByteSize::mib(250),
        entries: ARCHIVE_ENTRIES_MAX,
    };
}

/// Files and folders of one archive; a large Python dependency tree has some 20,000.
pub const ARCHIVE_ENTRIES_MAX: usize = 65_536;
const CENTRAL_RECORD_SIGNATURE: &[u8] = b"PK\x01\x02";
/// Read at once when records are counted.
const SCAN_BYTES: usize = 64 << 10;

/// Why an archive is refused, or cannot be unpacked.
#[derive(Debug, Error)]
pub enum ArchiveError {
    /// It is longer than allowed.
    #[error("the archive has {size} bytes, {limit} are allowed; leave out what the function does not need")]
    Zipped {
        /// Its length.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// Its files are larger than allowed.
    #[error("Unzipped size must be smaller than {limit} bytes; leave out what the function does not need")]
    Unpacked {
        /// The limit.
        limit: u64,
    },
    /// It has too many.
    #[error("the archive has more than {limit} files and folders")]
    Entries {
        /// The limit.
        limit: usize,
    },
    /// One entry is not allowed.
    #[error("the archive's entry {name:?} is refused: {why}")]
    Entry {
        /// Its name.
        name: String,
        /// The rule it breaks.
        why: &'static str,
    },
    /// It is no zip, or a damaged one.
    #[error("could not unzip the archive: {0}; make it with zip or Python's zipfile and try again")]
    Malformed(String),
    /// The disk's own reason.
    #[error(
        "could not unpack the archive to {path}: {source}; check the space and the permissions of the state folder"
    )]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
}

impl ArchiveError {
    /// True if the archive is at fault; false if the disk is.
    #[must_use]
    pub const fn is_the_archives(&self) -> bool {
        !matches!(self, Self::Io { .. })
    }
}

/// What was unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnpackTotals {
    /// The bytes of all files.
    pub size: ByteSize,
    /// Files and folders.
    pub entries: usize,
}

/// Unpacks `archive` into the new folder `into` and makes all of it durable, except `into`'s own name.
/// After a failure the caller removes what is left in `into`.
///
/// # Errors
/// If the archive breaks a rule or a limit, or the disk refuses.
pub fn unpack(archive: &Archive, into: &Path, limits: ArchiveLimits) -> Result<UnpackTotals, ArchiveError> {
    let mut zip = open(archive, limits)?;
    let tree = plan(&mut zip, limits)?;
    let size = write_tree(&mut zip, &tree, into, limits.unpacked)?;
    sync_tree(&tree, into)?;
    Ok(UnpackTotals { size, entries: tree.len() })
}

/// The path of the first file of `archive` that lies in `folder` itself, not in a folder below it.
///
/// # Errors
/// If the archive breaks a rule or a limit, or cannot be read.
pub fn file_directly_in(
    folder: &Path,
    archive: &Archive,
    limits: ArchiveLimits,
) -> Result<Option<PathBuf>, ArchiveError> {
    let tree = plan(&mut open(archive, limits)?, limits)?;
    let mut files = tree.into_iter().filter(|(_, kind)| matches!(kind, Kind::File { .. }));
    Ok(files.find(|(path, _)| path.parent() == Some(folder)).map(|(path, _)| path))
}

fn open(archive: &Archive, limits: ArchiveLimits) -> Result<ZipArchive<source::Reader>, ArchiveError> {
    if archive.size() > limits.zipped {
        return Err(ArchiveError::Zipped { size: archive.size().bytes(), limit: limits.zipped.bytes() });
    }
    // The reader allocates memory for every record of the directory: count them before.
    if has_more_records(archive.reader(), limits.entries).map_err(read_failed)? {
        return Err(ArchiveError::Entries { limit: limits.entries });
    }
    ZipArchive::new(archive.reader()).map_err(malformed)
}

/// Whether more than `limit` places look like records of a directory.
fn has_more_records(mut archive: impl Read, limit: usize) -> io::Result<bool> {
    let mut piece = vec![0; SCAN_BYTES];
    // A record may begin at the end of one piece and continue in the next.
    let (mut kept, mut found) = (0, 0);
    loop {
        let read = archive.read(&mut piece[kept..])?;
        let held = kept + read;
        found += memchr::memmem::find_iter(&piece[..held], CENTRAL_RECORD_SIGNATURE).count();
        if read == 0 || found > limit {
            return Ok(found > limit);
        }
        kept = held.min(CENTRAL_RECORD_SIGNATURE.len() - 1);
        piece.copy_within(held - kept..held, 0);
    }
}

fn read_failed(source: io::Error) -> ArchiveError {
    ArchiveError::Io { path: PathBuf::from("the archive"), source }
}

fn malformed(error: ZipError) -> ArchiveError {
    ArchiveError::Malformed(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;

    use bytes::Bytes;
    use std::io::Cursor;

    use super::*;
    use zip::write::SimpleFileOptions;
    use zip::{CompressionMethod, ZipWriter};

    fn options(mode: u32) -> SimpleFileOptions {
        SimpleFileOptions::default().compression_method(CompressionMethod::Deflated).unix_permissions(mode)
    }

    fn unpack(archive: &[u8], into: &Path, limits: ArchiveLimits) -> Result<UnpackTotals, ArchiveError> {
        super::unpack(&Bytes::copy_from_slice(archive).into(), into, limits)
    }

    fn archive(entries: &[(&str, u32, &[u8])]) -> Vec<u8> {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, mode, content) in entries {
            if name.ends_with('/') {
                zip.add_directory(*name, options(*mode)).unwrap();
            } else {
                zip.start_file(*name, options(*mode)).unwrap();
                zip.write_all(content).unwrap();
            }
        }
        zip.finish().unwrap().into_inner()
    }

    fn renamed(archive: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
        assert_eq!(from.len(), to.len());
        let mut changed = archive.to_vec();
        let places: Vec<usize> = memchr::memmem::find_iter(archive, from).collect();
        assert!(places.len() >= 2, "the name stands in the local and in the central header");
        for place in places {
            changed[place..place + to.len()].copy_from_slice(to);
        }
        changed
    }

    fn refusal(archive: &[u8]) -> String {
        limited(archive, ArchiveLimits::LAMBDA)
    }

    fn limited(archive: &[u8], limits: ArchiveLimits) -> String {
        let folder = tempfile::tempdir().unwrap();
        let error = unpack(archive, &folder.path().join("code"), limits).unwrap_err();
        let outside: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(outside.iter().all(|name| name == "code"), "{outside:?}");
        error.to_string()
    }

    #[test]
    fn files_come_out_as_they_went_in_with_execute_but_no_set_id_bits() {
        let folder = tempfile::tempdir().unwrap();
        let into = folder.path().join("code");
        let zip = archive(&[
            ("bootstrap", 0o6755, b"#!/bin/sh\n"),
            ("./lib/", 0o777, b""),
            ("lib/deep/er/mödule.py", 0o600, b"x = 1\n"),
            ("handler.py", 0, b""),
        ]);
        let unpacked = unpack(&zip, &into, ArchiveLimits::LAMBDA).unwrap();
        assert_eq!(unpacked, UnpackTotals { size: ByteSize(16), entries: 6 });
        assert_eq!(fs::read(into.join("lib/deep/er/mödule.py")).unwrap(), b"x = 1\n");
        let mode = |path: &str| fs::metadata(into.join(path)).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode("bootstrap"), 0o755);
        assert_eq!(mode("handler.py"), 0o644);
        assert_eq!(mode("lib/deep/er/mödule.py"), 0o644);
        assert_eq!(mode("lib"), 0o755);
    }

    #[test]
    fn no_name_leads_outside() {
        for (name, why) in [
            ("../evil", "outside"),
            ("a/../../evil", "outside"),
            ("a/..", "outside"),
            ("/etc/passwd", "absolute"),
            ("a//b", "empty part"),
            ("..\\evil", "backslash"),
            (".", "no file's"),
            (&"d/".repeat(600), "1024"),
            (&"n".repeat(256), "255"),
        ] {
            let placeholder = "Q".repeat(name.len());
            let zip = archive(&[(&placeholder, 0o644, b"evil")]);
            let said = refusal(&renamed(&zip, placeholder.as_bytes(), name.as_bytes()));
            assert!(said.contains(why), "{name}: {said}");
        }
        let zip = archive(&[("QQQQ", 0o644, b"x")]);
        assert!(refusal(&renamed(&zip, b"QQQQ", b"a\xff\xfeb")).contains("UTF-8"));
        assert!(refusal(&renamed(&zip, b"QQQQ", b"a\0bc")).contains("zero byte"));
    }

    #[test]
    fn links_are_refused() {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        zip.add_symlink("link", "/etc", options(0o777)).unwrap();
        let zip = zip.finish().unwrap().into_inner();
        assert!(refusal(&zip).contains("links"));
    }

    #[test]
    fn two_entries_never_share_a_path() {
        let same_name = archive(&[("QQ1", 0o644, b"a"), ("QQ2", 0o644, b"b")]);
        assert!(refusal(&renamed(&same_name, b"QQ2", b"QQ1")).contains("same name"));
        assert!(refusal(&archive(&[("a", 0o644, b"1"), ("./a", 0o644, b"2")])).contains("same path"));
        assert!(
            refusal(&archive(&[("a", 0o644, b"1"), ("a/b", 0o644, b"2")])).contains("where the entry's folder should")
        );
        assert!(refusal(&archive(&[("a/b", 0o644, b"1"), ("a", 0o644, b"2")])).contains("same path"));
    }

    #[test]
    fn a_bomb_is_stopped_by_what_comes_out_not_by_what_it_states() {
        let limits = ArchiveLimits { unpacked: ByteSize::mib(1), ..ArchiveLimits::LAMBDA };
        let zeros = vec![0; 8 << 20];
        let bomb = archive(&[("zeros", 0o644, &zeros)]);
        assert!(bomb.len() < 16 << 10);
        assert!(limited(&bomb, limits).contains("smaller than 1048576"));
        // The central and the local header lie: they state ten bytes. No more than these may come out.
        let lying = renamed(&bomb, &(8u32 << 20).to_le_bytes(), &10u32.to_le_bytes());
        assert!(limited(&lying, limits).contains("could not unzip"));
        // Each file fits, all together do not.
        let many: Vec<_> = (0..9).map(|n| (format!("f{n}"), vec![0u8; 120_000])).collect();
        let many: Vec<_> = many.iter().map(|(name, content)| (name.as_str(), 0o644, content.as_slice())).collect();
        assert!(limited(&archive(&many), limits).contains("smaller than 1048576"));
        // An archive within an archive is a file like any other.
        let nested = archive(&[("inner.zip", 0o644, &bomb)]);
        let folder = tempfile::tempdir().unwrap();
        let unpacked = unpack(&nested, &folder.path().join("code"), limits).unwrap();
        assert_eq!(unpacked.size, ByteSize(bomb.len() as u64));
    }

    #[test]
    fn an_archive_of_exactly_the_limit_fits_and_one_more_byte_does_not() {
        let limits = ArchiveLimits { unpacked: ByteSize(100), ..ArchiveLimits::LAMBDA };
        let folder = tempfile::tempdir().unwrap();
        let fits = archive(&[("a", 0o644, &[1; 60]), ("b", 0o644, &[2; 40])]);
        assert!(unpack(&fits, &folder.path().join("code"), limits).is_ok());
        assert!(limited(&archive(&[("a", 0o644, &[1; 60]), ("b", 0o644, &[2; 41])]), limits).contains("smaller"));
        let zipped = ArchiveLimits { zipped: ByteSize(fits.len() as u64 - 1), ..limits };
        assert!(limited(&fits, zipped).contains("are allowed"));
    }

    #[test]
    fn entries_are_counted_with_the_folders_that_they_imply() {
        let limits = ArchiveLimits { entries: 5, ..ArchiveLimits::LAMBDA };
        assert!(limited(&archive(&[("a/b/c/d/e/f", 0o644, b"")]), limits).contains("more than 5"));
        let six: Vec<_> = (0..6).map(|n| format!("f{n}")).collect();
        let six: Vec<_> = six.iter().map(|name| (name.as_str(), 0o644, b"".as_slice())).collect();
        assert!(limited(&archive(&six), limits).contains("more than 5"));
        let folder = tempfile::tempdir().unwrap();
        assert!(unpack(&archive(&six[..5]), &folder.path().join("code"), limits).is_ok());
    }

    #[test]
    fn what_is_no_zip_or_a_damaged_one_is_malformed() {
        let whole = archive(&[("a.py", 0o644, b"print(1)\n".repeat(200).as_slice())]);
        for bad in [b"".as_slice(), b"not a zip", &whole[..whole.len() / 2], &whole[10..]] {
            assert!(refusal(bad).contains("could not unzip"), "{}", bad.len());
        }
        let mut damaged = whole.clone();
        damaged[40] ^= 0x55;
        assert!(refusal(&damaged).contains("could not unzip"));
    }

    #[test]
    fn records_are_counted_also_where_two_pieces_meet() {
        for before in SCAN_BYTES - 5..SCAN_BYTES + 1 {
            let text = [vec![0; before].as_slice(), CENTRAL_RECORD_SIGNATURE, CENTRAL_RECORD_SIGNATURE].concat();
            assert!(has_more_records(text.as_slice(), 1).unwrap(), "{before}");
            assert!(!has_more_records(text.as_slice(), 2).unwrap(), "{before}");
        }
    }
}
