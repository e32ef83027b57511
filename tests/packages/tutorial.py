"""docs/tutorial.md, step by step, on a machine where a package is installed.

What is run, and what it prints, is read from its text as the tests of the documents read it (tests/docs/page.py).
"""

import shlex
import sys
import time
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent.parent
sys.path.append(str(PROJECT / "tests/docs"))

import page  # noqa: E402

TEXT = PROJECT / "docs/tutorial.md"
# An image has no other programs.
PROGRAMS = ("nigh", "cd")
WITHIN_S = 60


def commands():
    """Each command, and whether it is repeated until it prints what it should. The node is started by somebody else."""
    steps = [step for step in page.steps(TEXT.read_text()) if step.kind == "commands" and not step.needs]
    found = [(command, step.eventually) for step in steps for command in step.commands]
    return [(command, eventually) for command, eventually in found if words(command.text)[0] in PROGRAMS]


def words(text):
    """The words of a command, without its remark."""
    return shlex.split(text, comments=True)


def wait_for(what, check):
    """What `check` gives when it gives something."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        why = ""
        try:
            if found := check():
                return found
        except AssertionError as error:
            why = f": {error}"
        if time.monotonic() > deadline:
            raise AssertionError(f"within {WITHIN_S} s: no {what}{why}")
        time.sleep(0.2)


def missing(expected, printed):
    """The expected lines that are not printed. Standard output and standard error may come in any order."""
    lines = [line for line in expected if line != page.ANY]
    return [line for line in lines if not page.matches((page.ANY, line, page.ANY), printed)]


def follow(run, ends=True):
    """Follows the tutorial beside a node that somebody starts.

    `run` runs words in a folder below a home folder, and gives all that they print. Without `ends` the node goes on: a
    container ends with its node, and so would the command that waits for that."""
    folder, printed = "", ""
    wait_for("node", lambda: run(["nigh", "status"], folder))

    def said(command):
        """What the command prints; an AssertionError if it is not what the tutorial says."""
        text = page.with_last_id(command.text, printed)
        answer = run(words(text), folder)
        lacks = missing(command.expected, answer)
        assert not lacks, f"{text} does not print {lacks}:\n{answer}"
        return f"{answer}\n"

    invoked = False
    for command, eventually in commands():
        first, *more = words(command.text)
        if first == "cd":
            folder = f"{folder}/{more[0]}".strip("/")
        elif more != ["down"] or ends:
            printed += wait_for(command.text, lambda command=command: said(command)) if eventually else said(command)
            invoked |= more[0] == "invoke"
    assert invoked, "the tutorial invokes nothing"
