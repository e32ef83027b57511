//! What the files of a folder say about its function: its language, runtime and handler. Pure.
//!
//! The rules are those of Lambda's runtimes: a Python handler is `module.function` below the archive's root, an archive
//! for `provided` has an executable `bootstrap`. What cannot be read for sure is not refused.

use thiserror::Error;

use super::code_listing::{CodeListing, Permission};
use super::python_names::PythonNames;
use crate::suggestion::alike;

/// The runtime of a `bootstrap`.
const PROVIDED: &str = "provided.al2023";
/// The program of `provided` runtimes, and their handler.
const BOOTSTRAP: &str = "bootstrap";
/// Modules that hold a handler, the likeliest first.
const PYTHON_MODULES: [&str; 5] = ["main", "app", "lambda_function", "handler", "index"];
/// Functions that are handlers, the likeliest first.
const PYTHON_FUNCTIONS: [&str; 4] = ["handle", "handler", "lambda_handler", "main"];
/// Python files at the root that hold no handler.
const NO_HANDLER: [&str; 3] = ["setup.py", "conftest.py", "__init__.py"];
/// Endings of Node.js modules, and of those that newer versions run.
const NODE_ENDINGS: [&str; 3] = ["mjs", "js", "cjs"];
const TYPESCRIPT_ENDINGS: [&str; 3] = ["ts", "mts", "cts"];
/// What mends a node without Node.js.
const NODE_MEND: &str = "install Node.js 20 or newer, or set functions.node to one";
/// Functions listed in a refusal.
const LISTED_MAX: usize = 6;

/// The language of a function, as its files show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    /// Whatever `bootstrap` is.
    Bootstrap,
    /// Python.
    Python,
    /// JavaScript on Node.js.
    Node,
    /// Go, which is built to `bootstrap`.
    Go,
    /// Rust, which is built to `bootstrap`.
    Rust,
}

/// Why the code is not deployed.
#[derive(Debug, PartialEq, Eq, Error)]
pub(crate) enum InferenceError {
    #[error(
        "{code} does not show what it is: it has no bootstrap, no .py file, no index.js, no go.mod and no Cargo.toml; \
         give --runtime and --handler"
    )]
    NoLanguage { code: String },
    #[error("{wanted} is not on this node, which has {}; {mend}; then start the node again", .there.join(", "))]
    NoRuntime { wanted: &'static str, there: Vec<String>, mend: String },
    #[error("this door does not say which runtimes it has; give --runtime, for example python3.11")]
    RuntimesUnknown,
    #[error("give --handler: {why}")]
    NoHandler { why: String },
    #[error("the handler {handler:?} is not MODULE.FUNCTION; {hint}")]
    Form { handler: String, hint: String },
    #[error("there is no {file} in {code}, which the handler {handler} names{hint}")]
    NoFile { code: String, file: String, handler: String, hint: String },
    #[error("{file} has no function {function}, which the handler {handler} names; {hint}")]
    NoFunction { file: String, function: String, handler: String, hint: String },
    #[error("there is no `bootstrap` in {code}, the program that the runtime {runtime} runs; {hint}")]
    NoBootstrap { code: String, runtime: String, hint: &'static str },
    #[error("`bootstrap` in {code} is not executable; run `chmod +x {code}/bootstrap`")]
    NotExecutable { code: String },
}

/// The runtimes of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeRuntimes {
    /// Their names; the default Python is the first Python.
    pub(crate) names: Vec<String>,
    /// Why the node has no Python, with what mends it; none if it has one.
    pub(crate) why_no_python: Option<String>,
}

/// The code of a function.
pub(crate) struct Code<'a> {
    /// Its name in errors: the folder or file as the user wrote it.
    pub(crate) name: &'a str,
    /// Its files.
    pub(crate) files: &'a CodeListing<'a>,
}

impl Code<'_> {
    /// The language that the files show.
    pub(crate) fn language(&self) -> Option<Language> {
        let has = |name: &str| self.files.has(name);
        let is_node = || NODE_ENDINGS.iter().any(|ending| has(&format!("index.{ending}")));
        let is_python = || self.python_modules().next().is_some();
        if has("go.mod") {
            Some(Language::Go)
        } else if has("Cargo.toml") {
            Some(Language::Rust)
        } else if has(BOOTSTRAP) {
            Some(Language::Bootstrap)
        } else if is_node() || has("package.json") {
            Some(Language::Node)
        } else {
            is_python().then_some(Language::Python)
        }
    }

    /// The runtime: `wanted`, else that of the language. `there` are the node's runtimes, if they are known.
    pub(crate) fn runtime(&self, wanted: Option<&str>, there: Option<&NodeRuntimes>) -> Result<String, InferenceError> {
        let listed_here = there.map(|there| there.names.as_slice()).unwrap_or_default();
        let of_node = |wanted: &'static str, found: Option<String>, mend: &str| match (found, there) {
            (Some(name), _) => Ok(name),
            (None, Some(NodeRuntimes { names, .. })) => {
                Err(InferenceError::NoRuntime { wanted, there: names.clone(), mend: mend.to_owned() })
            }
            (None, None) => Err(InferenceError::RuntimesUnknown),
        };
        match (wanted, self.language()) {
            (Some("python"), _) | (None, Some(Language::Python)) => {
                // A node lists its default Python first.
                let default = listed_here.iter().find(|name| name.starts_with("python3.")).cloned();
                let why = there.and_then(|there| there.why_no_python.as_deref());
                of_node("Python with awslambdaric", default, why.unwrap_or("`nigh doctor` says what mends it"))
            }
            (Some("nodejs"), _) | (None, Some(Language::Node)) => {
                of_node("a Node.js runtime for functions", newest(listed_here, "nodejs"), NODE_MEND)
            }
            (Some(name), _) => Ok(name.to_owned()),
            (None, Some(Language::Bootstrap | Language::Go | Language::Rust)) => Ok(PROVIDED.to_owned()),
            (None, None) => Err(InferenceError::NoLanguage { code: self.name.to_owned() }),
        }
    }

    /// The handler of a function of `runtime` that names none.
    pub(crate) fn handler(&self, runtime: &str) -> Result<String, InferenceError> {
        if runtime.starts_with("provided") {
            return Ok(BOOTSTRAP.to_owned());
        }
        if runtime.starts_with("nodejs") {
            let index = NODE_ENDINGS.iter().any(|ending| self.files.has(&format!("index.{ending}")));
            let why = || format!("{} has no index.js; a handler is MODULE.FUNCTION", self.name);
            return if index { Ok("index.handler".to_owned()) } else { Err(InferenceError::NoHandler { why: why() }) };
        }
        if !runtime.starts_with("python") {
            return Err(InferenceError::NoHandler { why: format!("the runtime {runtime} does not tell it") });
        }
        let modules: Vec<&str> = self.python_modules().collect();
        let likely = PYTHON_MODULES.iter().copied().find(|module| modules.contains(module));
        let module = match (likely, modules.as_slice()) {
            (Some(module), _) => module,
            (None, [only]) => *only,
            (None, []) => {
                return Err(InferenceError::NoHandler { why: format!("{} has no .py file at its top", self.name) });
            }
            (None, several) => {
                let why = format!("{} has several modules: {}", self.name, listed(several));
                return Err(InferenceError::NoHandler { why });
            }
        };
        let file = format!("{module}.py");
        let names = PythonNames::of(&self.files.source(&file).unwrap_or_default());
        let candidates = names.handlers();
        let likely = PYTHON_FUNCTIONS.iter().copied().find(|function| names.has(function));
        match (likely, candidates.as_slice()) {
            (Some(function), _) => Ok(format!("{module}.{function}")),
            (None, [only]) => Ok(format!("{module}.{only}")),
            (None, []) => {
                let why = format!("{file} has no function of an event and a context, as def handle(event, context)");
                Err(InferenceError::NoHandler { why })
            }
            (None, [first, ..]) => {
                let why = format!("{module}.{first}, for example: {file} has {}", listed(&candidates));
                Err(InferenceError::NoHandler { why })
            }
        }
    }

    /// Checks that what `handler` names is there. Layers may hold it, too, so with them nothing is refused for want of
    /// a file.
    pub(crate) fn check(&self, runtime: &str, handler: &str, has_layers: bool) -> Result<(), InferenceError> {
        if runtime.starts_with("provided") {
            return self.check_bootstrap(runtime, has_layers);
        }
        let is_node = runtime.starts_with("nodejs");
        let ending: Vec<&str> = match runtime {
            _ if runtime.starts_with("python") => vec!["py"],
            _ if is_node => NODE_ENDINGS.into_iter().chain(TYPESCRIPT_ENDINGS).collect(),
            _ => return Ok(()),
        };
        // In JavaScript the function may be an object's: folder/file.object.function.
        let name_at = handler.rfind('/').filter(|_| is_node).map_or(0, |slash| slash + 1);
        let dot = if is_node { handler[name_at..].find('.').map(|dot| name_at + dot) } else { handler.rfind('.') };
        let parts = dot.map(|dot| (&handler[..dot], &handler[dot + 1..]));
        let Some((module, function)) = parts.filter(|(m, f)| !m.is_empty() && !f.is_empty()) else {
            return Err(InferenceError::Form { handler: handler.to_owned(), hint: self.example(runtime) });
        };
        let path = if ending == ["py"] { python_path(module) } else { module.to_owned() };
        let sources = sources(&path, &ending);
        if let Some(file) = sources.iter().find(|file| self.files.has(file)) {
            return self.check_function(file, function, handler);
        }
        // A compiled module: main.cpython-311-x86_64-linux-gnu.so, main.pyc.
        let compiled = |name: &str| {
            let ending = name.strip_prefix(path.as_str()).filter(|rest| rest.starts_with('.'));
            ending.is_some_and(|rest| rest.ends_with(".so") || rest.ends_with(".pyc"))
        };
        let installed = format!("node_modules/{path}/");
        if has_layers || self.files.names().any(|name| compiled(name) || (is_node && name.starts_with(&installed))) {
            return Ok(());
        }
        let modules: Vec<&str> = self.python_modules().collect();
        let hint = match alike(module, modules.iter().copied()).or(modules.first().copied()) {
            Some(other) if ending == ["py"] => format!("; did you mean {other}.{function}?"),
            _ => String::new(),
        };
        let file = sources.first().cloned().unwrap_or_default();
        Err(InferenceError::NoFile { code: self.name.to_owned(), file, handler: handler.to_owned(), hint })
    }

    fn check_function(&self, file: &str, function: &str, handler: &str) -> Result<(), InferenceError> {
        let Some(source) = self.files.source(file) else { return Ok(()) };
        let no_function = |hint: String| InferenceError::NoFunction {
            file: file.to_owned(),
            function: function.to_owned(),
            handler: handler.to_owned(),
            hint,
        };
        if !file.ends_with(".py") {
            let says = source.contains(function.rsplit('.').next().unwrap_or(function));
            return if says { Ok(()) } else { Err(no_function(format!("export it: exports.{function} = ..."))) };
        }
        let names = PythonNames::of(&source);
        if names.has(function) || names.is_open() {
            return Ok(());
        }
        let there = names.functions();
        Err(no_function(match alike(function, there.iter().copied()) {
            Some(other) => format!("did you mean {other}?"),
            None if there.is_empty() => "it has none".to_owned(),
            None => format!("it has {}", listed(&there)),
        }))
    }

    fn check_bootstrap(&self, runtime: &str, has_layers: bool) -> Result<(), InferenceError> {
        match self.files.permission(BOOTSTRAP) {
            Some(Permission::Execute | Permission::Unknown) => Ok(()),
            Some(Permission::Read) => Err(InferenceError::NotExecutable { code: self.name.to_owned() }),
            // As on Lambda, a layer may bring it.
            None if has_layers => Ok(()),
            None => Err(InferenceError::NoBootstrap {
                code: self.name.to_owned(),
                runtime: runtime.to_owned(),
                hint: match self.language() {
                    Some(Language::Go) => "`CGO_ENABLED=0 go build -o bootstrap .` makes it",
                    Some(Language::Rust) => "`cargo build --release` makes it: copy it there from target/release",
                    _ => "put it there and make it executable",
                },
            }),
        }
    }

    /// How a handler is written, with one that is there if one is.
    fn example(&self, runtime: &str) -> String {
        match self.handler(runtime) {
            Ok(handler) => format!("did you mean {handler}?"),
            Err(_) => "write main.handle for the function handle in main.py".to_owned(),
        }
    }

    /// The modules at the root that may hold a handler.
    fn python_modules(&self) -> impl Iterator<Item = &str> {
        self.files.names().filter_map(|name| {
            let module = name.strip_suffix(".py").filter(|module| !module.contains('/'))?;
            (!NO_HANDLER.contains(&name) && !module.starts_with("test_") && !module.ends_with("_test"))
                .then_some(module)
        })
    }
}

/// The file among `files` with the Python module that `handler` names; none if it is not among them.
pub(crate) fn python_file(files: &CodeListing<'_>, handler: &str) -> Option<String> {
    let (module, _) = handler.rsplit_once('.')?;
    sources(&python_path(module), &["py"]).into_iter().find(|file| files.has(file))
}

/// Where a Python module lies, without its ending. Lambda takes a/b.c and a.b.c for the same module.
fn python_path(module: &str) -> String {
    module.replace('.', "/")
}

/// The files that may be the module at `path`, in a language whose sources have these endings.
fn sources(path: &str, endings: &[&str]) -> Vec<String> {
    let files = endings.iter().map(|ending| format!("{path}.{ending}"));
    files.chain([format!("{path}/__init__.py")]).collect()
}

/// The name in `there` with this prefix and the largest number behind it.
fn newest(there: &[String], prefix: &str) -> Option<String> {
    let number = |name: &&String| {
        let digits = name.strip_prefix(prefix)?.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse::<u32>().ok()
    };
    there.iter().filter(|name| number(name).is_some()).max_by_key(|name| number(name)).cloned()
}

/// The first of `names`, with the number of the others.
fn listed(names: &[&str]) -> String {
    let first = names.iter().take(LISTED_MAX).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(LISTED_MAX) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

#[cfg(test)]
mod tests;
