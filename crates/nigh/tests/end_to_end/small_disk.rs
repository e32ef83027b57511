//! A small file system of a test's own, in a mount namespace: nobody else sees it, and it is gone with the test.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::skipped::skip;

/// A tmpfs, and who keeps its namespace.
pub(crate) struct SmallDisk {
    /// Where it is mounted, in its namespace.
    pub(crate) folder: PathBuf,
    keeper: Child,
}

impl SmallDisk {
    /// One of `mib` MiB at `folder`, which is made. None where that cannot be done, which is said.
    pub(crate) fn mount(test: &str, folder: &Path, mib: usize) -> Option<Self> {
        std::fs::create_dir_all(folder).unwrap();
        let script = "mount -t tmpfs -o size=\"$2\"m tmpfs \"$1\" && echo mounted && exec sleep infinity";
        let keeper = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "/bin/sh", "-c", script, "sh"])
            .args([folder.as_os_str().to_owned(), mib.to_string().into()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut keeper) = keeper else {
            skip(test, "there is no `unshare`");
            return None;
        };
        let mut said = String::new();
        BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut said).unwrap();
        if said != "mounted\n" {
            keeper.wait().unwrap();
            skip(test, "no file system can be mounted by this user");
            return None;
        }
        Some(Self { folder: folder.to_owned(), keeper })
    }

    /// Where processes outside of its namespace see it.
    pub(crate) fn outside(&self) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.keeper.id()));
        root.join(self.folder.strip_prefix("/").unwrap())
    }

    /// What runs a program where the file system is seen.
    pub(crate) fn way_in(&self) -> Vec<OsString> {
        vec!["nsenter".into(), format!("--mount=/proc/{}/ns/mnt", self.keeper.id()).into(), "--".into()]
    }

    /// Makes it larger or smaller.
    pub(crate) fn resize(&self, mib: usize) {
        let way = self.way_in();
        let size = format!("remount,size={mib}m");
        let done = Command::new(&way[0]).args(&way[1..]).args(["mount", "-o", &size]).arg(&self.folder).status();
        assert!(done.unwrap().success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}
