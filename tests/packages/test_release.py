"""The release as a whole: sums, sizes, and the same bytes from the same commit."""

import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

import machine
import package_test
from skipped import skip

LIMITS_MB = {package_test.archive: 25, package_test.wheel: 30}
BUILDER = "packaging/release.py"


def sums(folder):
    """The hash of each file."""
    lines = (folder / "SHA256SUMS").read_text().splitlines()
    return {name: found for found, name in (line.split("  ") for line in lines)}


def release(project, folder, *words):
    """Makes the packages of a clone."""
    subprocess.run([sys.executable, str(project / BUILDER), "--out", str(folder), *words], check=True)
    return sums(folder)


class ReleaseTest(package_test.PackageTest):
    """What `make release` has made."""

    def test_the_sums_are_those_of_the_files_and_nothing_is_too_large(self):
        for name, found in sums(package_test.DIST).items():
            self.assertEqual(package_test.sha256(package_test.DIST / name), found, name)
        for file, limit in LIMITS_MB.items():
            self.assertLessEqual(file().stat().st_size, limit * 1_000_000)

    def test_no_path_of_the_machine_that_built_it_is_in_a_program(self):
        with tempfile.TemporaryDirectory() as folder:
            for text in self.programs(Path(folder)).values():
                found = set(re.findall(rb"/(?:root|home|work|tmp)/[\w.+-]+/[\w./+-]*\.rs", text))
                self.assertEqual(found, set())

    def test_the_same_programs_are_packed_into_the_same_bytes(self):
        self.built_from_this_commit()
        with tempfile.TemporaryDirectory() as folder:
            programs = Path(folder) / "programs"
            self.programs(programs)
            again = release(machine.PROJECT, Path(folder) / "dist", "--programs", str(programs))
        self.assertEqual(again, sums(package_test.DIST))

    def test_another_clone_of_the_commit_is_built_into_the_same_bytes(self):
        if not os.environ.get("NIGH_TEST_REBUILD"):
            skip(self, "a second build takes a while: make test-packages REBUILD=1")
        self.built_from_this_commit()
        with tempfile.TemporaryDirectory() as folder:
            clone = Path(folder) / "another" / "clone"
            subprocess.run(["git", "clone", "--quiet", "--shared", str(machine.PROJECT), str(clone)], check=True)
            again = release(clone, Path(folder) / "dist")
        self.assertEqual(again, sums(package_test.DIST))

    def programs(self, folder):
        """The programs of the archive, laid into a folder."""
        folder.mkdir(exist_ok=True)
        with tarfile.open(package_test.archive()) as tar:
            for member in tar:
                if re.search(r"/(bin/nigh|lib/nigh/nigh-[\w-]+)$", member.name):
                    (folder / Path(member.name).name).write_bytes(tar.extractfile(member).read())
        return {path.name: path.read_bytes() for path in folder.iterdir()}

    def built_from_this_commit(self):
        """Fails where `dist/` is of another commit."""
        listed = json.loads(next(package_test.DIST.glob("nigh-*-oci.cdx.json")).read_text())
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=machine.PROJECT, check=True, stdout=subprocess.PIPE,
                              text=True).stdout.strip()
        built = listed["metadata"]["component"]["properties"][0]["value"]
        self.assertEqual(built, head, "dist/ is of another commit; run `make release`")


if __name__ == "__main__":
    unittest.main()
