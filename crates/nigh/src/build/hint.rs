//! What helps when a tool fails, by its words. Pure.

/// Words of a failing tool, in lower case, and what helps. The first that fits counts.
const HINTS: [(&[&str], &str); 14] = [
    (
        &[
            "temporary failure in name resolution",
            "name or service not known",
            "network is unreachable",
            "could not resolve host",
            "failed to establish a new connection",
            "dns error",
            "enotfound",
            "eai_again",
            "econnrefused",
            "etimedout",
            "no such host",
            "dial tcp",
            "connection refused",
            "error sending request",
            "only-if-cached",
        ],
        "the package index is not reached: is this machine online, and are the tool's index and proxy set?",
    ),
    (
        &["no module named pip", "no module named 'pip'"],
        "this Python has no pip: run `python3 -m ensurepip` with it, or install uv",
    ),
    (
        &["no matching distribution found", "no solution found when resolving"],
        "no such package, or none of its versions is for this Python: check the name and the version",
    ),
    (
        &["resolutionimpossible", "conflicting dependencies"],
        "two packages want different versions of a third: loosen one of them",
    ),
    (&["hashes are required", "do not match the hashes"], "make the lock file anew"),
    (
        &["subprocess-exited-with-error", "failed to build", "failed building wheel", "failed-wheel-build"],
        "the package has no wheel for this Python and has to be compiled: install what its lines above lack, or take another \
         version",
    ),
    (
        &["can only install packages when your package.json"],
        "run `npm install` in the folder, which mends package-lock.json",
    ),
    (&["e404", "404 not found"], "there is no such package: check its name and version"),
    (&["eresolve"], "two packages want different versions of a third: `npm install` in the folder names them"),
    (&["missing go.sum entry", "updates to go.mod needed", "go mod tidy"], "run `go mod tidy` in the folder"),
    (
        &["go.mod requires go >=", "toolchain not available", "requires go1"],
        "install the version of Go that go.mod names, or lower it there",
    ),
    (&["no go files in", "no required module provides package"], "the main package must lie beside go.mod"),
    (&["linker `cc` not found", "linker not found"], "install a C compiler, which links the program: gcc or clang"),
    (
        &["is not supported by the following package", "requires rustc"],
        "run `rustup update`, or ask for older packages",
    ),
];

/// What helps after a tool said these lines.
pub(super) fn hint(said: &[String], otherwise: &str) -> String {
    let text = said.join("\n").to_lowercase();
    let known = HINTS.iter().find(|(words, _)| words.iter().any(|word| text.contains(word)));
    known.map_or(otherwise, |(_, helps)| *helps).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_tool_says_tells_what_helps() {
        for (said, helps) in [
            ("npm error code ENOTFOUND", "online"),
            (
                "  Failed to establish a new connection: [Errno -2]\nERROR: No matching distribution found for x",
                "online",
            ),
            ("ERROR: No matching distribution found for nosuch==9", "check the name"),
            (
                "npm error `npm ci` can only install packages when your package.json and package-lock.json are in sync",
                "npm install",
            ),
            ("main.go:3:8: missing go.sum entry for module", "go mod tidy"),
            ("/usr/bin/python3: No module named pip", "ensurepip"),
            ("error: linker `cc` not found", "gcc"),
        ] {
            let lines: Vec<String> = said.lines().map(str::to_owned).collect();
            assert!(hint(&lines, "other").contains(helps), "{said}: {}", hint(&lines, "other"));
        }
        assert_eq!(hint(&["./main.go:5:2: undefined: x".to_owned()], "mend the code"), "mend the code");
    }

    #[test]
    fn every_word_is_in_lower_case() {
        assert!(HINTS.iter().all(|(words, _)| words.iter().all(|word| *word == word.to_lowercase())));
    }
}
