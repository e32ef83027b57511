"""The OCI image: what is in it, and a node in a container that is not root."""

import json
import re
import shutil
import tempfile
import unittest
from pathlib import Path

import container
import package_test
import tutorial
from skipped import skip


class ImageTest(package_test.PackageTest):
    """Read, and run by runc and containerd."""

    @classmethod
    def setUpClass(cls):
        """Reads the image."""
        super().setUpClass()
        cls.image = container.Image(package_test.image())

    def needs(self, *programs):
        """Skips where one of them is missing."""
        for program in programs:
            if not shutil.which(program):
                skip(self, f"{program} is not here")

    def contained(self, made):
        """A container that is closed at the test's end."""
        self.addCleanup(made.close)
        return made

    def test_the_layout_is_whole_and_its_user_is_not_root(self):
        """Sizes and hashes of all parts, by the image specification."""
        self.assertEqual(self.image.document("oci-layout"), {"imageLayoutVersion": "1.0.0"})
        layers = [self.image.blob(layer) for layer in self.image.manifest["layers"]]
        self.assertEqual(len(layers), len(self.image.configuration["rootfs"]["diff_ids"]))
        self.assertGreater(int(self.image.configuration["config"]["User"].split(":")[0]), 0)
        listed = json.loads(next(package_test.DIST.glob("nigh-*-oci.cdx.json")).read_text())
        names = {part["purl"].partition("@")[0] for part in listed["components"]}
        for name in ("pkg:deb/debian/libc6", "pkg:pypi/botocore", "pkg:cargo/tokio"):
            self.assertIn(name, names)

    def test_there_is_no_shell_and_no_compiler_in_it(self):
        """What is in /usr/bin."""
        with tempfile.TemporaryDirectory() as folder:
            self.image.unpack(Path(folder) / "root")
            found = sorted(path.name for path in (Path(folder) / "root/usr/bin").iterdir())
        self.assertTrue(all(re.fullmatch(r"nigh|python3(\.\d+)?", name) for name in found), found)

    def test_without_a_word_it_refuses_to_run_functions_that_nothing_isolates(self):
        """A container engine hides parts of /proc: no sandbox can be made, and the message says what helps."""
        self.needs("runc")
        at = self.contained(container.RuncContainer(self.image))
        self.assertNotEqual(at.process.wait(60), 0)
        self.assertIn("--trust-functions", at.log.read_text())

    def test_the_tutorial_works_in_a_container_with_sandboxes_and_with_trusted_functions(self):
        """With all of /proc as sandboxes need it; else with functions that are trusted."""
        self.needs("runc")
        for arguments, unmasked in (((), True), (("--trust-functions",), False)):
            with self.subTest(unmasked=unmasked):
                at = self.contained(container.RuncContainer(self.image, arguments, unmasked))
                health = self.image.configuration["config"]["Healthcheck"]["Test"]
                self.assertEqual(health[0], "CMD")
                tutorial.wait_for("healthy container", lambda: at.run(health[1:]))
                tutorial.follow(at.run, ends=False)
                at.stop()
                self.assertEqual(at.process.wait(60), 0)

    def test_containerd_imports_and_runs_it(self):
        """The image as a registry would give it."""
        self.needs("runc", "containerd")
        path = package_test.image()
        at = self.contained(container.ContainerdContainer(path, self.image, ["--trust-functions"]))
        tutorial.follow(at.run, ends=False)


if __name__ == "__main__":
    unittest.main()
