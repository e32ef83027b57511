"""Tests that have a responder, and what they look at beside its answers."""

import os
import socket
import time

import nigh
from tests.both import ByClient
from tests.responder import KEY, SECRET, Responder

LARGE = bytes(range(256)) * 1024


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def opened(name):
    """The numbers of this process's descriptors of files or sockets whose name begins so."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{number}").startswith(name):
                found.append(int(number))
        except FileNotFoundError:
            # Another thread closed it, or it was the folder's own.
            pass
    return found


def name_of_socket(connection):
    """What `opened` finds of a connection."""
    return os.readlink(f"/proc/self/fd/{connection.fileno()}")


def socket_of(connection):
    """A connection's socket, to look at its options and to set them. To be closed."""
    return socket.socket(fileno=os.dup(connection.fileno()))


class WithResponder(ByClient):
    def serve(self, spoil=None):
        responder = Responder(spoil)
        self.addCleanup(responder.close)
        responder.client = nigh.Client(responder.address, KEY, SECRET, timeout_s=20)
        return responder

    def large(self):
        """A responder with a large object, and its client."""
        responder = self.serve()
        responder.client.put("b", "k", LARGE)
        return responder, responder.client

    def until(self, happened):
        ends = time.monotonic() + 20
        while not happened():
            self.assertLess(time.monotonic(), ends, "it did not happen")
            time.sleep(0.005)

    def in_a_child(self, work, fork=os.fork):
        child = fork()
        if child == 0:
            code = 1
            try:
                work()
                code = 0
            finally:
                os._exit(code)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
