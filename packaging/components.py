"""What a release is made of: the crates in its programs, with licences, as an SBOM and as a text of licences.

The SBOM is CycloneDX 1.5 in JSON. Crates come from `cargo metadata`, which follows Cargo.lock; development dependencies
are left out, build dependencies are in. A crate without a licence, or with one that is not on the list, fails the build.
"""

import hashlib
import json
import re
import subprocess
import time
import uuid
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import project

# Licences whose code may be in the programs.
PERMITTED = {
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "ISC", "MIT", "MIT-0", "Unicode-3.0",
    "Unlicense", "Zlib",
}
# A licence that a crate's exception makes permitted.
EXCEPTIONS = {"Apache-2.0 WITH LLVM-exception"}
LICENCE_FILES = re.compile(r"(?i)^(licen[cs]e|copying|notice|unlicense|copyright)([-._].*)?$")


class ComponentError(RuntimeError):
    """A component cannot be named, or not be distributed."""


@dataclass(frozen=True)
class Component:
    """A library in the release."""

    kind: str
    name: str
    version: str
    licence: str
    sha256: str | None = None
    # Texts of its licence files, by their names.
    texts: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def purl(self):
        """Its package URL."""
        return f"pkg:{self.kind}/{quote(self.name)}@{quote(self.version)}"


def metadata(architecture):
    """What Cargo says of the workspace."""
    words = ["cargo", "metadata", "--format-version=1", "--locked", f"--filter-platform={architecture.target}",
             "--features", project.FEATURES]
    said = subprocess.run(words, cwd=project.ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if said.returncode != 0:
        raise ComponentError(f"cargo metadata failed: {said.stderr.strip()[-600:]}")
    return json.loads(said.stdout)


def used(meta, programs):
    """The packages that the packages `programs` are built from, themselves included."""
    packages = {package["id"]: package for package in meta["packages"]}
    nodes = {node["id"]: node for node in meta["resolve"]["nodes"]}
    members = set(meta["workspace_members"])
    open_ids = [name for name in members if packages[name]["name"] in programs]
    seen = set(open_ids)
    while open_ids:
        for dependency in nodes[open_ids.pop()]["deps"]:
            kinds = {kind["kind"] for kind in dependency["dep_kinds"]}
            if kinds != {"dev"} and dependency["pkg"] not in seen:
                seen.add(dependency["pkg"])
                open_ids.append(dependency["pkg"])
    return [packages[name] for name in seen]


def is_permitted(licence):
    """Whether an SPDX expression can be kept with permitted licences alone. `OR` binds weaker than `AND`."""
    for exception in EXCEPTIONS:
        licence = licence.replace(exception, "MIT")
    words = re.findall(r"[()]|[^\s()]+", licence)

    def choice():
        kept = both()
        while words[:1] == ["OR"]:
            words.pop(0)
            kept = both() or kept
        return kept

    def both():
        kept = one()
        while words[:1] == ["AND"]:
            words.pop(0)
            kept = one() and kept
        return kept

    def one():
        word = words.pop(0)
        if word != "(":
            return word in PERMITTED
        kept = choice()
        return words.pop(0) == ")" and kept

    try:
        return choice() and not words
    except IndexError:
        return False


def licence_texts(folder):
    """The licence files of a package, those in a folder of licences too."""
    found = []
    for path in sorted(folder.iterdir()):
        if path.is_file() and LICENCE_FILES.match(path.name):
            found.append((path.name, path.read_text(errors="replace").strip()))
        elif path.is_dir() and path.name.lower() in ("licenses", "licences"):
            found += [(inner.name, inner.read_text(errors="replace").strip()) for inner in sorted(path.iterdir())
                      if inner.is_file()]
    return tuple(found)


def checksums(lock):
    """The hash that Cargo.lock has for a crate, by its name and version."""
    found = {}
    for block in lock.split("[[package]]")[1:]:
        fields = dict(re.findall(r'^(\w+) = "([^"]*)"', block, re.M))
        found[fields["name"], fields["version"]] = fields.get("checksum")
    return found


def crates(architecture):
    """The crates of others in the programs."""
    hashes = checksums((project.ROOT / "Cargo.lock").read_text())
    found = []
    for package in used(metadata(architecture), project.PROGRAMS):
        name, version = package["name"], package["version"]
        if package["source"] is None:
            continue
        # `/` is Cargo's old word for `OR`.
        licence = re.sub(r"\s*/\s*", " OR ", package["license"] or "")
        if not is_permitted(licence):
            raise ComponentError(f"{name} {version} has the licence {licence!r}, which components.py does not permit")
        texts = licence_texts(Path(package["manifest_path"]).parent)
        found.append(Component("cargo", name, version, licence, hashes.get((name, version)), texts))
    return sorted(found, key=lambda one: (one.name, one.version))


def sbom(components, commit, epoch):
    """A CycloneDX document."""
    listed = []
    for one in sorted(components, key=lambda one: one.purl):
        entry = {"type": "library", "bom-ref": one.purl, "name": one.name, "version": one.version, "purl": one.purl}
        if one.licence:
            is_expression = one.kind == "cargo"
            entry["licenses"] = [{"expression": one.licence} if is_expression else {"license": {"name": one.licence}}]
        if one.sha256:
            entry["hashes"] = [{"alg": "SHA-256", "content": one.sha256}]
        listed.append(entry)
    seed = hashlib.sha256(json.dumps([commit, listed]).encode()).hexdigest()
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, seed)}",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch)),
            "component": {
                "type": "application", "bom-ref": "nigh", "name": "nigh", "version": project.version(),
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "properties": [{"name": "nigh:commit", "value": commit}],
            },
        },
        "components": listed,
    }
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def licences(components):
    """Each licence text once, with those that it is of."""
    by_text, bare = defaultdict(list), []
    for one in components:
        for name, text in one.texts:
            by_text[text].append(f"{one.name} {one.version} ({name})")
        if not one.texts:
            bare.append(f"{one.name} {one.version}: {one.licence}")
    rule = "-" * 80
    parts = ["Nigh's programs contain the libraries below, under their licences. They also contain parts of Rust's standard\n"
             "library (MIT or Apache-2.0, The Rust Project Developers).\n"]
    for text, users in sorted(by_text.items(), key=lambda item: item[1]):
        parts.append(f"{rule}\n" + "\n".join(users) + f"\n{rule}\n\n{text}\n")
    if bare:
        parts.append(f"{rule}\nWithout a licence file of their own, under the licences that they name:\n{rule}\n\n"
                     + "\n".join(bare) + "\n")
    return "\n".join(parts)
