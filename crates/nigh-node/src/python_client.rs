//! Lends AWS's runtime client to Pythons that have none: a copy of its Python files, with Nigh's own `runtime_client` in the
//! place of its C extension, which is built for one version of Python (`runtimes/python/client`).

use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;
use std::{fs, io};

use nigh_sandbox::runtime_command::PythonRuntime;
use nigh_terms::hex;
use sha2::{Digest as _, Sha256};

use crate::python::{FoundPython, FoundPythons};
use crate::python_folder::{bring, compile_later};
use crate::status::Level;

/// The client and what it imports; of these, all but C extensions is copied. A name is a folder or a file `NAME.py`.
const PACKAGES: [&str; 3] = ["awslambdaric", "simplejson", "snapshot_restore_py"];
/// The module in place of the C extension.
const RUNTIME_CLIENT: (&str, &str) =
    ("runtime_client.py", include_str!("../../../runtimes/python/client/runtime_client.py"));
/// Folders that are not copied.
const SKIPPED: [&str; 2] = ["__pycache__", "tests"];
/// The bytes of the contents' hash in the folder's name.
const NAME_BYTES: usize = 8;

/// The Pythons that can run functions, the default first: those that have the client, and those to which it is lent by a
/// copy below `folder`. The level is why it could not be lent.
pub(crate) async fn lend(folder: &Path, found: &FoundPythons) -> (Vec<PythonRuntime>, Option<Level>) {
    let runtimes_of = |has_client: bool| -> Vec<PythonRuntime> {
        let chosen = found.all().filter(|python| python.has_client == has_client);
        chosen.map(|python| python.runtime.clone()).collect()
    };
    let (mut runtimes, borrowers) = (runtimes_of(true), runtimes_of(false));
    if borrowers.is_empty() {
        return (runtimes, None);
    }
    match copied(folder, &found.default).await {
        Ok(client) => {
            compile_later(&client, &borrowers);
            let lent = borrowers.into_iter().map(|python| PythonRuntime { client: Some(client.clone()), ..python });
            runtimes.extend(lent);
            (runtimes, None)
        }
        Err(error) => {
            let names: Vec<String> = borrowers.iter().map(|python| format!("python3.{}", python.minor)).collect();
            let detail = format!(
                "{} cannot run functions: awslambdaric cannot be copied to {}: {error}; install it there with pip",
                names.join(", "),
                folder.display()
            );
            (runtimes, Some(Level { name: "python client".to_owned(), on: false, detail }))
        }
    }
}

/// The folder with the copy.
async fn copied(folder: &Path, lender: &FoundPython) -> io::Result<PathBuf> {
    let packages = lender.packages.as_deref().ok_or_else(|| io::Error::other("the packages have no folder"))?;
    bring(folder, &name_of(packages)?, None, |copy| {
        for package in PACKAGES {
            let from = packages.join(package);
            if from.is_dir() {
                copy_modules(&from, &copy.join(package))?;
            } else {
                let file = format!("{package}.py");
                fs::create_dir_all(copy)?;
                copy_file(&packages.join(&file), &copy.join(&file))?;
            }
        }
        fs::write(copy.join(RUNTIME_CLIENT.0), RUNTIME_CLIENT.1)
    })
    .await
}

/// A name that changes with the packages and with Nigh's module.
fn name_of(packages: &Path) -> io::Result<String> {
    let mut hash = Sha256::new();
    // Whoever installs another version makes this file anew.
    let client = packages.join(PACKAGES[0]).join("__init__.py");
    let made = fs::metadata(&client).and_then(|metadata| metadata.modified());
    let made = made.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", client.display())))?;
    let made = made.duration_since(UNIX_EPOCH).unwrap_or_default();
    hash.update(packages.as_os_str().as_encoded_bytes());
    hash.update(made.as_nanos().to_le_bytes());
    hash.update(RUNTIME_CLIENT.1);
    Ok(hex(&hash.finalize()[..NAME_BYTES]))
}

fn copy_modules(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            if !SKIPPED.iter().any(|skipped| entry.file_name() == *skipped) {
                copy_modules(&path, &target)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "py") {
            copy_file(&path, &target)?;
        }
    }
    Ok(())
}

fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    fs::copy(from, to).map(drop).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", from.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn python(minor: u8, interpreter: &str, packages: Option<PathBuf>) -> FoundPython {
        let runtime = PythonRuntime { minor, interpreter: interpreter.into(), folders: Vec::new(), client: None };
        FoundPython { runtime, has_client: packages.is_some(), packages, has_boto3: true }
    }

    fn packages(root: &Path) -> PathBuf {
        let packages = root.join("site-packages");
        for file in [
            "awslambdaric/__init__.py",
            "awslambdaric/bootstrap.py",
            "awslambdaric/__pycache__/bootstrap.cpython-311.pyc",
            "simplejson/__init__.py",
            "simplejson/_speedups.cpython-311-x86_64-linux-gnu.so",
            "simplejson/tests/test_a.py",
            "snapshot_restore_py.py",
            "runtime_client.cpython-311-x86_64-linux-gnu.so",
        ] {
            let path = packages.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        packages
    }

    #[tokio::test]
    async fn the_clients_python_files_are_lent_with_a_module_in_place_of_its_extension() {
        let root = tempfile::tempdir().unwrap();
        let default = python(11, "/lender", Some(packages(root.path())));
        // A program that compiles nothing and says that it did.
        let found = FoundPythons { default, others: vec![python(12, "/bin/true", None)] };
        let (runtimes, level) = lend(&root.path().join("client"), &found).await;
        assert_eq!((runtimes.len(), level), (2, None));
        assert_eq!((runtimes[0].minor, &runtimes[0].client), (11, &None));
        let client = runtimes[1].client.clone().unwrap();
        for (file, is_there) in [
            ("awslambdaric/bootstrap.py", true),
            ("snapshot_restore_py.py", true),
            ("runtime_client.py", true),
            ("awslambdaric/__pycache__", false),
            ("simplejson/tests", false),
            ("simplejson/_speedups.cpython-311-x86_64-linux-gnu.so", false),
        ] {
            assert_eq!(client.join(file).exists(), is_there, "{file}");
        }
    }

    #[tokio::test]
    async fn a_client_that_cannot_be_copied_leaves_those_that_have_it_and_says_why() {
        let root = tempfile::tempdir().unwrap();
        let packages = packages(root.path());
        fs::remove_file(packages.join("snapshot_restore_py.py")).unwrap();
        let default = python(11, "/lender", Some(packages));
        let found = FoundPythons { default, others: vec![python(12, "/bin/true", None)] };
        let (runtimes, level) = lend(&root.path().join("client"), &found).await;
        assert_eq!(runtimes.len(), 1);
        let detail = level.unwrap().detail;
        assert!(
            detail.contains("python3.12 cannot run functions") && detail.contains("snapshot_restore_py"),
            "{detail}"
        );
    }
}
