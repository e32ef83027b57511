"""The Python of a Debian package or image: an environment with AWS's runtime client and boto3 for the system's Python.

It is a virtual environment (PEP 405) whose packages serve each Python from 3.10 on, so that it outlives an upgrade of
the system's: `lib/python3.X` are links to one folder, and the compiled module lies in it once for each version.
"""

import io
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import archive

REQUIREMENTS = Path(__file__).parent / "python-requirements.txt"
# The packages with a wheel for each version.
COMPILED = {"awslambdaric"}
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
# Where the distributions have their Python.
SYSTEM_PYTHON = "/usr/bin/python3"
CONFIGURATION = """home = /usr/bin
include-system-site-packages = false
"""


class PackagesError(RuntimeError):
    """The packages cannot be had."""


def requirements(names=None):
    """The pins, or those of some packages, as text for pip."""
    pins = [pin for pin in re.split(r"\n(?=[a-z])", REQUIREMENTS.read_text()) if not pin.startswith("#")]
    return "\n".join(pin for pin in pins if names is None or pin.partition("==")[0] in names)


def download(architecture, folder):
    """Fetches the pinned wheels; pip checks their hashes."""
    pins = folder / "requirements.txt"
    for python in VERSIONS:
        pins.write_text(requirements(None if python == VERSIONS[0] else COMPILED))
        words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check",
                 "--no-deps", "--require-hashes", "--only-binary", ":all:", "--python-version", python, "--dest",
                 str(folder), "--platform", f"manylinux2014_{architecture.rust}", "--requirement", str(pins)]
        fetched = subprocess.run(words, stderr=subprocess.PIPE, text=True, check=False)
        if fetched.returncode != 0:
            why = fetched.stderr.strip()[-600:]
            raise PackagesError(f"pip could not fetch {REQUIREMENTS.name}; is a package index reachable? {why}")


def packages(wheels):
    """The contents of wheels, as pip would lay them into site-packages."""
    tree = archive.Tree()
    for wheel in sorted(wheels):
        with zipfile.ZipFile(io.BytesIO(wheel.read_bytes())) as opened:
            for info in opened.infolist():
                name = info.filename
                # Scripts are not needed. What several wheels of one project share is taken once.
                if name.endswith("/") or ".data/" in name or name in tree.entries:
                    continue
                # Lists of files and builds: they are true of one wheel only.
                if name.endswith(("/RECORD", "/WHEEL")):
                    continue
                tree.file(name, opened.read(info))
    return tree


def environment(architecture):
    """The folder `python` of `lib/nigh`."""
    tree = archive.Tree()
    tree.file("pyvenv.cfg", CONFIGURATION)
    tree.link("bin/python3", SYSTEM_PYTHON)
    for version in VERSIONS:
        tree.link(f"lib/python{version}/site-packages", "../../packages")
    with tempfile.TemporaryDirectory() as folder:
        download(architecture, Path(folder))
        tree.graft("packages", packages(Path(folder).glob("*.whl")))
    return tree


def components(tree):
    """Name, version and licence of each package in a folder, from its metadata (PEP 566)."""
    found = []
    for path, entry in tree.sorted():
        if path.endswith(".dist-info/METADATA"):
            head = entry.data.decode().partition("\n\n")[0]
            fields = dict(line.split(": ", 1) for line in reversed(head.splitlines()) if ": " in line)
            licence = fields.get("License-Expression") or fields.get("License") or ""
            found.append((fields["Name"], fields["Version"], licence))
    return found
