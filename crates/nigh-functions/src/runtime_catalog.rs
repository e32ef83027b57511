//! The runtimes of this node: the runtime names that a function may use.
//!
//! Pure: the constructor is told what is installed.

use std::collections::BTreeSet;

use thiserror::Error;

use crate::function::Runtime;

/// The runtimes whose archive brings its own `bootstrap`; Nigh treats them alike.
const PROVIDED: [&str; 3] = ["provided", "provided.al2", "provided.al2023"];

/// The name of the runtime whose `bootstrap` is an HTTP server.
const PROVIDED_HTTP: &str = "provided.http";

/// The first Node.js whose handlers are called.
const NODE_MAJOR_MIN: u8 = 20;

/// Why a runtime is not available.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "the runtime {asked:?} is not on this node{}; it has {}{}",
    .mend.as_ref().map(|mend| format!(" ({mend})")).unwrap_or_default(), .available.join(", "),
    .why.as_ref().map(|why| format!(". Python functions cannot run: {why}")).unwrap_or_default()
)]
pub struct NoSuchRuntime {
    asked: String,
    available: Vec<String>,
    /// What adds it to the node; none if nothing does.
    mend: Option<String>,
    why: Option<String>,
}

/// What is installed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeCatalog {
    python_minors: BTreeSet<u8>,
    default_minor: Option<u8>,
    why_no_python: Option<String>,
    has_http_adapter: bool,
    node_majors: BTreeSet<u8>,
    has_native: bool,
}

impl RuntimeCatalog {
    /// A catalog of `provided` and a Python 3 of each of these minor versions, the default one first.
    pub fn new(python_minors: impl IntoIterator<Item = u8>) -> Self {
        let mut minors = python_minors.into_iter().peekable();
        let default_minor = minors.peek().copied();
        Self { default_minor, python_minors: minors.collect(), ..Self::default() }
    }

    /// The catalog without a Python; `why` says why there is none, and what to do.
    #[must_use]
    pub fn without_python_because(self, why: String) -> Self {
        Self { why_no_python: Some(why), ..self }
    }

    /// The catalog with `provided.http`.
    #[must_use]
    pub fn with_http_adapter(self) -> Self {
        Self { has_http_adapter: true, ..self }
    }

    /// The catalog with a Node.js of each of these major versions.
    #[must_use]
    pub fn with_nodes(self, majors: impl IntoIterator<Item = u8>) -> Self {
        Self { node_majors: majors.into_iter().collect(), ..self }
    }

    /// The catalog with the runtime of OpenWhisk's native actions.
    #[must_use]
    pub fn with_native(self) -> Self {
        Self { has_native: true, ..self }
    }

    /// The Python for those who name no version.
    #[must_use]
    pub fn default_python(&self) -> Option<Runtime> {
        self.default_minor.map(|minor| Runtime::Python { minor })
    }

    /// The Node.js of this major version.
    #[must_use]
    pub fn node(&self, major: u8) -> Option<Runtime> {
        self.node_majors.contains(&major).then_some(Runtime::Node { major })
    }

    /// The newest Node.js.
    #[must_use]
    pub fn newest_node(&self) -> Option<Runtime> {
        self.node_majors.last().map(|&major| Runtime::Node { major })
    }

    /// The major versions of Node.js.
    pub fn nodes(&self) -> impl Iterator<Item = u8> + '_ {
        self.node_majors.iter().copied()
    }

    /// The runtime of native actions.
    #[must_use]
    pub fn native(&self) -> Option<Runtime> {
        self.has_native.then_some(Runtime::Native)
    }

    /// All names that `find` knows, the default Python's first.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let others = self.python_minors.iter().copied().filter(|minor| Some(*minor) != self.default_minor);
        let python = self.default_minor.into_iter().chain(others).map(|minor| format!("python3.{minor}"));
        let nodes = self.node_majors.range(NODE_MAJOR_MIN..).map(|major| format!("nodejs{major}.x"));
        let http = self.has_http_adapter.then(|| PROVIDED_HTTP.to_owned());
        python.chain(nodes).chain(PROVIDED.map(str::to_owned)).chain(http).collect()
    }

    /// The runtime called `name`.
    ///
    /// # Errors
    /// If it is not installed, with what is, and what installs it.
    pub fn find(&self, name: &str) -> Result<Runtime, NoSuchRuntime> {
        if PROVIDED.contains(&name) {
            return Ok(Runtime::Provided);
        }
        if name == PROVIDED_HTTP && self.has_http_adapter {
            return Ok(Runtime::ProvidedHttp);
        }
        let minor = self.python_minors.iter().find(|minor| name == format!("python3.{minor}"));
        let major = self.node_majors.range(NODE_MAJOR_MIN..).find(|major| name == format!("nodejs{major}.x"));
        let python = minor.map(|&minor| Runtime::Python { minor });
        python.or(major.map(|&major| Runtime::Node { major })).ok_or_else(|| NoSuchRuntime {
            asked: name.chars().take(64).collect(),
            available: self.names(),
            mend: self.mend(name),
            why: self.why_no_python.clone().filter(|_| name.starts_with("python")),
        })
    }

    /// What an operator does to have `name`.
    fn mend(&self, name: &str) -> Option<String> {
        let number = |text: &str| text.parse::<u8>().ok().filter(|number| number.to_string() == text);
        if let Some(minor) = name.strip_prefix("python3.").and_then(number) {
            // Where there is no Python at all, `why` has the command.
            return self.why_no_python.is_none().then(|| {
                format!(
                    "install Python 3.{minor} where Nigh looks for it, or name it in functions.python, and restart Nigh"
                )
            });
        }
        let major = name.strip_prefix("nodejs").and_then(|rest| rest.strip_suffix(".x")).and_then(number)?;
        Some(match major {
            NODE_MAJOR_MIN.. => format!(
                "install Node.js {major} where Nigh looks for it, or name it in functions.node, and restart Nigh"
            ),
            _ => format!("Node.js {NODE_MAJOR_MIN} is the oldest that Lambda's handlers run on"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installed_python_is_found_and_another_is_refused_with_what_is_there() {
        let catalog = RuntimeCatalog::new([11]);
        assert_eq!(catalog.find("python3.11"), Ok(Runtime::Python { minor: 11 }));
        assert_eq!(catalog.find("provided.al2023"), Ok(Runtime::Provided));
        assert!(catalog.find("python3.12").unwrap_err().to_string().contains("(install Python 3.12 where"));
        for absent in ["python3.12", "python3.011", "python3.", "nodejs22.x", ""] {
            let said = catalog.find(absent).unwrap_err().to_string();
            assert!(said.ends_with("it has python3.11, provided, provided.al2, provided.al2023"), "{said}");
        }
    }

    #[test]
    fn servers_can_be_deployed_where_their_adapter_is() {
        let catalog = RuntimeCatalog::new([11]);
        assert!(catalog.find("provided.http").is_err());
        assert_eq!(catalog.with_http_adapter().find("provided.http"), Ok(Runtime::ProvidedHttp));
    }

    #[test]
    fn who_asks_for_a_python_hears_why_there_is_none() {
        let catalog = RuntimeCatalog::default().without_python_because("it has no awslambdaric".to_owned());
        let said = catalog.find("python3.11").unwrap_err().to_string();
        assert!(said.ends_with("Python functions cannot run: it has no awslambdaric"), "{said}");
        assert!(!catalog.find("nodejs22.x").unwrap_err().to_string().contains("awslambdaric"));
    }

    #[test]
    fn node_functions_run_from_version_20_on_and_others_are_explained() {
        let catalog = RuntimeCatalog::new([]).with_nodes([18, 20, 22]);
        assert_eq!(catalog.find("nodejs22.x"), Ok(Runtime::Node { major: 22 }));
        assert_eq!(catalog.names()[..2], ["nodejs20.x", "nodejs22.x"]);
        let of = |name| catalog.find(name).unwrap_err().to_string();
        assert!(of("nodejs24.x").contains("(install Node.js 24 where") && of("nodejs24.x").contains("functions.node"));
        assert!(of("nodejs18.x").contains("Node.js 20 is the oldest"));
        for unknown in ["nodejs22", "nodejs022.x", "nodejs.x", "java21"] {
            assert!(of(unknown).contains("is not on this node; it has nodejs20.x"), "{}", of(unknown));
        }
    }

    #[test]
    fn the_first_python_is_the_default() {
        assert_eq!(RuntimeCatalog::new([11, 10, 13]).default_python(), Some(Runtime::Python { minor: 11 }));
        assert_eq!(RuntimeCatalog::new([]).default_python(), None);
        assert_eq!(RuntimeCatalog::new([11, 13, 10]).names()[..3], ["python3.11", "python3.10", "python3.13"]);
    }
}
