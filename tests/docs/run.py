#!/usr/bin/env python3
"""Runs the commands in the pages of the documentation, and compares what they print with what the pages say.

    tests/docs/run.py --programs target/debug [--python PROGRAM] [PAGE ...]

Without pages: README.md and those in docs/, docs/howto/ and docs/reference/. Each page has a home folder, a state folder and free ports
of its own. page.py says how a page is marked. Exit code 1: a page's commands do something else than it says.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import page
from shell import Background, Shell, ShellError

PROJECT = Path(__file__).resolve().parent.parent.parent
# How long a command may take, a node may take to start, and a command is repeated.
COMMAND_S = 120
START_S = 60
EVENTUALLY_S = 60
PAUSE_S = 0.2


class Difference(Exception):
    """A command does something else than its page says."""

    def __init__(self, command, why, printed):
        super().__init__(f"$ {command.text}\n{why}\n--- expected\n{chr(10).join(command.expected)}\n--- printed\n{printed}")
        self.line = command.line


def pages():
    """The pages that are run."""
    folders = [PROJECT / "docs", PROJECT / "docs/howto", PROJECT / "docs/reference"]
    return [PROJECT / "README.md", *(path for folder in folders for path in sorted(folder.glob("*.md")))]


def environment(folder, programs, python):
    """The variables of a page's commands."""
    kept = {name: os.environ[name] for name in ("LANG", "USER", "LOGNAME", "TMPDIR") if name in os.environ}
    path = [str(programs), str(PROJECT / ".deps/test/bin"), "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"]
    return {
        "LANG": "C.UTF-8", **kept, "HOME": str(folder / "home"), "PATH": ":".join(path), "TERM": "dumb", "NO_COLOR": "1",
        "NIGH_STATE": str(folder / "state"), "NIGH_S3__LISTEN": "127.0.0.1:0", "NIGH_LAMBDA__LISTEN": "127.0.0.1:0",
        "NIGH_FUNCTIONS__PYTHON": str(python), "AWS_EC2_METADATA_DISABLED": "true", "PYTHONDONTWRITEBYTECODE": "1",
    }


class Follower:
    """Follows one page."""

    def __init__(self, folder, variables):
        self.folder, self.variables = folder, variables
        self.work = folder / "work"
        for made in (self.work, folder / "home"):
            made.mkdir(parents=True)
        self.shell = Shell(self.work, variables)
        self.background = []
        self.run, self.left_out = 0, []
        # All that the page's commands have printed.
        self.printed = ""

    def follow(self, step):
        """Does what the step says."""
        missing = [name for name in step.needs if not shutil.which(name, path=self.variables["PATH"])]
        if step.kind == "left_out" or missing:
            reason = f"there is no {', '.join(missing)}" if missing else step.text
            self.left_out.append((step.line, reason))
        elif step.kind == "node":
            self.begin(page.Command(step.line, "nigh up", ("Ready.…",)))
        elif step.kind == "file":
            path = self.work / Path(self.expanded(step.path))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(step.text)
            path.chmod(0o600)
        elif step.kind == "background":
            for command in step.commands:
                self.begin(command)
        else:
            for command in step.commands:
                self.check(command, step)
                self.run += 1

    def expanded(self, path):
        """The path with the page's variables in it."""
        for name, value in self.variables.items():
            path = path.replace(f"${name}", value)
        return path

    def begin(self, command):
        """Starts a command that keeps running, and waits for its expected lines."""
        log = self.folder / f"background-{len(self.background)}.log"
        # Where the shell is now.
        here, _ = self.shell.run("pwd", COMMAND_S)
        started = Background(command.text, here.strip(), self.variables, log)
        self.background.append(started)
        deadline = time.monotonic() + START_S
        # Log lines may stand around them.
        expected = (page.ANY, *command.expected, page.ANY)
        while not page.matches(expected, started.printed()):
            if started.process.poll() is not None or time.monotonic() > deadline:
                raise Difference(command, f"not printed within {START_S} s", started.printed())
            time.sleep(PAUSE_S)
        self.run += 1

    def check(self, command, step):
        """Runs a command to its end; `eventually`, until it prints what is expected."""
        deadline = time.monotonic() + EVENTUALLY_S
        while True:
            try:
                printed, code = self.shell.run(page.with_last_id(command.text, self.printed), COMMAND_S)
            except ShellError as error:
                raise Difference(command, str(error), "") from error
            is_right = code == step.exit_code and page.matches(command.expected, printed)
            if is_right:
                self.printed += printed
                return
            if not step.eventually or time.monotonic() > deadline:
                why = f"exit code {code}, not {step.exit_code}" if code != step.exit_code else "it prints something else"
                raise Difference(command, why, printed)
            time.sleep(PAUSE_S)

    def end(self):
        """Ends all that the page has started."""
        self.shell.end()
        for started in reversed(self.background):
            started.end()


def follow(path, programs, python):
    """Follows a page: whether it is right, how many commands were run, and what was left out."""
    name = path.relative_to(PROJECT) if path.is_relative_to(PROJECT) else path
    with tempfile.TemporaryDirectory(prefix="nigh-docs-") as folder:
        folder = Path(folder)
        follower = Follower(folder, environment(folder, programs, python))
        is_right, begun = True, time.monotonic()
        try:
            for step in page.steps(path.read_text()):
                follower.follow(step)
        except (Difference, page.PageError) as error:
            print(f"FAIL: {name}:{getattr(error, 'line', 0)}: {error}")
            for started in follower.background:
                print(f"--- {started.log.name}\n{started.printed()}")
            is_right = False
        finally:
            follower.end()
    for line, reason in follower.left_out:
        print(f"not run: {name}:{line}: {reason}")
    print(f"{name}: {follower.run} commands in {time.monotonic() - begun:.1f} s, {len(follower.left_out)} blocks left out")
    return is_right, follower.run, len(follower.left_out)


def main():
    """Follows the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, default=PROJECT / "target/debug", help="the folder of nigh and its programs")
    parser.add_argument("--python", type=Path, default=PROJECT / ".deps/python/bin/python3", help="runs Python functions")
    parser.add_argument("pages", nargs="*", type=Path)
    arguments = parser.parse_args()
    programs, python = arguments.programs.absolute(), arguments.python.absolute()
    for needed in (programs / "nigh", python):
        if not needed.exists():
            parser.error(f"{needed} is missing; `cargo build --bins` and `make deps` make them")
    followed = [follow(path.absolute(), programs, python) for path in arguments.pages or pages()]
    right, run, left_out = (list(column) for column in zip(*followed, strict=True))
    print(f"documents: {sum(right)} of {len(right)} pages right, {sum(run)} commands run, {sum(left_out)} blocks left out")
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
