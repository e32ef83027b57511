//! A folder with a function: what its `nigh.toml` says, its name, and its files.

use std::path::{Path, PathBuf};

use nigh_terms::FunctionName;

use super::project_file::{EVENT_FILE, PROJECT_FILE, ProjectFile, ProjectFileError};
use crate::archive::FileChoice;
use crate::error::CliError;

/// A folder whose `nigh.toml` describes a function.
#[derive(Clone, Debug)]
pub(crate) struct Project {
    /// The folder.
    pub(crate) folder: PathBuf,
    /// What its file says.
    pub(crate) file: ProjectFile,
    /// The function's name.
    pub(crate) name: FunctionName,
}

impl Project {
    /// The project in `folder`; none if no `nigh.toml` there describes a function.
    ///
    /// # Errors
    /// If the file cannot be read or understood, or the function has no name that it may have.
    pub(crate) fn find(folder: &Path) -> Result<Option<Self>, CliError> {
        let path = folder.join(PROJECT_FILE);
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            // A path below what is no folder: the one file of a function.
            Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => return Ok(None),
            read => read.map_err(CliError::local(path.display()))?,
        };
        let file = match ProjectFile::parse(&path.display().to_string(), &text) {
            Err(ProjectFileError::NoTable { is_slip: false, .. }) => return Ok(None),
            parsed => parsed.map_err(|error| match error {
                ProjectFileError::Toml { .. } => CliError::Unreadable(error.to_string()),
                error => CliError::Usage(error.to_string()),
            })?,
        };
        let name = match &file.name {
            Some(name) => name.clone(),
            None => name_of(folder)?,
        };
        Ok(Some(Self { folder: folder.to_owned(), file, name }))
    }

    /// The project in `folder`.
    ///
    /// # Errors
    /// As `find`, and if there is none.
    pub(crate) fn open(folder: &Path) -> Result<Self, CliError> {
        Self::find(folder)?.ok_or_else(|| {
            let shown = folder.display();
            CliError::Usage(format!(
                "no {PROJECT_FILE} in {shown} has a table [function]: `nigh init NAME` makes a folder with one; or name \
                 the function: `nigh deploy NAME --folder {shown}`"
            ))
        })
    }

    /// The files that are deployed.
    pub(crate) fn choice(&self) -> FileChoice {
        let described = [PROJECT_FILE, EVENT_FILE].map(str::to_owned);
        let named = [&self.file.event, &self.file.workflow].into_iter().flatten().cloned();
        FileChoice { only: self.file.files.clone(), without: described.into_iter().chain(named).collect() }
    }

    /// The file with the event for trials.
    pub(crate) fn event(&self) -> PathBuf {
        self.folder.join(self.file.event.as_deref().unwrap_or(EVENT_FILE))
    }

    /// The file with the state machine that calls the function.
    pub(crate) fn workflow(&self) -> Option<PathBuf> {
        self.file.workflow.as_ref().map(|file| self.folder.join(file))
    }
}

/// The name of the folder, as a function's.
fn name_of(folder: &Path) -> Result<FunctionName, CliError> {
    let whole = folder.canonicalize().map_err(CliError::local(folder.display()))?;
    let name = whole.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    FunctionName::new(&name).map_err(|error| {
        CliError::Usage(format!(
            "{error}; give the function another name than its folder's by `name` in {PROJECT_FILE}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_with_a_description_is_a_project_and_has_the_folders_name() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("hello");
        std::fs::create_dir(&folder).unwrap();
        assert!(Project::find(&folder).unwrap().is_none());
        let refused = Project::open(&folder).unwrap_err().to_string();
        assert!(refused.contains("nigh init NAME") && refused.contains("nigh deploy NAME --folder"), "{refused}");

        let write = |text: &str| std::fs::write(folder.join("nigh.toml"), text).unwrap();
        write("[functions]\nkeep_alive = \"60 s\"\n");
        assert!(Project::find(&folder).unwrap().is_none(), "the settings of a node");
        write("[functoin]\n");
        assert!(Project::find(&folder).unwrap_err().to_string().contains("did you mean"));
        write("[function]\nevent = \"trial.json\"\n");
        let project = Project::open(&folder).unwrap();
        assert_eq!((project.name.as_str(), project.event()), ("hello", folder.join("trial.json")));
        assert_eq!(project.choice().without, ["nigh.toml", "event.json", "trial.json"]);
        write("[function]\nname = \"other\"\n");
        assert_eq!(Project::open(&folder).unwrap().name.as_str(), "other");
        // The one file of a function is no project.
        assert!(Project::find(&folder.join("nigh.toml")).unwrap().is_none());
    }

    #[test]
    fn a_folder_that_no_function_may_be_called_after_needs_a_name_in_its_file() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("my function");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("nigh.toml"), "[function]\n").unwrap();
        let refused = Project::find(&folder).unwrap_err().to_string();
        assert!(refused.contains("by `name` in nigh.toml"), "{refused}");
    }
}
