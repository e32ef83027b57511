"""Each kind of wrong run is told by the judge, and a right one is not."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import judge_tests
import may_skip

RIGHT = """\
     Running nigh: end_to_end (3 s)
test a::a_kept_promise_of_ours ... ok
test b::what_must_fail_fails - should panic ... ok
test wsk_drives_a_node ... ok
test c::the_child_of_a_test ... ignored, another test runs it
test what_takes_an_hour_is_exact ... ignored
SKIPPED: wsk_drives_a_node: there is no wsk in PATH
test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out
test result: ok. 1 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out
"""
MAY_SKIP = """\
wsk_drives_a_node no-wsk OpenWhisk's command is not in PATH
the_child_of_a_test child another test runs it
what_takes_an_hour_is_exact by-hand it takes an hour
"""
PROMISES = {"a_kept_promise_of_ours", "what_must_fail_fails", "wsk_drives_a_node"}


def judge(log, may=MAY_SKIP, promises=frozenset(PROMISES), least=3):
    """What is wrong, and the closing lines."""
    return judge_tests.judge(log, judge_tests.listed(may), set(promises), least)


class Judge(unittest.TestCase):
    def assert_wrong(self, words, *arguments, **others):
        wrong, _ = judge(*arguments, **others)
        self.assertEqual(len(wrong), 1, wrong)
        self.assertIn(words, wrong[0])

    def test_a_right_run_is_right_and_says_what_it_did_not_show(self):
        wrong, closing = judge(RIGHT)
        self.assertEqual(wrong, [])
        reason = "OpenWhisk's command is not in PATH"
        self.assertEqual(
            closing,
            [
                f"skipped 1: {reason} (wsk_drives_a_node)",
                f"promise not shown here: wsk_drives_a_node: {reason}",
                "rust: 3 passed, 0 failed, 1 skipped",
            ],
        )

    def test_skips_of_one_reason_are_one_line(self):
        more = MAY_SKIP + "wsk_is_told_of_limits no-wsk OpenWhisk's command is not in PATH\n"
        _, closing = judge(RIGHT + "SKIPPED: wsk_is_told_of_limits: there is no wsk in PATH\n", more)
        self.assertEqual(
            closing[0], "skipped 2: OpenWhisk's command is not in PATH (wsk_drives_a_node, wsk_is_told_of_limits)"
        )

    def test_a_promise_that_may_skip_and_ran_is_shown(self):
        ran = RIGHT.replace("SKIPPED: wsk_drives_a_node: there is no wsk in PATH\n", "")
        self.assertEqual(judge(ran), ([], ["rust: 3 passed, 0 failed, 0 skipped"]))

    def test_a_skip_that_is_not_listed_is_wrong(self):
        self.assert_wrong("some_other_test was skipped", RIGHT + "SKIPPED: some_other_test: there is no disk\n")
        self.assert_wrong("wsk_drives_a_node was skipped", RIGHT, "\n".join(MAY_SKIP.splitlines()[1:]), set())

    def test_a_skip_of_part_of_a_promised_test_is_wrong_twice(self):
        wrong, _ = judge(RIGHT + "SKIPPED: a_kept_promise_of_ours: under runc: it is not installed\n")
        self.assertEqual(len(wrong), 2, wrong)

    def test_a_check_that_was_skipped_is_wrong(self):
        self.assert_wrong("nigh check --murphi was skipped", RIGHT + "SKIPPED: nigh check --murphi: no rumur\n")

    def test_a_python_test_that_was_skipped_is_wrong(self):
        self.assert_wrong("test_hook was skipped", RIGHT + "..\nSKIPPED: test_hook: this Python has no boto3\n")

    def test_an_ignored_test_is_listed_as_a_child_or_by_hand(self):
        self.assert_wrong("some_other_test is ignored", RIGHT + "test b::some_other_test ... ignored, it is slow\n")
        self.assert_wrong("what_is_slow is ignored", RIGHT + "test what_is_slow ... ignored\n", MAY_SKIP + "what_is_slow no-go no Go\n")

    def test_a_child_that_says_that_it_was_skipped_is_wrong(self):
        self.assert_wrong("the_child_of_a_test was skipped", RIGHT + "SKIPPED: the_child_of_a_test: no disk\n")

    def test_a_promise_must_have_run_and_passed(self):
        for log in (
            RIGHT.replace("a_kept_promise_of_ours ... ok", "a_kept_promise_of_ours ... FAILED"),
            RIGHT.replace("test a::a_kept_promise_of_ours ... ok\n", ""),
        ):
            self.assert_wrong("a_kept_promise_of_ours did not run and pass", log)
        self.assert_wrong("a_promise_without_a_test did not run", RIGHT, promises=PROMISES | {"a_promise_without_a_test"})

    def test_a_promise_that_is_ignored_by_hand_is_not_shown_and_wrong(self):
        self.assert_wrong("what_takes_an_hour_is_exact did not run", RIGHT, promises=PROMISES | {"what_takes_an_hour_is_exact"})

    def test_a_crate_that_drops_out_is_wrong(self):
        self.assert_wrong("3 tests passed, fewer than the 4 of .ci/tests-least", RIGHT, least=4)

    def test_promises_are_the_names_in_the_last_column(self):
        row = "| text `not_this_one_here` | `this_is_a_test`, `and_this_one_too` |\nnor `any_of_this_text`"
        self.assertEqual(judge_tests.promised(row), {"this_is_a_test", "and_this_one_too"})

    def test_the_project_s_own_files_are_read(self):
        promises = judge_tests.promised((judge_tests.PROJECT / "SEMANTICS.md").read_text())
        self.assertGreater(len(promises), 300)
        self.assertGreater(int((judge_tests.PROJECT / ".ci/tests-least").read_text()), 2000)

    def test_the_command_fails_with_a_wrong_run(self):
        with tempfile.TemporaryDirectory() as folder:
            log, may = Path(folder) / "log", Path(folder) / "may-skip"
            log.write_text(RIGHT)
            may.write_text(MAY_SKIP)
            command = [sys.executable, Path(judge_tests.__file__), log, may]
            ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            # It has none of the promises that SEMANTICS.md really makes.
            self.assertEqual((ran.returncode, ran.stderr), (1, ""))
            self.assertIn("FAILED: 3 tests passed, fewer than", ran.stdout)
            self.assertTrue(ran.stdout.endswith("\nrust: 3 passed, 0 failed, 1 skipped\n"), ran.stdout)


class MaySkip(unittest.TestCase):
    def setUp(self):
        self.addCleanup(may_skip.CONDITIONS.update, dict(may_skip.CONDITIONS))
        may_skip.CONDITIONS.update({"no-go": lambda: True, "no-java": lambda: False})

    def test_a_test_may_skip_while_its_condition_holds(self):
        entries, wrong = may_skip.read("# a comment\n\none  no-go   there is no Go\nother no-java there is no Java\n")
        self.assertEqual((wrong, may_skip.here(entries)), ([], [("one", "no-go", "there is no Go")]))

    def test_a_wrong_line_is_told(self):
        for line, words in (
            ("one no-go", "expected `NAME CONDITION REASON`"),
            ("one no-such-condition because", "there is no condition 'no-such-condition'"),
            ("one no-go because\none no-java because", "one is listed twice"),
        ):
            with self.subTest(line):
                _, [said] = may_skip.read(line)
                self.assertIn(words, said)

    def test_the_project_s_own_list_is_right(self):
        entries, wrong = may_skip.read(may_skip.LIST.read_text())
        self.assertEqual(wrong, [])
        self.assertGreater(len(entries), 10)

    def test_every_condition_can_be_looked_at_here(self):
        for name, holds in may_skip.CONDITIONS.items():
            with self.subTest(name):
                self.assertIsInstance(holds(), bool)

    def test_the_command_writes_those_that_may_skip_here(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "may-skip"
            command = [sys.executable, Path(may_skip.__file__), file]
            ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
            self.assertTrue(ran.stdout.startswith("may skip here: "), ran.stdout)
            # Those with #[ignore] may everywhere.
            self.assertEqual(judge_tests.listed(file.read_text())["the_test_that_skips"][0], "child")


if __name__ == "__main__":
    unittest.main()
