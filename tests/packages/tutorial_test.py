"""What the tests of packages read from the tutorial."""

import unittest

import tutorial


class TutorialTest(unittest.TestCase):
    """Without a package."""

    def test_its_steps_are_read(self):
        found = tutorial.commands()
        for step in ("nigh objects mb ", "nigh objects cp ", "nigh deploy count ", "nigh invoke count ", "nigh activations"):
            self.assertTrue(any(f"{command} ".startswith(step) for command in found), f"{step}: {found}")
        self.assertFalse(any(command.startswith("nigh up") for command in found))

    def test_its_functions_are_python(self):
        found = tutorial.functions()
        self.assertIn("count/app.py", found)
        for path, code in found.items():
            compile(code, path, "exec")


if __name__ == "__main__":
    unittest.main()
