#!/usr/bin/env python3
"""Which tests may skip on this machine: may_skip.py FILE writes their lines of `.ci/may-skip` to FILE.

A line there is `NAME CONDITION REASON`. The condition is looked at here and not by the test, so that the list cannot hide
a test that could run. Exits with 1 if a line is wrong. The tests read FILE by the variable NIGH_TEST_MAY_SKIP.
"""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
LIST = PROJECT / ".ci/may-skip"
PEERS = PROJECT / "crates/nigh-lab/peers"
INSTALLED = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nigh/peers"


def has_peer(name):
    """Whether `make peers` has built this server, in its pinned version."""
    versions = dict(line.split()[:2] for line in (PEERS / "versions").read_text().splitlines())
    return (INSTALLED / f"{name}-{versions[name]}" / name).is_file()


def has_weka():
    """Whether `make peers` has fetched WEKA, in its pinned version."""
    pom = (PEERS / "weka/pom.xml").read_text()
    version = re.search(r"<artifactId>weka-stable</artifactId>\s*<version>(.*?)</version>", pom)[1]
    return (INSTALLED / f"weka-{version}").is_dir()


def kernel():
    """The kernel's version, as two numbers."""
    return tuple(int(number) for number in re.findall(r"\d+", os.uname().release)[:2])


def mounts(kind):
    """Whether a file system of this kind is mounted."""
    return any(line.split()[2] == kind for line in Path("/proc/self/mounts").read_text().splitlines())


def can_serve_disks():
    """Whether a disk can be served by FUSE and a loop device."""
    return os.geteuid() == 0 and all(map(os.path.exists, ("/dev/fuse", "/dev/loop-control")))


def answer(*command):
    """What a program prints; nothing if it is not there or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def node_major():
    """The major version of the Node.js in PATH; 0 if there is none."""
    found = re.match(r"v(\d+)\.", answer("node", "--version"))
    return int(found[1]) if found else 0


def python_minors():
    """The minor versions of Python, 3.10 to 3.13, in PATH and of pyenv."""
    versions = Path.home() / ".pyenv/versions"
    return {
        minor
        for minor in range(10, 14)
        if any(versions.glob(f"*/bin/python3.{minor}")) or answer(f"python3.{minor}", "--version")
    }


# Why a test may skip, by the word that .ci/may-skip has for it.
CONDITIONS = {
    "no-llc": lambda: not Path("/sys/devices/system/cpu/cpu0/cache/index3/size").exists(),
    "resctrl": lambda: Path("/sys/fs/resctrl").is_dir(),
    "no-cgroup-v2": lambda: os.geteuid() != 0 or not mounts("cgroup2"),
    "cgroup-v2": lambda: Path("/sys/fs/cgroup/cgroup.controllers").exists(),
    "before-linux-6.3": lambda: kernel() < (6, 3),
    "no-minio": lambda: not has_peer("minio"),
    "no-weka": lambda: not has_weka(),
    "no-java": lambda: not (shutil.which("java") and shutil.which("mvn")),
    "no-node": lambda: node_major() < 20,
    "no-npm": lambda: node_major() < 20 or not shutil.which("npm"),
    "no-chromium": lambda: not Path("/usr/bin/chromium").exists() or node_major() < 20 or not shutil.which("npm"),
    "no-second-python": lambda: len(python_minors()) < 2,
    "no-go": lambda: not shutil.which("go"),
    "no-promtool": lambda: not (shutil.which("promtool") or (PROJECT / ".deps/promtool").is_file()),
    "no-fuse": lambda: not can_serve_disks(),
    "no-synchronizers": lambda: not (shutil.which("rclone") and shutil.which("s3cmd")),
    "no-wsk": lambda: not shutil.which("wsk"),
    # These two are of tests with #[ignore]: another test runs it as a process of its own; somebody asks for it.
    "child": lambda: True,
    "by-hand": lambda: True,
}


def read(text):
    """The (name, condition, reason) of each line, and what is wrong with the text."""
    entries, wrong = [], []
    for line in text.splitlines():
        words = line.split(None, 2)
        if not words or words[0].startswith("#"):
            continue
        if len(words) < 3:
            wrong.append(f"expected `NAME CONDITION REASON`, found {line!r}")
        elif words[1] not in CONDITIONS:
            wrong.append(f"{words[0]}: there is no condition {words[1]!r}; there are {', '.join(CONDITIONS)}")
        else:
            entries.append(tuple(words))
    names = Counter(name for name, _, _ in entries)
    wrong += [f"{name} is listed twice" for name, count in names.items() if count > 1]
    return entries, wrong


def here(entries):
    """Those whose condition holds on this machine."""
    holds = {condition: CONDITIONS[condition]() for condition in {condition for _, condition, _ in entries}}
    return [entry for entry in entries if holds[entry[1]]]


def main():
    """Writes the file, and says which conditions hold."""
    if len(sys.argv) != 2:
        sys.exit("usage: may_skip.py FILE")
    entries, wrong = read(LIST.read_text())
    holding = here(entries)
    Path(sys.argv[1]).write_text("".join(" ".join(entry) + "\n" for entry in holding))
    counts = Counter(condition for _, condition, _ in holding)
    print("may skip here: " + (", ".join(f"{count} by {name}" for name, count in counts.items()) or "none"))
    for fault in wrong:
        print(f".ci/may-skip: {fault}", file=sys.stderr)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
