"""docs/tutorial.md, step by step, on a machine where a package is installed."""

import re
import shlex
import time
from pathlib import Path

TEXT = Path(__file__).resolve().parent.parent.parent / "docs/tutorial.md"
# The runtime that the tutorial names.
RUNTIME = "python3.11"
# The commands, as the tutorial has them.
MAKE_BUCKET = "nigh objects mb nigh://texts"
COPY = "nigh objects cp in.txt nigh://texts/in.txt"
LIST = "nigh objects ls nigh://texts"
DEPLOY = f"nigh deploy count --folder count --handler app.handler --runtime {RUNTIME}"
INVOKE = """nigh invoke count '{"bucket":"texts","key":"in.txt"}'"""
ACTIVATIONS = "nigh activations"
DEPLOY_SEEN = f"nigh deploy seen --folder seen --handler app.handler --runtime {RUNTIME} --trigger texts/in/"
COPY_MORE = "nigh objects cp in.txt nigh://texts/in/a.txt"
LOGS = "nigh logs seen"
DOWN = "nigh down"
COMMANDS = (MAKE_BUCKET, COPY, LIST, DEPLOY, INVOKE, ACTIVATIONS, DEPLOY_SEEN, COPY_MORE, LOGS, DOWN)
WITHIN_S = 60


def handlers():
    """The functions' files by their paths, from the tutorial's text."""
    found = {}
    for path, code in re.findall(r"`(\w+/app\.py)`:\n\n((?:    .*\n|\n)+)", TEXT.read_text()):
        found[path] = "\n".join(line[4:] for line in code.rstrip("\n").split("\n")) + "\n"
    return found


def wait_for(what, check):
    """What `check` gives when it gives something."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        try:
            found = check()
        except AssertionError as error:
            found, what = None, f"{what}: {error}"
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"within {WITHIN_S} s: no {what}")
        time.sleep(0.2)


def follow(run, write, runtime=RUNTIME, ends=True):
    """Follows the tutorial from step 2 on. `run` runs words beside the files that `write` writes, and gives the output.

    Without `ends` the node goes on: a container ends with its node, and so would the command that waits for that."""

    def say(command):
        return run(shlex.split(command.replace(RUNTIME, runtime)))

    wait_for("node", lambda: say("nigh status"))
    write("in.txt", "one two three\n")
    for path, code in handlers().items():
        write(path, code)
    say(MAKE_BUCKET)
    say(COPY)
    assert "in.txt" in say(LIST)
    say(DEPLOY)
    for _ in range(2):
        assert '"words": 3' in say(INVOKE), "the function's answer"
    assert "in.txt.count" in say(LIST), "the function's object"
    assert "count" in say(ACTIVATIONS)
    say(DEPLOY_SEEN)
    say(COPY_MORE)
    wait_for("line of the function that the trigger runs", lambda: "new: in/a.txt" in say(LOGS))
    if ends:
        say(DOWN)
