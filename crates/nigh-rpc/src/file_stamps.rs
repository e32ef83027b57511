//! Notices that files were written or replaced. Symbolic links are followed, so that a link to another file is a change.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::SystemTime;

/// Device, inode, size and time of a file.
type Stamp = (u64, u64, u64, Option<SystemTime>);

/// The stamps of some files; none for a file that is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStamps(Vec<Option<Stamp>>);

impl FileStamps {
    /// Those of `files` now.
    pub fn of<'a>(files: impl IntoIterator<Item = &'a Path>) -> Self {
        let stamp = |path: &Path| {
            let about = std::fs::metadata(path).ok()?;
            Some((about.dev(), about.ino(), about.size(), about.modified().ok()))
        };
        Self(files.into_iter().map(stamp).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_written_replaced_or_removed_has_another_stamp() {
        let folder = tempfile::tempdir().unwrap();
        let (one, link) = (folder.path().join("one"), folder.path().join("link"));
        let now = || FileStamps::of([&*link]);
        std::os::unix::fs::symlink(&one, &link).unwrap();
        let mut stamps = vec![now()];
        std::fs::write(&one, "a").unwrap();
        stamps.push(now());
        assert_eq!(now(), now());
        std::fs::write(&one, "ab").unwrap();
        stamps.push(now());
        std::fs::write(folder.path().join("two"), "cd").unwrap();
        std::fs::rename(folder.path().join("two"), &one).unwrap();
        stamps.push(now());
        assert!(stamps.windows(2).all(|pair| pair[0] != pair[1]), "{stamps:?}");
        std::fs::remove_file(&one).unwrap();
        assert_eq!(now(), stamps[0]);
    }
}
