"""What a Python test that cannot run says, and when that fails it."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
TESTS = """
import unittest, skipped
class Running(unittest.TestCase):
    def test_running(self):
        skipped.skip(self, "no disk")
class WholeClass(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        skipped.skip_class("WholeClass", "no disk")
    def test_of_a_class(self):
        self.fail("it ran")
def decorated():
    @skipped.skip_unless(None, "Decorated", "no disk")
    class Decorated(unittest.TestCase):
        def test_of_a_decorated_class(self):
            self.fail("it ran")
    return Decorated
if __name__ == "__main__":
    import sys
    if sys.argv[1:] == ["Decorated"]:
        Decorated = decorated()
    unittest.main()
"""


class Skipped(unittest.TestCase):
    def run_test(self, name, listed):
        """Whether the test passes, and what it prints, where `listed` may skip; None is no list."""
        with tempfile.TemporaryDirectory() as folder:
            program, may_skip = Path(folder) / "program.py", Path(folder) / "may-skip"
            program.write_text(TESTS)
            environment = {**os.environ, "PYTHONPATH": str(HERE)}
            environment.pop("NIGH_TEST_MAY_SKIP", None)
            if listed is not None:
                may_skip.write_text(listed)
                environment["NIGH_TEST_MAY_SKIP"] = str(may_skip)
            command = [sys.executable, program, name]
            ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
            return ran.returncode == 0, ran.stdout + ran.stderr

    def test_one_that_may_skip_says_why_and_does_not_run(self):
        for test, name in (("Running", "test_running"), ("WholeClass", "WholeClass"), ("Decorated", "Decorated")):
            for listed in (None, f"other no-go it has no Go\n\n{name} no-disk it has no disk\n"):
                with self.subTest(test, listed=listed):
                    passed, said = self.run_test(test, listed)
                    self.assertTrue(passed and "skipped=1" in said, said)
                    self.assertIn(f"\nSKIPPED: {name}: no disk\n", f"\n{said}")

    def test_one_that_must_run_fails_with_its_reason(self):
        for test, name in (("Running", "test_running"), ("WholeClass", "WholeClass"), ("Decorated", "Decorated")):
            for listed in ("", f"{name}_too no-disk because\n", f"other {name}\n"):
                with self.subTest(test, listed=listed):
                    passed, said = self.run_test(test, listed)
                    self.assertFalse(passed)
                    self.assertIn(f"AssertionError: {name} must run here and cannot: no disk.", said)

    def test_a_list_that_cannot_be_read_is_no_permission(self):
        environment = {**os.environ, "PYTHONPATH": str(HERE), "NIGH_TEST_MAY_SKIP": str(HERE / "there-is-no-such-file")}
        command = [sys.executable, "-c", "import skipped; skipped.say('a', 'b')"]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
        self.assertIn("FileNotFoundError", ran.stderr)


if __name__ == "__main__":
    unittest.main()
