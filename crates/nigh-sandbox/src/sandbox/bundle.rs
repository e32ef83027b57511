//! The folders that runc works with: the root that all sandboxes share, and a bundle for each.
//!
//! All bundles are in a folder of this process, below a folder of this Nigh that no other uses, so a sweep finds what
//! an earlier process left. Everyone may enter the folders and only root may list them, because runc enters them as the
//! sandbox's root. They hold no secrets: a blank sandbox belongs to no function.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

use nigh_terms::SandboxId;

use super::launch::Container;
use super::oci_config::{ContainerSpec, INIT, config};
use super::root_tree::{Entry, entries, tmp_options, users};
use super::step_failure::StepFailure;

/// The folder of bundles, in the folder of an incarnation.
const BUNDLES: &str = "bundles";
/// A file that exists as long as new bundles may be made.
const LIVES: &str = "lives";
/// The size of a sandbox's /tmp until its function is known.
const BLANK_TMP_BYTES: u64 = 1 << 20;
/// The most sandboxes looked at in what an earlier incarnation left.
const LEFT_MAX: usize = 100_000;
/// Folders with the sandbox's own mounts. Mount points below them are made in the sandbox, not in the shared root.
const OWN: [&str; 3] = ["tmp", "dev", "proc"];

/// Makes bundles, the folders that runc starts a container from.
#[derive(Debug)]
pub(super) struct Bundles {
    /// The folder of this Nigh.
    instance: PathBuf,
    /// The folder of this incarnation of Nigh, inside `instance`.
    life: PathBuf,
    runtime: PathBuf,
    shown: Vec<PathBuf>,
    init: PathBuf,
    /// The distance from a sandbox's user to its root user; none without a user namespace.
    root_uid_offset: Option<u32>,
}

impl Bundles {
    /// Builds the root, in a new folder below `instance`. `runtime` is the program runc.
    pub(super) fn open(
        instance: &Path,
        runtime: &Path,
        init: &Path,
        root_uid_offset: Option<u32>,
    ) -> Result<Self, StepFailure> {
        let life = instance.join(SandboxId::random().to_string());
        let failed = |error: io::Error| StepFailure::at(&format!("make the folder {}", life.display()), error);
        let make = || passage(instance).and_then(|()| passage(&life));
        // The last keeper of an earlier incarnation may remove the parent folder in between.
        make().or_else(|_| make()).and_then(|()| passage(&life.join(BUNDLES))).map_err(failed)?;
        file(&life.join(LIVES), "").map_err(failed)?;
        let mut bundles = Self {
            instance: instance.to_owned(),
            runtime: runtime.to_owned(),
            shown: Vec::new(),
            init: fs::canonicalize(init)
                .map_err(|error| StepFailure::at(&format!("find {}", init.display()), error))?,
            root_uid_offset,
            life,
        };
        bundles.build().map_err(|error| StepFailure::at("build the root that sandboxes share", error))?;
        Ok(bundles)
    }

    fn build(&mut self) -> io::Result<()> {
        folder(&self.root())?;
        for entry in entries(Path::new("/"))? {
            match entry {
                Entry::Folder(path) => folder(&self.at(&path))?,
                Entry::Link { path, to } => symlink(to, self.at(&path))?,
                Entry::Text { path, text } => file(&self.at(&path), &text)?,
                Entry::Shown { path, folder: true } => {
                    folder(&self.at(&path))?;
                    self.shown.push(path);
                }
                Entry::Shown { path, folder: false } => {
                    file(&self.at(&path), "")?;
                    self.shown.push(path);
                }
            }
        }
        // These files are mounted over in each sandbox.
        for (path, _) in users(0) {
            file(&self.at(path), "")?;
        }
        // runc gives its mount the mode of the folder below it.
        fs::set_permissions(self.at("tmp"), fs::Permissions::from_mode(0o1777))?;
        file(&self.at(INIT), "")
    }

    fn root(&self) -> PathBuf {
        self.life.join("root")
    }

    /// A path of the sandbox in the shared root.
    fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root().join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Writes the bundle of a blank sandbox that runs as `uid` in the cgroup `cgroup`.
    pub(super) fn write(&self, name: &str, uid: u32, cgroup: &str) -> io::Result<Container> {
        let bundle = self.life.join(BUNDLES).join(name);
        passage(&bundle)?;
        let mut files = vec![(self.init.clone(), PathBuf::from(INIT))];
        for (path, text) in users(uid) {
            let source = bundle.join(path.trim_start_matches("/etc/"));
            file(&source, &text)?;
            files.push((source, path.into()));
        }
        let config = config(&ContainerSpec {
            root: &self.root(),
            shown: &self.shown,
            files: &files,
            uid,
            root_uid: self.root_uid_offset.map(|offset| uid + offset),
            cgroup,
            tmp: &tmp_options(BLANK_TMP_BYTES),
        });
        fs::write(bundle.join("config.json"), config.to_string())?;
        Ok(Container {
            runtime: self.runtime.clone().into(),
            state: self.life.join("state").into(),
            bundle: bundle.into(),
            name: name.to_owned(),
        })
    }

    /// Writes a file beside the bundle: this sandbox's own text of the file `path`. Returns its path on the host.
    pub(super) fn write_beside(&self, name: &str, path: &str, text: &str) -> io::Result<PathBuf> {
        let source = self.life.join(BUNDLES).join(name).join(path.trim_start_matches("/etc/"));
        file(&source, text)?;
        Ok(source)
    }

    /// Removes the bundle of a blank sandbox that could not be made: its keeper may never have heard of it.
    pub(super) fn forget(&self, name: &str) {
        let _keeper_was_first = fs::remove_dir_all(self.life.join(BUNDLES).join(name));
    }

    /// The reason why the runtime cannot run, if its program is missing.
    pub(super) fn runtime_missing(&self) -> Option<String> {
        let error = fs::metadata(&self.runtime).err()?;
        Some(format!("{} is missing ({error}): install it again", self.runtime.display()))
    }

    /// Makes the mount points of `targets` that must be in the shared root.
    pub(super) fn make_places<'a>(&self, targets: impl Iterator<Item = &'a Path>) -> Result<(), StepFailure> {
        for target in targets {
            let first = target.components().find_map(|part| match part {
                Component::Normal(name) => name.to_str(),
                _ => None,
            });
            let shown = self.shown.iter().any(|shown| target.starts_with(shown));
            // A link at the top leads into a folder that the sandbox sees already.
            let linked = first.is_some_and(|name| self.root().join(name).is_symlink());
            if shown || linked || first.is_some_and(|name| OWN.contains(&name)) {
                continue;
            }
            folder(&self.at(target)).map_err(|error| StepFailure::at(&format!("make {}", target.display()), error))?;
        }
        Ok(())
    }

    /// Ends the making of bundles. Removes the folder of this process, or leaves that to the last keeper.
    pub(super) fn end_life(&self) {
        let _gone_already = fs::remove_file(self.life.join(LIVES));
        remove_if_last(&self.life);
    }

    /// Removes the folders that earlier processes of this Nigh left. Their cgroups end the processes. Returns the
    /// number of sandboxes.
    pub(super) fn sweep(&self) -> usize {
        let lives = folders(&self.instance).into_iter().filter(|life| *life != self.life);
        lives.map(|life| sweep_life(&self.runtime, &life)).sum()
    }
}

impl Drop for Bundles {
    fn drop(&mut self) {
        self.end_life();
    }
}

/// Removes the folder of the process that made `bundle`, if this was its last bundle and no engine makes more. `killed`
/// means that the engine could not report its end.
pub fn remove_life_of(bundle: &Path, killed: bool) {
    let Some(life) = bundle.parent().and_then(Path::parent) else { return };
    if killed || !life.join(LIVES).exists() {
        remove_if_last(life);
    }
}

fn remove_if_last(life: &Path) {
    if fs::remove_dir(life.join(BUNDLES)).is_ok() {
        let _next_life = fs::remove_dir_all(life);
        let _other_lives = life.parent().map(fs::remove_dir);
    }
}

fn sweep_life(runtime: &Path, life: &Path) -> usize {
    let state = life.join("state");
    let left = folders(&state);
    let mut all_gone = true;
    for name in left.iter().filter_map(|folder| folder.file_name()) {
        let deleted = Command::new(runtime)
            .arg("--root")
            .arg(&state)
            .args(["delete", "--force"])
            .arg(name)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        all_gone &= deleted.is_ok_and(|status| status.success());
    }
    if !all_gone {
        tracing::warn!(life = %life.display(), "runc could not delete all that an earlier Nigh left");
        return 0;
    }
    let bundles = folders(&life.join(BUNDLES)).len();
    if let Err(error) = fs::remove_dir_all(life) {
        tracing::warn!(life = %life.display(), %error, "the folder of an earlier Nigh stays");
    }
    left.len().max(bundles)
}

fn folders(parent: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(parent) else { return Vec::new() };
    entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .take(LEFT_MAX)
        .collect()
}

/// A folder that everyone may enter and only its owner may list.
fn passage(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => fs::set_permissions(path, fs::Permissions::from_mode(0o711)),
    }
}

/// A folder that everyone may read, like all that must be made above it.
fn folder(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        folder(parent)?;
    }
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => fs::set_permissions(path, fs::Permissions::from_mode(0o755)),
    }
}

/// A file that everyone may read.
fn file(path: &Path, text: &str) -> io::Result<()> {
    fs::write(path, text)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundles(instance: &Path) -> Bundles {
        let init = instance.join("nigh-sandbox");
        fs::write(&init, "").unwrap();
        Bundles::open(&instance.join("nigh-x"), Path::new("/usr/sbin/runc"), &init, Some(16_384)).unwrap()
    }

    #[test]
    fn a_bundle_can_be_passed_and_not_listed_and_names_what_runc_needs() {
        let folder = tempfile::tempdir().unwrap();
        let bundles = bundles(folder.path());
        let made = bundles.write("one", 2_000_000_001, "nigh-x/one").unwrap();
        let bundle = PathBuf::from(made.bundle);
        assert_eq!(fs::metadata(&bundle).unwrap().permissions().mode() & 0o777, 0o711);
        assert!(fs::read_to_string(bundle.join("passwd")).unwrap().contains("function:x:2000000001:"));
        let config = fs::read_to_string(bundle.join("config.json")).unwrap();
        for part in ["nigh-x/one", "2000016385", "nigh-sandbox"] {
            assert!(config.contains(part), "{part}: {config}");
        }
    }

    #[test]
    fn places_are_made_in_the_shared_root_only_where_nothing_else_stands() {
        let folder = tempfile::tempdir().unwrap();
        let bundles = bundles(folder.path());
        let targets = ["/srv/python/lib", "/usr/lib/absent-from-here", "/tmp/venv", "/opt"].map(Path::new);
        bundles.make_places(targets.into_iter()).unwrap();
        assert!(bundles.at("/srv/python/lib").is_dir() && bundles.at("/opt").is_dir());
        assert!(!bundles.at("/usr/lib/absent-from-here").exists() && !bundles.at("/tmp/venv").exists());
    }

    #[test]
    fn a_sweep_removes_other_lives_and_spares_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let earlier = bundles(folder.path());
        earlier.write("left", 2_000_000_001, "nigh-x/left").unwrap();
        let left = earlier.life.clone();
        // A killed Nigh leaves it like this.
        std::mem::forget(earlier);
        let bundles = bundles(folder.path());
        bundles.write("living", 2_000_000_002, "nigh-x/living").unwrap();
        assert_eq!(bundles.sweep(), 1);
        assert!(!left.exists() && bundles.life.join("bundles/living").exists());
        assert_eq!(bundles.sweep(), 0);
    }

    #[test]
    fn the_last_bundle_takes_the_folder_with_it_when_no_engine_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let instance = folder.path().join("nigh-x");
        drop(bundles(folder.path()));
        assert!(!instance.exists());
        let bundles = bundles(folder.path());
        let bundle = PathBuf::from(bundles.write("one", 2_000_000_001, "nigh-x/one").unwrap().bundle);
        let other = PathBuf::from(bundles.write("two", 2_000_000_002, "nigh-x/two").unwrap().bundle);
        fs::remove_dir_all(&other).unwrap();
        remove_life_of(&other, false);
        drop(bundles);
        assert!(bundle.exists());
        fs::remove_dir_all(&bundle).unwrap();
        remove_life_of(&bundle, false);
        assert!(!instance.exists());
    }
}
