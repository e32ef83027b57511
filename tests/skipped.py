"""How a Python test says that it cannot run here: the one place that prints `SKIPPED: NAME: REASON`.

`make test` sets NIGH_TEST_MAY_SKIP to a file of the tests that may skip on this machine (`.ci/may-skip`, as far as
scripts/may_skip.py finds the conditions to hold). Any other test then fails where it would skip. The Rust tests have
`skipped.rs`.
"""

from __future__ import annotations

import os
import unittest
from typing import Any, Callable, NoReturn


def say(name: str, reason: str) -> None:
    """Says that the test `name` cannot run here; an AssertionError if it must."""
    # The line before may be unittest's dots.
    print(f"\nSKIPPED: {name}: {reason}", flush=True)
    listed = os.environ.get("NIGH_TEST_MAY_SKIP")
    if listed is None:
        return
    with open(listed, encoding="utf-8") as file:
        if all(line.split()[:1] != [name] for line in file):
            how = "Install that, or list the test in .ci/may-skip"
            raise AssertionError(f"{name} must run here and cannot: {reason}. {how}")


def skip(test: unittest.TestCase, reason: str) -> NoReturn:
    """Ends `test`, which is running, as skipped."""
    say(test._testMethodName, reason)
    raise unittest.SkipTest(reason)


def skip_class(name: str, reason: str) -> NoReturn:
    """Ends the `setUpClass` of the class `name`: none of its tests runs."""
    say(name, reason)
    raise unittest.SkipTest(reason) from None


def skip_unless(condition: object, name: str, reason: str) -> Callable[[Any], Any]:
    """Decorates a test, or a class of tests, called `name`: unless `condition`, none runs."""
    if not condition:
        say(name, reason)
    return unittest.skipUnless(condition, reason)
