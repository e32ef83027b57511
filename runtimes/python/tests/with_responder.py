"""Tests that have a responder, and what they look at beside its answers."""

import os
import time
import unittest

import nigh
from tests.responder import KEY, SECRET, Responder

LARGE = bytes(range(256)) * 1024


def descriptors():
    return len(os.listdir("/proc/self/fd"))


class WithResponder(unittest.TestCase):
    def serve(self, spoil=None):
        responder = Responder(spoil)
        self.addCleanup(responder.close)
        responder.client = nigh.Client(responder.address, KEY, SECRET, timeout_s=20)
        return responder

    def until(self, happened):
        ends = time.monotonic() + 20
        while not happened():
            self.assertLess(time.monotonic(), ends, "it did not happen")
            time.sleep(0.005)

    def in_a_child(self, work):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                work()
                code = 0
            finally:
                os._exit(code)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
