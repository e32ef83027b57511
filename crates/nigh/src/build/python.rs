//! The packages of a Python function: of `requirements.txt`, else of `pyproject.toml`, installed by uv, else by the pip of
//! the runtime's Python.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use nigh_node::config::PythonChoice;
use nigh_node::python::interpreters;

use super::Progress;
use super::cache::{Cache, CacheKey};
use super::requirements::{Requirements, distribution, of_project};
use super::tool::{ToolRun, identity, in_path};
use crate::build_error::BuildError;

const REQUIREMENTS: &str = "requirements.txt";
const PROJECT: &str = "pyproject.toml";
const UV_LOCK: &str = "uv.lock";
/// Files of requirements that name each other are followed so deep.
const DEPTH_MAX: usize = 8;

/// Where the list of packages is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum List {
    /// In `requirements.txt`.
    File,
    /// In `uv.lock`, which uv turns into a list.
    UvLock,
    /// In `pyproject.toml`: these.
    Project(Vec<String>),
}

impl List {
    const fn file(&self) -> &'static str {
        match self {
            Self::File => REQUIREMENTS,
            Self::UvLock => UV_LOCK,
            Self::Project(_) => PROJECT,
        }
    }
}

/// The tool that installs.
enum Installer {
    /// uv, at this path.
    Uv(PathBuf),
    /// The pip of an interpreter.
    Pip,
}

/// The folder with the packages that the code in `folder` needs on Python 3.`minor`; none if it needs none, or has them.
///
/// # Errors
/// If there is no tool, or it fails.
pub(super) async fn packages(
    folder: &Path,
    minor: u8,
    choice: &PythonChoice,
    cache: &Cache,
    progress: &mut dyn Progress,
) -> Result<Option<PathBuf>, BuildError> {
    let Some((list, asked)) = list(folder)? else { return Ok(None) };
    if asked.is_empty() || asked.are_among(&installed(folder)) {
        return Ok(None);
    }
    let interpreters = interpreters(choice, minor).await;
    let installer = in_path("uv").map_or(Installer::Pip, Installer::Uv);
    let key = key(folder, minor, &list, &installer, interpreters.first())?;
    if let Some(entry) = cache.get(&key) {
        return Ok(Some(entry).filter(|entry| has_packages(entry)));
    }
    let staging = cache.staging()?;
    let target = staging.path().join("packages");
    fs::create_dir(&target).map_err(BuildError::io("creating", &target))?;
    let work = Work { folder, minor, list: &list, target: &target, staging: staging.path() };
    match installer {
        Installer::Uv(uv) => work.by_uv(&uv, interpreters.first(), progress).await?,
        Installer::Pip => work.by_pip(&interpreters, progress).await?,
    }
    // uv's own.
    let _absent = fs::remove_file(target.join(".lock"));
    let entry = cache.put(key, &target)?;
    Ok(Some(entry).filter(|entry| has_packages(entry)))
}

/// Where the packages of `folder` are listed, and what is asked for; none if nowhere.
fn list(folder: &Path) -> Result<Option<(List, Requirements)>, BuildError> {
    if let Some(text) = read(folder, REQUIREMENTS)? {
        return Ok(Some((List::File, Requirements::parse(&text))));
    }
    let Some(text) = read(folder, PROJECT)? else { return Ok(None) };
    let lines = of_project(&text).map_err(|why| BuildError::Description { file: PROJECT, why })?;
    let asked = Requirements::parse(&lines.join("\n"));
    if !folder.join(UV_LOCK).is_file() {
        return Ok(Some((List::Project(lines), asked)));
    }
    if in_path("uv").is_none() {
        let hint = format!("install it, or remove {UV_LOCK}: pip then takes what {PROJECT} names");
        return Err(BuildError::NoTool { file: UV_LOCK, tool: "uv", hint });
    }
    Ok(Some((List::UvLock, asked)))
}

fn read(folder: &Path, file: &str) -> Result<Option<String>, BuildError> {
    let path = folder.join(file);
    match fs::read_to_string(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some).map_err(BuildError::io("reading", path)),
    }
}

/// The distributions that are installed in the folder itself.
fn installed(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    entries.filter_map(|entry| distribution(&entry.file_name().to_string_lossy())).collect()
}

fn has_packages(entry: &Path) -> bool {
    fs::read_dir(entry).is_ok_and(|mut entries| entries.next().is_some())
}

/// What the packages depend on.
fn key(
    folder: &Path,
    minor: u8,
    list: &List,
    installer: &Installer,
    interpreter: Option<&PathBuf>,
) -> Result<CacheKey, BuildError> {
    let mut key = CacheKey::new(&format!("python3.{minor}"));
    match installer {
        Installer::Uv(uv) => key.add("uv", identity(uv).as_bytes()),
        Installer::Pip => key.add("pip", b""),
    }
    if let Some(interpreter) = interpreter {
        key.add("python", identity(interpreter).as_bytes());
    }
    match list {
        List::Project(lines) => {
            let text = lines.join("\n");
            key.add(PROJECT, text.as_bytes());
            add_files(&mut key, folder, Requirements::parse(&text).files, 1)?;
        }
        List::UvLock => key.add_path(UV_LOCK, &folder.join(UV_LOCK))?,
        List::File => add_files(&mut key, folder, vec![REQUIREMENTS.to_owned()], 0)?,
    }
    Ok(key)
}

/// Takes in the files that requirements name, and those that these name.
fn add_files(key: &mut CacheKey, folder: &Path, files: Vec<String>, depth: usize) -> Result<(), BuildError> {
    for file in files {
        let path = folder.join(&file);
        key.add_path(&file, &path)?;
        if depth >= DEPTH_MAX || !(file.ends_with(".txt") || file.ends_with(".in")) {
            continue;
        }
        if let Ok(text) = fs::read_to_string(&path) {
            // Files of requirements name each other from their own place, packages from where the tool runs.
            let near = path.parent().unwrap_or(folder).to_owned();
            let named = Requirements::parse(&text).files;
            let places = named.iter().filter(|name| near != folder && near.join(name).exists());
            let nearby: Vec<String> = places.map(|name| near.join(name).to_string_lossy().into_owned()).collect();
            add_files(key, folder, nearby.into_iter().chain(named).collect(), depth + 1)?;
        }
    }
    Ok(())
}

/// One installation.
struct Work<'a> {
    folder: &'a Path,
    minor: u8,
    list: &'a List,
    /// Where the packages go.
    target: &'a Path,
    /// Where the list goes, if it is made.
    staging: &'a Path,
}

impl Work<'_> {
    async fn by_uv(
        &self,
        uv: &Path,
        interpreter: Option<&PathBuf>,
        progress: &mut dyn Progress,
    ) -> Result<(), BuildError> {
        progress.step(&format!("installing the packages of {} with uv for python3.{}", self.list.file(), self.minor));
        let list = self.list_file();
        if *self.list == List::UvLock {
            let mut export = ToolRun::new(uv, self.folder, export_arguments(&list));
            export.failure = format!("{UV_LOCK} cannot be read");
            export.otherwise = "run `uv lock` in the folder, which makes it anew";
            // uv prints the list, too.
            export.answers = |_| true;
            export.run(progress).await?;
        }
        // By its version uv finds an interpreter itself, or fetches one.
        let python = interpreter.map_or_else(|| format!("3.{}", self.minor).into(), |one| one.clone().into_os_string());
        self.install(ToolRun::new(uv, self.folder, uv_arguments(python, self.target, &list)), progress).await
    }

    async fn by_pip(&self, interpreters: &[PathBuf], progress: &mut dyn Progress) -> Result<(), BuildError> {
        let python = self.with_pip(interpreters).await?;
        let (file, minor) = (self.list.file(), self.minor);
        progress
            .step(&format!("installing the packages of {file} with pip of python3.{minor} at {}", python.display()));
        self.install(ToolRun::new(&python, self.folder, pip_arguments(self.target, &self.list_file())), progress).await
    }

    /// The first of the interpreters that has pip.
    async fn with_pip(&self, interpreters: &[PathBuf]) -> Result<PathBuf, BuildError> {
        for interpreter in interpreters {
            let asked = tokio::process::Command::new(interpreter)
                .args(["-m", "pip", "--version"])
                .stdin(std::process::Stdio::null())
                .kill_on_drop(true)
                .output();
            if asked.await.is_ok_and(|output| output.status.success()) {
                return Ok(interpreter.clone());
            }
        }
        let (file, minor) = (self.list.file(), self.minor);
        let hint = match interpreters.first() {
            Some(first) => format!("run `{} -m ensurepip`, or install uv", first.display()),
            None => format!(
                "there is no python3.{minor}: install it, or install uv, which fetches it; or put the packages into the folder \
                 yourself: `pip install --target FOLDER --requirement {file}`"
            ),
        };
        Err(BuildError::NoTool { file, tool: "pip", hint })
    }

    /// The file of requirements; it is made if the folder has none.
    fn list_file(&self) -> PathBuf {
        match self.list {
            List::File => PathBuf::from(REQUIREMENTS),
            List::UvLock | List::Project(_) => self.staging.join(REQUIREMENTS),
        }
    }

    async fn install(&self, mut run: ToolRun, progress: &mut dyn Progress) -> Result<(), BuildError> {
        if let List::Project(lines) = self.list {
            let list = self.list_file();
            fs::write(&list, lines.join("\n")).map_err(BuildError::io("writing", &list))?;
        }
        run.failure = format!("the packages of {} cannot be installed", self.list.file());
        run.otherwise = "mend the list of packages, and deploy again";
        run.run(progress).await.map(drop)
    }
}

fn export_arguments(list: &Path) -> Vec<OsString> {
    let arguments = ["export", "--frozen", "--no-dev", "--no-emit-project", "--output-file"];
    arguments.into_iter().map(OsString::from).chain([list.into()]).collect()
}

fn uv_arguments(python: OsString, target: &Path, list: &Path) -> Vec<OsString> {
    let words = ["pip", "install", "--python"].map(OsString::from);
    let places = [python, "--target".into(), target.into(), "--requirement".into(), list.into()];
    words.into_iter().chain(places).collect()
}

fn pip_arguments(target: &Path, list: &Path) -> Vec<OsString> {
    // Archives leave compiled modules out.
    let words =
        ["-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--no-compile"].map(OsString::from);
    words.into_iter().chain(["--target".into(), target.into(), "--requirement".into(), list.into()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::StderrProgress;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    #[test]
    fn each_tool_installs_for_the_runtimes_python_into_the_target() {
        let (target, list) = (Path::new("/t"), Path::new("requirements.txt"));
        assert_eq!(
            uv_arguments("/py".into(), target, list),
            ["pip", "install", "--python", "/py", "--target", "/t", "--requirement", "requirements.txt"]
        );
        let pip = pip_arguments(target, list);
        assert_eq!(pip[..3], ["-m", "pip", "install"]);
        assert_eq!(pip[6..], ["--target", "/t", "--requirement", "requirements.txt"]);
    }

    #[test]
    fn requirements_txt_counts_before_pyproject_toml() {
        let of = |files: &[(&str, &str)]| list(folder(files).path()).unwrap().map(|(list, _)| list);
        let project = ("pyproject.toml", "[project]\nname = \"f\"\ndependencies = [\"a\"]\n");
        assert_eq!(of(&[("main.py", "")]), None);
        assert_eq!(of(&[project]), Some(List::Project(vec!["a".to_owned()])));
        assert_eq!(of(&[project, ("requirements.txt", "b\n")]), Some(List::File));
        let poetry = folder(&[("pyproject.toml", "[tool.poetry.dependencies]\nrequests = \"*\"\n")]);
        let refused = list(poetry.path()).unwrap_err().to_string();
        assert!(refused.starts_with("pyproject.toml: ") && refused.contains("poetry export"), "{refused}");
    }

    #[test]
    fn packages_are_installed_anew_when_a_file_that_they_depend_on_changes() {
        let own = folder(&[
            ("requirements.txt", "-r more/base.txt\n./wheels/a-1-py3-none-any.whl\n"),
            ("more/base.txt", "-c limits.txt\nb\n"),
            ("more/limits.txt", "b<2\n"),
            ("wheels/a-1-py3-none-any.whl", "1"),
            ("main.py", ""),
        ]);
        let cache = Cache::at(&own.path().join("cache"));
        let make = || {
            let key = key(own.path(), 11, &List::File, &Installer::Pip, None).unwrap();
            let found = cache.get(&key).is_some();
            let staging = cache.staging().unwrap();
            let staged = staging.path().join("packages");
            fs::create_dir(&staged).unwrap();
            cache.put(key, &staged).unwrap();
            found
        };
        assert!(!make() && make());
        fs::write(own.path().join("main.py"), "x = 1").unwrap();
        assert!(make(), "the code is no dependency");
        for (file, text) in [
            ("requirements.txt", "-r more/base.txt\n./wheels/a-1-py3-none-any.whl\nc\n"),
            ("more/base.txt", "-c limits.txt\nb>1\n"),
            ("more/limits.txt", "b<3\n"),
            ("wheels/a-1-py3-none-any.whl", "2"),
        ] {
            fs::write(own.path().join(file), text).unwrap();
            assert!(!make() && make(), "{file}");
        }
        let other = key(own.path(), 12, &List::File, &Installer::Pip, None).unwrap();
        assert_eq!(cache.get(&other), None);
    }

    #[tokio::test]
    async fn a_folder_that_has_its_packages_needs_no_tool() {
        let own = folder(&[("requirements.txt", "Some_dep==1\n"), ("some_dep-1.dist-info/METADATA", "")]);
        let cache = Cache::at(&own.path().join("cache"));
        let mut quiet = StderrProgress::new(true);
        let found = packages(own.path(), 11, &PythonChoice::Auto, &cache, &mut quiet).await.unwrap();
        assert_eq!(found, None);
    }
}
