//! What was built, in the user's cache: a folder for each key, whole or absent.
//!
//! ```text
//! ROOT/KEY/          packages that were installed for one key; its time is that of its last use
//! ROOT/.RANDOM/      being made; removed by whoever made it
//! ROOT/built-HASH/   the program of one source folder, made anew each time
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nigh_terms::hex;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::archive::is_skipped;
use crate::build_error::BuildError;

/// The most entries; those unused for longest are removed first.
const ENTRIES_MAX: usize = 48;
/// An entry that was used within this time may be in use now.
const IN_USE: Duration = Duration::from_secs(3600);
/// Changes whenever entries are made in another way.
const FORMAT: &str = "nigh-build-1";
/// The bytes of a key's hash in its name.
const NAME_BYTES: usize = 12;
/// The most files of a folder that a key takes in.
const FILES_MAX: usize = 20_000;

/// The cache of a user.
#[derive(Clone, Debug)]
pub(super) struct Cache(PathBuf);

/// What an entry depends on.
#[derive(Clone)]
pub(super) struct CacheKey {
    kind: String,
    hash: Sha256,
}

impl CacheKey {
    /// A key of this kind, which begins the entry's name: `python3.11`.
    pub(super) fn new(kind: &str) -> Self {
        let mut key = Self { kind: kind.to_owned(), hash: Sha256::new() };
        key.add("format", FORMAT.as_bytes());
        key.add("machine", std::env::consts::ARCH.as_bytes());
        key.add("kind", kind.as_bytes());
        key
    }

    /// Takes in what `name` is.
    pub(super) fn add(&mut self, name: &str, value: &[u8]) {
        for part in [name.as_bytes(), value] {
            self.hash.update((part.len() as u64).to_le_bytes());
            self.hash.update(part);
        }
    }

    /// Takes in the bytes of a file, or of all files of a folder, called `name`. What is not there counts, too.
    pub(super) fn add_path(&mut self, name: &str, path: &Path) -> Result<(), BuildError> {
        if path.is_dir() {
            for file in files_in(path)? {
                let inside = file.strip_prefix(path).unwrap_or(&file).to_string_lossy();
                self.add_file(&format!("{name}/{inside}"), &file)?;
            }
            return Ok(());
        }
        self.add_file(name, path)
    }

    fn add_file(&mut self, name: &str, path: &Path) -> Result<(), BuildError> {
        match fs::read(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => self.add(name, b"absent"),
            read => self.add(name, &read.map_err(BuildError::io("reading", path))?),
        }
        Ok(())
    }

    fn name(self) -> String {
        format!("{}-{}", self.kind, hex(&self.hash.finalize()[..NAME_BYTES]))
    }
}

impl Cache {
    /// The cache of this process's user: `nigh/build` in the folder for caches (XDG Base Directory Specification), or in
    /// that for temporary files where there is no home.
    pub(super) fn of_user() -> Self {
        let folder = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let base = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")));
        Self(base.unwrap_or_else(std::env::temp_dir).join("nigh/build"))
    }

    #[cfg(test)]
    pub(super) fn at(root: &Path) -> Self {
        Self(root.to_owned())
    }

    /// The entry of `key`, if it was made before.
    pub(super) fn get(&self, key: &CacheKey) -> Option<PathBuf> {
        let entry = self.0.join(key.clone().name());
        entry.is_dir().then(|| {
            touch(&entry);
            entry
        })
    }

    /// A folder in which an entry is made; removed when dropped.
    pub(super) fn staging(&self) -> Result<TempDir, BuildError> {
        fs::create_dir_all(&self.0).map_err(BuildError::io("creating", &self.0))?;
        tempfile::Builder::new()
            .prefix(".")
            .tempdir_in(&self.0)
            .map_err(BuildError::io("creating a folder in", &self.0))
    }

    /// Makes `staged`, a folder inside a staging one, the entry of `key`.
    pub(super) fn put(&self, key: CacheKey, staged: &Path) -> Result<PathBuf, BuildError> {
        let entry = self.0.join(key.name());
        // Another one has made the same meanwhile if the name is taken.
        if let Err(error) = fs::rename(staged, &entry)
            && !entry.is_dir()
        {
            return Err(BuildError::io("renaming to", &entry)(error));
        }
        touch(&entry);
        self.trim();
        Ok(entry)
    }

    /// The folder for the program that is built of `source`.
    pub(super) fn program_folder(&self, source: &Path) -> Result<PathBuf, BuildError> {
        let whole = source.canonicalize().map_err(BuildError::io("reading", source))?;
        let hash = Sha256::digest(whole.as_os_str().as_encoded_bytes());
        let folder = self.0.join(format!("built-{}", hex(&hash[..NAME_BYTES])));
        fs::create_dir_all(&folder).map_err(BuildError::io("creating", &folder))?;
        touch(&folder);
        self.trim();
        Ok(folder)
    }

    /// Removes the entries beyond the limit. One that cannot be removed stays.
    fn trim(&self) {
        let entries = fs::read_dir(&self.0).into_iter().flatten().filter_map(Result::ok);
        let mut used: Vec<(SystemTime, PathBuf)> = entries
            .filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'))
            .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
            .collect();
        used.sort();
        let beyond = used.len().saturating_sub(ENTRIES_MAX);
        for (last, entry) in used.into_iter().take(beyond) {
            if last.elapsed().is_ok_and(|idle| idle > IN_USE) {
                let _stays = fs::remove_dir_all(entry);
            }
        }
    }
}

/// Notes that `folder` is used now. One that cannot be noted is removed sooner.
fn touch(folder: &Path) {
    let _sooner = fs::File::open(folder).and_then(|opened| opened.set_modified(SystemTime::now()));
}

/// The files below `folder`, sorted, without those that never hold code.
fn files_in(folder: &Path) -> Result<Vec<PathBuf>, BuildError> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).map_err(BuildError::io("reading", &next))? {
            let entry = entry.map_err(BuildError::io("reading", &next))?;
            let path = entry.path();
            if is_skipped(&next, &entry.file_name()) {
                continue;
            }
            match entry.file_type().map_err(BuildError::io("reading", &path))? {
                kind if kind.is_dir() => folders.push(path),
                _ => files.push(path),
            }
            if files.len() > FILES_MAX {
                return Err(BuildError::Unusable(format!(
                    "{} holds more than {FILES_MAX} files, too many for a dependency; is it the right folder?",
                    folder.display()
                )));
            }
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(kind: &str, parts: &[(&str, &str)]) -> String {
        let mut key = CacheKey::new(kind);
        parts.iter().for_each(|(name, value)| key.add(name, value.as_bytes()));
        key.name()
    }

    #[test]
    fn a_key_changes_with_each_part_and_its_place() {
        let plain = name("python3.11", &[("tool", "pip"), ("lock", "a==1")]);
        assert!(plain.starts_with("python3.11-"));
        assert_eq!(plain, name("python3.11", &[("tool", "pip"), ("lock", "a==1")]));
        for other in [
            name("python3.12", &[("tool", "pip"), ("lock", "a==1")]),
            name("python3.11", &[("tool", "uv"), ("lock", "a==1")]),
            name("python3.11", &[("tool", "pip"), ("lock", "a==2")]),
            name("python3.11", &[("lock", "a==1"), ("tool", "pip")]),
            name("python3.11", &[("tool", "pipl"), ("ock", "a==1")]),
        ] {
            assert_ne!(plain, other);
        }
    }

    #[test]
    fn a_key_takes_in_the_bytes_of_files_and_of_folders() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("dep");
        fs::create_dir_all(folder.join("in/__pycache__")).unwrap();
        let of = || {
            let mut key = CacheKey::new("k");
            key.add_path("dep", &folder).unwrap();
            key.add_path("lock", &root.path().join("lock")).unwrap();
            key.name()
        };
        let mut seen = vec![of()];
        for (file, text) in [("dep/a", "1"), ("dep/a", "2"), ("dep/in/b", ""), ("lock", ""), ("lock", "x")] {
            fs::write(root.path().join(file), text).unwrap();
            let now = of();
            assert!(!seen.contains(&now), "{file} {text}");
            seen.push(now);
        }
        fs::write(folder.join("in/__pycache__/a.pyc"), "x").unwrap();
        assert_eq!(seen.last(), Some(&of()));
    }

    #[test]
    fn an_entry_is_whole_or_absent_and_the_first_of_two_stays() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::at(&root.path().join("cache"));
        let key = CacheKey::new("k");
        assert_eq!(cache.get(&key), None);
        let make = |text: &str| {
            let staging = cache.staging().unwrap();
            let staged = staging.path().join("packages");
            fs::create_dir(&staged).unwrap();
            fs::write(staged.join("a"), text).unwrap();
            cache.put(key.clone(), &staged).unwrap()
        };
        let entry = make("1");
        assert_eq!(make("2"), entry);
        assert_eq!(fs::read_to_string(cache.get(&key).unwrap().join("a")).unwrap(), "1");
        assert_eq!(fs::read_dir(&cache.0).unwrap().count(), 1, "nothing of the making is left");
    }

    #[test]
    fn entries_beyond_the_limit_go_the_longest_unused_first_but_none_that_may_be_in_use() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::at(root.path());
        let day = Duration::from_secs(86_400);
        for number in 0..ENTRIES_MAX + 2 {
            let entry = root.path().join(format!("k-{number:02}"));
            fs::create_dir(&entry).unwrap();
            let used = SystemTime::now() - if number == 0 { Duration::ZERO } else { day * (100 - number as u32) };
            fs::File::open(&entry).unwrap().set_modified(used).unwrap();
        }
        cache.trim();
        let left = |number: usize| root.path().join(format!("k-{number:02}")).is_dir();
        assert!(left(0) && !left(1) && !left(2) && left(3) && left(ENTRIES_MAX + 1));
        for number in 0..ENTRIES_MAX + 2 {
            let entry = root.path().join(format!("k-{number:02}"));
            fs::create_dir_all(&entry).unwrap();
            touch(&entry);
        }
        cache.trim();
        assert!((0..ENTRIES_MAX + 2).all(left));
    }
}
