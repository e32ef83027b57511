"""One connection: servers that go away, and servers that lie."""

import array
import fcntl
import gc
import os
import resource
import socket
import struct
import tempfile
import threading
import time
import unittest
import warnings
from unittest import mock

import nigh
from nigh import connection, wire
from nigh.errors import NoServer, NotAdmitted, ProtocolError, Refused, TimedOut
from tests.both import by_both
from tests.responder import HEADER, KEY, SECRET, packet, sealed
from tests.with_responder import LARGE, WithResponder, descriptors, name_of_socket, opened, socket_of

ANSWER = {"status": 200, "headers": {}, "length": 5}
# The kernel's F_SEAL_FUTURE_WRITE.
FUTURE_WRITE = 0x10


class Refusing(WithResponder):
    def refuses(self, spoil, error=ProtocolError):
        """A get against this server fails so, and leaves no descriptor open and no connection in use."""
        responder = self.serve(spoil)
        gc.collect()
        before = descriptors()
        with self.assertRaises(error) as caught:
            responder.client.get("b", "k")
        self.until(lambda: descriptors() <= before)
        self.assertEqual((responder.client._pool._count, responder.client._pool._idle), (0, []))
        return str(caught.exception)


@by_both
class Hostile(Refusing):
    def test_malformed_replies_are_refused(self):
        for data in (b"\1", packet(1, 1, ANSWER, b"12345", version=2), packet(9, 1, ANSWER), packet(1, 1, {})[:-1]):
            self.refuses(lambda *_, data=data: (data,))

    def test_an_answer_to_another_request_is_refused(self):
        for other in (-1, 1):
            self.refuses(lambda _, id, __, other=other: (packet(wire.ANSWER, id + other, ANSWER, b"12345"),))

    def test_a_greeting_in_place_of_an_answer_is_refused(self):
        self.refuses(lambda _, id, __: (packet(wire.GREETING, id, ANSWER, b"12345", wire.IN_PACKET),))

    def test_a_packet_longer_than_any_is_refused(self):
        self.refuses(
            lambda _, request_id, __: (packet(1, request_id, {**ANSWER, "x": "x" * (200 << 10)}, bytes(150 << 10)),)
        )

    def test_a_packet_whose_end_does_not_fit_is_refused_though_its_beginning_is_a_whole_one(self):
        def too_long(_, request_id, __):
            empty = packet(wire.ANSWER, request_id, ANSWER, flags=wire.IN_PACKET)
            body = bytes(wire.PACKET_BYTES_MAX - len(empty))
            return (packet(wire.ANSWER, request_id, ANSWER, body, wire.IN_PACKET) + b"x",)

        self.assertIn("longer", self.refuses(too_long))

    def test_an_answer_whose_descriptor_the_process_may_not_have_is_refused(self):
        _, client = self.large()

        def child():
            client.head("b", "k")
            least = os.dup(0)
            os.close(least)
            # From here on nothing can be opened.
            resource.setrlimit(resource.RLIMIT_NOFILE, (least, least))
            try:
                client.get("b", "k")
            except ProtocolError as error:
                assert "more descriptors" in str(error)
                return
            raise AssertionError("it was taken")

        self.in_a_child(child)

    def test_a_success_with_neither_a_segment_nor_the_bytes_is_refused(self):
        responder = self.serve(lambda _, request_id, __: (packet(wire.ANSWER, request_id, ANSWER, b"1234"),))
        with self.assertRaises(ProtocolError):
            responder.client.get("b", "k")

    def test_a_segment_beside_the_bytes_is_refused_and_closed(self):
        self.refuses(lambda _, id, __: (packet(wire.ANSWER, id, ANSWER, b"12345", wire.IN_PACKET), sealed(b"12345")))

    def test_what_an_answer_with_its_bytes_says_beside_them_is_checked_when_it_is_asked_for(self):
        for text in (b"{", b"[]", b'{"status":200,"headers":[]}', b'{"headers":{"a":1}}'):
            data = HEADER.pack(1, wire.ANSWER, wire.IN_PACKET, 1, len(text), 5) + text + b"12345"
            view = self.serve(lambda *_, data=data: (data,)).client.get("b", "k")
            self.assertEqual(view, b"12345")
            with self.assertRaises(ProtocolError):
                view.headers

    def test_a_descriptor_that_is_no_sealed_segment_is_refused_and_closed(self):
        answer = {**ANSWER, "handle": 1, "offset": 0}
        kinds = [
            lambda: os.open("/dev/zero", os.O_RDONLY),
            lambda: os.open("/etc/hostname", os.O_RDONLY),
            lambda: os.pipe()[0],
            lambda: sealed(b"12345", 0),
            lambda: sealed(b"12345", fcntl.F_SEAL_WRITE),
            lambda: sealed(b"12345", fcntl.F_SEAL_SHRINK),
            lambda: sealed(b"12345", fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL),
            lambda: sealed(b"12345", fcntl.F_SEAL_WRITE | FUTURE_WRITE),
        ]
        for kind in kinds:
            responder = self.serve(lambda _, request_id, __, kind=kind: (packet(1, request_id, answer), kind()))
            with self.assertRaises(ProtocolError) as caught:
                responder.client.get("b", "k")
            self.assertIn("sealed", str(caught.exception))
            self.none_is_left()

    def test_a_segment_that_can_neither_shrink_nor_be_opened_to_write_is_taken(self):
        answer = {**ANSWER, "handle": 1, "offset": 0}
        for seals in (fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_WRITE, fcntl.F_SEAL_SHRINK | FUTURE_WRITE):
            responder = self.serve(lambda _, id, __, seals=seals: (packet(1, id, answer), sealed(b"12345", seals)))
            self.assertEqual(responder.client.get_bytes("b", "k"), b"12345")

    def none_is_left(self):
        """No descriptor of those that these servers send is open any more."""
        gc.collect()
        self.until(lambda: not any(map(opened, ("/dev/zero", "/etc/hostname", "/memfd:test"))))

    def test_a_segment_of_which_no_place_or_length_is_told_is_refused_and_closed(self):
        answer = {**ANSWER, "handle": 1, "offset": 0}
        for name in ("length", "handle", "offset"):
            for value in (None, "1", -1, 1 << 64):
                data = packet(1, 1, {**answer, name: value})
                responder = self.serve(lambda *_, data=data: (data, sealed(b"12345")))
                with self.assertRaises(ProtocolError) as caught:
                    responder.client.get("b", "k")
                self.assertIn(repr(name), str(caught.exception))
                self.none_is_left()

    def test_a_segment_shorter_than_announced_is_refused_and_closed(self):
        for length, offset in ((6, 0), (5, 1), (1 << 30, 0), (1, 1 << 40)):
            answer = {**ANSWER, "length": length, "handle": 1, "offset": offset}
            responder = self.serve(lambda _, id, __, answer=answer: (packet(1, id, answer), sealed(b"12345")))
            with self.assertRaises(ProtocolError) as caught:
                responder.client.get("b", "k")
            self.assertIn("announced", str(caught.exception))
            self.none_is_left()

    def test_more_descriptors_than_one_are_refused_and_closed(self):
        answer = {**ANSWER, "handle": 1, "offset": 0}
        for count in (2, 4, 9):
            self.refuses(
                lambda _, id, __, count=count: (packet(1, id, answer), *(sealed(b"12345") for _ in range(count)))
            )

    def test_a_server_that_ends_the_connection_says_why(self):
        why = {"status": 400, "code": "BadRequest", "message": "no such field"}
        self.assertIn("no such field", self.refuses(lambda _, request_id, __: (packet(wire.FATAL, request_id, why),)))

    def test_a_server_that_hangs_up_is_no_server(self):
        self.refuses(lambda *_: "hang up", NoServer)

    def test_a_server_that_does_not_answer_is_given_up_in_time(self):
        responder = self.serve(lambda *_: "hang")
        client = nigh.Client(responder.address, KEY, SECRET, timeout_s=0.2)
        begin = time.monotonic()
        with self.assertRaises(TimedOut):
            client.get("b", "k")
        self.assertLess(time.monotonic() - begin, 3)


class Beside(Refusing):
    """What comes beside a packet, as the client in Python reads it."""

    def test_an_answer_of_whose_descriptors_some_did_not_arrive_is_refused(self):
        answer = {**ANSWER, "handle": 1, "offset": 0}
        # Room for one, as if the process could open no more.
        with mock.patch.object(connection, "_ANCILLARY_BYTES", socket.CMSG_LEN(4)):
            why = self.refuses(lambda _, id, __: (packet(1, id, answer), sealed(b"12345"), sealed(b"12345")))
        self.assertIn("more descriptors", why)

    def test_only_whole_descriptors_are_read_from_what_came_beside_a_packet(self):
        integers = array.array("i", [5, 6]).tobytes()
        beside = [
            (socket.SOL_SOCKET, socket.SCM_RIGHTS, integers + b"123"),
            (socket.SOL_SOCKET, socket.SCM_RIGHTS + 1, integers),
            (socket.SOL_SOCKET, socket.SCM_RIGHTS - 1, integers),
            (socket.SOL_SOCKET + 1, socket.SCM_RIGHTS, integers),
            (socket.SOL_SOCKET - 1, socket.SCM_RIGHTS, integers),
        ]
        self.assertEqual(connection._descriptors(beside), [5, 6])


class Answers(unittest.TestCase):
    """Of the client in Python."""

    def answer(self, fields, flags=0):
        text = wire.pack(wire.HELLO, 0, fields)[16:]
        return connection.Answer(None, wire.Packet(wire.ANSWER, flags, 1, text, b""), -1)

    def test_a_status_of_the_two_hundreds_is_a_success_and_any_other_an_error(self):
        for status in (200, 206, 299):
            answer = self.answer({"status": status})
            self.assertIs(answer.check(), answer)
        for status in (0, 199, 300, 303, 304, 305, 404, 500):
            with self.assertRaises(Refused) as caught:
                self.answer({"status": status, "code": "Code", "message": "why"}).check()
            error = caught.exception
            self.assertEqual((error.status, error.code, error.message), (status, "Code", "why"))

    def test_an_answer_that_nothing_changed_has_a_code_though_the_server_gives_none(self):
        with self.assertRaises(nigh.NotModified) as caught:
            self.answer({"status": 304, "headers": {"etag": "e"}}).check()
        error = caught.exception
        self.assertEqual((error.code, error.message, error.headers), ("NotModified", "Not Modified", {"etag": "e"}))
        for status in (303, 305, 500):
            with self.assertRaises(Refused) as caught:
                self.answer({"status": status}).check()
            self.assertNotEqual(caught.exception.code, "NotModified")

    def test_an_answer_without_a_status_is_refused_at_once(self):
        with self.assertRaises(ProtocolError):
            self.answer({"headers": {}})
        with self.assertRaises(ProtocolError):
            self.answer({"status": 200, "headers": []})

    def test_a_descriptor_that_nobody_took_is_closed_once(self):
        kept, ours = os.pipe()
        self.addCleanup(os.close, kept)
        text = wire.pack(wire.HELLO, 0, {"status": 200})[16:]
        answer = connection.Answer(None, wire.Packet(wire.ANSWER, 0, 1, text, b""), ours)
        with mock.patch.object(connection.os, "close", side_effect=os.close) as closed:
            answer.close()
            answer.close()
        # What earlier tests left may be closed meanwhile.
        self.assertEqual(closed.mock_calls.count(mock.call(ours)), 1)

    def test_an_answer_with_its_bytes_is_a_success_by_its_flag_alone(self):
        for flags, is_in_packet in ((0, False), (1, False), (2, True), (3, True), (4, False)):
            self.assertIs(self.answer({"status": 200}, flags).is_in_packet, is_in_packet)


@by_both
class Connections(WithResponder):
    def test_a_wrong_secret_is_not_admitted(self):
        responder = self.serve()
        with self.assertRaises(NotAdmitted):
            nigh.Client(responder.address, KEY, "wrong").head("b", "k")

    def test_where_nobody_listens_it_fails_at_once_and_is_not_asked_again_for_a_moment(self):
        client = nigh.Client("/nowhere/fast.sock", KEY, SECRET)
        for _ in range(2):
            with self.assertRaises(NoServer) as caught:
                client.head("b", "k")
        self.assertIn("a moment ago", str(caught.exception))
        self.assertEqual(client._pool._count, 0)

    def test_without_its_environment_it_says_what_is_missing(self):
        with self.assertRaises(NoServer) as caught:
            nigh.Client(access_key="K", secret_key="S")
        self.assertIn("NIGH_FAST_PATH", str(caught.exception))

    def test_a_connection_that_stood_idle_and_died_is_replaced_unnoticed(self):
        responder = self.serve()
        responder.client.put("b", "k", b"small")
        responder.break_connections()
        self.assertEqual(responder.client.get_bytes("b", "k"), b"small")
        responder.break_connections()
        responder.client.put("b", "k", LARGE)
        self.assertEqual(responder.client.get_bytes("b", "k"), LARGE)
        pool = responder.client._pool
        self.assertEqual((pool._count, len(pool._idle)), (1, 1))

    def test_descriptors_do_not_outlive_an_exec(self):
        responder = self.serve()
        responder.client.put("b", "k", LARGE)
        with responder.client.get("b", "k") as view:
            # What the server sent is closed there when it is seen here, or soon.
            self.until(lambda: len(opened("/memfd:test")) == 1)
            held = [*opened("/memfd:test"), responder.client._pool._idle[0].fileno()]
            self.assertEqual([os.get_inheritable(one) for one in held], [False, False])
            self.assertEqual(view.tobytes(), LARGE)

    def test_every_wait_is_bounded_by_the_time_out(self):
        responder = self.serve()
        one = connection.connect(responder.address, KEY, SECRET, 2.5)
        self.addCleanup(one.close)
        with socket_of(one) as its_socket:
            for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                bound = struct.unpack("ll", its_socket.getsockopt(socket.SOL_SOCKET, option, 16))
                self.assertEqual(bound, (2, 500_000))

    def test_an_abstract_address_is_one_that_begins_with_an_at_sign(self):
        name = f"nigh-test-{os.getpid()}"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(listener.close)
        listener.bind("\0" + name)
        listener.listen()
        with self.assertRaises(TimedOut):
            connection.connect("@" + name, KEY, SECRET, 0.05)

    def test_an_address_may_be_a_file_whose_name_is_no_text(self):
        responder = self.serve()
        responder.client.put("b", "k", b"small")
        with tempfile.TemporaryDirectory() as folder:
            address = os.fsdecode(os.fsencode(folder) + b"/\xff.sock")
            os.symlink(responder.address, address)
            self.assertEqual(nigh.Client(address, KEY, SECRET).get_bytes("b", "k"), b"small")
            os.unlink(address)
            with self.assertRaises(NoServer):
                nigh.Client(address, KEY, SECRET).head("b", "k")

    def test_requests_are_counted_from_one(self):
        ids = []
        responder = self.serve(lambda operation, id, _: ids.append(id))
        responder.client.put("b", "k", b"small")
        for _ in range(2):
            self.assertEqual(responder.client.get_bytes("b", "k"), b"small")
        self.assertEqual(ids, [1, 2, 3])

    def test_a_connection_that_is_dropped_closes_its_socket(self):
        responder = self.serve()
        one = connection.connect(responder.address, KEY, SECRET, 20)
        name = name_of_socket(one)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            del one
            gc.collect()
        self.assertEqual([str(one.message) for one in warned], [])
        self.assertEqual(opened(name), [])

    def test_a_request_that_fails_closes_its_connection(self):
        responder = self.serve(lambda *_: "hang up")
        one = connection.connect(responder.address, KEY, SECRET, 20)
        self.assertTrue(one.open)
        with self.assertRaises(NoServer):
            one.request(wire.HEAD, {"bucket": "b", "key": "k"})
        self.assertEqual((one.open, one.fileno()), (False, -1))


class RequestIds(WithResponder):
    """Of the client in Python, which can be told the last."""

    def test_request_ids_begin_again_after_the_last(self):
        ids = []
        responder = self.serve(lambda operation, id, _: ids.append(id))
        responder.client.put("b", "k", b"small")
        responder.client._pool._idle[0]._next_id = 0xFFFF_FFFE
        for _ in range(3):
            self.assertEqual(responder.client.get_bytes("b", "k"), b"small")
        self.assertEqual(ids, [1, 0xFFFF_FFFF, 0, 1])


@by_both
class Hints(WithResponder):
    def fill(self, count):
        """A connection whose server reads nothing, with so many hints, and how to go on."""
        going = threading.Event()
        self.addCleanup(going.set)
        responder = self.serve(lambda *_: not going.wait(60) or "hang")
        one = connection.connect(responder.address, KEY, SECRET, 40)
        self.addCleanup(one.close)
        with socket_of(one) as its_socket:
            its_socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 14)
        one.abandon(1)
        # It has taken that one and takes no other.
        self.until(lambda: responder.seen)
        for handle in range(2, count + 1):
            one.abandon(handle)
        return responder, one, going

    def test_hints_that_find_no_room_go_with_the_next_request_and_beyond_a_bound_the_oldest_are_dropped(self):
        begin = time.monotonic()
        responder, one, going = self.fill(3000)
        # Each would have waited as long as a request does.
        self.assertLess(time.monotonic() - begin, 20)
        responder.spoil = None
        going.set()
        with self.assertRaises(nigh.NotFound):
            one.request(wire.HEAD, {"bucket": "b", "key": "none"}).check()
        heard = [fields["handle"] for operation, fields in responder.seen if operation == wire.ABANDON]
        found_room = len(heard) - 1024
        self.assertIn(found_room, range(1, 1000))
        # The difference of lists that long takes minutes.
        self.assertTrue(heard == [*range(1, found_room + 1), *range(3000 - 1024 + 1, 3000 + 1)], heard)

    def test_a_request_that_finds_no_room_times_out(self):
        _, one, _ = self.fill(1000)
        with socket_of(one) as its_socket:
            its_socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, 100_000))
        with self.assertRaises(TimedOut) as caught:
            one.request(wire.HEAD, {"bucket": "b", "key": "k"})
        self.assertIn("takes no requests", str(caught.exception))
        self.assertFalse(one.open)

    def test_a_closed_connection_and_another_process_hint_nothing(self):
        ids = []
        responder = self.serve(lambda _, id, __: ids.append(id))
        one, closed = (connection.connect(responder.address, KEY, SECRET, 20) for _ in range(2))
        self.addCleanup(one.close)
        closed.close()
        closed.abandon(1)
        self.in_a_child(lambda: one.abandon(2))
        one.abandon(3)
        self.until(lambda: ids)
        self.assertEqual(responder.seen, [(wire.ABANDON, {"handle": 3})])
        # What has no answer has no id.
        self.assertEqual(ids, [0])


class PythonHints(WithResponder):
    """Of the client in Python, whose connections say what they are told to have."""

    def test_a_connection_that_is_said_to_be_closed_or_another_process_s_hints_nothing(self):
        responder = self.serve()
        one = connection.connect(responder.address, KEY, SECRET, 20)
        self.addCleanup(one.close)
        own = one.pid
        for one.pid in (0, 1 << 30):
            one.abandon(1)
        one.pid, one.open = own, False
        one.abandon(2)
        one.open = True
        one.abandon(3)
        self.until(lambda: responder.seen)
        self.assertEqual(responder.seen, [(wire.ABANDON, {"handle": 3})])

    def test_up_to_four_released_segments_wait_for_the_next_read(self):
        responder = self.serve()
        one = connection.connect(responder.address, KEY, SECRET, 20)
        self.addCleanup(one.close)
        for handle in range(1, 5):
            one.release(handle)
        self.assertEqual(one.request(wire.CREATE, {"length": 1}).status, 200)
        self.assertEqual(responder.released(), [])
        one.request(wire.HEAD, {"bucket": "b", "key": "none"})
        self.assertEqual(responder.released(), [1, 2, 3, 4])
        for handle in range(5, 10):
            one.release(handle)
        self.until(lambda: len(responder.released()) == 9)
        self.assertEqual(responder.operations().count(wire.RELEASE), 5)


if __name__ == "__main__":
    unittest.main()
