"""Tests of what follows the pages of the documentation."""

import contextlib
import io
import tempfile
import unittest
from pathlib import Path

import page
import run
from shell import Shell, ShellError

TEXT = """# A page
<!-- run: node -->
Text.

<!-- run: file code/main.py -->
```python
print("hello")
```

```console
$ echo one; echo two
one
…
$ echo a \\
>   b
```

<!-- run: exit 3 -->
<!-- run: eventually -->
```console
$ sh -c 'exit 3'
```

<!-- not run: it needs a moon -->
```console
$ moon
```

```toml
shown = "only"
```
<!-- run: setup true -->
"""


class Pages(unittest.TestCase):
    def test_a_page_is_read_as_its_steps(self):
        node, file, first, second, left_out, setup = page.steps(TEXT)
        self.assertEqual([node.kind, file.kind, first.kind, left_out.kind, setup.kind],
                         ["node", "file", "commands", "left_out", "setup"])
        self.assertEqual((file.path, file.text), ("code/main.py", 'print("hello")\n'))
        one, other = first.commands
        self.assertEqual((one.line, one.text, one.expected), (11, "echo one; echo two", ("one", "…")))
        self.assertEqual((other.text, other.expected), ("echo a \\\n  b", ()))
        self.assertEqual((second.exit_code, second.eventually), (3, True))
        self.assertEqual((left_out.text, setup.commands[0].text), ("it needs a moon", "true"))

    def test_what_would_silently_not_be_run_is_refused(self):
        for text, why in [
            ("    nigh up\n", "fence commands"),
            ("```sh\nnigh up\n```\n", "fence commands"),
            ("<!-- run: backgruond -->\n```console\n$ x\n```\n", "is none of"),
            ("<!-- not run: -->\n```console\n$ x\n```\n", "say why"),
            ("<!-- run: exit 1 -->\nText.\n", "no block follows"),
            ("<!-- run: exit 1 -->\n", "no block follows"),
            ("```console\nnigh up\n```\n", "begins with a command"),
            ("```console\n```\n", "without a command"),
            ("```console\n$ x\n", "no end"),
        ]:
            with self.subTest(text), self.assertRaisesRegex(page.PageError, why):
                page.steps(text)

    def test_expected_lines_stand_for_what_is_printed(self):
        for expected, printed in [
            ((), "anything\n"),
            (("made hello/",), "made hello/\n\n"),
            (("id ab…", "…", "end"), "id ab-c\nx\ny\nend\n"),
            (("…", "end"), "end\n"),
            (("NAME   SIZE", "a  1 B"), "NAME  SIZE\na      1 B\n"),
            (("s3 http://127.0.0.1:9400",), "s3   http://127.0.0.1:38211\n"),
            (("a", "", "b"), "a\n\nb\n"),
            (("id: 019a…",), "id: 01a2b3c4-0000-7000-8000-0123456789ab\n"),
        ]:
            with self.subTest(expected):
                self.assertTrue(page.matches(expected, printed))
        for expected, printed in [
            (("one",), "one\ntwo\n"),
            (("one", "two"), "one\n"),
            (("a.c",), "abc\n"),
            (("id 019a…",), "id 018\n"),
            (("…", "end"), "end\nmore\n"),
            (("s3 http://127.0.0.1:9400",), "s3 http://127.0.0.2:9400\n"),
        ]:
            with self.subTest(expected):
                self.assertFalse(page.matches(expected, printed))


    def test_a_command_gets_the_id_that_was_printed_last(self):
        ids = [f"01a2b3c4-0000-7000-8000-{number:012x}" for number in (1, 2)]
        self.assertEqual(page.with_last_id("nigh explain 019a…", " then ".join(ids)), f"nigh explain {ids[1]}")
        self.assertEqual(page.with_last_id("nigh status", ""), "nigh status")
        with self.assertRaisesRegex(page.PageError, "no id"):
            page.with_last_id("nigh explain 019a…", "nothing")


class Following(unittest.TestCase):
    def followed(self, text):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "page.md"
            path.write_text(text)
            # What it says of failures would be taken for this test's own.
            with contextlib.redirect_stdout(io.StringIO()):
                return run.follow(path, Path("/usr/bin"), Path("/usr/bin/python3"))

    def test_commands_share_a_shell_files_are_written_and_what_runs_behind_is_ended(self):
        text = """<!-- run: file $HOME/said.txt -->
```text
hello
```
```console
$ mkdir new; cd new; export WORD=there
$ echo $WORD; basename $PWD; cat ~/said.txt; cat
there
new
hello
```
<!-- run: background -->
```console
$ echo ready; sleep 1000
ready
```
<!-- run: exit 1 -->
```console
$ false
```
<!-- run: eventually -->
```console
$ [ -e mark ] && echo found || { touch mark; echo not yet; }
found
```
<!-- run: needs no-such-program-there -->
```console
$ no-such-program-there
```
"""
        self.assertEqual(self.followed(text), (True, 5, 1))

    def test_another_answer_or_exit_code_or_background_is_a_failure(self):
        for text in ["```console\n$ echo one\ntwo\n```\n", "```console\n$ false\n```\n", "```sh\n```\n",
                     "<!-- run: background -->\n```console\n$ echo no\nready\n```\n"]:
            with self.subTest(text):
                self.assertFalse(self.followed(text)[0])

    def test_a_command_that_does_not_end_and_a_shell_that_does_are_told(self):
        shell = Shell("/", {"PATH": "/usr/bin:/bin"})
        try:
            with self.assertRaisesRegex(ShellError, "not ended within 0.2 s"):
                shell.run("sleep 1000", 0.2)
        finally:
            shell.end()
        shell = Shell("/", {"PATH": "/usr/bin:/bin"})
        try:
            self.assertEqual(shell.run("echo -n a; exit_code() { return 7; }; exit_code", 10), ("a", 7))
            with self.assertRaisesRegex(ShellError, "the shell has ended"):
                shell.run("exit 3", 10)
        finally:
            shell.end()


if __name__ == "__main__":
    unittest.main()
