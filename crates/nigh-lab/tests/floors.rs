//! The floors within the laboratory: instruments below, load upon them, what is measured above.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

/// Each module of the crate with those that it may import.
const FLOORS: [(&str, &[&str]); 8] = [
    ("instrument", &[]),
    ("load", &["instrument"]),
    ("bench", &["instrument", "load"]),
    ("check", &["instrument"]),
    ("demo", &["instrument"]),
    ("experiment", &["demo", "instrument", "load"]),
    ("profile", &["instrument"]),
    ("selftest", &["instrument"]),
];

fn sources(path: &Path, into: &mut String) {
    if path.is_dir() {
        std::fs::read_dir(path).unwrap().for_each(|entry| sources(&entry.unwrap().path(), into));
    } else if path.extension() == Some("rs".as_ref()) {
        into.push_str(&std::fs::read_to_string(path).unwrap());
    }
}

#[test]
fn no_module_imports_one_above_it() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for (module, may) in FLOORS {
        let mut code = String::new();
        for path in [source.join(module), source.join(module).with_extension("rs")] {
            if path.exists() {
                sources(&path, &mut code);
            }
        }
        assert!(!code.is_empty(), "{module} is not there");
        for (other, _) in FLOORS {
            let imports = code.contains(&format!("crate::{other}::"));
            assert!(!imports || other == module || may.contains(&other), "{module} imports {other}");
        }
    }
}
