"""The release that the tests of packages install: `dist/`, or the folder that NIGH_TEST_DIST names."""

import hashlib
import os
import re
import unittest
from pathlib import Path

import machine
from skipped import skip_class

DIST = Path(os.environ.get("NIGH_TEST_DIST", machine.PROJECT / "dist"))


def package(pattern):
    """The one file of the release whose name matches."""
    found = sorted(path for path in DIST.glob("*") if re.fullmatch(pattern, path.name)) if DIST.is_dir() else []
    if len(found) != 1:
        raise AssertionError(f"{DIST} has {len(found)} files like {pattern}; run `make release` first")
    return found[0]


def archive():
    """The archive that is unpacked anywhere."""
    return package(r"nigh-.*-linux\.tar\.xz")


def wheel():
    """The Python package."""
    return package(r"nigh-.*\.whl")


def debian():
    """The Debian package."""
    return package(r"nigh_.*\.deb")


def image():
    """The OCI image."""
    return package(r"nigh-.*-oci\.tar")


def sha256(path):
    """A file's hash."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


class PackageTest(unittest.TestCase):
    """A test that needs roots of Debian's packages."""

    @classmethod
    def setUpClass(cls):
        """Skips where no root can be made."""
        if why := machine.roots.missing():
            skip_class(cls.__name__, why)

    def machine(self, release, packages=(), network=False):
        """A machine that is closed at the test's end."""
        made = machine.Machine(release, packages, network)
        self.addCleanup(made.close)
        return made

    def node(self, at, words, **options):
        """Starts a node; its log is shown if the test fails."""
        log = at.folder / "node.log"
        process = at.start(words, log, **options)

        def end():
            process.terminate()
            process.wait(60)
            outcome = self._outcome
            if outcome is not None and not outcome.success:
                print(f"--- the node's log\n{log.read_text()[-8000:]}")

        self.addCleanup(end)
        return process
