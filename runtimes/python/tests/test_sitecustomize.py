"""The start of a sandbox's Python: what loads the hook, and what must not notice."""

import os
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3] / "tests"))
from skipped import skip

SITE = Path(__file__).parent.parent / "site"
# What asks for botocore, without botocore.
FAKE = {
    "botocore/__init__.py": "",
    "botocore/session.py": "import botocore.handlers",
    "botocore/handlers.py": "",
}


class Start(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, files):
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))

    def run_python(self, code, folders=(), **more):
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(map(str, [SITE, *folders]))}
        environment.update(more)
        command = [sys.executable, "-c", textwrap.dedent(code)]
        ran = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, timeout=60)
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        return ran.stdout.split()

    def test_the_hook_is_loaded_with_botocore_and_not_before(self):
        try:
            import botocore  # noqa: F401
        except ImportError:
            skip(self, "this Python has no botocore")
        said = self.run_python(
            """
            import sys
            waiting = lambda: sum(getattr(finder, "__name__", "") == "_Awaiting" for finder in sys.meta_path)
            print("nigh" in sys.modules, waiting())
            import botocore.session
            print("nigh.hook" in sys.modules, waiting())
            handlers = botocore.session.Session().get_component("event_emitter")._emitter._handlers
            print(sys.modules["nigh.hook"]._answer in handlers.prefix_search("before-call.s3.GetObject"))
            print(botocore.session.__loader__.get_source("botocore.session") is not None)
            """
        )
        self.assertEqual(said, ["False", "1", "True", "0", "True", "True"])

    def test_where_it_is_not_wanted_nothing_is_added(self):
        code = "import sys; print([getattr(finder, '__name__', None) for finder in sys.meta_path], sys.path[-1])"
        said = " ".join(self.run_python(code, NIGH_HOOK="off"))
        self.assertNotIn("_Awaiting", said)
        self.assertFalse(said.endswith(str(SITE.parent)))

    def test_an_own_sitecustomize_runs_as_if_it_stood_alone(self):
        self.write({"sitecustomize.py": "import builtins; builtins.seen = (__name__, __file__)"})
        code = "import sitecustomize; print(seen[0], seen[1] == sitecustomize.__file__, sitecustomize.__file__)"
        said = self.run_python(code, [self.folder])
        self.assertEqual(said, ["sitecustomize", "True", str(self.folder / "sitecustomize.py")])

    def test_an_own_sitecustomize_that_fails_is_reported_as_ever(self):
        self.write({"sitecustomize.py": "raise ValueError('mine')"})
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{SITE}:{self.folder}"}
        ran = subprocess.run([sys.executable, "-c", "print(1)"], env=environment, capture_output=True, text=True)
        self.assertEqual(ran.stdout, "1\n")
        self.assertIn("ValueError: mine", ran.stderr)

    def test_a_function_s_own_module_called_nigh_is_its_own(self):
        self.write({**FAKE, "nigh.py": "print('mine')"})
        said = self.run_python(
            """
            import sys, botocore.session
            print([name for name in sys.modules if name.startswith("nigh")])
            import nigh
            """,
            [self.folder],
        )
        self.assertEqual(said, ["[]", "mine"])

    def test_a_botocore_that_the_hook_does_not_know_is_left_alone(self):
        self.write(FAKE)
        code = "import botocore.session, sys; print(sys.modules['botocore.session'].__name__)"
        self.assertEqual(self.run_python(code, [self.folder]), ["botocore.session"])

    def test_the_package_comes_last_in_the_path(self):
        said = self.run_python("import sys; print(sys.path[-1])", [self.folder])
        self.assertEqual(said, [str(SITE.parent)])

    def test_an_import_that_fails_fails_as_ever(self):
        self.write({"botocore/__init__.py": ""})
        said = self.run_python(
            """
            for _ in range(2):
                try:
                    import botocore.session
                except ModuleNotFoundError as error:
                    print(error.name)
            """,
            [self.folder],
        )
        self.assertEqual(said, ["botocore.session"] * 2)


if __name__ == "__main__":
    unittest.main()
