//! The older program of an upgrade: one that was built from an earlier commit, or this one, told to use no format above
//! the first.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::peer::installed::cache_folder;
use crate::instrument::programs;

/// Where `make older` puts programs, beside the peers: a folder a commit.
const BUILT: &str = "older";
/// Settings of a node that an older program may not know.
const NEW_SETTINGS: [NewSetting; 3] = [
    NewSetting { name: "health.listen", value: None, file: "[health]\nlisten = \"127.0.0.1:0\"\n" },
    NewSetting { name: "admin.listen", value: None, file: "[admin]\nlisten = \"127.0.0.1:0\"\n" },
    // Balancers and clients see that a node is not ready before its doors close.
    NewSetting { name: "drain_delay", value: Some("2 s"), file: "drain_delay = \"2 s\"\n" },
];

struct NewSetting {
    name: &'static str,
    /// What the nodes of this experiment have; none if a local cluster sets it, or nobody does.
    value: Option<&'static str>,
    /// A file that sets it.
    file: &'static str,
}

/// Both programs.
#[derive(Debug)]
pub(super) struct Releases {
    pub(super) newer: PathBuf,
    /// Starts the older program; in the folder of the run.
    pub(super) older: PathBuf,
    /// The settings for all nodes beside those of any cluster; `older` leaves out those that it does not know.
    pub(super) set: Vec<String>,
}

/// The program that `old` names: a file, or a commit of which `make older` has built one.
fn program(old: &str) -> Result<PathBuf, LabError> {
    let built = cache_folder().with_file_name(BUILT).join(old).join("nigh");
    let found = [PathBuf::from(old), built].into_iter().find(|path| path.is_file());
    found.ok_or_else(|| {
        let missing = format!("a program built from {old}");
        LabError::Missing { missing, hint: "build it with `make older COMMIT=...`, or name the program's file" }
    })
}

/// Whether `program` knows the settings in `text`.
fn knows(program: &Path, folder: &Path, text: &str) -> Result<bool, LabError> {
    let file = folder.join("known.toml");
    std::fs::write(&file, text).at(&file)?;
    let check = Command::new(program).arg("--config").arg(&file).args(["config", "check"]).output().at(program)?;
    Ok(check.status.success())
}

/// A program that starts `program` without the settings `unknown`, and as a node with the settings `added`. Pure.
fn starter(program: &str, unknown: &[&str], added: &[&str]) -> String {
    let dropped = match unknown {
        [] => "''".to_owned(),
        some => some.iter().map(|name| format!("{name}=*")).collect::<Vec<_>>().join("|"),
    };
    let added: String = added.iter().map(|setting| format!(" --set '{setting}'")).collect();
    format!(
        r#"#!/bin/sh
# Starts an older Nigh, without settings that it does not know.
command=$1
shift
left=$#
while [ "$left" -gt 0 ]; do
    if [ "$1" = --set ]; then
        case $2 in
        {dropped}) ;;
        *) set -- "$@" --set "$2" ;;
        esac
        shift 2
        left=$((left - 2))
    else
        set -- "$@" "$1"
        shift
        left=$((left - 1))
    fi
done
case $command in
node) set -- "$@"{added} ;;
esac
exec '{program}' "$command" "$@"
"#
    )
}

impl Releases {
    /// The programs, for a run in `folder`. Without `old` the older one is this one, with the first format.
    pub(super) fn find(old: Option<&str>, folder: &Path) -> Result<Self, LabError> {
        let newer = programs::nigh()?;
        let path = old.map_or_else(|| Ok(newer.clone()), program)?;
        let path = path.canonicalize().at(&path)?;
        if !knows(&path, folder, "")? {
            return Err(LabError::Node(format!("{} refuses empty settings", path.display())));
        }
        let (mut set, mut unknown) = (Vec::new(), Vec::new());
        for NewSetting { name, value, file } in NEW_SETTINGS {
            if knows(&newer, folder, file)? {
                set.extend(value.map(|value| format!("{name}={value}")));
            }
            if !knows(&path, folder, file)? {
                unknown.push(name);
            }
        }
        let limited: &[&str] = if old.is_some() { &[] } else { &["cluster.format_max=1"] };
        let older = folder.join("older-nigh");
        let text = starter(&path.to_string_lossy(), &unknown, limited);
        std::fs::write(&older, text).at(&older)?;
        std::fs::set_permissions(&older, std::fs::Permissions::from_mode(0o700)).at(&older)?;
        Ok(Self { newer, older, set })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the started program gets, if `given` are the arguments of the starter.
    fn started(unknown: &[&str], added: &[&str], given: &[&str]) -> String {
        let text = starter("/bin/echo", unknown, added);
        let output = Command::new("sh").arg("-c").arg(text).arg("sh").args(given).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    #[test]
    fn the_older_program_gets_no_setting_that_it_does_not_know_and_all_others_in_their_order() {
        let given = ["node", "--state", "/a b", "--set", "node=n1", "--set", "health.listen=h:1", "--set", "drain=5 s"];
        let told = started(&["health.listen"], &[], &given);
        assert_eq!(told, "node --state /a b --set node=n1 --set drain=5 s");
        assert_eq!(started(&[], &[], &given), given.join(" "));
    }

    #[test]
    fn only_a_node_gets_what_is_added() {
        let added = ["cluster.format_max=1"];
        assert_eq!(started(&[], &added, &["node", "--set", "a=b"]), "node --set a=b --set cluster.format_max=1");
        assert_eq!(started(&[], &added, &["up", "--set", "a=b"]), "up --set a=b");
    }
}
