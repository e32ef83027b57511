//! The files of a function's code, as the checks before a deployment see them.

use std::collections::BTreeMap;
use std::io::{Cursor, Read};

use zip::ZipArchive;

use crate::archive::CodeFile;

/// The most bytes of a source file that is searched for its handler.
const SOURCE_MAX: u64 = 1 << 20;

/// Gives the text of the file of a name, if it is text.
type ReadText<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// The files, by name, and a way to read their text.
pub(crate) struct CodeListing<'a> {
    files: BTreeMap<String, Permission>,
    read: Box<ReadText<'a>>,
}

/// Whether a file may be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permission {
    /// It may.
    Execute,
    /// It may be read only.
    Read,
    /// The archive does not say.
    Unknown,
}

impl<'a> CodeListing<'a> {
    /// A listing of `files` whose text `read` gives, if a file is text.
    pub(crate) fn new(
        files: impl IntoIterator<Item = (String, Permission)>,
        read: impl Fn(&str) -> Option<String> + 'a,
    ) -> Self {
        Self { files: files.into_iter().collect(), read: Box::new(read) }
    }

    /// The listing of these files.
    pub(crate) fn of_files(files: &'a [CodeFile]) -> Self {
        let permission = |file: &CodeFile| if file.is_executable { Permission::Execute } else { Permission::Read };
        let all = files.iter().map(|file| (file.name.clone(), permission(file)));
        Self::new(all, move |name| {
            let file = files.iter().find(|file| file.name == name)?;
            text(std::fs::File::open(&file.path).ok()?)
        })
    }

    /// The listing of a zip archive; empty if it is none, which the door then says.
    pub(crate) fn of_zip(archive: &'a [u8]) -> Self {
        let Ok(mut opened) = ZipArchive::new(Cursor::new(archive)) else { return Self::new([], |_| None) };
        let all = (0..opened.len()).filter_map(|at| {
            let file = opened.by_index(at).ok()?;
            let permission = match file.unix_mode() {
                Some(mode) if mode & 0o111 != 0 => Permission::Execute,
                Some(_) => Permission::Read,
                None => Permission::Unknown,
            };
            let name = file.name().ok()?.into_owned();
            Some((name, permission))
        });
        let all: Vec<_> = all.collect();
        Self::new(all, move |name| {
            let mut opened = ZipArchive::new(Cursor::new(archive)).ok()?;
            text(opened.by_name(name).ok()?)
        })
    }

    /// The names of all files.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// True if there is a file of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.files.contains_key(name)
    }

    /// Whether the file may be executed; none if it is not there.
    pub(crate) fn permission(&self, name: &str) -> Option<Permission> {
        self.files.get(name).copied()
    }

    /// The text of a file; none if it is not there, is no text, or is too large to be a source.
    pub(crate) fn source(&self, name: &str) -> Option<String> {
        if !self.has(name) {
            return None;
        }
        (self.read)(name)
    }
}

fn text(from: impl Read) -> Option<String> {
    let mut bytes = Vec::new();
    from.take(SOURCE_MAX + 1).read_to_end(&mut bytes).ok()?;
    if bytes.len() as u64 > SOURCE_MAX {
        return None;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::{FileChoice, list, pack};

    #[test]
    fn a_folder_and_its_archive_list_the_same() {
        use std::os::unix::fs::PermissionsExt as _;

        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("lib")).unwrap();
        for (name, text) in [("main.py", "x = 1"), ("lib/a.py", ""), ("bootstrap", "#!/bin/sh")] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.path().join("bootstrap"), executable).unwrap();
        let files = list(folder.path(), &FileChoice::default()).unwrap();
        let archive = pack(folder.path(), &files).unwrap();
        for listing in [CodeListing::of_files(&files), CodeListing::of_zip(&archive)] {
            assert_eq!(listing.names().collect::<Vec<_>>(), ["bootstrap", "lib/a.py", "main.py"]);
            assert_eq!(listing.permission("bootstrap"), Some(Permission::Execute));
            assert_eq!(listing.permission("main.py"), Some(Permission::Read));
            assert_eq!(listing.source("main.py").as_deref(), Some("x = 1"));
            assert!(listing.source("gone.py").is_none() && listing.permission("gone.py").is_none());
        }
        assert_eq!(CodeListing::of_zip(b"no archive").names().count(), 0);
    }
}
