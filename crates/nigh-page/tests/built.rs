//! The committed page is what its source makes.

#![expect(clippy::unwrap_used, reason = "a test ends by panicking")]

#[path = "../../../tests/skipped.rs"]
mod skipped;

use std::io::Read as _;
use std::path::Path;
use std::process::Command;

/// The content of a compressed file. Versions of zlib compress differently, so contents are compared.
fn content(path: &Path) -> Vec<u8> {
    let mut content = Vec::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_end(&mut content).unwrap();
    content
}

fn run(folder: &Path, program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_committed_page_is_what_its_source_makes() {
    let npm = Command::new("npm").arg("--version").output();
    if !npm.is_ok_and(|npm| npm.status.success()) {
        return skipped::skip("the_committed_page_is_what_its_source_makes", "there is no npm");
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
    let copy = tempfile::tempdir().unwrap();
    let (page, built) = (copy.path().join("page"), copy.path().join("dist"));
    std::fs::create_dir(&page).unwrap();
    for part in ["src", "package.json", "package-lock.json", "build.mjs"] {
        run(&source, "cp", &["-r", part, page.to_str().unwrap()]);
    }
    run(&page, "npm", &["ci", "--no-audit", "--no-fund"]);
    run(&page, "node", &["build.mjs", built.to_str().unwrap()]);
    let committed = source.with_file_name("dist");
    for file in ["index.html.gz", "page.js.gz", "page.css.gz", "icon.svg.gz"] {
        let same = content(&built.join(file)) == content(&committed.join(file));
        assert!(same, "dist/{file} is not what page/ makes: run `npm ci && npm run build` in crates/nigh-page/page");
    }
}
