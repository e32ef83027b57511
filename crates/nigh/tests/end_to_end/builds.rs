//! Deployments that build: dependencies are installed and programs are made by the language's own tool, once for the same
//! lock file; what fails says the tool's words. Without network.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::json;

use crate::platform::{Node, command, python};
use crate::projects::has_node_js;
use crate::skipped::skip;

/// Makes a wheel of the package `tinydep`, of this version, in the folder `wheels` of the working folder.
const WHEEL: &str = r#"
import os, sys, zipfile
version = sys.argv[1]
os.makedirs("wheels", exist_ok=True)
with zipfile.ZipFile(f"wheels/tinydep-{version}-py3-none-any.whl", "w") as wheel:
    wheel.writestr("tinydep/__init__.py", f"VERSION = '{version}'\n")
    information = f"tinydep-{version}.dist-info"
    wheel.writestr(f"{information}/METADATA", f"Metadata-Version: 2.1\nName: tinydep\nVersion: {version}\n")
    wheel.writestr(f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr(f"{information}/RECORD", "")
"#;

/// A node, and a folder for functions with a cache of its own.
struct Workshop {
    node: Node,
    python: PathBuf,
    root: PathBuf,
}

impl Workshop {
    fn open(python: PathBuf) -> Self {
        let node = Node::start(&python);
        let root = node.state.with_file_name("workshop");
        fs::create_dir_all(&root).unwrap();
        Self { node, python, root }
    }

    fn folder(&self, name: &str, files: &[(&str, &str)]) -> PathBuf {
        let folder = self.root.join(name);
        for (file, text) in files {
            let path = folder.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    fn deploy(&self, name: &str) -> Output {
        let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
        // Go keeps its compiled standard library there.
        let go_cache = std::env::var_os("GOCACHE").map_or_else(|| home.join(".cache/go-build"), PathBuf::from);
        command(&self.node.state)
            .args(["deploy", name, "--folder"])
            .arg(self.root.join(name))
            .env("XDG_CACHE_HOME", self.root.join(".cache"))
            .env("GOCACHE", go_cache)
            .env("NIGH_FUNCTIONS__PYTHON", &self.python)
            .output()
            .unwrap()
    }

    /// Deploys; what it says on standard error.
    fn deployed(&self, name: &str) -> String {
        let output = self.deploy(name);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{said}");
        said
    }

    /// What it says when it is refused.
    fn refused(&self, name: &str) -> String {
        let output = self.deploy(name);
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    }

    fn wheel(&self, folder: &Path, version: &str) {
        let made = Command::new(&self.python).args(["-c", WHEEL, version]).current_dir(folder).status();
        assert!(made.unwrap().success());
    }
}

#[test]
fn a_python_function_has_the_packages_of_its_requirements_which_are_installed_once() {
    let Some(python) = python("a_python_function_has_the_packages_of_its_requirements_which_are_installed_once") else {
        return;
    };
    let workshop = Workshop::open(python);
    let handler = "import tinydep\ndef handle(event, context):\n    return [tinydep.VERSION, event]\n";
    let requirements = "--no-index\n--find-links wheels\ntinydep==1.0  # of the folder\n";
    let folder = workshop.folder("packed", &[("main.py", handler), ("requirements.txt", requirements)]);
    workshop.wheel(&folder, "1.0");
    workshop.wheel(&folder, "2.0");
    let said = workshop.deployed("packed");
    assert!(said.contains("installing the packages of requirements.txt with "), "{said}");
    assert_eq!(workshop.node.json(["invoke", "packed", "1"])["payload"], json!(["1.0", 1]));
    assert!(!folder.join("tinydep").exists(), "the user's folder stays as it is");

    fs::write(folder.join("main.py"), handler.replace("event]", "-event]")).unwrap();
    let said = workshop.deployed("packed");
    assert!(!said.contains("installing"), "from the cache: {said}");
    assert_eq!(workshop.node.json(["invoke", "packed", "1"])["payload"], json!(["1.0", -1]));

    fs::write(folder.join("requirements.txt"), requirements.replace("1.0", "2.0")).unwrap();
    assert!(workshop.deployed("packed").contains("installing"));
    assert_eq!(workshop.node.json(["invoke", "packed", "1"])["payload"], json!(["2.0", -1]));

    // What is in the folder already needs no tool, and no index.
    fs::write(folder.join("requirements.txt"), "tinydep\n").unwrap();
    fs::create_dir_all(folder.join("tinydep-7.dist-info")).unwrap();
    fs::create_dir_all(folder.join("tinydep")).unwrap();
    fs::write(folder.join("tinydep/__init__.py"), "VERSION = 'own'\n").unwrap();
    assert!(!workshop.deployed("packed").contains("installing"));
    assert_eq!(workshop.node.json(["invoke", "packed", "1"])["payload"], json!(["own", -1]));
}

#[test]
fn code_that_python_cannot_read_is_deployed_with_a_warning() {
    let Some(python) = python("code_that_python_cannot_read_is_deployed_with_a_warning") else { return };
    let workshop = Workshop::open(python);
    let handler = "def handle(event, context):\n    return 1\n";
    let folder = workshop.folder("slip", &[("main.py", handler)]);
    assert!(!workshop.deployed("slip").contains("warning"));
    fs::write(folder.join("main.py"), format!("{handler}\nx = = 2\n")).unwrap();
    for what in ["it changes", "it does not change"] {
        let said = workshop.deployed("slip");
        assert!(said.contains("warning: main.py:4: syntax error: invalid syntax\n"), "{what}: {said}");
    }
    let failed = workshop.node.json_of_failed(["invoke", "slip"]);
    assert_eq!(failed["payload"]["errorType"], "Runtime.UserCodeSyntaxError", "{failed}");
}

#[test]
fn packages_that_cannot_be_installed_refuse_the_deployment_with_the_tools_words() {
    let Some(python) = python("packages_that_cannot_be_installed_refuse_the_deployment_with_the_tools_words") else {
        return;
    };
    let workshop = Workshop::open(python);
    let handler = "def handle(event, context):\n    return 1\n";
    workshop.folder("lost", &[("main.py", handler), ("requirements.txt", "--no-index\nnosuchdep==9\n")]);
    let said = workshop.refused("lost");
    assert!(said.contains("nigh: the packages of requirements.txt cannot be installed: "), "{said}");
    assert!(said.contains("nosuchdep==9") && said.trim_end().ends_with("check the name and the version"), "{said}");
    assert_eq!(workshop.node.json(["functions", "list"]), json!([]));

    let poetry = "[tool.poetry.dependencies]\nrequests = \"*\"\n";
    workshop.folder("poems", &[("main.py", handler), ("pyproject.toml", poetry)]);
    let said = workshop.refused("poems");
    assert!(said.contains("nigh: pyproject.toml: its dependencies are Poetry's own: run `poetry export"), "{said}");

    let package = r#"{ "dependencies": { "up": "file:../up" } }"#;
    if has_node_js() {
        workshop.folder("linked", &[("index.mjs", "export const handler = 1"), ("package.json", package)]);
        let said = workshop.refused("linked");
        assert!(said.contains("nigh: package.json: the dependency up is no file or folder inside this one"), "{said}");
    }
}

#[test]
fn a_javascript_function_has_the_packages_of_its_package_json() {
    let test = "a_javascript_function_has_the_packages_of_its_package_json";
    let Some(python) = python(test) else { return };
    if !has_node_js() || Command::new("npm").arg("--version").output().is_err() {
        return skip(test, "there is no npm");
    }
    let workshop = Workshop::open(python);
    let handler = "import { word } from 'tinydep';\nexport const handler = async event => [word(), event];\n";
    let package = r#"{ "type": "module", "dependencies": { "tinydep": "file:./dep" } }"#;
    let dependency = r#"{ "name": "tinydep", "version": "1.0.0", "main": "index.js" }"#;
    let files = [
        ("index.mjs", handler),
        ("package.json", package),
        ("dep/package.json", dependency),
        ("dep/index.js", "exports.word = () => 'tiny';\n"),
        // Of development: it must not be deployed.
        ("node_modules/none/index.js", "throw new Error()"),
    ];
    let folder = workshop.folder("packed-js", &files);
    let said = workshop.deployed("packed-js");
    assert!(said.contains("installing the packages of package.json with npm for nodejs"), "{said}");
    assert_eq!(workshop.node.json(["invoke", "packed-js", "1"])["payload"], json!(["tiny", 1]));
    fs::write(folder.join("index.mjs"), handler.replace("event]", "-event]")).unwrap();
    assert!(!workshop.deployed("packed-js").contains("installing"));
    assert_eq!(workshop.node.json(["invoke", "packed-js", "1"])["payload"], json!(["tiny", -1]));
    fs::write(folder.join("dep/index.js"), "exports.word = () => 'new';\n").unwrap();
    assert!(workshop.deployed("packed-js").contains("installing"));
    assert_eq!(workshop.node.json(["invoke", "packed-js", "1"])["payload"], json!(["new", -1]));
}

#[test]
fn a_go_program_that_cannot_be_built_is_refused_with_gos_words() {
    let test = "a_go_program_that_cannot_be_built_is_refused_with_gos_words";
    let Some(python) = python(test) else { return };
    if Command::new("go").arg("version").output().is_err() {
        return skip(test, "there is no Go");
    }
    let workshop = Workshop::open(python);
    let files = [("go.mod", "module function\n\ngo 1.21\n"), ("main.go", "package main\n\nfunc main() { absent() }\n")];
    let folder = workshop.folder("wrong", &files);
    let said = workshop.refused("wrong");
    assert!(said.contains("wrong cannot be built: go ended with exit status: 1"), "{said}");
    assert!(said.contains("undefined: absent") && said.contains("\nmend the code"), "{said}");
    // A program that is newer than its sources is deployed as it is.
    let bootstrap = folder.join("bootstrap");
    fs::write(&bootstrap, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&bootstrap, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    assert!(!workshop.deployed("wrong").contains("building"));
}

#[test]
fn a_rust_package_without_a_program_is_refused_with_what_it_lacks() {
    let Some(python) = python("a_rust_package_without_a_program_is_refused_with_what_it_lacks") else { return };
    let workshop = Workshop::open(python);
    let manifest = "[package]\nname = \"f\"\nversion = \"0.0.0\"\n[dependencies]\n[workspace]\n";
    workshop.folder("crateless", &[("Cargo.toml", manifest), ("src/lib.rs", "")]);
    let said = workshop.refused("crateless");
    assert!(said.contains("nigh: Cargo.toml has no program to build: give it a src/main.rs"), "{said}");
    workshop.folder("crateless", &[("src/main.rs", "fn main() {}\n")]);
    let said = workshop.deployed("crateless");
    assert!(said.contains("crateless with cargo"), "{said}");
    let failed = workshop.node.json_of_failed(["invoke", "crateless"]);
    assert_eq!(failed["payload"]["errorType"], "Runtime.ExitError", "it ran, and answered nothing");
}
