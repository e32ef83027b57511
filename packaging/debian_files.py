"""Fetches Debian packages by apt, with all that they depend on, without touching this machine's own."""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import archive
import roots

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
SETTINGS = """
Dir::State "{folder}/state";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}/cache";
Dir::Etc::sourcelist "{folder}/sources.list";
Dir::Etc::sourceparts "/dev/null";
APT::Architecture "{architecture}";
APT::Architectures "{architecture}";
APT::Install-Recommends "false";
APT::Sandbox::User "";
Acquire::Languages "none";
"""


class AptError(RuntimeError):
    """Packages cannot be fetched."""


@dataclass(frozen=True)
class Package:
    """A fetched package."""

    name: str
    version: str
    path: Path

    def files(self):
        """Its files, at their places in a system whose /bin, /lib and /sbin are links into /usr."""
        unpacked = subprocess.run(["dpkg-deb", "--fsys-tarfile", str(self.path)], check=True, stdout=subprocess.PIPE)
        tree = archive.Tree()
        for path, entry in archive.Tree.from_tar(unpacked.stdout, lambda path: True).sorted():
            path = merged(path)
            if not (entry.is_folder and path in tree.entries):
                tree.add(path, entry)
        return tree


def merged(path):
    """The path where /bin, /sbin, /lib and /lib64 are links into /usr."""
    return re.sub(r"^(?=(bin|sbin|lib|lib64)(/|$))", "usr/", path)


def fetch(release, names, architecture, folder):
    """The packages `names` and their dependencies, downloaded into `folder`."""
    for part in ("state/lists/partial", "cache/archives/partial"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / "status").touch()
    signed = [line.replace("deb ", f"deb [signed-by={KEYRING}] ", 1) for line in roots.sources(release)]
    (folder / "sources.list").write_text("\n".join(signed) + "\n")
    (folder / "apt.conf").write_text(SETTINGS.format(folder=folder, architecture=architecture))
    environment = os.environ | {"APT_CONFIG": str(folder / "apt.conf"), "LC_ALL": "C.UTF-8"}
    for words in (["update"], ["install", "--download-only", "--yes", *names]):
        ran = subprocess.run(["apt-get", "-qq", *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             text=True, check=False)
        if ran.returncode != 0:
            raise AptError(f"apt-get {words[0]} for {release} failed: {ran.stdout.strip()[-600:]}")
    found = []
    for path in sorted((folder / "cache/archives").glob("*.deb")):
        name, version, _ = path.stem.split("_")
        found.append(Package(name, unquote(version), path))
    return found
