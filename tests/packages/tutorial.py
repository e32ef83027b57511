"""docs/tutorial.md, step by step, on a machine where a package is installed.

Its commands and functions are read from its text, so that what is tested is what is read.
"""

import re
import shlex
import time
from pathlib import Path

TEXT = Path(__file__).resolve().parent.parent.parent / "docs/tutorial.md"
# The runtime that the tutorial names.
RUNTIME = "python3.11"
# What the tutorial counts the words of, and the answer that it shows.
INPUT, ANSWER = "one two three\n", '"words": 3'
# Commands for a terminal, and what stands for them; None is left out.
INSTEAD = {"nigh up": None, "nigh dev": "nigh deploy"}
WITHIN_S = 60


def functions():
    """The functions' files by their paths: a block after a sentence that ends with the path and a colon."""
    found = {}
    for path, code in re.findall(r"`(\w+/app\.py)`:\n\n((?:    .*\n|\n)+)", TEXT.read_text()):
        found[path] = "\n".join(line[4:] for line in code.rstrip("\n").split("\n")) + "\n"
    return found


def commands():
    """The lines that begin with `nigh` or `cd`, without those whose values only a reader knows."""
    lines = re.findall(r"^    ((?:nigh|cd) [^\n]*)$", TEXT.read_text(), re.M)
    plain = [re.sub(r"\s+# .*$", "", line).strip() for line in lines]
    chosen = [INSTEAD.get(line, line) for line in plain if "…" not in line]
    return [line for line in chosen if line]


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


def follow(run, write, runtime=RUNTIME, ends=True):
    """Follows the tutorial beside a node that somebody starts.

    `run` runs words in a folder below the one where `write` writes files, and gives the output. Without `ends` the node
    goes on: a container ends with its node, and so would the command that waits for that."""
    folder = ""

    def say(command):
        return run(shlex.split(command.replace(RUNTIME, runtime)), folder)

    wait_for("node", lambda: say("nigh status"))
    for path, code in functions().items():
        write(path, code)
    invoked = 0
    for command in commands():
        words = shlex.split(command)
        if words[0] == "cd":
            folder = f"{folder}/{words[1]}".strip("/")
        elif words[:3] == ["nigh", "objects", "cp"]:
            write(f"{folder}/{words[3]}".strip("/"), INPUT)
            say(command)
        elif words[:2] == ["nigh", "invoke"]:
            assert ANSWER in say(command), "the function's answer"
            assert ANSWER in say(command), "its answer when it is warm"
            invoked += 1
        elif words[:2] == ["nigh", "logs"]:
            wait_for("log of a function that a trigger runs", lambda command=command: say(command))
        else:
            say(command)
    assert invoked, "the tutorial invokes nothing"
    folder = ""
    assert "in.txt.count" in say("nigh objects ls nigh://texts"), "the object that the function writes"
    if ends:
        say("nigh down")
