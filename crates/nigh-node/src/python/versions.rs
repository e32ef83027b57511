//! Which Pythons functions get: of each version one, and a default for those who name no version. Nothing is started here.
//!
//! Lambda's handlers need AWS's runtime client. A Python without it can run functions too if another one has it, because
//! Nigh lends the client's files (`python_client`).

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use nigh_sandbox::runtime_command::PythonRuntime;

/// The minor versions to which the client is lent (its `requires-python`).
const LENT_TO: std::ops::RangeInclusive<u8> = 10..=14;
/// No client runs on an older minor version.
const OLDEST: u8 = 9;

/// A Python that was asked what it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundPython {
    /// The interpreter.
    pub runtime: PythonRuntime,
    /// True if AWS's runtime client is among its packages.
    pub has_client: bool,
    /// The folder of packages with the client.
    pub packages: Option<PathBuf>,
    /// True if boto3 is among its packages, as in Lambda.
    pub has_boto3: bool,
}

impl fmt::Display for FoundPython {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PythonRuntime { minor, interpreter, .. } = &self.runtime;
        write!(f, "python3.{minor} at {}", interpreter.display())?;
        if self.has_boto3 { Ok(()) } else { f.write_str(" without boto3") }
    }
}

/// The Pythons of functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundPythons {
    /// The one for those who name no version. It has AWS's runtime client.
    pub default: FoundPython,
    /// The other versions, ascending.
    pub others: Vec<FoundPython>,
}

impl FoundPythons {
    /// Of each version the best of `found`: one with client and boto3, else one with the client, else the first; the
    /// earlier of equals. The default is the best of all. None if no Python has the client.
    pub(super) fn choose(found: Vec<FoundPython>) -> Option<Self> {
        let default = found.iter().filter(|python| python.has_client).min_by_key(|python| !python.has_boto3)?.clone();
        let mut best: BTreeMap<u8, FoundPython> = BTreeMap::new();
        for python in found {
            let minor = python.runtime.minor;
            if minor == default.runtime.minor || !(python.has_client || LENT_TO.contains(&minor)) {
                continue;
            }
            let known = best.get(&minor).map_or(3, FoundPython::rank);
            if python.rank() < known {
                best.insert(minor, python);
            }
        }
        Some(Self { default, others: best.into_values().collect() })
    }

    /// All of them, the default first.
    pub fn all(&self) -> impl Iterator<Item = &FoundPython> {
        std::iter::once(&self.default).chain(&self.others)
    }
}

impl FoundPython {
    /// Low is good.
    const fn rank(&self) -> u8 {
        match (self.has_client, self.has_boto3) {
            (true, true) => 0,
            (true, false) => 1,
            (false, _) => 2,
        }
    }
}

/// Groups `candidates` so that few have to be started: those of one version together, as far as the names of their files
/// tell it, those first that have client and boto3. Each comes with its place among the candidates.
pub(super) fn by_version(candidates: &[PathBuf]) -> Vec<Vec<(usize, PathBuf)>> {
    let mut groups: BTreeMap<u8, Vec<(u8, usize, PathBuf)>> = BTreeMap::new();
    let mut alone = Vec::new();
    for (place, program) in candidates.iter().enumerate() {
        match minor_of(program) {
            Some(minor) if minor < OLDEST => {}
            Some(minor) => {
                let has = |package| has_package(program, minor, package);
                let rank = match (has("awslambdaric"), has("boto3")) {
                    (true, true) => 0,
                    (true, false) => 1,
                    (false, _) => 2,
                };
                groups.entry(minor).or_default().push((rank, place, program.clone()));
            }
            None => alone.push(vec![(place, program.clone())]),
        }
    }
    for group in groups.values_mut() {
        group.sort();
    }
    let groups = groups
        .into_values()
        .map(|group| group.into_iter().map(|(_, place, program)| (place, program)).collect::<Vec<_>>());
    groups.chain(alone).collect()
}

/// Of `candidates` those of version 3.`minor`, by the names of their files, and those whose names do not tell a version.
pub(super) fn of_version(candidates: Vec<PathBuf>, minor: u8) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let (mut known, mut unknown) = (Vec::new(), Vec::new());
    for program in candidates {
        match minor_of(&program) {
            Some(found) if found == minor => known.push(program),
            Some(_) => {}
            None => unknown.push(program),
        }
    }
    (known, unknown)
}

/// The 11 of `.../python3.11`, where `program` or the file to which it leads is called so.
fn minor_of(program: &Path) -> Option<u8> {
    let by_name = |path: &Path| path.file_name()?.to_str()?.strip_prefix("python3.")?.parse().ok();
    by_name(program).or_else(|| by_name(&program.canonicalize().ok()?))
}

/// Whether the installation or virtual environment of `program` has a package.
fn has_package(program: &Path, minor: u8, package: &str) -> bool {
    let resolved = program.canonicalize().ok();
    let installations = [Some(program), resolved.as_deref()].into_iter().flatten();
    let mut roots = installations.filter_map(|program| program.parent()?.parent());
    roots.any(|root| root.join(format!("lib/python3.{minor}/site-packages")).join(package).is_dir())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn python(minor: u8, place: &str, has_client: bool, has_boto3: bool) -> FoundPython {
        let runtime = PythonRuntime { minor, interpreter: place.into(), folders: Vec::new(), client: None };
        FoundPython { runtime, has_client, packages: None, has_boto3 }
    }

    #[test]
    fn of_each_version_the_best_is_chosen_and_the_default_has_the_client() {
        let found = vec![
            python(12, "/a", false, true),
            python(11, "/b", true, false),
            python(13, "/c", false, false),
            python(10, "/d", true, true),
            python(11, "/e", true, true),
            python(13, "/f", false, true),
            python(9, "/g", false, true),
        ];
        let chosen = FoundPythons::choose(found).unwrap();
        assert_eq!(chosen.default.to_string(), "python3.10 at /d");
        let others: Vec<String> = chosen.others.iter().map(ToString::to_string).collect();
        // Of the two of 3.13 neither has the client, and the first one counts.
        assert_eq!(others, ["python3.11 at /e", "python3.12 at /a", "python3.13 at /c without boto3"]);
        assert_eq!(chosen.all().count(), 4);
        assert_eq!(FoundPythons::choose(vec![python(12, "/a", false, true)]), None);
    }

    #[test]
    fn candidates_of_one_version_are_grouped_by_the_names_of_their_files() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        for path in ["plain/bin/python3.11", "other/bin/python3.12", "shim/python3"] {
            fs::create_dir_all(at(path).parent().unwrap()).unwrap();
            fs::write(at(path), "").unwrap();
        }
        for package in ["awslambdaric", "boto3"] {
            fs::create_dir_all(at("venv/lib/python3.11/site-packages").join(package)).unwrap();
        }
        fs::create_dir_all(at("venv/bin")).unwrap();
        symlink(at("plain/bin/python3.11"), at("venv/bin/python3")).unwrap();
        let candidates = ["plain/bin/python3.11", "shim/python3", "venv/bin/python3", "other/bin/python3.12"].map(at);
        let groups = by_version(&candidates);
        let places: Vec<Vec<usize>> =
            groups.iter().map(|group| group.iter().map(|(place, _)| *place).collect()).collect();
        assert_eq!(places, [vec![2, 0], vec![3], vec![1]]);
        let (known, unknown) = of_version(candidates.to_vec(), 11);
        assert_eq!(
            (known, unknown),
            (vec![at("plain/bin/python3.11"), at("venv/bin/python3")], vec![at("shim/python3")])
        );
    }
}
