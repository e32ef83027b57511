"""The tutorial that the tests of packages follow is the one in the documents."""

import unittest

import tutorial


class TutorialTest(unittest.TestCase):
    """Without a package."""

    def test_each_command_is_in_the_tutorial(self):
        text = tutorial.TEXT.read_text()
        for command in tutorial.COMMANDS:
            self.assertIn(command, text)

    def test_its_functions_are_python(self):
        found = tutorial.handlers()
        self.assertEqual(sorted(found), ["count/app.py", "seen/app.py"])
        for path, code in found.items():
            compile(code, path, "exec")


if __name__ == "__main__":
    unittest.main()
