//! The packages of a JavaScript function: those of `package.json`, installed by the npm of the runtime's Node.js.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use nigh_node::node_js;

use super::Progress;
use super::cache::{Cache, CacheKey};
use super::package_json::{Need, PackageJson};
use super::tool::{ToolRun, identity, in_path, is_program};
use crate::build_error::BuildError;

const PACKAGE: &str = "package.json";
const MODULES: &str = "node_modules";
/// What npm locks versions in; the first that is there counts.
const LOCKS: [&str; 2] = ["npm-shrinkwrap.json", "package-lock.json"];
/// What other tools lock versions in.
const OTHER_LOCKS: [&str; 2] = ["pnpm-lock.yaml", "yarn.lock"];
/// npm's settings of a folder.
const SETTINGS: &str = ".npmrc";

/// The folder with `node_modules` for the code in `folder`; none if it needs none, or has them.
///
/// # Errors
/// If there is no npm, or it fails.
pub(super) async fn packages(
    folder: &Path,
    runtime: &str,
    node: &Path,
    cache: &Cache,
    progress: &mut dyn Progress,
) -> Result<Option<PathBuf>, BuildError> {
    let path = folder.join(PACKAGE);
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        read => read.map_err(BuildError::io("reading", &path))?,
    };
    let described = |why| BuildError::Description { file: PACKAGE, why };
    let package = PackageJson::parse(&text).map_err(described)?;
    let lock = LOCKS.into_iter().find(|lock| folder.join(lock).is_file());
    let other_lock = OTHER_LOCKS.into_iter().find(|other| lock.is_none() && folder.join(other).is_file());
    let modules = folder.join(MODULES);
    let inputs = match package.need(|name| modules.join(name).is_dir(), other_lock) {
        Need::Nothing => return Ok(None),
        Need::Refused(why) => return Err(described(why)),
        Need::Install(files) => files,
    };
    let inputs: Vec<String> = [PACKAGE, SETTINGS].into_iter().chain(lock).map(str::to_owned).chain(inputs).collect();
    let mut key = CacheKey::new(runtime);
    key.add("npm", in_path("npm").map(|npm| identity(&npm)).unwrap_or_default().as_bytes());
    for input in &inputs {
        key.add_path(input, &folder.join(input))?;
    }
    if let Some(entry) = cache.get(&key) {
        return Ok(Some(entry));
    }
    let npm = npm(runtime, node).await?;
    progress.step(&format!("installing the packages of {} with npm for {runtime}", lock.unwrap_or(PACKAGE)));
    let staging = cache.staging()?;
    let work = staging.path().join("package");
    for input in &inputs {
        copy(&folder.join(input), &work.join(input), Nested::LeftOut)?;
    }
    let mut run = ToolRun::new(&npm, &work, arguments(lock.is_some()));
    run.environment = vec![("PATH", path_with(&npm))];
    run.failure = format!("the packages of {PACKAGE} cannot be installed");
    run.otherwise = "mend the list of packages, and deploy again";
    run.run(progress).await?;
    resolve_links(&work.join(MODULES))?;
    // What was copied is the user's; the programs of packages are links that nothing needs.
    let own = inputs.iter().map(|input| work.join(input)).chain(LOCKS.map(|lock| work.join(lock)));
    let unneeded = [".package-lock.json", ".bin"].map(|name| work.join(MODULES).join(name));
    for path in own.chain(unneeded) {
        remove(&path)?;
    }
    if !work.join(MODULES).is_dir() {
        fs::create_dir(work.join(MODULES)).map_err(BuildError::io("creating", work.join(MODULES)))?;
    }
    Ok(Some(cache.put(key, &work)?))
}

/// npm's words: exactly what the lock file says, or what fits `package.json`.
fn arguments(has_lock: bool) -> [&'static str; 6] {
    let verb = if has_lock { "ci" } else { "install" };
    [verb, "--omit=dev", "--install-links", "--no-audit", "--no-fund", "--no-update-notifier"]
}

/// The npm beside the runtime's Node.js, else that of `PATH`: packages may be compiled for the Node.js that npm runs on.
async fn npm(runtime: &str, setting: &Path) -> Result<PathBuf, BuildError> {
    let major =
        runtime.strip_prefix("nodejs").and_then(|rest| rest.strip_suffix(".x")).and_then(|one| one.parse::<u8>().ok());
    let nodes = node_js::find(setting).await.unwrap_or_default();
    let node = nodes.iter().find(|node| Some(node.major) == major);
    let beside = node.map(|node| node.program.with_file_name("npm")).filter(|npm| is_program(npm));
    beside.or_else(|| in_path("npm")).ok_or_else(|| BuildError::NoTool {
        file: PACKAGE,
        tool: "npm",
        hint: format!("install it, or install the packages elsewhere and put {MODULES} into the folder"),
    })
}

/// `PATH` with npm's folder first, where its Node.js is.
fn path_with(npm: &Path) -> OsString {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = npm.parent().map(Path::to_owned).into_iter().chain(env::split_paths(&path));
    env::join_paths(folders).unwrap_or(path)
}

/// Whether a folder is copied with the packages that lie in it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nested {
    Copied,
    LeftOut,
}

/// Copies a file, or a folder with all that is in it. What is not there is left out.
fn copy(from: &Path, to: &Path, nested: Nested) -> Result<(), BuildError> {
    if from.is_dir() {
        for entry in fs::read_dir(from).map_err(BuildError::io("reading", from))? {
            let name = entry.map_err(BuildError::io("reading", from))?.file_name();
            if nested == Nested::Copied || name != MODULES {
                copy(&from.join(&name), &to.join(&name), nested)?;
            }
        }
        return Ok(());
    }
    if !from.exists() {
        return Ok(());
    }
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent).map_err(BuildError::io("creating", parent))?;
    }
    fs::copy(from, to).map(drop).map_err(BuildError::io("copying", from))
}

/// Puts copies in the place of links to folders: npm links the dependencies that lie in the package's own folder.
fn resolve_links(modules: &Path) -> Result<(), BuildError> {
    for entry in fs::read_dir(modules).into_iter().flatten().filter_map(Result::ok) {
        let path = entry.path();
        if entry.file_name().to_string_lossy().starts_with('@') {
            resolve_links(&path)?;
        } else if path.is_symlink() && path.is_dir() {
            let target = path.canonicalize().map_err(BuildError::io("reading", &path))?;
            fs::remove_file(&path).map_err(BuildError::io("removing", &path))?;
            copy(&target, &path, Nested::Copied)?;
        }
    }
    Ok(())
}

fn remove(path: &Path) -> Result<(), BuildError> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(BuildError::io("removing", path)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::StderrProgress;

    #[test]
    fn npm_installs_what_is_locked_or_what_fits_without_what_is_for_development() {
        assert_eq!(arguments(true)[..3], ["ci", "--omit=dev", "--install-links"]);
        assert_eq!(arguments(false)[0], "install");
    }

    #[test]
    fn npms_own_folder_comes_first_in_its_path() {
        let path = path_with(Path::new("/opt/node/bin/npm"));
        assert_eq!(env::split_paths(&path).next(), Some(PathBuf::from("/opt/node/bin")));
    }

    #[test]
    fn a_link_to_a_package_becomes_a_copy_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        for file in ["dep/index.js", "dep/node_modules/inner/a.js", "node_modules/plain/b.js", "node_modules/@s/c/d.js"]
        {
            fs::create_dir_all(at(file).parent().unwrap()).unwrap();
            fs::write(at(file), file).unwrap();
        }
        for link in ["node_modules/dep", "node_modules/@s/dep"] {
            std::os::unix::fs::symlink(at("dep"), at(link)).unwrap();
        }
        resolve_links(&at(MODULES)).unwrap();
        fs::remove_dir_all(at("dep")).unwrap();
        for copied in
            ["node_modules/dep/index.js", "node_modules/@s/dep/node_modules/inner/a.js", "node_modules/plain/b.js"]
        {
            assert!(at(copied).is_file(), "{copied}");
        }
    }

    async fn ask(folder: &Path, cache: &Cache) -> Result<Option<PathBuf>, BuildError> {
        packages(folder, "nodejs20.x", Path::new("node"), cache, &mut StderrProgress::new(true)).await
    }

    #[tokio::test]
    async fn a_folder_without_dependencies_or_with_all_of_them_needs_no_tool() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(&folder.path().join("cache"));
        let write = |text: &str| fs::write(folder.path().join(PACKAGE), text).unwrap();
        assert_eq!(ask(folder.path(), &cache).await.unwrap(), None);
        for text in ["{}", r#"{ "type": "module" }"#] {
            write(text);
            assert_eq!(ask(folder.path(), &cache).await.unwrap(), None, "{text}");
        }
        write(r#"{ "dependencies": { "@scope/a": "1" } }"#);
        fs::create_dir_all(folder.path().join("node_modules/@scope/a")).unwrap();
        assert_eq!(ask(folder.path(), &cache).await.unwrap(), None);
        write("{");
        assert!(ask(folder.path(), &cache).await.unwrap_err().to_string().starts_with("package.json: "));
    }
}
