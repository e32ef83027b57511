"""The package as such: it parses on the oldest Python, and builds into a wheel."""

import ast
import importlib.util
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

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

    def test_it_builds_into_a_wheel(self):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "source"
            # A build writes beside its source.
            (source / "nigh").mkdir(parents=True)
            for path in [
                *(ROOT / "nigh").glob("*.py"),
                ROOT / "nigh/py.typed",
                ROOT / "pyproject.toml",
                ROOT / "README.md",
            ]:
                (source / path.relative_to(ROOT)).write_bytes(path.read_bytes())
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--retries", "0"]
            # Without its own environment where the backend is here; else pip fetches that, and nothing else.
            isolated = ["--no-build-isolation"] if importlib.util.find_spec("wheel") else []
            ran = subprocess.run(
                [*pip, "wheel", *isolated, "--no-deps", "-w", folder, str(source)], capture_output=True, text=True
            )
            if ran.returncode and "setuptools" in ran.stderr:
                self.skipTest("SKIPPED: test_it_builds_into_a_wheel: the build backend cannot be fetched")
            self.assertEqual(ran.returncode, 0, ran.stderr)
            names = zipfile.ZipFile(next(Path(folder).glob("nigh-*.whl"))).namelist()
            self.assertTrue({"nigh/client.py", "nigh/hook.py", "nigh/py.typed"} <= set(names), names)
            self.assertFalse([name for name in names if "test" in name or "site" in name], names)


if __name__ == "__main__":
    unittest.main()
