//! The documents' links lead somewhere, and what the program names of them is there.

#![expect(clippy::unwrap_used, reason = "a test ends by panicking")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The files below `folder` whose names end with `.` and `ending`; what is built or installed is no part of the project.
fn files(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir()
            && !path.is_symlink()
            && !name.starts_with('.')
            && !["target", "node_modules"].contains(&&*name)
        {
            files(&path, ending, found);
        } else if path.extension() == Some(ending.as_ref()) {
            found.push(path);
        }
    }
}

/// A document without its blocks of code and its code in lines.
fn prose(text: &str) -> String {
    let is_fence = |line: &&str| line.trim_start().starts_with("```");
    let mut in_block = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if is_fence(&line) {
            in_block = !in_block;
        } else if !in_block {
            lines.push(line.split('`').step_by(2).collect::<String>());
        }
    }
    lines.join("\n")
}

/// The targets of a document's links.
fn links(prose: &str) -> Vec<String> {
    let behind = prose.split("](").skip(1);
    behind.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target.to_owned()).collect()
}

/// The anchors that a document's headings have, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |line: &str| {
        let kept = |c: &char| c.is_alphanumeric() || ['-', '_', ' '].contains(c);
        line.trim_start_matches('#').trim().to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")
    };
    headings.map(anchor).collect()
}

#[test]
fn every_link_of_a_document_leads_to_a_file_and_a_heading_that_are_there() {
    let mut documents = Vec::new();
    files(&project(), "md", &mut documents);
    assert!(documents.len() > 40, "the documents are not read");
    let (mut seen, mut broken) = (0, Vec::new());
    for document in &documents {
        for link in links(&prose(&std::fs::read_to_string(document).unwrap())) {
            if link.contains(':') || link.contains(' ') {
                continue;
            }
            seen += 1;
            let (path, anchor) = link.split_once('#').map_or((&*link, None), |(path, anchor)| (path, Some(anchor)));
            let target = if path.is_empty() { document.clone() } else { document.parent().unwrap().join(path) };
            let is_there = match anchor {
                Some(anchor) => std::fs::read_to_string(&target).is_ok_and(|text| anchors(&text).contains(anchor)),
                None => target.exists(),
            };
            if !is_there {
                broken.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(seen > 150, "{seen} links were read");
    assert!(broken.is_empty(), "{broken:#?}");
}

/// The documents that a text names by their paths from the project's folder.
fn named(text: &str) -> Vec<String> {
    let is_path = |c: char| c.is_ascii_alphanumeric() || "/-_.".contains(c);
    let begins = text.match_indices("docs/").filter(|(at, _)| !text[..*at].ends_with(is_path));
    let path = |at: usize| text[at..].split(|c: char| !is_path(c)).next().unwrap_or_default().trim_end_matches('.');
    begins.map(|(at, _)| path(at).to_owned()).filter(|path| path.ends_with(".md")).collect()
}

#[test]
fn every_document_that_the_code_names_is_there() {
    let mut sources = Vec::new();
    files(&project().join("crates"), "rs", &mut sources);
    files(&project().join("runtimes"), "py", &mut sources);
    let mut missing = BTreeSet::new();
    let mut seen = 0;
    for source in sources {
        for name in named(&std::fs::read_to_string(&source).unwrap()) {
            seen += 1;
            if !project().join(&name).exists() {
                missing.insert(format!("{}: {name}", source.display()));
            }
        }
    }
    assert!(seen > 40, "{seen} names were read");
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn links_headings_and_names_are_read_as_they_are_written() {
    let text = "# One `two`, (three)\n[a](b.md#c) `[no](x)`\n```\n[no](y)\n```\n![p](p.png)";
    assert_eq!(links(&prose(text)), ["b.md#c", "p.png"]);
    assert_eq!(anchors(text).into_iter().collect::<Vec<_>>(), ["one-two-three"]);
    assert_eq!(named("see docs/words.md. Not x/docs/a.md, docs/design/"), ["docs/words.md"]);
}
