//! What `requirements.txt` and `pyproject.toml` ask for, as far as Nigh has to know: names of packages, and local files. pip
//! and uv read the files themselves. Pure.
//!
//! Format: pip's "Requirements File Format"; PyPA's `pyproject.toml` specification.

use std::collections::BTreeSet;

use serde::Deserialize;

/// Options with a file or folder behind them.
const WITH_FILE: [&str; 8] = ["-r", "--requirement", "-c", "--constraint", "-e", "--editable", "-f", "--find-links"];
/// Endings of packages that lie in files.
const PACKAGE_FILES: [&str; 4] = [".whl", ".tar.gz", ".zip", ".tar.bz2"];

/// What a file of requirements asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Requirements {
    /// The names of the packages, in the normal form: lower case, `-` for `_` and `.`.
    pub(super) names: BTreeSet<String>,
    /// True if something is asked for without a name: a file, an address, another file of requirements.
    pub(super) has_others: bool,
    /// Files and folders that it names.
    pub(super) files: Vec<String>,
}

impl Requirements {
    /// What the text of a `requirements.txt` asks for.
    pub(super) fn parse(text: &str) -> Self {
        let mut all = Self::default();
        for line in text.replace("\\\r\n", " ").replace("\\\n", " ").lines() {
            let line = line.trim();
            if !line.starts_with('#') && !line.is_empty() {
                // A comment begins behind white space, so that the `#` of an address is none.
                all.add(line.split(" #").next().unwrap_or(line).trim());
            }
        }
        all
    }

    fn add(&mut self, line: &str) {
        if line.starts_with('-') {
            let (option, value) = match line.split_once([' ', '=']) {
                Some(divided) => divided,
                // `-rmore.txt`
                None => line.split_at_checked(2).filter(|_| !line.starts_with("--")).unwrap_or((line, "")),
            };
            if WITH_FILE.contains(&option) {
                self.add_file(value.trim());
                self.has_others |= !["-f", "--find-links", "-c", "--constraint"].contains(&option);
            }
            return;
        }
        let end = line.find(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c))).unwrap_or(line.len());
        let (name, rest) = line.split_at(end);
        let word = line.split([' ', ';']).next().unwrap_or(line);
        let is_file = word.contains("://") || PACKAGE_FILES.iter().any(|ending| word.ends_with(ending));
        let is_path = name.is_empty() || line.starts_with(['.', '/']) || rest.starts_with('/');
        if is_path || is_file {
            self.has_others = true;
            self.add_file(word.split('[').next().unwrap_or(word));
            return;
        }
        self.names.insert(normal(name));
        if let Some((_, address)) = rest.split_once('@') {
            self.add_file(address.split(';').next().unwrap_or(address).trim());
        }
    }

    /// Notes a file of this machine. Others are fetched by the tool.
    fn add_file(&mut self, address: &str) {
        let path = address.strip_prefix("file://").or_else(|| address.strip_prefix("file:")).unwrap_or(address);
        if !path.is_empty() && !path.contains("://") && !path.starts_with("git+") {
            self.files.push(path.to_owned());
        }
    }

    /// True if nothing is asked for.
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty() && !self.has_others
    }

    /// True if all that is asked for is among `installed` distributions, whose names are normal.
    pub(super) fn are_among(&self, installed: &BTreeSet<String>) -> bool {
        !self.has_others && self.names.is_subset(installed)
    }
}

/// A package's name in the normal form.
pub(super) fn normal(name: &str) -> String {
    let parts: Vec<&str> = name.split(['-', '_', '.']).filter(|part| !part.is_empty()).collect();
    parts.join("-").to_lowercase()
}

/// The distribution of a folder `NAME-VERSION.dist-info`, which an installation leaves.
pub(super) fn distribution(folder: &str) -> Option<String> {
    let (name, _) = folder.strip_suffix(".dist-info")?.split_once('-')?;
    Some(normal(name))
}

/// What a `pyproject.toml` asks for, as lines of a `requirements.txt`. The error is why it cannot be told.
pub(super) fn of_project(text: &str) -> Result<Vec<String>, String> {
    #[derive(Deserialize)]
    struct File {
        project: Option<Project>,
        tool: Option<toml::Table>,
    }
    #[derive(Deserialize)]
    struct Project {
        #[serde(default)]
        dependencies: Vec<String>,
        #[serde(default)]
        dynamic: Vec<String>,
    }
    let file: File = toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
    let of_poetry = || {
        let poetry = file.tool.as_ref()?.get("poetry")?.as_table()?.get("dependencies")?.as_table()?;
        poetry.keys().find(|name| *name != "python").cloned()
    };
    match &file.project {
        Some(project) if project.dynamic.iter().any(|field| field == "dependencies") => {
            Err("its dependencies are dynamic; write them into [project], or into a requirements.txt".to_owned())
        }
        Some(project) => Ok(project.dependencies.clone()),
        None => match of_poetry() {
            Some(_) => {
                Err("its dependencies are Poetry's own: run `poetry export --output requirements.txt`".to_owned())
            }
            None => Ok(Vec::new()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(all: &[&str]) -> BTreeSet<String> {
        all.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn names_files_and_options_are_told_apart() {
        let text = "\
# of the function
requests[socks]>=2,<3 ; python_version > '3.8'   # by name
Ruamel_yaml==0.18 \\
    --hash=sha256:abc
zope.interface
--index-url https://example.org/simple
--find-links ./wheels
-r more/base.txt
-c limits.txt
own @ file:./own-1.0.tar.gz
";
        let parsed = Requirements::parse(text);
        assert_eq!(parsed.names, names(&["requests", "ruamel-yaml", "zope-interface", "own"]));
        assert_eq!(parsed.files, ["./wheels", "more/base.txt", "limits.txt", "./own-1.0.tar.gz"]);
        assert!(parsed.has_others, "-r asks for what is in another file");
        for (line, file) in [
            ("./dep", Some("./dep")),
            ("wheels/tiny-1.0-py3-none-any.whl", Some("wheels/tiny-1.0-py3-none-any.whl")),
            ("tiny-1.0-py3-none-any.whl", Some("tiny-1.0-py3-none-any.whl")),
            ("-e .", Some(".")),
            ("-rmore.txt", Some("more.txt")),
            ("https://example.org/a.whl", None),
            ("git+https://example.org/a.git#egg=a", None),
        ] {
            let parsed = Requirements::parse(line);
            assert!(parsed.names.is_empty() && parsed.has_others, "{line}: {parsed:?}");
            assert_eq!(parsed.files.first().map(String::as_str), file, "{line}");
        }
        assert!(Requirements::parse("# nothing\n\n--index-url https://example.org\n").is_empty());
    }

    #[test]
    fn what_is_in_the_folder_already_is_told_by_its_distributions() {
        let installed: BTreeSet<String> =
            ["Requests-2.32.0.dist-info", "ruamel.yaml-0.18.6.dist-info", "lib", "x.dist-info"]
                .into_iter()
                .filter_map(distribution)
                .collect();
        assert_eq!(installed, names(&["requests", "ruamel-yaml"]));
        assert!(Requirements::parse("requests\nruamel_yaml==0.18").are_among(&installed));
        assert!(!Requirements::parse("requests\nboto3").are_among(&installed));
        assert!(!Requirements::parse("requests\n-r more.txt").are_among(&installed));
    }

    #[test]
    fn a_project_names_its_dependencies_or_says_how_they_can_be_told() {
        let listed = of_project("[project]\nname = \"f\"\ndependencies = [\"a>=1\", \"b\"]\n").unwrap();
        assert_eq!(listed, ["a>=1", "b"]);
        assert_eq!(of_project("[tool.ruff]\nline-length = 100\n"), Ok(Vec::new()));
        assert_eq!(of_project("[tool.poetry.dependencies]\npython = \"^3.11\"\n"), Ok(Vec::new()));
        let poetry = of_project("[tool.poetry.dependencies]\npython = \"^3.11\"\nrequests = \"*\"\n").unwrap_err();
        assert!(poetry.contains("poetry export"), "{poetry}");
        assert!(of_project("[project]\nname = \"f\"\ndynamic = [\"dependencies\"]\n").unwrap_err().contains("dynamic"));
        assert!(of_project("[project").is_err());
    }
}
