"""The Python package in a fresh environment, by pip, uv and pipx."""

import resource
import time
import unittest

import machine
import package_test
import tutorial

# What an installation may take of a processor: the rest of a reader's minute is the index's.
INSTALLED_WITHIN_S = 60
TOOLS = "/opt/tools/bin"


def processor_s():
    """The processor time of all that this process has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class WheelTest(package_test.PackageTest):
    """On Debian 12, with its Python and no compiler."""

    def setUp(self):
        """A machine with the file, which pip knows by its own name only."""
        self.at = self.machine(machine.roots.CURRENT, ["python3-venv"], network=True)
        self.assertFalse((self.at.root / "usr/bin/gcc").exists())
        self.file = f"/root/{package_test.wheel().name}"
        self.at.bring(package_test.wheel(), self.file)

    def follow(self, words, **options):
        """Starts a node by `words` and follows the tutorial beside it."""
        self.node(self.at, words, **options)
        nigh = self.nigh if hasattr(self, "nigh") else "/env/bin"
        path = {"PATH": f"{nigh}:/usr/bin:/bin"}
        tutorial.follow(lambda words, folder: self.at.run_below(words, folder, environment=path))

    def test_pip_installs_the_wheel_within_a_minute_and_the_tutorial_works(self):
        """Functions run with the environment's Python, which nobody named."""
        self.at.run(["python3", "-m", "venv", "/env"])
        began, before = time.monotonic(), processor_s()
        self.at.run(["/env/bin/pip", "install", "--quiet", self.file])
        print(f"installed in {time.monotonic() - began:.0f} s, {processor_s() - before:.0f} s of a processor")
        self.assertLess(processor_s() - before, INSTALLED_WITHIN_S)
        code = "import nigh, nigh.hook; from nigh import native; print(nigh.Client.__name__, native.module.__name__)"
        said = self.at.run(["/env/bin/python", "-c", code])
        self.assertEqual(said.split(), ["Client", "nigh.nigh_native"])
        self.at.enter(network=False)
        self.follow(["/env/bin/nigh", "up"])
        self.at.run(["/env/bin/pip", "uninstall", "--quiet", "--yes", "nigh"])
        left = [path for path in (self.at.root / "env").rglob("nigh*")]
        self.assertEqual([path for path in left if path.is_file()], [])

    def test_uvx_and_pipx_run_a_node_from_the_file(self):
        """Without an environment of one's own; the second run needs no index."""
        self.at.run(["python3", "-m", "venv", "/opt/tools"])
        self.at.run([f"{TOOLS}/pip", "install", "--quiet", "uv", "pipx"])
        uvx = [f"{TOOLS}/uvx", "--python", "/usr/bin/python3", "--from", self.file, "nigh"]
        pipx = [f"{TOOLS}/pipx", "run", "--spec", self.file, "nigh"]
        for words in (uvx, pipx):
            self.assertIn("nigh ", self.at.run([*words, "--version"]))
        where = self.at.run([*uvx[:-1], "sh", "-c", "command -v nigh"]).strip()
        self.nigh = where.rpartition("/")[0]
        self.at.enter(network=False)
        self.follow([*uvx[:1], "--offline", *uvx[1:], "up"])


if __name__ == "__main__":
    unittest.main()
