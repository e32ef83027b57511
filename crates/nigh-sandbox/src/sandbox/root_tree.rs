//! The file tree of a sandbox: the parts of the host that it sees, Nigh's own files, and the limits of writable
//! folders.
//!
//! This file only describes the tree. `nigh-sandbox` builds it by mounting (engine `process`), and `bundle` builds it
//! as a folder in which runc mounts.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where the function's code appears.
pub const CODE: &str = "/var/task";
/// Where the function's layers appear.
pub const LAYERS: &str = "/opt";
/// The place of the tree in the mount namespace that `nigh-sandbox` makes; it is the root of the processes there.
pub const NEW_ROOT: &str = "/new";
/// The system's programs and libraries.
const SYSTEM: [&str; 7] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"];
/// The parts of the host's /etc that programs need: the linker's cache, Debian's links, certificates, fonts, time zone.
const SETTINGS: [&str; 13] = [
    "alternatives",
    "ca-certificates",
    "fonts",
    "ImageMagick-6",
    "ImageMagick-7",
    "ld.so.cache",
    "localtime",
    "magic",
    "mime.types",
    "pki",
    "services",
    "ssl",
    "timezone",
];
/// The text of nsswitch.conf.
const NAME_SOURCES: &str = "passwd: files\ngroup: files\nhosts: files\nservices: files\n";
/// The line of `NAME_SOURCES` for hosts.
const FILES_ALONE: &str = "hosts: files";
/// Devices that do nothing but hand out bytes or take them.
pub const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];
/// Links in /dev and their targets.
pub const DEVICE_LINKS: [(&str, &str); 4] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
];
/// Options of the file system at /dev.
pub const DEVICES_OPTIONS: &str = "mode=0755,size=64k,nr_inodes=64";
/// Options of /dev/shm. Shared memory is the sandbox's own memory: its cgroup counts it too.
pub const SHARED_MEMORY_OPTIONS: &str = "mode=1777,size=64m,nr_inodes=4096";
/// /tmp may have one file for each of this many bytes, so that empty files are bounded too.
const TMP_BYTES_PER_FILE: u64 = 16 << 10;
const TMP_FILES_MIN: u64 = 1024;

/// The options of a /tmp of so many bytes.
#[must_use]
pub fn tmp_options(bytes: u64) -> String {
    let files = (bytes / TMP_BYTES_PER_FILE).max(TMP_FILES_MIN);
    format!("mode=1777,size={bytes},nr_inodes={files}")
}

/// Something in the tree. Paths are absolute, as the sandbox sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// An empty folder.
    Folder(PathBuf),
    /// A link.
    Link {
        /// The link's path.
        path: PathBuf,
        /// The link's target.
        to: PathBuf,
    },
    /// A file with this text.
    Text {
        /// The file's path.
        path: PathBuf,
        /// The file's text.
        text: String,
    },
    /// A file or folder of the host, read-only at the same path.
    Shown {
        /// The path on the host and inside.
        path: PathBuf,
        /// True if it is a folder, which appears with all below it.
        folder: bool,
    },
}

/// Everything that is the same for all functions, in building order: a folder before its content. `host` is the path of
/// the host's root. The lists of users come from `users`.
///
/// # Errors
/// If a folder of the host cannot be read.
pub fn entries(host: &Path) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for name in SYSTEM {
        entries.extend(as_on_host(host, &Path::new("/").join(name))?);
    }
    entries.extend(["/etc", "/proc", "/dev", "/tmp", "/var", CODE, LAYERS].map(|path| Entry::Folder(path.into())));
    entries.push(Entry::Link { path: "/var/tmp".into(), to: "../tmp".into() });
    for (path, text) in
        [("/etc/hosts", "127.0.0.1 localhost\n"), ("/etc/nsswitch.conf", NAME_SOURCES), ("/etc/resolv.conf", "")]
    {
        entries.push(Entry::Text { path: path.into(), text: text.to_owned() });
    }
    for name in SETTINGS {
        entries.extend(as_on_host(host, &Path::new("/etc").join(name))?);
    }
    Ok(entries)
}

/// A link is copied; its target is in a folder that is shown.
fn as_on_host(host: &Path, path: &Path) -> io::Result<Option<Entry>> {
    let there = host.join(path.strip_prefix("/").unwrap_or(path));
    let found = match fs::symlink_metadata(&there) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
    };
    let path = path.to_owned();
    Ok(Some(match found.is_symlink() {
        true => Entry::Link { path, to: fs::read_link(there)? },
        false => Entry::Shown { path, folder: found.is_dir() },
    }))
}

/// The name resolution files of a sandbox with the name servers in `resolv_conf`; other sandboxes know only their own
/// names.
#[must_use]
pub fn names(resolv_conf: &str) -> [(&'static str, String); 2] {
    [
        ("/etc/nsswitch.conf", NAME_SOURCES.replace(FILES_ALONE, "hosts: files dns")),
        ("/etc/resolv.conf", resolv_conf.to_owned()),
    ]
}

/// The lists of users and groups for a function that runs as `uid`.
#[must_use]
pub fn users(uid: u32) -> [(&'static str, String); 2] {
    // User 0 has a line already.
    let user = if uid == 0 { String::new() } else { format!("function:x:{uid}:{uid}:function:/tmp:/bin/sh\n") };
    let group = if uid == 0 { String::new() } else { format!("function:x:{uid}:\n") };
    [
        ("/etc/passwd", format!("root:x:0:0:root:/root:/bin/sh\n{user}nobody:x:65534:65534:nobody:/:/bin/false\n")),
        ("/etc/group", format!("root:x:0:\n{group}nogroup:x:65534:\n")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_stay_links_folders_and_files_are_shown_and_what_is_absent_is_left_out() {
        let host = tempfile::tempdir().unwrap();
        for folder in ["usr/bin", "etc/ssl"] {
            fs::create_dir_all(host.path().join(folder)).unwrap();
        }
        std::os::unix::fs::symlink("usr/bin", host.path().join("bin")).unwrap();
        fs::write(host.path().join("etc/timezone"), "Etc/UTC\n").unwrap();
        fs::write(host.path().join("etc/shadow"), "root:secret\n").unwrap();
        let entries = entries(host.path()).unwrap();
        assert!(entries.contains(&Entry::Shown { path: "/usr".into(), folder: true }));
        assert!(entries.contains(&Entry::Link { path: "/bin".into(), to: "usr/bin".into() }));
        assert!(entries.contains(&Entry::Shown { path: "/etc/timezone".into(), folder: false }));
        assert!(!format!("{entries:?}").contains("shadow") && !format!("{entries:?}").contains("lib64"));
        let place =
            |path: &str| entries.iter().position(|one| format!("{one:?}").contains(&format!("\"{path}\""))).unwrap();
        assert!(place("/etc") < place("/etc/hosts") && place("/var") < place("/var/task"));
    }

    #[test]
    fn a_small_tmp_has_files_enough_and_a_large_one_a_file_for_each_16_kib() {
        assert_eq!(tmp_options(1 << 20), "mode=1777,size=1048576,nr_inodes=1024");
        assert_eq!(tmp_options(512 << 20), "mode=1777,size=536870912,nr_inodes=32768");
    }

    #[test]
    fn name_servers_are_asked_after_the_files_and_of_hosts_only() {
        let [(_, sources), (_, servers)] = names("nameserver 10.0.0.1\n");
        assert_eq!(sources, "passwd: files\ngroup: files\nhosts: files dns\nservices: files\n");
        assert_eq!(servers, "nameserver 10.0.0.1\n");
    }

    #[test]
    fn the_function_has_a_name_among_the_users() {
        let [(_, passwd), (_, group)] = users(2_000_000_007);
        assert!(passwd.contains("function:x:2000000007:2000000007:") && group.contains("function:x:2000000007:"));
        assert!(!users(0)[0].1.contains("function"));
    }
}
