#!/usr/bin/env python3
"""Judges what a run of all tests printed: judge_tests.py LOG MAY_SKIP. Exits with 1 if something is wrong.

A test that cannot run prints `SKIPPED: NAME: REASON`. Only the tests in MAY_SKIP may do that: the file that may_skip.py
wrote for this machine. Each test that SEMANTICS.md names must have run and passed, or be in that file. No fewer tests may
pass than `.ci/tests-least` says, so that a crate that drops out of the run is seen.
"""

import re
import sys
from collections import defaultdict
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent

ENDINGS = re.compile(r"^test result: .*?(\d+) passed; (\d+) failed", re.M)
RESULTS = re.compile(r"^test (?:\S+::)?(\S+)(?: - should panic)? \.\.\. (ok|FAILED|ignored)", re.M)
SKIPS = re.compile(r"^SKIPPED: ([^:\n]+): *(.*)$", re.M)
# The conditions of tests with #[ignore].
IGNORED = ("child", "by-hand")


def promised(semantics):
    """The tests that the tables of promises name."""
    names = set()
    for row in semantics.splitlines():
        if row.startswith("|"):
            names.update(re.findall(r"`([a-z0-9_]+(?:_[a-z0-9]+){2,})`", row.rstrip("| ").rpartition("|")[2]))
    return names


def listed(text):
    """Of each test in MAY_SKIP its condition and reason."""
    lines = (line.split(None, 2) for line in text.splitlines())
    return {name: (condition, reason) for name, condition, reason in lines}


def judge(log, may_skip, promises, least):
    """What is wrong with a run, and its closing lines."""
    results, skips = RESULTS.findall(log), set(SKIPS.findall(log))
    skipped = {name for name, _ in skips}
    ran = {name for name, end in results if end == "ok"} - skipped
    may = {name: reason for name, (condition, reason) in may_skip.items() if condition not in IGNORED}
    passed, failed = (sum(map(int, counts)) for counts in zip(*ENDINGS.findall(log), ("0", "0")))

    wrong = [f"{name} was skipped and must run here: {reason}" for name, reason in sorted(skips) if name not in may]
    for name in sorted({name for name, end in results if end == "ignored"}):
        if may_skip.get(name, ("",))[0] not in IGNORED:
            wrong.append(f"{name} is ignored; list it in .ci/may-skip as `child` or `by-hand`")
    wrong += [f"{name} did not run and pass; SEMANTICS.md names it" for name in sorted(promises - ran - may.keys())]
    if passed < least:
        wrong.append(f"{passed} tests passed, fewer than the {least} of .ci/tests-least: which did not run?")

    by_reason = defaultdict(list)
    for name in skipped & may.keys():
        by_reason[may[name]].append(name)
    closing = [f"skipped {len(names)}: {reason} ({', '.join(sorted(names))})" for reason, names in sorted(by_reason.items())]
    closing += [f"promise not shown here: {name}: {may[name]}" for name in sorted(promises & may.keys() - ran)]
    closing.append(f"rust: {passed} passed, {failed} failed, {len(skipped)} skipped")
    return wrong, closing


def main():
    """Judges the log and prints what is wrong, then the closing lines."""
    if len(sys.argv) != 3:
        sys.exit("usage: judge_tests.py LOG MAY_SKIP")
    log, may_skip = (Path(argument).read_text(errors="replace") for argument in sys.argv[1:])
    promises = promised((PROJECT / "SEMANTICS.md").read_text())
    wrong, closing = judge(log, listed(may_skip), promises, int((PROJECT / ".ci/tests-least").read_text()))
    for fault in wrong:
        print(f"FAILED: {fault}")
    print("\n".join(closing))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
