//! A program of another project that sandboxes need: finds it and reads its version.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;
use tokio::time::timeout;

use super::step_failure::START_PATIENCE;

/// Searched after the folders of `PATH`, which a service may have without these.
const FOLDERS: [&str; 4] = ["/usr/bin", "/usr/local/bin", "/usr/sbin", "/usr/local/sbin"];

/// A program that must be installed.
pub(super) struct ExternalProgram {
    pub(super) name: &'static str,
    /// The oldest usable version: major and minor number.
    pub(super) oldest: (u32, u32),
}

impl ExternalProgram {
    /// The program's path; none if it is not installed.
    pub(super) fn find(&self) -> Option<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::env::split_paths(&path).chain(FOLDERS.map(PathBuf::from));
        folders.map(|folder| folder.join(self.name)).find(|program| program.is_file())
    }

    /// The program's name and version.
    pub(super) async fn version(&self, program: &Path) -> Result<String, String> {
        let run = Command::new(program).arg("--version").stdin(Stdio::null()).kill_on_drop(true).output();
        let said = match timeout(START_PATIENCE, run).await {
            Ok(Ok(said)) => String::from_utf8_lossy(&said.stdout).into_owned(),
            Ok(Err(error)) => return Err(format!("{} does not run: {error}", program.display())),
            Err(_) => return Err(format!("{} does not answer", program.display())),
        };
        let read = self.parse_version(&said);
        let (version, number) = read.ok_or_else(|| format!("{} says no version", program.display()))?;
        match number >= self.oldest {
            true => Ok(version),
            false => Err(format!("{version} is older than {}.{}", self.oldest.0, self.oldest.1)),
        }
    }

    /// `runc 1.1.5` and (1, 1) of the output `runc version 1.1.5`.
    fn parse_version(&self, said: &str) -> Option<(String, (u32, u32))> {
        let text = said.lines().next()?.strip_prefix(self.name)?.strip_prefix(" version ")?;
        let text = text.split(['+', '-', '~', ' ']).next()?;
        let mut parts = text.split('.').map(|part| part.parse().ok());
        let number = (parts.next()??, parts.next()??);
        Some((format!("{} {text}", self.name), number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNC: ExternalProgram = ExternalProgram { name: "runc", oldest: (1, 1) };
    const SLIRP: ExternalProgram = ExternalProgram { name: "slirp4netns", oldest: (1, 1) };

    #[test]
    fn versions_are_read_as_distributions_write_them() {
        let read = |text: &str| RUNC.parse_version(text);
        assert_eq!(read("runc version 1.1.5+ds1\ncommit: x\n"), Some(("runc 1.1.5".to_owned(), (1, 1))));
        assert_eq!(read("runc version 1.2.0-rc.1\n"), Some(("runc 1.2.0".to_owned(), (1, 2))));
        assert_eq!(read("runc version 1.0.0~rc93\n").map(|(_, number)| number), Some((1, 0)));
        assert_eq!(read("crun version 1.8\n"), None);
        assert_eq!(read(""), None);
        let said = "slirp4netns version 1.2.0\ncommit: 656041d45cfca7a4176f6b7eed9e4fe6c11e8383\nlibslirp: 4.7.0\n";
        assert_eq!(SLIRP.parse_version(said), Some(("slirp4netns 1.2.0".to_owned(), (1, 2))));
        let number = |text: &str| SLIRP.parse_version(text).map(|(_, number)| number);
        assert_eq!(number("slirp4netns version 1.3.1+dev\n"), Some((1, 3)));
        assert_eq!(number("pasta 2023_03_09\n"), None);
    }

    #[tokio::test]
    async fn a_program_that_is_another_is_refused() {
        let why = RUNC.version(Path::new("/bin/true")).await.unwrap_err();
        assert!(why.contains("/bin/true says no version"), "{why}");
    }
}
