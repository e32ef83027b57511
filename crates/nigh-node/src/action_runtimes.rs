//! The programs that call OpenWhisk's actions and handlers in JavaScript, written into a folder that sandboxes see, beside
//! this machine's versions of Node.js, which run them.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use nigh_sandbox::runtime_command::NodeRuntime;

use crate::node_js;
use crate::status::Level;

const LAUNCHERS: [(&str, &str); 5] = [
    ("nigh_action.py", include_str!("../../../runtimes/openwhisk/nigh_action.py")),
    ("launcher.js", include_str!("../../../runtimes/node/launcher.js")),
    ("lambda.js", include_str!("../../../runtimes/node/lambda.js")),
    ("handler.js", include_str!("../../../runtimes/node/handler.js")),
    ("runtime_api.js", include_str!("../../../runtimes/node/runtime_api.js")),
];

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
