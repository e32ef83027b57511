use super::*;

/// Files with their text; a name with `*` behind it is executable.
fn files(all: &[(&'static str, &'static str)]) -> CodeListing<'static> {
    let texts: Vec<(&str, &str)> = all.iter().map(|(name, text)| (name.trim_end_matches('*'), *text)).collect();
    let permission = |name: &str| if name.ends_with('*') { Permission::Execute } else { Permission::Read };
    let listed = all.iter().map(|(name, _)| (name.trim_end_matches('*').to_owned(), permission(name)));
    CodeListing::new(listed.collect::<Vec<_>>(), move |name| {
        texts.iter().find(|(found, _)| *found == name).map(|(_, text)| (*text).to_owned())
    })
}

const HANDLE: &str = "def handle(event, context):\n    return event\n";

fn node(names: &[&str]) -> NodeRuntimes {
    NodeRuntimes { names: names.iter().map(|name| (*name).to_owned()).collect(), why_no_python: None }
}

fn there() -> NodeRuntimes {
    node(&["python3.11", "python3.12", "provided", "provided.al2023"])
}

#[test]
fn the_files_tell_language_runtime_and_handler() {
    for (all, language, runtime, handler) in [
        (&[("main.py", HANDLE), ("event.json", "")][..], Language::Python, "python3.11", "main.handle"),
        (
            &[("other.py", "def go(event, _context):\n  pass"), ("test_other.py", "")][..],
            Language::Python,
            "python3.11",
            "other.go",
        ),
        (
            &[("app.py", "def lambda_handler(event, context): pass")][..],
            Language::Python,
            "python3.11",
            "app.lambda_handler",
        ),
        (&[("bootstrap*", ""), ("main.py", HANDLE)][..], Language::Bootstrap, "provided.al2023", "bootstrap"),
        (&[("go.mod", ""), ("main.go", "")][..], Language::Go, "provided.al2023", "bootstrap"),
        (&[("Cargo.toml", ""), ("src/main.rs", "")][..], Language::Rust, "provided.al2023", "bootstrap"),
    ] {
        let listing = files(all);
        let code = Code { name: "hello", files: &listing };
        assert_eq!(code.language(), Some(language), "{all:?}");
        assert_eq!(code.runtime(None, Some(&there())).unwrap(), runtime, "{all:?}");
        assert_eq!(code.handler(runtime).unwrap(), handler, "{all:?}");
    }
}

#[test]
fn a_short_runtime_is_the_nodes_default_python_or_its_newest_node_js() {
    let listing = files(&[("index.mjs", "export const handler = 1")]);
    let code = Code { name: "hello", files: &listing };
    assert_eq!(code.runtime(None, Some(&node(&["nodejs20.x", "nodejs22.x", "provided"]))).unwrap(), "nodejs22.x");
    assert_eq!(code.handler("nodejs22.x").unwrap(), "index.handler");
    assert_eq!(code.runtime(Some("python"), Some(&there())).unwrap(), "python3.11");
    assert_eq!(code.runtime(Some("python3.9"), None).unwrap(), "python3.9");
    let refused = code.runtime(None, Some(&there())).unwrap_err().to_string();
    assert_eq!(
        refused,
        "a Node.js runtime for functions is not on this node, which has python3.11, python3.12, provided, \
         provided.al2023; install Node.js 20 or newer, or set functions.node to one; then start the node again"
    );
    assert_eq!(code.runtime(None, None), Err(InferenceError::RuntimesUnknown));
    let listing = files(&[("README", "")]);
    let nothing = Code { name: "hello", files: &listing }.runtime(None, Some(&there()));
    assert!(nothing.unwrap_err().to_string().ends_with("give --runtime and --handler"));
}

#[test]
fn where_there_is_no_python_the_refusal_has_what_mends_it() {
    let listing = files(&[("main.py", HANDLE)]);
    let code = Code { name: "hello", files: &listing };
    let why = "no Python of this machine has awslambdaric: /p (3.11); run `/p -m venv /o`".to_owned();
    let here = NodeRuntimes { why_no_python: Some(why), ..node(&["provided"]) };
    for wanted in [None, Some("python")] {
        assert_eq!(
            code.runtime(wanted, Some(&here)).unwrap_err().to_string(),
            "Python with awslambdaric is not on this node, which has provided; no Python of this machine has \
             awslambdaric: /p (3.11); run `/p -m venv /o`; then start the node again"
        );
    }
    let unknown = code.runtime(None, Some(&node(&["provided"]))).unwrap_err().to_string();
    assert!(unknown.contains("; `nigh doctor` says what mends it"), "{unknown}");
}

#[test]
fn a_handler_names_the_file_of_its_python_module() {
    let listing = files(&[("main.py", HANDLE), ("pkg/__init__.py", ""), ("pkg/mod.py", HANDLE)]);
    for (handler, file) in [
        ("main.handle", Some("main.py")),
        ("pkg.handle", Some("pkg/__init__.py")),
        ("pkg.mod.handle", Some("pkg/mod.py")),
        ("pkg/mod.handle", Some("pkg/mod.py")),
        ("elsewhere.handle", None),
        ("handle", None),
    ] {
        assert_eq!(python_file(&listing, handler).as_deref(), file, "{handler}");
    }
}

#[test]
fn a_handler_that_cannot_be_inferred_is_asked_for_with_what_is_there() {
    let asked = |all: &[(&'static str, &'static str)]| {
        let listing = files(all);
        Code { name: "hello", files: &listing }.handler("python3.11").unwrap_err().to_string()
    };
    let two = "def one(event, context): pass\ndef two(event, context): pass\n";
    for (all, said) in [
        (&[("main.py", two)][..], "give --handler: main.one, for example: main.py has one, two"),
        (&[("a.py", HANDLE), ("b.py", HANDLE)][..], "give --handler: hello has several modules: a, b"),
        (&[("main.py", "x = 1")][..], "give --handler: main.py has no function of an event and a context"),
        (&[("data", "")][..], "give --handler: hello has no .py file at its top"),
    ] {
        let refused = asked(all);
        assert!(refused.starts_with(said), "{refused}");
    }
}

#[test]
fn a_handler_that_is_not_there_is_refused_with_the_one_that_was_meant() {
    let listing = files(&[("main.py", HANDLE), ("pkg/__init__.py", ""), ("pkg/mod.py", HANDLE)]);
    let code = Code { name: "hello", files: &listing };
    let check = |handler: &str| code.check("python3.11", handler, false).map_err(|error| error.to_string());
    for good in ["main.handle", "pkg.mod.handle", "pkg/mod.handle"] {
        assert_eq!(check(good), Ok(()), "{good}");
    }
    for (handler, said) in [
        ("main.handler", "main.py has no function handler, which the handler main.handler names; did you mean handle?"),
        ("main.nothere", "main.py has no function nothere, which the handler main.nothere names; it has handle"),
        ("app.handle", "there is no app.py in hello, which the handler app.handle names; did you mean main.handle?"),
        ("handle", "the handler \"handle\" is not MODULE.FUNCTION; did you mean main.handle?"),
        ("pkg.handle", "pkg/__init__.py has no function handle, which the handler pkg.handle names; it has none"),
    ] {
        assert_eq!(check(handler), Err(said.to_owned()));
    }
    assert_eq!(code.check("python3.11", "elsewhere.handle", true), Ok(()), "a layer may hold it");
}

#[test]
fn what_cannot_be_read_for_sure_is_not_refused() {
    let listing = files(&[("open.py", "from other import *\n"), ("fast.cpython-311-x86_64-linux-gnu.so", "")]);
    let code = Code { name: "hello", files: &listing };
    for handler in ["open.anything", "fast.handle"] {
        assert_eq!(code.check("python3.11", handler, false), Ok(()), "{handler}");
    }
    assert_eq!(code.check("ruby3.3", "anything", false), Ok(()));
}

#[test]
fn a_node_module_is_looked_for_with_each_of_its_endings() {
    let listing = files(&[("index.mjs", "export const handler = async () => {}")]);
    let code = Code { name: "hello", files: &listing };
    assert_eq!(code.check("nodejs22.x", "index.handler", false), Ok(()));
    assert!(matches!(code.check("nodejs22.x", "index.other", false), Err(InferenceError::NoFunction { .. })));
    assert!(matches!(code.check("nodejs22.x", "app.handler", false), Err(InferenceError::NoFile { .. })));
    let all =
        [("lib/a.b/go.cjs", "exports.api = { get: f }"), ("typed.ts", "export const run"), ("node_modules/p/x.js", "")];
    let listing = files(&all);
    let code = Code { name: "hello", files: &listing };
    for handler in ["lib/a.b/go.api.get", "typed.run", "p.handler"] {
        assert_eq!(code.check("nodejs22.x", handler, false), Ok(()), "{handler}");
    }
    assert!(matches!(code.check("nodejs22.x", "lib/a.b/go", false), Err(InferenceError::Form { .. })));
}

#[test]
fn a_bootstrap_that_is_missing_or_not_executable_is_refused_with_the_way_to_make_it() {
    let refused = |all: &[(&'static str, &'static str)]| {
        let listing = files(all);
        let code = Code { name: "hello", files: &listing };
        code.check("provided.al2023", "bootstrap", false).err().map(|error| error.to_string())
    };
    assert_eq!(refused(&[("bootstrap*", "")]), None);
    assert_eq!(
        refused(&[("bootstrap", "")]).unwrap(),
        "`bootstrap` in hello is not executable; run `chmod +x hello/bootstrap`"
    );
    assert_eq!(
        refused(&[("go.mod", "")]).unwrap(),
        "there is no `bootstrap` in hello, the program that the runtime provided.al2023 runs; `CGO_ENABLED=0 go build \
         -o bootstrap .` makes it"
    );
}
