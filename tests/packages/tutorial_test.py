"""What the tests of packages read from the tutorial."""

import unittest

import tutorial


class TutorialTest(unittest.TestCase):
    """Without a package."""

    def test_its_steps_are_read(self):
        """All that a package has to do, and neither the node that goes on nor what needs other programs."""
        found = [command.text for command, _ in tutorial.commands()]
        for step in ("nigh init ", "cd ", "nigh deploy ", "nigh objects cp ", "nigh invoke ", "nigh activations ", "nigh down "):
            self.assertTrue(any(f"{command} ".startswith(step) for command in found), f"{step}: {found}")
        self.assertFalse([command for command in found if command.startswith(("nigh up", "aws "))])
        self.assertTrue(any(eventually for _, eventually in tutorial.commands()), "what a trigger runs comes later")

    def test_it_is_followed_to_its_end_in_the_folders_that_it_enters(self):
        """By a machine that prints what the tutorial says, at the second time where that may be later."""
        expected = {command.text: command.expected for command, _ in tutorial.commands()}
        ran, some_id = [], "01a2b3c4-0000-7000-8000-0123456789ab"

        def run(words, folder):
            ran.append((words, folder))
            text = next((one for one in expected if tutorial.words(one.replace("019a…", some_id)) == words), "")
            if words[1] == "logs" and len([one for one in ran if one[0] == words]) == 1:
                return "not yet"
            return "\n".join(line.replace("019a…", some_id) for line in expected.get(text, ("ready",)))

        tutorial.follow(run, ends=False)
        self.assertEqual(ran[0], (["nigh", "status"], ""))
        self.assertIn((["nigh", "deploy"], "words"), ran)
        self.assertIn((["nigh", "explain", some_id], "words"), ran)
        self.assertNotIn(["nigh", "down"], [words for words, _ in ran])
        with self.assertRaisesRegex(AssertionError, "does not print"):
            tutorial.follow(lambda words, folder: "nothing")

    def test_lines_are_looked_for_in_any_order(self):
        """Standard output and standard error have no common order everywhere."""
        self.assertEqual(tutorial.missing(("a…", "…", "b"), "b\nabc\n"), [])
        self.assertEqual(tutorial.missing(("a", "b"), "b\nabc\n"), ["a"])


if __name__ == "__main__":
    unittest.main()
