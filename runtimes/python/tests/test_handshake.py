"""How a connection begins: a greeting, the proof of the secret, and servers that get it wrong."""

import os
import socket
import tempfile
import threading
import unittest
from unittest import mock

from nigh import connection, wire
from nigh.errors import NotAdmitted, ProtocolError
from tests.both import ByClient, by_both
from tests.responder import KEY, SECRET, Responder, packet, sealed
from tests.with_responder import descriptors

GREETING = (packet(wire.GREETING, 0, {"nonce": "0" * 32}),)
ADMITTED = (packet(wire.ANSWER, 0, {}),)


@by_both
class Handshake(ByClient):
    def connect(self, *replies):
        """Against a server that sends the first reply at once, and the next after each request.

        A reply is a packet, and functions that make the descriptors beside it.
        """
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        address = os.path.join(folder.name, "fast.sock")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(address)
        listener.listen()
        # A client that does not come or does not go is a failure and no endless wait.
        listener.settimeout(20)
        requests = []

        def serve():
            with listener, listener.accept()[0] as accepted:
                accepted.settimeout(20)
                for data, *beside in replies:
                    Responder.send(accepted, data, *(make() for make in beside))
                    requests.append(accepted.recv(wire.PACKET_BYTES_MAX))

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            connection.connect(address, KEY, SECRET, 20).close()
        finally:
            thread.join()
        return requests

    def refused(self, error, *replies):
        before = descriptors()
        with self.assertRaises(error) as caught:
            self.connect(*replies)
        self.assertLessEqual(descriptors(), before)
        return str(caught.exception)

    def test_a_client_proves_that_it_has_the_secret(self):
        hello, end = self.connect(GREETING, ADMITTED)
        proof = wire.proof(SECRET, "0" * 32)
        self.assertEqual(hello, wire.pack(wire.HELLO, 0, {"access_key": KEY, "mac": proof}))
        self.assertEqual(end, b"")

    def test_anything_but_a_greeting_at_first_is_refused_with_what_it_says(self):
        for kind in (wire.ANSWER, wire.FATAL):
            reply = packet(kind, 0, {"nonce": "0" * 32, "code": "Busy", "message": "too many"})
            self.assertIn("Busy: too many", self.refused(ProtocolError, (reply,)))

    def test_a_greeting_without_a_nonce_is_refused(self):
        for fields in ({}, {"nonce": 1}):
            self.refused(ProtocolError, (packet(wire.GREETING, 0, fields),))

    def test_a_descriptor_beside_a_greeting_or_an_admission_is_refused_and_closed(self):
        def one():
            return sealed(b"1")

        for replies in (((*GREETING, one),), (GREETING, (*ADMITTED, one))):
            self.assertIn("belongs to no answer", self.refused(ProtocolError, *replies))

    def test_descriptor_0_beside_a_greeting_is_closed_as_any_other(self):
        with mock.patch.object(connection.os, "close") as closed, self.assertRaises(ProtocolError):
            connection._keep_none(0)
        # What earlier tests left may be closed meanwhile.
        self.assertEqual(closed.mock_calls.count(mock.call(0)), 1)

    def test_an_answer_with_an_error_and_any_other_kind_are_no_admission(self):
        no = {"code": "InvalidAccessKeyId", "message": "no such key"}
        self.assertIn("no such key", self.refused(NotAdmitted, GREETING, (packet(wire.ANSWER, 0, no),)))
        for kind in (wire.GREETING, wire.FATAL):
            self.refused(NotAdmitted, GREETING, (packet(kind, 0, {}),))


if __name__ == "__main__":
    unittest.main()
