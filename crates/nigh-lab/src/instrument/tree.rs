//! The clone that a figure is taken in: its commit, and whether its files differ from that commit.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

/// The clone around the current folder, as it was when first asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tree {
    /// The commit, short; `unknown` where there is no clone or no git.
    pub(crate) commit: String,
    /// Files differ from it, or are new. Results do not count: else one stored result would keep the next from being stored.
    pub(crate) dirty: bool,
}

impl Tree {
    pub(crate) fn read() -> &'static Self {
        static READ: OnceLock<Tree> = OnceLock::new();
        READ.get_or_init(|| Self::of(Path::new(".")))
    }

    fn of(folder: &Path) -> Self {
        let git = |arguments: &[&str]| {
            let answer = Command::new("git").arg("-C").arg(folder).args(arguments).output().ok();
            let answer = answer.filter(|answer| answer.status.success())?;
            Some(String::from_utf8_lossy(&answer.stdout).trim().to_owned())
        };
        let Some(commit) = git(&["rev-parse", "--short", "HEAD"]) else {
            return Self { commit: "unknown".to_owned(), dirty: true };
        };
        let changes = git(&["status", "--porcelain", "--", ":/", ":(top,exclude)experiments"]);
        Self { commit, dirty: changes.is_none_or(|changes| !changes.is_empty()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_dirty_by_its_files_but_not_by_its_results() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Tree::of(folder.path()), Tree { commit: "unknown".to_owned(), dirty: true });
        let git = |words: &str| {
            let words = words.split(' ');
            let done = Command::new("git").arg("-C").arg(folder.path()).args(words).output().unwrap();
            assert!(done.status.success(), "{done:?}");
        };
        git("init -q");
        git("-c user.name=a -c user.email=a@b commit -q --allow-empty -m first");
        let clean = Tree::of(folder.path());
        assert!(clean.commit.len() >= 7 && !clean.dirty, "{clean:?}");
        std::fs::create_dir_all(folder.path().join("experiments/x")).unwrap();
        std::fs::write(folder.path().join("experiments/x/result.json"), "{}").unwrap();
        assert!(!Tree::of(folder.path()).dirty);
        std::fs::write(folder.path().join("code.rs"), "").unwrap();
        assert!(Tree::of(folder.path()).dirty);
    }
}
