//! The programs that call OpenWhisk's actions and handlers in JavaScript, written into a folder that sandboxes see; and this
//! machine's Node.js, which is probed at the start.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use std::{fs, io};

use nigh_sandbox::runtime_command::NodeRuntime;
use serde::Deserialize;

use crate::node_js;
use crate::status::Level;

/// How long Node.js may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);
const QUESTION: &str =
    "console.log(JSON.stringify({ major: Number(process.versions.node.split('.')[0]), program: process.execPath }))";
/// Folders that every sandbox has.
const SYSTEM_FOLDERS: [&str; 2] = ["/usr", "/bin"];

const LAUNCHERS: [(&str, &str); 5] = [
    ("nigh_action.py", include_str!("../../../runtimes/openwhisk/nigh_action.py")),
    ("launcher.js", include_str!("../../../runtimes/node/launcher.js")),
    ("lambda.js", include_str!("../../../runtimes/node/lambda.js")),
    ("handler.js", include_str!("../../../runtimes/node/handler.js")),
    ("runtime_api.js", include_str!("../../../runtimes/node/runtime_api.js")),
];

#[derive(Deserialize)]
struct NodeJsProgram {
    major: u8,
    program: PathBuf,
}

/// The programs, the installed versions of Node.js, and one line for the status.
pub(crate) struct ActionRuntimes {
    pub(crate) level: Level,
    pub(crate) launchers: Option<PathBuf>,
    pub(crate) nodes: Vec<NodeRuntime>,
}

/// Writes the programs into `folder` and finds the Node.js that the setting `node` names.
pub(crate) async fn open(folder: &Path, node: &Path) -> ActionRuntimes {
    let level = |on, detail| Level { name: "openwhisk".to_owned(), on, detail };
    if let Err(error) = bring(folder) {
        let detail = format!("no actions: the launchers cannot be written: {}: {error}", folder.display());
        return ActionRuntimes { level: level(false, detail), launchers: None, nodes: Vec::new() };
    }
    let (detail, nodes) = match node_js::find(node).await {
        Ok(nodes) => {
            let named = nodes.iter().map(|node| format!("nodejs:{} at {}", node.major, node.program.display()));
            (format!("actions; {}", named.collect::<Vec<_>>().join(", ")), nodes)
        }
        Err(why) => (format!("actions, without nodejs: {why} (setting functions.node)"), Vec::new()),
    };
    ActionRuntimes { level: level(true, detail), launchers: Some(folder.to_owned()), nodes }
}

fn bring(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    // Sandboxes run as other users.
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    for (name, text) in LAUNCHERS {
        let (target, half) = (folder.join(name), folder.join(format!("{name}.new")));
        fs::write(&half, text)?;
        fs::set_permissions(&half, fs::Permissions::from_mode(0o644))?;
        fs::rename(&half, &target)?;
    }
    Ok(())
}

/// The Node.js of this program, or why it is none.
pub(crate) async fn probe(node: &Path) -> Result<NodeRuntime, String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_launchers_are_brought_and_what_is_no_node_is_named_with_the_setting_that_mends_it() {
        let folder = tempfile::tempdir().unwrap();
        let launchers = folder.path().join("actions");
        let found = open(&launchers, Path::new("/bin/false")).await;
        assert!(found.level.on && found.nodes.is_empty());
        assert!(found.level.detail.contains("/bin/false") && found.level.detail.contains("functions.node"));
        for (name, text) in LAUNCHERS {
            assert_eq!(fs::read_to_string(launchers.join(name)).unwrap(), text);
        }
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let none = open(&file.join("actions"), Path::new("/bin/false")).await;
        assert!(!none.level.on && none.launchers.is_none(), "{}", none.level.detail);
    }
}
