//! The rooms and their floors: a crate imports lower floors only, and of its own floor what is stated here.

#![expect(clippy::unwrap_used, reason = "a test ends by panicking")]

#[path = "../../../tests/skipped.rs"]
mod skipped;
#[path = "architecture/skips.rs"]
mod skips;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

#[path = "architecture/semantics.rs"]
mod semantics;

/// Each room's floor (ARCHITECTURE.md).
const FLOORS: [(&str, u8); 30] = [
    ("nigh-client", 0),
    ("nigh-rpc", 0),
    ("nigh-terms", 0),
    ("nigh-trace", 0),
    ("nigh-data", 1),
    ("nigh-engine", 1),
    ("nigh-functions", 1),
    ("nigh-http", 1),
    ("nigh-learn", 1),
    ("nigh-llc", 1),
    ("nigh-objects", 1),
    ("nigh-protocol", 1),
    ("nigh-python", 1),
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
    ("nigh-page", 4),
    ("nigh-s3", 4),
    ("nigh-node", 5),
    ("nigh-lab", 6),
    ("nigh", 7),
];

/// The arrows between crates of one floor.
const SIBLINGS: [(&str, &str); 18] = [
    ("nigh-data", "nigh-engine"),
    ("nigh-functions", "nigh-engine"),
    ("nigh-objects", "nigh-data"),
    ("nigh-objects", "nigh-engine"),
    ("nigh-objects", "nigh-protocol"),
    ("nigh-objects", "nigh-stores"),
    ("nigh-rpc", "nigh-trace"),
    ("nigh-sandbox", "nigh-functions"),
    ("nigh-sandbox", "nigh-llc"),
    ("nigh-sandbox", "nigh-schedule"),
    ("nigh-schedule", "nigh-data"),
    ("nigh-schedule", "nigh-functions"),
    ("nigh-schedule", "nigh-learn"),
    ("nigh-stores", "nigh-data"),
    ("nigh-stores", "nigh-engine"),
    ("nigh-stores", "nigh-http"),
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
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let (mut seen, mut open) = (BTreeSet::new(), vec!["nigh".to_owned()]);
    while let Some(name) = open.pop() {
        let manifest = std::fs::read_to_string(crates.join(&name).join("Cargo.toml")).unwrap();
        let manifest: toml::Table = manifest.parse().unwrap();
        let imports = manifest["dependencies"].as_table().unwrap();
        for import in ["nigh-lab", "nigh-check", "nigh-sim", "plotters", "indicatif"] {
            assert!(!imports.contains_key(import), "{name}, a part of nigh, imports {import}");
        }
        assert!(name != "nigh" || !imports.contains_key("async-nats"), "nigh imports async-nats");
        let ours = imports.keys().filter(|import| import.starts_with("nigh-"));
        open.extend(ours.filter(|import| seen.insert((*import).clone())).cloned());
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

/// Calls `see` with the path and the text of each Rust file below `folder`.
fn each_source(folder: &Path, see: &mut dyn FnMut(&Path, &str)) {
    each_file(folder, "rs", see);
}

/// Calls `see` with the path and the text of each file below `folder` whose name ends with `ending`.
fn each_file(folder: &Path, ending: &str, see: &mut dyn FnMut(&Path, &str)) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name() != Some("target".as_ref()) {
            each_file(&path, ending, see);
        } else if path.extension() == Some(ending.as_ref()) {
            see(&path, &std::fs::read_to_string(&path).unwrap());
        }
    }
}

/// The words of a document that a reader sees.
fn words(document: &Path) -> usize {
    let text = std::fs::read_to_string(document).unwrap();
    let shown = text.split("<!--").enumerate().map(|(at, part)| match at {
        0 => part,
        _ => part.split_once("-->").unwrap().1,
    });
    shown.flat_map(str::split_whitespace).filter(|word| word.contains(char::is_alphanumeric)).count()
}

/// Pages that the program writes of itself: a reader looks things up in them, and nobody has to keep them true by hand.
const GENERATED: [&str; 3] = ["docs/reference/commands.md", "docs/reference/metrics.md", "docs/reference/settings.md"];

#[test]
fn the_documents_stay_short() {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut all = ["README.md", "ARCHITECTURE.md", "SEMANTICS.md"].map(|name| project.join(name)).to_vec();
    let mut folders = vec![project.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.extension() {
                Some(ending) if ending == "md" => all.push(path),
                _ if path.is_dir() => folders.push(path),
                _ => {}
            }
        }
    }
    let generated = GENERATED.map(|name| project.join(name));
    assert!(generated.iter().all(|page| all.contains(page)), "a generated page is missing: CONTRIBUTING.md");
    all.retain(|document| !generated.contains(document));
    let count: usize = all.iter().map(|document| words(document)).sum();
    assert!((20_000..=30_000).contains(&count), "{count} words");
    let architecture = words(&project.join("ARCHITECTURE.md"));
    assert!(architecture <= 1_300, "ARCHITECTURE.md has {architecture} words");
}

/// The most lines of a file with product code (CONTRIBUTING.md).
const LINES_MAX: usize = 400;

#[test]
fn no_product_file_is_longer_than_400_lines() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let (mut seen, mut long) = (0, Vec::new());
    each_source(crates, &mut |path, text| {
        let path = path.strip_prefix(crates).unwrap();
        let is_product = path.iter().all(|part| part != "tests" && part != "tests.rs");
        let lines = text.lines().count();
        seen += usize::from(is_product);
        if is_product && lines > LINES_MAX {
            long.push(format!("{}: {lines} lines", path.display()));
        }
    });
    assert!(seen > 500, "{seen} product files were read");
    assert!(long.is_empty(), "cut these along a concept, or move their unit tests to FILE/tests.rs: {long:#?}");
}

/// The first names of the paths that begin with `crate::` in `text`: of a group, each one's.
fn names_below_crate(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let name = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    for (at, _) in text.match_indices("crate::") {
        if text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$') {
            continue;
        }
        let rest = &text[at + "crate::".len()..];
        let Some(group) = rest.strip_prefix('{') else {
            names.insert(name(rest));
            continue;
        };
        let mut depth = 0;
        let mut begins = true;
        for (at, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => begins = true,
                c if begins && !c.is_whitespace() => {
                    names.insert(name(&group[at..]));
                    begins = false;
                }
                _ => {}
            }
        }
    }
    names
}

/// The product code of a file: without comments and without what only tests have.
fn product_code(text: &str) -> String {
    let text = text.find("#[cfg(test)]\nmod tests {").map_or(text, |at| &text[..at]);
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// The imports among the top-level modules of the crate at `sources`.
fn module_arrows(sources: &Path) -> BTreeMap<String, BTreeSet<String>> {
    fn read(folder: &Path, top: Option<&str>, arrows: &mut BTreeMap<String, BTreeSet<String>>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let stem = path.file_stem().unwrap().to_str().unwrap();
            if ["bin", "lib", "main", "tests"].contains(&stem) {
                continue;
            }
            let module = top.unwrap_or(stem);
            if path.is_dir() {
                read(&path, Some(module), arrows);
            } else if path.extension() == Some("rs".as_ref()) {
                let code = product_code(&std::fs::read_to_string(&path).unwrap());
                let mut names = names_below_crate(&code);
                if top.is_none() {
                    names.extend(names_below_crate(&code.replace("super::", "crate::")));
                }
                arrows.entry(module.to_owned()).or_default().extend(names);
            }
        }
    }
    let mut arrows = BTreeMap::new();
    read(sources, None, &mut arrows);
    let modules: BTreeSet<String> = arrows.keys().cloned().collect();
    for (module, names) in &mut arrows {
        names.retain(|name| modules.contains(name) && name != module);
    }
    arrows
}

/// The crates that read or write files below `/proc` and `/sys`, and what for.
const KERNEL_FILES: [(&str, &str); 8] = [
    ("nigh", "whether it was started to ignore hang-ups"),
    ("nigh-check", "its own memory, which bounds a search"),
    ("nigh-data", "segments by their descriptors, the limit of mappings, large pages"),
    ("nigh-invoke", "idle processors, and how long a cold start waits for one"),
    ("nigh-lab", "what it measures"),
    ("nigh-llc", "resctrl and tasks"),
    ("nigh-node", "the machine's memory and cache, the node's own use"),
    ("nigh-sandbox", "cgroups, mounts and processes"),
];

/// Whether the code has a path below `/proc` or `/sys` as a literal; a path within a longer text does not count.
fn names_kernel_files(code: &str) -> bool {
    ["\"/proc", "\"/sys"]
        .iter()
        .any(|begin| code.match_indices(begin).any(|(at, _)| code[at + begin.len()..].starts_with(['/', '"'])))
}

/// The product code of every Rust file below `folder`, file by file.
fn product_files(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.file_stem() == Some("tests".as_ref()) {
            continue;
        }
        if path.is_dir() {
            product_files(&path, found);
        } else if path.extension() == Some("rs".as_ref()) {
            found.push(product_code(&std::fs::read_to_string(path).unwrap()));
        }
    }
}

#[test]
fn files_of_the_kernel_are_used_by_the_crates_that_own_them() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let named = FLOORS.iter().map(|(name, _)| *name).filter(|name| {
        let mut files = Vec::new();
        product_files(&crates.join(name).join("src"), &mut files);
        files.iter().any(|code| names_kernel_files(code))
    });
    assert_eq!(
        named.collect::<BTreeSet<_>>(),
        KERNEL_FILES.iter().map(|(name, _)| *name).collect(),
        "crates that name files of the kernel, and those that may: call an owner, or give the reason in KERNEL_FILES"
    );
}

/// All that `from` reaches.
fn reach(arrows: &BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<String> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from.to_owned()]);
    while let Some(module) = open.pop() {
        for next in &arrows[&module] {
            if seen.insert(next.clone()) {
                open.push(next.clone());
            }
        }
    }
    seen
}

#[test]
fn no_modules_of_a_crate_import_each_other_in_a_circle() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut circles = BTreeSet::new();
    for (name, _) in FLOORS {
        let arrows = module_arrows(&crates.join(name).join("src"));
        let reached: BTreeMap<&String, BTreeSet<String>> =
            arrows.keys().map(|module| (module, reach(&arrows, module))).collect();
        for (module, all) in &reached {
            let circle: Vec<&str> =
                all.iter().filter(|other| reached[other].contains(*module)).map(String::as_str).collect();
            if circle.len() > 1 {
                circles.insert(format!("{name}: {}", circle.join(" ")));
            }
        }
    }
    assert!(circles.is_empty(), "modules import each other in circles: {circles:#?}");
}

/// `doctest = false` spares the tests a compilation of each crate; an example there would never run.
#[test]
fn only_a_crate_that_runs_its_documentations_examples_has_some() {
    for (name, _) in FLOORS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(name);
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        if !manifest.contains("doctest = false") {
            continue;
        }
        each_source(&folder.join("src"), &mut |path, text| {
            let fences = text.lines().filter_map(|line| line.trim_start().strip_prefix("//")?.split_once("```"));
            let opening = fences.step_by(2).find(|(_, kind)| *kind != "text");
            assert!(opening.is_none(), "{}: remove `doctest = false` from {name}'s Cargo.toml", path.display());
        });
    }
}
