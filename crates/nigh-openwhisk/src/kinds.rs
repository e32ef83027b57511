//! The kinds of actions and their runtimes on this node. Pure.

use nigh_functions::function::Runtime;
use nigh_functions::runtime_catalog::RuntimeCatalog;

use super::error::WhiskError;

/// The kind of sequences.
pub(super) const SEQUENCE: &str = "sequence";
/// The kind of executables; `wsk --native` names an image instead.
const NATIVE: &str = "native";
const BLACKBOX: &str = "blackbox";
const SKELETON: &str = "openwhisk/dockerskeleton";
/// The Python module that calls actions (`runtimes/openwhisk/nigh_action.py`): its attribute `MAIN` calls `main`.
const PYTHON_LAUNCHER: &str = "nigh_action";
const MAIN_CHARS_MAX: usize = 128;

/// The runtime of `kind`.
pub(super) fn runtime(kind: &str, image: Option<&str>, catalog: &RuntimeCatalog) -> Result<Runtime, WhiskError> {
    let found = match kind.split_once(':') {
        Some(("python", "3" | "default")) => catalog.default_python(),
        Some(("python", version)) => {
            let minor = version.strip_prefix("3.").and_then(|minor| minor.parse::<u8>().ok());
            minor.and_then(|minor| catalog.find(&format!("python3.{minor}")).ok())
        }
        Some(("nodejs", "default")) => catalog.newest_node(),
        Some(("nodejs", version)) => version.parse().ok().and_then(|major| catalog.node(major)),
        None if kind == NATIVE => catalog.native(),
        None if kind == BLACKBOX => {
            let image = image.unwrap_or_default();
            if image.split(':').next() != Some(SKELETON) {
                let image: String = image.chars().take(128).collect();
                return Err(WhiskError::bad_request(format!(
                    "The image '{image}' cannot be run: Nigh has no container images. A program runs by the kind \
                     'native', or by the image '{SKELETON}'."
                )));
            }
            catalog.native()
        }
        _ => None,
    };
    found.ok_or_else(|| unsupported(kind, catalog))
}

/// The kind of a new action; the newest version if it names none.
pub(super) fn concrete(kind: String, runtime: &Runtime) -> String {
    match (kind.as_str(), runtime) {
        ("python:default", _) => "python:3".to_owned(),
        ("nodejs:default", Runtime::Node { major }) => format!("nodejs:{major}"),
        _ => kind,
    }
}

fn unsupported(kind: &str, catalog: &RuntimeCatalog) -> WhiskError {
    let kind: String = kind.chars().take(64).collect();
    let valid: Vec<String> = all(catalog).iter().map(|kind| format!("'{kind}'")).collect();
    WhiskError::bad_request(format!(
        "The specified runtime '{kind}' is not supported by this platform. Valid values are: {}.",
        valid.join(", ")
    ))
}

/// The kinds of this node.
pub(super) fn all(catalog: &RuntimeCatalog) -> Vec<String> {
    let python = catalog.default_python().map(|_| ["python:3".to_owned(), "python:default".to_owned()]);
    let nodes = catalog.nodes().map(|major| format!("nodejs:{major}"));
    let native = catalog.native().map(|_| NATIVE.to_owned());
    let default = catalog.newest_node().map(|_| "nodejs:default".to_owned());
    python.into_iter().flatten().chain(nodes).chain(default).chain(native).chain([SEQUENCE.to_owned()]).collect()
}

/// The handler for an action whose function is `main`.
pub(super) fn handler(runtime: &Runtime, main: Option<&str>) -> Result<String, WhiskError> {
    let main = main.unwrap_or("main");
    let named = |extra: &str| {
        let first = main.bytes().next().is_some_and(|octet| !octet.is_ascii_digit());
        let rest = main
            .bytes()
            .all(|octet| octet.is_ascii_alphanumeric() || octet == b'_' || extra.as_bytes().contains(&octet));
        first && rest && main.len() <= MAIN_CHARS_MAX
    };
    let refused = || WhiskError::bad_request(format!("The function {main:.64?} cannot be called: it is no name."));
    match runtime {
        Runtime::Python { .. } if named("") => Ok(format!("{PYTHON_LAUNCHER}.{main}")),
        Runtime::Node { .. } if named("$.") => Ok(main.to_owned()),
        Runtime::Python { .. } | Runtime::Node { .. } => Err(refused()),
        Runtime::Native | Runtime::Provided | Runtime::ProvidedHttp => Ok(NATIVE.to_owned()),
    }
}

/// The file name for code that was uploaded as text.
pub(super) const fn file(runtime: &Runtime) -> &'static str {
    match runtime {
        Runtime::Python { .. } => "__main__.py",
        Runtime::Node { .. } => "index.js",
        Runtime::Native | Runtime::Provided | Runtime::ProvidedHttp => "exec",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_a_runtime_of_this_node_or_is_refused_with_those_that_are() {
        let catalog = RuntimeCatalog::new([11]).with_nodes([20]).with_native();
        let of = |kind: &str, image: Option<&str>| runtime(kind, image, &catalog);
        for kind in ["python:3", "python:default", "python:3.11"] {
            assert_eq!(of(kind, None), Ok(Runtime::Python { minor: 11 }), "{kind}");
        }
        assert_eq!(of("nodejs:default", None), Ok(Runtime::Node { major: 20 }));
        assert_eq!(of("blackbox", Some("openwhisk/dockerskeleton:nightly")), Ok(Runtime::Native));
        for kind in ["python:2", "python:3.12", "nodejs:18", "nodejs", "java:8", "python:", "native:1", ""] {
            let said = of(kind, None).unwrap_err().message;
            assert!(said.contains("'python:3'") && said.contains("'nodejs:20'"), "{said}");
        }
        let image = of("blackbox", Some("me/image")).unwrap_err().message;
        assert!(image.contains("me/image") && image.contains("native"), "{image}");
        let bare = runtime("nodejs:20", None, &RuntimeCatalog::default()).unwrap_err().message;
        assert!(bare.contains("'sequence'") && !bare.contains("'native'"), "{bare}");
    }

    #[test]
    fn what_is_called_is_a_name() {
        let (python, node) = (Runtime::Python { minor: 11 }, Runtime::Node { major: 20 });
        assert_eq!(handler(&python, None).unwrap(), "nigh_action.main");
        assert_eq!(handler(&node, Some("lib.go$")).unwrap(), "lib.go$");
        for (runtime, main) in [(&python, "a.b"), (&python, ""), (&python, "1a"), (&node, "a b"), (&node, "a;b")] {
            assert!(handler(runtime, Some(main)).is_err(), "{main}");
        }
    }
}
