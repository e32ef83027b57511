//! A guest's first file system: an archive of the "newc" form that the kernel unpacks into memory.
//!
//! Source: Documentation/driver-api/early-userspace/buffer-format.rst.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::VmError;

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Folder,
    /// A file that is read only.
    File,
    /// A file that is run.
    Program,
    /// A character device with these numbers.
    Device {
        major: u32,
        minor: u32,
    },
}

impl Kind {
    fn mode(self) -> u32 {
        match self {
            Self::Folder => 0o040_755,
            Self::File => 0o100_644,
            Self::Program => 0o100_755,
            Self::Device { .. } => 0o020_600,
        }
    }
}

/// An archive in the making.
#[derive(Debug, Default)]
pub(super) struct Initrd {
    archive: Vec<u8>,
    entries: u32,
    there: BTreeSet<String>,
}

impl Initrd {
    /// Adds `content` at the absolute `path`, with the folders above it; an entry that is there already stays.
    pub(super) fn add(&mut self, path: &str, kind: Kind, content: &[u8]) {
        let path = path.trim_matches('/');
        for (at, _) in path.match_indices('/') {
            self.add_entry(&path[..at], Kind::Folder, &[]);
        }
        self.add_entry(path, kind, content);
    }

    /// Adds the host's program `host` at `path`, and the shared libraries `ldd` names, where it names them.
    pub(super) fn add_program(&mut self, path: &str, host: &Path) -> Result<(), VmError> {
        self.add(path, Kind::Program, &read(host)?);
        for library in shared_libraries(host)? {
            let content = read(&library)?;
            self.add(&library.to_string_lossy(), Kind::Program, &content);
        }
        Ok(())
    }

    /// The whole archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.archive
    }

    fn add_entry(&mut self, path: &str, kind: Kind, content: &[u8]) {
        if self.there.insert(path.to_owned()) {
            let device = if let Kind::Device { major, minor } = kind { (major, minor) } else { (0, 0) };
            self.entry(path, kind.mode(), device, content);
        }
    }

    fn entry(&mut self, path: &str, mode: u32, (major, minor): (u32, u32), content: &[u8]) {
        const ALIGNMENT: usize = 4;
        self.entries += 1;
        // Inode, mode, user, group, links, time, length, device of the file, device it is, name's length, checksum.
        let fields =
            [self.entries, mode, 0, 0, 1, 0, content.len() as u32, 0, 0, major, minor, path.len() as u32 + 1, 0];
        self.archive.extend(b"070701");
        for field in fields {
            self.archive.extend(format!("{field:08x}").bytes());
        }
        self.archive.extend(path.bytes());
        self.archive.push(0);
        self.archive.resize(self.archive.len().next_multiple_of(ALIGNMENT), 0);
        self.archive.extend(content);
        self.archive.resize(self.archive.len().next_multiple_of(ALIGNMENT), 0);
    }
}

fn read(path: &Path) -> Result<Vec<u8>, VmError> {
    std::fs::read(path).map_err(VmError::host("read", path))
}

/// The shared libraries of `program` and its loader; none for a static one.
fn shared_libraries(program: &Path) -> Result<Vec<PathBuf>, VmError> {
    let output = Command::new("ldd").arg(program).output().map_err(VmError::host("run ldd on", program))?;
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        if complaint.contains("not a dynamic executable") || said.contains("not a dynamic executable") {
            return Ok(Vec::new());
        }
        let source = std::io::Error::other(complaint.trim().to_owned());
        return Err(VmError::host("list the libraries of", program)(source));
    }
    libraries_named(&said).map_err(|lost| {
        let source = std::io::Error::other(format!("its library {lost} is not found"));
        VmError::host("list the libraries of", program)(source)
    })
}

/// The paths in `ldd`'s output: `name => path (address)` or `path (address)`; the kernel's own vDSO has none.
fn libraries_named(said: &str) -> Result<Vec<PathBuf>, &str> {
    let mut libraries = Vec::new();
    for line in said.lines().map(str::trim) {
        let path = match line.split_once(" => ") {
            Some((name, "not found")) => return Err(name),
            Some((_, found)) => found,
            None => line,
        };
        if let Some(path) = path.split(" (").next().filter(|path| path.starts_with('/')) {
            libraries.push(PathBuf::from(path));
        }
    }
    Ok(libraries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_holds_its_entries_with_the_folders_above_each_once() {
        let mut initrd = Initrd::default();
        initrd.add("/etc/motd", Kind::File, b"hello");
        initrd.add("/etc/init", Kind::Program, b"#!");
        initrd.add("/dev/console", Kind::Device { major: 5, minor: 1 }, &[]);
        let archive = initrd.finish();

        let mut seen = Vec::new();
        let mut at = 0;
        while at < archive.len() {
            assert_eq!(&archive[at..at + 6], b"070701");
            let field = |index: usize| {
                let at = at + 6 + 8 * index;
                usize::from_str_radix(std::str::from_utf8(&archive[at..at + 8]).unwrap(), 16).unwrap()
            };
            let (mode, length, device, name_length) = (field(1), field(6), (field(9), field(10)), field(11));
            let name = std::str::from_utf8(&archive[at + 110..at + 110 + name_length - 1]).unwrap();
            assert_eq!(archive[at + 110 + name_length - 1], 0);
            let content = (at + 110 + name_length).next_multiple_of(4);
            seen.push((name.to_owned(), mode, device, archive[content..content + length].to_vec()));
            at = (content + length).next_multiple_of(4);
        }
        let expected = [
            ("etc", 0o040_755, (0, 0), &b""[..]),
            ("etc/motd", 0o100_644, (0, 0), b"hello"),
            ("etc/init", 0o100_755, (0, 0), b"#!"),
            ("dev", 0o040_755, (0, 0), b""),
            ("dev/console", 0o020_600, (5, 1), b""),
            ("TRAILER!!!", 0, (0, 0), b""),
        ];
        assert_eq!(seen, expected.map(|(name, mode, device, bytes)| (name.to_owned(), mode, device, bytes.to_vec())));
    }

    #[test]
    fn the_libraries_are_those_the_loader_would_take() {
        let said = "\tlinux-vdso.so.1 (0x00007ffe)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f1c)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f1d)\n";
        let found = libraries_named(said).unwrap();
        assert_eq!(found, ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from));
        assert_eq!(libraries_named("\tlibpqos.so.4 => not found\n"), Err("libpqos.so.4"));
        assert_eq!(libraries_named("\tstatically linked\n"), Ok(Vec::new()));
    }
}
