"""How a test says that it cannot run here: a line of its own, which `make test` counts."""

import unittest


def skip(test, reason):
    """Ends `test`, which is running, as skipped."""
    _say(test._testMethodName, reason)
    test.skipTest(reason)


def skip_class_if(condition, name, reason):
    """Decorates a class of tests, of which none runs if `condition`."""
    if condition:
        _say(name, reason)
    return unittest.skipIf(condition, reason)


def _say(name, reason):
    # The line before may be unittest's dots.
    print(f"\nSKIPPED: {name}: {reason}", flush=True)
