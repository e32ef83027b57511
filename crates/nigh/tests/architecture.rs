//! The rooms and their floors: a crate imports lower floors only, and of its own floor what is stated here.

#![expect(clippy::unwrap_used, reason = "a test ends by panicking")]

use std::collections::BTreeMap;
use std::path::Path;

/// Each room's floor (ARCHITECTURE.md).
const FLOORS: [(&str, u8); 27] = [
    ("nigh-client", 0),
    ("nigh-rpc", 0),
    ("nigh-terms", 0),
    ("nigh-data", 1),
    ("nigh-engine", 1),
    ("nigh-functions", 1),
    ("nigh-http", 1),
    ("nigh-learn", 1),
    ("nigh-llc", 1),
    ("nigh-objects", 1),
    ("nigh-protocol", 1),
    ("nigh-sandbox", 1),
    ("nigh-schedule", 1),
    ("nigh-sim", 1),
    ("nigh-stores", 1),
    ("nigh-invoke", 2),
    ("nigh-dispatch", 3),
    ("nigh-sizing", 3),
    ("nigh-ways", 3),
    ("nigh-workflow", 3),
    ("nigh-check", 4),
    ("nigh-lambda", 4),
    ("nigh-openwhisk", 4),
    ("nigh-s3", 4),
    ("nigh-node", 5),
    ("nigh-lab", 6),
    ("nigh", 7),
];

/// The arrows between crates of one floor.
const SIBLINGS: [(&str, &str); 16] = [
    ("nigh-data", "nigh-engine"),
    ("nigh-functions", "nigh-engine"),
    ("nigh-objects", "nigh-data"),
    ("nigh-objects", "nigh-engine"),
    ("nigh-objects", "nigh-protocol"),
    ("nigh-objects", "nigh-stores"),
    ("nigh-sandbox", "nigh-functions"),
    ("nigh-sandbox", "nigh-llc"),
    ("nigh-sandbox", "nigh-schedule"),
    ("nigh-schedule", "nigh-data"),
    ("nigh-schedule", "nigh-functions"),
    ("nigh-schedule", "nigh-learn"),
    ("nigh-stores", "nigh-data"),
    ("nigh-stores", "nigh-engine"),
    ("nigh-ways", "nigh-sizing"),
    ("nigh-workflow", "nigh-dispatch"),
];

/// Each workspace crate with the workspace crates it imports, in whatever section of its manifest.
fn arrows() -> BTreeMap<String, Vec<String>> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(crates).unwrap() {
        let manifest = entry.unwrap().path().join("Cargo.toml");
        let manifest: toml::Table = std::fs::read_to_string(manifest).unwrap().parse().unwrap();
        let name = manifest["package"]["name"].as_str().unwrap().to_owned();
        let sections = ["dependencies", "dev-dependencies", "build-dependencies"];
        let imports = sections
            .iter()
            .filter_map(|section| manifest.get(*section)?.as_table())
            .flat_map(|table| table.keys().cloned())
            .filter(|import| import == "nigh" || import.starts_with("nigh-"))
            .collect();
        found.insert(name, imports);
    }
    found
}

#[test]
fn every_arrow_points_down() {
    let floors = BTreeMap::from(FLOORS);
    let arrows = arrows();
    let rooms: Vec<&str> = arrows.keys().map(String::as_str).collect();
    assert_eq!(rooms, floors.keys().copied().collect::<Vec<_>>(), "every room has a floor and every floor its room");
    for (from, imports) in &arrows {
        for to in imports {
            let down = floors[to.as_str()] < floors[from.as_str()];
            assert!(down || SIBLINGS.contains(&(from, to)), "{from} imports {to}, which is not below it");
        }
    }
}

#[test]
fn a_users_nigh_carries_no_laboratory() {
    let manifest = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap();
    let manifest: toml::Table = manifest.parse().unwrap();
    for import in ["nigh-lab", "nigh-check", "plotters", "indicatif", "async-nats"] {
        assert!(!manifest["dependencies"].as_table().unwrap().contains_key(import), "nigh imports {import}");
    }
}

#[test]
fn the_vocabulary_touches_nothing() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("nigh-terms/Cargo.toml");
    let manifest: toml::Table = std::fs::read_to_string(manifest).unwrap().parse().unwrap();
    for import in manifest["dependencies"].as_table().unwrap().keys() {
        assert!(
            !["tokio", "rustix", "libc", "hyper", "redb"].contains(&import.as_str()),
            "nigh-terms does I/O by {import}"
        );
    }
}

/// The text of every Rust file below `folder`.
fn sources(folder: &Path, into: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name() != Some("target".as_ref()) {
            sources(&path, into);
        } else if path.extension() == Some("rs".as_ref()) {
            into.push_str(&std::fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn every_promise_names_tests_that_exist() {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut code = String::new();
    sources(&project.join("crates"), &mut code);
    let promises = std::fs::read_to_string(project.join("SEMANTICS.md")).unwrap();
    let rows: Vec<&str> = promises.lines().filter(|line| line.starts_with("| ") && line.contains('`')).collect();
    assert!(rows.len() > 20, "the tables of promises are not read");
    for row in rows {
        let tests = row.trim_end_matches('|').rsplit_once('|').unwrap().1;
        let names: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "no test for: {row}");
        for name in names {
            assert!(code.contains(&format!("fn {name}(")), "SEMANTICS.md names a test that is not there: {name}");
        }
    }
}
