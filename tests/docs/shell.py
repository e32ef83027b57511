"""The shell that follows a page: one for all its commands, so that `cd` and `eval` hold for those that come after."""

import contextlib
import os
import selectors
import signal
import subprocess
import time
import uuid


class ShellError(RuntimeError):
    """A command did not end, or the shell did."""


def end(process, within_s=40):
    """Asks a process and all that it started to end, and kills what does not."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(within_s)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Shell:
    """A bash that reads commands; their standard error is among what they print."""

    def __init__(self, folder, environment):
        words = ["bash", "--noprofile", "--norc"]
        self.process = subprocess.Popen(
            words, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True,
        )
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.process.stdout, selectors.EVENT_READ)

    def run(self, command, within_s):
        """What the command prints, and its exit code."""
        mark = uuid.uuid4().hex
        # In this shell, not in one of its own; and what reads its input finds no further commands there.
        self.process.stdin.write(f"{{ {command}\n}} </dev/null\nprintf '\\n%s %d\\n' {mark} $?\n".encode())
        self.process.stdin.flush()
        printed, deadline = b"", time.monotonic() + within_s
        while f"\n{mark} ".encode() not in printed or not printed.endswith(b"\n"):
            if not self.selector.select(max(0, deadline - time.monotonic())):
                raise ShellError(f"it has not ended within {within_s} s; it printed:\n{printed.decode(errors='replace')}")
            part = os.read(self.process.stdout.fileno(), 65536)
            if not part:
                raise ShellError(f"the shell has ended; it printed:\n{printed.decode(errors='replace')}")
            printed += part
        text, _, code = printed.decode(errors="replace").rpartition(f"\n{mark} ")
        return text, int(code)

    def end(self):
        """Ends the shell and what it left running."""
        self.process.stdin.close()
        end(self.process, 5)
        self.process.stdout.close()
        self.selector.close()


class Background:
    """A command that keeps running; what it prints goes to a file."""

    def __init__(self, command, folder, environment, log):
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                ["bash", "-c", command], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True,
            )

    def printed(self):
        """All that it has printed so far."""
        return self.log.read_text(errors="replace")

    def end(self):
        """Ends it; it may have ended already."""
        end(self.process)
