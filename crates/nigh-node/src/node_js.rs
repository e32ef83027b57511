//! The Node.js of functions: of each major version one, found once, at the start.
//!
//! The setting `functions.node` names programs, separated like `PATH`; by itself it is `node`, and this machine is
//! searched: `PATH`, then the folders of nvm, fnm, Volta, mise and n.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use futures::future::join_all;
use nigh_sandbox::runtime_command::NodeRuntime;
use serde::Deserialize;

/// The setting that searches this machine.
const SEARCH: &str = "node";
/// The most programs that are asked for their version: each takes some hundredths of a second.
const CANDIDATES_MAX: usize = 8;
/// How long Node.js may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);
const QUESTION: &str =
    "console.log(JSON.stringify({ major: Number(process.versions.node.split('.')[0]), program: process.execPath }))";
/// Folders that every sandbox has.
const SYSTEM_FOLDERS: [&str; 2] = ["/usr", "/bin"];

#[derive(Deserialize)]
struct NodeJsProgram {
    major: u8,
    program: PathBuf,
}

/// The installed versions, those first that are found first.
///
/// # Errors
/// Why there is none.
pub async fn find(setting: &Path) -> Result<Vec<NodeRuntime>, String> {
    let candidates = if setting == Path::new(SEARCH) { Places::of_process().candidates() } else { programs(setting) };
    let asked = join_all(candidates.iter().map(|program| probe(program))).await;
    let (mut nodes, mut majors, mut trouble) = (Vec::new(), BTreeSet::new(), None);
    for (program, asked) in candidates.iter().zip(asked) {
        match asked {
            Ok(node) if majors.insert(node.major) => nodes.push(node),
            Ok(_) => {}
            Err(why) => {
                let why = format!("{}: {why}", program.display());
                tracing::debug!(why, "a Node.js is passed over");
                trouble.get_or_insert(why);
            }
        }
    }
    if nodes.is_empty() {
        return Err(trouble.unwrap_or_else(|| format!("{}: there is none on this machine", setting.display())));
    }
    Ok(nodes)
}

/// The Node.js of this program, or why it is none.
async fn probe(node: &Path) -> Result<NodeRuntime, String> {
    let asked = tokio::process::Command::new(node)
        .args(["-e", QUESTION])
        // The operator's options must not apply to actions.
        .env_remove("NODE_OPTIONS")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(PATIENCE, asked).await;
    let output = output.map_err(|_| format!("the program did not answer within {} s", PATIENCE.as_secs()))?;
    let output = output.map_err(|error| error.to_string())?;
    let answer: Result<NodeJsProgram, _> = serde_json::from_slice(&output.stdout);
    let NodeJsProgram { major, program } =
        answer.map_err(|error| format!("the program does not answer as Node.js does: {error}"))?;
    // An installation outside of /usr has its library beside the folder of its programs.
    let folder = program.parent().and_then(Path::parent).filter(|folder| folder.parent().is_some());
    let own = folder.filter(|folder| !SYSTEM_FOLDERS.iter().any(|system| folder.starts_with(system)));
    Ok(NodeRuntime { major, folders: own.map(Path::to_owned).into_iter().collect(), program })
}

fn programs(list: &Path) -> Vec<PathBuf> {
    std::env::split_paths(list).filter(|program| !program.as_os_str().is_empty()).take(CANDIDATES_MAX).collect()
}

/// Where Node.js is looked for.
#[derive(Debug, Default)]
struct Places {
    /// The folders of `PATH`.
    path: Vec<PathBuf>,
    /// Folders with one folder a version, and the program's place in that.
    managers: Vec<(PathBuf, &'static str)>,
}

impl Places {
    fn of_process() -> Self {
        let folder = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let home = folder("HOME");
        let below_home = |path: &str| home.as_ref().map(|home| home.join(path));
        let data = folder("XDG_DATA_HOME").or_else(|| below_home(".local/share"));
        let below_data = |path: &str| data.as_ref().map(|data| data.join(path));
        let roots = [
            (folder("NVM_DIR").or_else(|| below_home(".nvm")), "versions/node", "bin/node"),
            (folder("FNM_DIR").or_else(|| below_data("fnm")), "node-versions", "installation/bin/node"),
            (folder("VOLTA_HOME").or_else(|| below_home(".volta")), "tools/image/node", "bin/node"),
            (folder("MISE_DATA_DIR").or_else(|| below_data("mise")), "installs/node", "bin/node"),
            (Some(folder("N_PREFIX").unwrap_or_else(|| "/usr/local".into())), "n/versions/node", "bin/node"),
        ];
        Self {
            path: std::env::var_os("PATH").iter().flat_map(std::env::split_paths).collect(),
            managers: roots
                .into_iter()
                .filter_map(|(root, below, program)| Some((root?.join(below), program)))
                .collect(),
        }
    }

    /// The programs that are there: that of `PATH`, then of each major version the newest of each manager.
    fn candidates(&self) -> Vec<PathBuf> {
        let mut candidates: Vec<PathBuf> = self.path.iter().map(|folder| folder.join("node")).collect();
        candidates.extend(self.managers.iter().flat_map(|(folder, program)| newest(folder, program)));
        let mut seen = BTreeSet::new();
        // A link beside the program itself is the same installation.
        candidates.retain(|program| program.canonicalize().is_ok_and(|file| file.is_file() && seen.insert(file)));
        candidates.truncate(CANDIDATES_MAX);
        candidates
    }
}

/// Of each major version in `folder` the newest, the newest first.
fn newest(folder: &Path, program: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let mut versions: Vec<(Vec<u32>, PathBuf)> = entries
        .map(|entry| (numbers(&entry.file_name().to_string_lossy()), entry.path().join(program)))
        .filter(|(version, program)| !version.is_empty() && program.is_file())
        .collect();
    versions.sort();
    versions.reverse();
    versions.dedup_by_key(|(version, _)| version.first().copied());
    versions.into_iter().map(|(_, program)| program).collect()
}

/// The numbers of `v22.11.0`; none of a name like `latest`.
fn numbers(name: &str) -> Vec<u32> {
    let version = name.strip_prefix('v').unwrap_or(name);
    version.split('.').map_while(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A program that answers as Node.js does.
    fn node(path: &Path, major: u8) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let answer = format!("{{\"major\": {major}, \"program\": \"{}\"}}", path.display());
        // Another process writes it: a child that this one forks meanwhile would hold the file open, and nobody could start it.
        let write = r#"printf '#!/bin/sh\necho '\''%s'\''\n' "$2" > "$1" && chmod 755 "$1""#;
        let written = std::process::Command::new("/bin/sh").args(["-c", write, "sh"]).arg(path).arg(answer).status();
        assert!(written.unwrap().success());
    }

    #[test]
    fn the_program_of_path_comes_first_then_of_each_major_version_the_newest() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        for (path, major) in [
            ("path/node", 20),
            ("nvm/v20.9.0/bin/node", 20),
            ("nvm/v20.11.1/bin/node", 20),
            ("nvm/v22.2.0/bin/node", 22),
            ("nvm/latest/bin/node", 22),
            ("fnm/v24.0.0/installation/bin/node", 24),
        ] {
            node(&at(path), major);
        }
        fs::create_dir_all(at("links")).unwrap();
        symlink(at("path/node"), at("links/node")).unwrap();
        let managers = vec![(at("nvm"), "bin/node"), (at("absent"), "bin/node"), (at("fnm"), "installation/bin/node")];
        let places = Places { path: vec![at("path"), at("links"), at("none")], managers };
        let expected =
            ["path/node", "nvm/v22.2.0/bin/node", "nvm/v20.11.1/bin/node", "fnm/v24.0.0/installation/bin/node"];
        assert_eq!(places.candidates(), expected.map(at));
    }

    #[tokio::test]
    async fn of_the_programs_that_are_named_each_major_version_counts_once() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        for (path, major) in [("a", 22), ("b", 20), ("c", 22)] {
            node(&at(path), major);
        }
        let list = std::env::join_paths([at("a"), at("b"), at("none"), at("c")]).unwrap();
        let found = find(Path::new(&list)).await.unwrap();
        assert_eq!(found.iter().map(|node| node.major).collect::<Vec<_>>(), [22, 20]);
        assert_eq!(found[0].program, at("a"));
        assert!(find(&at("none")).await.unwrap_err().contains("none: No such file"));
    }
}
