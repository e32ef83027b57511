"""The machine of a stored result, in the fields that `nigh experiment` writes.

Their source is crates/nigh-lab/src/instrument/machine.rs.
"""

import datetime
import os
import platform
import re
import shlex
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]


def read():
    """This machine, the command that runs, and the commit it runs in."""
    commit = git("rev-parse", "--short", "HEAD") or "unknown"
    changes = git("status", "--porcelain", "--", ":/", ":(top,exclude)experiments")
    now = datetime.datetime.now(datetime.timezone.utc)
    script = Path(sys.argv[0]).resolve().relative_to(PROJECT)
    machine = {
        "cpu": field("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(int(field("/proc/meminfo", "MemTotal").split()[0]) / (1 << 20), 1),
        "kernel": platform.release(),
        "load": float(Path("/proc/loadavg").read_text().split()[0]),
        "date": now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "command": shlex.join([str(script), *sys.argv[1:]]),
        "commit": commit,
    }
    return {**machine, "dirty": True} if changes != "" else machine


def field(path, name):
    """What a file of proc(5) says after `name`; empty if it says nothing."""
    found = re.search(rf"^{name}\s*:\s*(.*)$", Path(path).read_text(), re.M)
    return found.group(1) if found else ""


def git(*arguments):
    """What git answers; None if it fails."""
    done = subprocess.run(["git", "-C", PROJECT, *arguments], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None
