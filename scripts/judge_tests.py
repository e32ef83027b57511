#!/usr/bin/env python3
"""Judges what a run of all tests printed: judge_tests.py LOG [PROJECT]. Exits with 1 if something is wrong.

A test that cannot run prints `SKIPPED: NAME: REASON` and passes. Only the tests of `.ci/may-skip` may do that, each
under a condition that this program looks at itself, so that the list cannot hide a test that could run here. Each test
that SEMANTICS.md names must have passed, or may skip here. `judge_tests.py --self-test` judges made-up logs.
"""

import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

INDEX3 = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
PEERS = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "nigh" / "peers"

ENDINGS = re.compile(r"^test result: .*?(\d+) passed; (\d+) failed", re.M)


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
    versions = Path.home() / ".pyenv" / "versions"
    return {
        minor
        for minor in range(10, 14)
        if any(versions.glob(f"3.{minor}.*/bin/python3.{minor}")) or answer(f"python3.{minor}", "--version")
    }


# What a test may lack, by the word that .ci/may-skip has for it.
CONDITIONS = {
    "no-llc": lambda: not INDEX3.exists(),
    "resctrl": lambda: Path("/sys/fs/resctrl").is_dir(),
    "no-cgroup-v2": lambda: not Path("/sys/fs/cgroup/cgroup.controllers").exists(),
    "cgroup-v2": lambda: Path("/sys/fs/cgroup/cgroup.controllers").exists(),
    "before-linux-6.3": lambda: tuple(int(n) for n in re.findall(r"\d+", os.uname().release)[:2]) < (6, 3),
    "no-minio": lambda: not any(PEERS.glob("minio-*")),
    "no-weka": lambda: not any(PEERS.glob("weka-*")),
    "no-java": lambda: not (shutil.which("java") and shutil.which("mvn")),
    "no-go": lambda: not shutil.which("go"),
    "no-node": lambda: node_major() < 20,
    "no-npm": lambda: node_major() < 20 or not shutil.which("npm"),
    "no-second-python": lambda: len(python_minors()) < 2,
    "no-fuse": lambda: os.geteuid() or not all(map(os.path.exists, ("/dev/fuse", "/dev/loop-control"))),
    "no-wsk": lambda: not shutil.which("wsk"),
    # Run by its parent, or by somebody who asks for it.
    "ignored": lambda: True,
}


def may_skip(text):
    """The tests that may skip on this machine, and complaints about the list."""
    allowed, complaints = {}, []
    for line in text.splitlines():
        words = line.split(None, 2)
        if not words or words[0].startswith("#"):
            continue
        if len(words) < 3 or words[1] not in CONDITIONS:
            complaints.append(f".ci/may-skip: expected `NAME CONDITION REASON`, found {line!r}")
        elif CONDITIONS[words[1]]():
            allowed[words[0]] = words[2]
    return allowed, complaints


def promised(semantics):
    """The tests that the tables of promises name."""
    names = set()
    for row in semantics.splitlines():
        if row.startswith("|"):
            names.update(re.findall(r"`([a-z0-9_]+(?:_[a-z0-9]+){2,})`", row.rstrip("| ").rpartition("|")[2]))
    return names


def judge(log, allowed, promises):
    """What is wrong with a run, and its closing lines."""
    results = re.findall(r"^test (?:\S+::)?(\S+)(?: - should panic)? \.\.\. (ok|FAILED|ignored)", log, re.M)
    passed = {name for name, end in results if end == "ok"}
    skips = set(re.findall(r"^SKIPPED: ([^:\n]+): *(.*)$", log, re.M))
    skipped = {name for name, _ in skips}
    wrong = [f"{name} was skipped and must run here: {reason}" for name, reason in sorted(skips) if name not in allowed]
    for name, end in results:
        if end == "ignored" and name not in allowed:
            wrong.append(f"{name} is ignored; .ci/may-skip does not name it")
    for name in sorted(promises - (passed - skipped) - allowed.keys()):
        wrong.append(f"{name} did not pass; SEMANTICS.md names it")
    closing = []
    by_reason = defaultdict(list)
    for name in skipped & allowed.keys():
        by_reason[allowed[name]].append(name)
    for reason, names in sorted(by_reason.items()):
        closing.append(f"skipped, {reason}: {', '.join(sorted(names))}")
    ok, failed = (sum(map(int, counts)) for counts in zip(*ENDINGS.findall(log), ("0", "0")))
    closing.append(f"rust: {ok} passed, {failed} failed, {len(skipped)} skipped")
    return wrong, closing


def self_test():
    """Each kind of wrong run is told, and a right one is not."""
    right = "test a::kept_promise_of_ours ... ok\ntest may_skip_test_here ... ok\nSKIPPED: may_skip_test_here: no wsk\n"
    right += "test result: ok. 2 passed; 0 failed; 0 ignored\n"
    allowed, promises = {"may_skip_test_here": "no wsk", "a_child_of_a_test": "child"}, {"kept_promise_of_ours"}
    assert judge(right, allowed, promises)[0] == []
    assert judge(right, allowed, promises)[1][-1] == "rust: 2 passed, 0 failed, 1 skipped"
    for bad in (
        right + "SKIPPED: another_test_of_ours: because\n",
        right + "test b::some_other_test ... ignored, by hand\n",
        right.replace("kept_promise_of_ours ... ok", "kept_promise_of_ours ... FAILED"),
        right + "SKIPPED: kept_promise_of_ours: no disk\n",
        "test may_skip_test_here ... ok\n",
    ):
        assert judge(bad, allowed, promises)[0], bad
    assert may_skip("a no-such-condition b")[1] and may_skip("a ignored")[1]
    assert promised("| text `not_this_one_here` | `this_is_a_test`, `and_this_one_too` |") == {"this_is_a_test", "and_this_one_too"}


def main():
    """Judges the log and prints what is wrong, then the closing lines."""
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    project = Path(sys.argv[2] if len(sys.argv) > 2 else Path(__file__).parent.parent)
    log = Path(sys.argv[1]).read_text(errors="replace")
    allowed, wrong = may_skip((project / ".ci/may-skip").read_text())
    faults, closing = judge(log, allowed, promised((project / "SEMANTICS.md").read_text()))
    for fault in wrong + faults:
        print(f"FAILED: {fault}")
    print("\n".join(closing))
    sys.exit(bool(wrong + faults))


main()
