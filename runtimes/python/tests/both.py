"""Test cases that run by the client in Python and by the native one.

`scripts/test-python.sh` builds the native module and names it in `NIGH_NATIVE`.
"""

import sys
import unittest
from pathlib import Path
from unittest import mock

from nigh import native

sys.path.append(str(Path(__file__).parents[3] / "tests"))
from skipped import skip

NATIVE, PYTHON = "native", "Python"


class ByClient(unittest.TestCase):
    """By the client that `by` names."""

    by = PYTHON

    def setUp(self):
        super().setUp()
        if self.by == PYTHON:
            self.in_python()
        elif native.module is None:
            skip(self, "there is no native module; `cargo build -p nigh-python` makes it, NIGH_NATIVE names it")

    def in_python(self):
        """From here on, to the end of the test, connections are Python's."""
        patched = mock.patch.object(native, "module", None)
        patched.start()
        self.addCleanup(patched.stop)


def by_both(case):
    """Defines the case once more in its module, for the native client."""
    name = f"Native{case.__name__}"
    setattr(sys.modules[case.__module__], name, type(name, (case,), {"by": NATIVE, "__module__": case.__module__}))
    return case
