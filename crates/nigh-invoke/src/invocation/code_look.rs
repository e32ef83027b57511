//! What the code of a function says about its failure: the handlers that it has, if the one that it names is missing, and
//! which of the folders in a stack trace are installed packages, not the user's code.
//!
//! Only failed invocations are looked at. Names are found line by line; this runs no code and understands no more.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::Path;

use nigh_functions::function::{Function, FunctionSource};
use nigh_schedule::activation::Outcome;

use super::verdict::Verdict;

/// Where a sandbox has the code.
const CODE_ROOT: &str = "/var/task/";
/// The most entries of the code's folder that are looked at.
const ENTRIES_MAX: usize = 2000;
/// The most modules whose handlers are listed, and the most bytes of each that are read.
const MODULES_MAX: usize = 16;
const MODULE_BYTES_MAX: u64 = 256 << 10;
/// The most names that are recorded.
const NAMES_MAX: usize = 32;
/// The errors of runtime clients for a handler that is not there.
const NO_HANDLER: [&str; 3] = ["Runtime.HandlerNotFound", "Runtime.ImportModuleError", "Runtime.MalformedHandlerName"];
/// The suffix of the folder in which an installed Python package is described.
const PACKAGE_INFO: &str = ".dist-info";
/// The file in it that lists the names that can be imported.
const IMPORT_NAMES: &str = "top_level.txt";

/// What is to be looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CodeQuestion {
    /// The handlers that the code has.
    Handlers,
    /// Which folders are packages.
    Packages,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CodeLook {
    /// `MODULE.NAME` of each function that may be a handler.
    pub(crate) handlers: Vec<String>,
    /// The names of packages at the top of the code.
    pub(crate) packages: Vec<String>,
}

impl CodeQuestion {
    /// What the code is to be asked about a failure; none if it has nothing to say.
    fn about(outcome: &Outcome, stack_trace: &[String]) -> Option<Self> {
        match outcome {
            Outcome::InitError { error_type, .. } if NO_HANDLER.contains(&error_type.as_str()) => Some(Self::Handlers),
            Outcome::InitError { .. } | Outcome::HandlerError { .. } => {
                let is_in_a_folder =
                    |line: &String| line.split_once(CODE_ROOT).is_some_and(|(_, path)| first_folder(path).is_some());
                stack_trace.iter().any(is_in_a_folder).then_some(Self::Packages)
            }
            _ => None,
        }
    }
}

/// The first folder of a path below the code's root.
fn first_folder(path: &str) -> Option<&str> {
    path.split(['"', ':', ')']).next()?.split_once('/').map(|(folder, _)| folder)
}

impl CodeLook {
    /// What the code of `function` says about a failure.
    pub(crate) async fn at(functions: &dyn FunctionSource, function: &Function, verdict: &Verdict) -> Self {
        let Some(question) = CodeQuestion::about(&verdict.outcome, &verdict.stack_trace) else {
            return Self::default();
        };
        let folder = functions.code_folder(function).await;
        tokio::task::spawn_blocking(move || Self::of(&folder, question)).await.unwrap_or_default()
    }

    /// Looks into the code's folder. It reads files: call it where that may block.
    fn of(folder: &Path, question: CodeQuestion) -> Self {
        let Ok(entries) = std::fs::read_dir(folder) else { return Self::default() };
        let mut names: Vec<String> =
            entries.take(ENTRIES_MAX).filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.sort();
        match question {
            CodeQuestion::Handlers => {
                let modules = names.iter().filter_map(|name| Some((name, module(name)?))).take(MODULES_MAX);
                let found = modules.flat_map(|(name, module)| {
                    let source = read(&folder.join(name)).unwrap_or_default();
                    functions(&source).into_iter().map(|function| format!("{module}.{function}")).collect::<Vec<_>>()
                });
                Self { handlers: found.take(NAMES_MAX).collect(), ..Self::default() }
            }
            CodeQuestion::Packages => {
                let infos = names.iter().filter(|name| name.ends_with(PACKAGE_INFO)).take(NAMES_MAX);
                let found: BTreeSet<String> = infos
                    .flat_map(|info| import_names(info, read(&folder.join(info).join(IMPORT_NAMES)).as_deref()))
                    .collect();
                Self { packages: found.into_iter().take(NAMES_MAX).collect(), ..Self::default() }
            }
        }
    }
}

fn read(path: &Path) -> Option<String> {
    let mut text = Vec::new();
    std::fs::File::open(path).ok()?.take(MODULE_BYTES_MAX).read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// The module in the file `name`, if it is one.
fn module(name: &str) -> Option<&str> {
    [".py", ".js", ".mjs", ".cjs"].iter().find_map(|suffix| name.strip_suffix(suffix))
}

/// The functions that a module of Python or JavaScript defines for others, in their order.
fn functions(source: &str) -> Vec<&str> {
    let starts = [
        "def ",
        "async def ",
        "exports.",
        "module.exports.",
        "export const ",
        "export function ",
        "export async function ",
    ];
    let names = source.lines().filter_map(|line| {
        let rest = starts.iter().find_map(|start| line.strip_prefix(start))?;
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        Some(&rest[..end]).filter(|name| !name.is_empty() && !name.starts_with('_'))
    });
    names.collect()
}

/// The names under which the package described in the folder `info` is imported.
fn import_names(info: &str, listed: Option<&str>) -> Vec<String> {
    match listed {
        Some(listed) => listed.lines().map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect(),
        None => {
            let package = info.split('-').next().unwrap_or_default();
            vec![package.to_lowercase().replace('.', "_")]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_is_asked_for_handlers_if_one_is_missing_and_for_packages_if_a_trace_leads_into_a_folder() {
        let init = |error_type: &str| Outcome::InitError { error_type: error_type.to_owned(), message: String::new() };
        let trace = |line: &str| vec![line.to_owned()];
        let asked = |outcome: &Outcome, trace: &[String]| CodeQuestion::about(outcome, trace);
        assert_eq!(asked(&init("Runtime.HandlerNotFound"), &[]), Some(CodeQuestion::Handlers));
        assert_eq!(asked(&init("KeyError"), &trace("  File \"/var/task/main.py\", line 1, in handle")), None);
        let failed = Outcome::HandlerError { error_type: "KeyError".to_owned(), message: String::new() };
        let python = trace("  File \"/var/task/requests/api.py\", line 59, in get");
        assert_eq!(asked(&failed, &python), Some(CodeQuestion::Packages));
        assert_eq!(asked(&failed, &trace("    at f (/var/task/lib/a.js:3:9)")), Some(CodeQuestion::Packages));
        assert_eq!(asked(&failed, &trace("    at f (/var/task/index.js:3:9) /x")), None);
        assert_eq!(asked(&Outcome::TimedOut, &python), None);
    }

    #[test]
    fn the_functions_of_a_module_are_those_at_its_top() {
        let python = "import os\n\ndef handle(event, context):\n    def inner(): pass\n\nasync def other(e, c): pass\n\
                      def _own(): pass\nclass A:\n    def method(self): pass\n";
        assert_eq!(functions(python), ["handle", "other"]);
        let javascript = "exports.handler = async (e) => 1;\nmodule.exports.b = f\nexport const c = 1\n\
                          export async function d(e) {}\nfunction own() {}\n";
        assert_eq!(functions(javascript), ["handler", "b", "c", "d"]);
    }

    #[test]
    fn a_package_is_imported_by_the_names_that_it_lists_or_by_its_own() {
        assert_eq!(import_names("pillow-11.0.dist-info", Some("PIL\n")), ["PIL"]);
        assert_eq!(import_names("Humanize-4.1.dist-info", None), ["humanize"]);
    }

    #[test]
    fn a_folder_of_code_is_looked_into() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("main.py", "def handle(event, context): pass\n");
        write("lib/inner.py", "def inner(): pass\n");
        write("humanize-4.1.dist-info/METADATA", "");
        write("pillow-11.0.dist-info/top_level.txt", "PIL\n");
        let handlers = CodeLook::of(folder.path(), CodeQuestion::Handlers);
        assert_eq!(handlers, CodeLook { handlers: vec!["main.handle".to_owned()], packages: Vec::new() });
        let packages = CodeLook::of(folder.path(), CodeQuestion::Packages).packages;
        assert_eq!(packages, ["PIL", "humanize"]);
        assert_eq!(CodeLook::of(Path::new("/nowhere"), CodeQuestion::Handlers), CodeLook::default());
    }
}
