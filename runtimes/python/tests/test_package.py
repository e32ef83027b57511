"""The package as such: it parses on the oldest Python, its types hold, and it builds into a wheel that installs."""

import ast
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3] / "tests"))
from skipped import skip

ROOT = Path(__file__).parent.parent
OLDEST = (3, 9)


class Package(unittest.TestCase):
    def test_every_module_is_python_3_9(self):
        modules = [*(ROOT / "nigh").glob("*.py"), *(ROOT / "site").glob("*.py")]
        self.assertGreater(len(modules), 10)
        for module in modules:
            ast.parse(module.read_text(), str(module), feature_version=OLDEST)

    def test_the_client_needs_the_standard_library_alone(self):
        code = "import sys, nigh; print(sorted({name.partition('.')[0] for name in sys.modules}))"
        ran = subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
        if sys.version_info >= (3, 10):
            foreign = set(ast.literal_eval(ran.stdout)) - set(sys.stdlib_module_names) - {"nigh", "__main__"}
            self.assertEqual(foreign, set())

    def test_its_types_hold(self):
        mypy = shutil.which("mypy")
        if mypy is None:
            skip(self, "there is no mypy; scripts/install-test-tools.sh installs it")
        with tempfile.TemporaryDirectory() as cache:
            # What it says is all there is to know; its settings are pyproject.toml's.
            ran = subprocess.run([mypy, "--cache-dir", cache], cwd=ROOT, capture_output=True, text=True)
            self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
            self.assertRegex(ran.stdout, r"no issues found in 1\d source files")

    def test_it_builds_into_a_wheel_that_a_fresh_environment_imports(self):
        with tempfile.TemporaryDirectory() as folder:
            wheel = self.wheel(Path(folder))
            names = zipfile.ZipFile(wheel).namelist()
            self.assertTrue({"nigh/client.py", "nigh/hook.py", "nigh/py.typed"} <= set(names), names)
            self.assertFalse([name for name in names if "test" in name or "site" in name], names)
            fresh = Path(folder) / "fresh"
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", fresh], check=True)
            python = fresh / "bin/python"
            install = [*self.pip("--python", str(python)), "install", "--no-deps", "--no-index", str(wheel)]
            subprocess.run(install, check=True, capture_output=True)
            code = "import nigh; print(nigh.__file__, nigh.Client.__name__)"
            # `-I`: nothing of this folder, and nothing of the environment.
            ran = subprocess.run([python, "-I", "-c", code], cwd="/", capture_output=True, text=True, check=True)
            file, client = ran.stdout.split()
            self.assertEqual(client, "Client")
            self.assertTrue(Path(file).is_relative_to(fresh) and Path(file).with_name("py.typed").exists(), file)

    @staticmethod
    def pip(*options):
        quiet = ["--disable-pip-version-check", "--quiet", "--retries", "0"]
        return [sys.executable, "-m", "pip", *options, *quiet]

    def wheel(self, folder):
        """Builds it. A build writes beside its source: a copy."""
        source = folder / "source"
        (source / "nigh").mkdir(parents=True)
        for path in [
            *(ROOT / "nigh").glob("*.py"),
            ROOT / "nigh/py.typed",
            ROOT / "pyproject.toml",
            ROOT / "README.md",
        ]:
            (source / path.relative_to(ROOT)).write_bytes(path.read_bytes())
        # Without its own environment where the backend is here; else pip fetches that, and nothing else.
        isolated = ["--no-build-isolation"] if importlib.util.find_spec("wheel") else []
        build = [*self.pip(), "wheel", *isolated, "--no-deps", "-w", str(folder), str(source)]
        ran = subprocess.run(build, capture_output=True, text=True)
        if ran.returncode and "setuptools" in ran.stderr:
            skip(self, "the build backend cannot be fetched")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return next(folder.glob("nigh-*.whl"))


if __name__ == "__main__":
    unittest.main()
