"""Connections and segments: threads, forks, servers that go away and servers that lie."""

import fcntl
import gc
import mmap
import os
import threading
import time
import unittest

import nigh
from nigh import connection, wire
from nigh.errors import NoServer, NotAdmitted, ProtocolError, TimedOut
from tests.responder import HEADER, KEY, SECRET, Responder, packet, sealed

LARGE = bytes(range(256)) * 1024
ANSWER = {"status": 200, "headers": {}, "length": 5}


def descriptors():
    return len(os.listdir("/proc/self/fd"))


class WithResponder(unittest.TestCase):
    def serve(self, spoil=None):
        responder = Responder(spoil)
        self.addCleanup(responder.close)
        responder.client = nigh.Client(responder.address, KEY, SECRET, timeout_s=5)
        return responder

    def until(self, happened):
        ends = time.monotonic() + 5
        while not happened():
            self.assertLess(time.monotonic(), ends, "it did not happen")
            time.sleep(0.005)


class Hostile(WithResponder):
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

    def test_malformed_replies_are_refused(self):
        for data in (b"\1", packet(1, 1, ANSWER, b"12345", version=2), packet(9, 1, ANSWER), packet(1, 1, {})[:-1]):
            self.refuses(lambda *_, data=data: (data,))

    def test_an_answer_to_another_request_is_refused(self):
        self.refuses(lambda _, request_id, __: (packet(wire.ANSWER, request_id + 1, ANSWER, b"12345"),))

    def test_a_packet_longer_than_any_is_refused(self):
        self.refuses(
            lambda _, request_id, __: (packet(1, request_id, {**ANSWER, "x": "x" * (200 << 10)}, bytes(150 << 10)),)
        )

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
        ]
        for kind in kinds:
            responder = self.serve(lambda _, request_id, __, kind=kind: (packet(1, request_id, answer), kind()))
            with self.assertRaises(ProtocolError) as caught:
                responder.client.get("b", "k")
            self.assertIn("sealed", str(caught.exception))

    def test_a_segment_shorter_than_announced_is_refused(self):
        for length, offset in ((6, 0), (5, 1), (1 << 30, 0), (1, 1 << 40)):
            answer = {**ANSWER, "length": length, "handle": 1, "offset": offset}
            responder = self.serve(lambda _, id, __, answer=answer: (packet(1, id, answer), sealed(b"12345")))
            with self.assertRaises(ProtocolError) as caught:
                responder.client.get("b", "k")
            self.assertIn("announced", str(caught.exception))

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


class Connections(WithResponder):
    def test_a_wrong_secret_is_not_admitted(self):
        responder = self.serve()
        with self.assertRaises((NotAdmitted, ProtocolError)):
            nigh.Client(responder.address, KEY, "wrong").head("b", "k")

    def test_where_nobody_listens_it_fails_at_once_and_is_not_asked_again_for_a_moment(self):
        client = nigh.Client("/nowhere/fast.sock", KEY, SECRET)
        for _ in range(2):
            with self.assertRaises(NoServer) as caught:
                client.head("b", "k")
        self.assertIn("a moment ago", str(caught.exception))

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

    def test_threads_share_few_connections_and_wait_for_them(self):
        responder = self.serve()
        responder.client.put("b", "large", LARGE)
        responder.client.put("b", "small", b"small")
        wrong = []

        def work():
            for _ in range(20):
                if (
                    responder.client.get_bytes("b", "large") != LARGE
                    or bytes(responder.client.get("b", "small")) != b"small"
                ):
                    wrong.append(threading.current_thread().name)

        threads = [threading.Thread(target=work) for _ in range(connection.CONNECTIONS_MAX + 8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        pool = responder.client._pool
        self.assertLessEqual(pool._count, connection.CONNECTIONS_MAX)
        self.assertEqual(len(pool._idle), pool._count)

    def test_a_thread_that_finds_all_busy_is_served_when_one_is_given_back(self):
        responder = self.serve()
        pool = responder.client._pool
        taken = [pool.take()[0] for _ in range(connection.CONNECTIONS_MAX)]
        got = []
        thread = threading.Thread(target=lambda: got.append(pool.take()[0]))
        thread.start()
        self.until(lambda: pool._waiting == 1)
        pool.give(taken.pop())
        thread.join()
        # One that died makes room, too.
        thread = threading.Thread(target=lambda: got.append(pool.take()[0]))
        thread.start()
        self.until(lambda: pool._waiting == 1)
        dead = taken.pop()
        dead.close()
        pool.give(dead)
        thread.join()
        self.assertEqual(len(got), 2)

    def test_descriptors_do_not_outlive_an_exec(self):
        responder = self.serve()
        responder.client.put("b", "k", LARGE)
        with responder.client.get("b", "k") as view:
            held = [view._segment._descriptor, responder.client._pool._idle[0]._socket.fileno()]
            self.assertEqual([os.get_inheritable(one) for one in held], [False, False])

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

    def test_a_child_opens_connections_of_its_own_and_harms_its_parent_s_none(self):
        responder = self.serve()
        client = responder.client
        client.put("b", "k", LARGE)
        view = client.get("b", "k")
        view.memory[0]
        before = responder.accepted

        def child():
            # What the parent had mapped stays good, and letting it go tells the server nothing.
            assert view.tobytes() == LARGE
            view.release()
            assert client.get_bytes("b", "k") == LARGE

        self.in_a_child(child)
        self.assertEqual(responder.accepted, before + 1)
        self.assertEqual(responder.released(), [])
        self.assertEqual(client.get_bytes("b", "k"), LARGE)

    def test_a_child_that_forks_while_a_thread_waits_for_an_answer_does_not_wait_for_it(self):
        released = threading.Event()
        responder = self.serve(lambda operation, *_: operation == wire.HEAD and not released.wait(5))
        client = responder.client
        client.put("b", "k", b"1")
        thread = threading.Thread(target=client.head, args=("b", "k"))
        thread.start()
        self.until(lambda: wire.HEAD in responder.operations())

        def child():
            assert client.get_bytes("b", "k") == b"1"

        self.in_a_child(child)
        released.set()
        thread.join()


class Segments(WithResponder):
    def large(self):
        responder = self.serve()
        responder.client.put("b", "k", LARGE)
        return responder, responder.client

    def released(self, responder):
        """What the server has heard of by the next read."""
        with self.assertRaises(nigh.NotFound):
            responder.client.head("b", "other")
        return responder.released()

    def test_what_is_copied_is_released_with_the_next_read_and_nothing_stays_open(self):
        responder, client = self.large()
        before = descriptors()
        for round in range(3):
            self.assertEqual(client.get_bytes("b", "k"), LARGE)
            self.assertEqual(len(responder.released()), round)
        self.assertEqual(self.released(responder), [2, 3, 4])
        self.assertEqual(descriptors(), before)
        self.assertNotIn(wire.RELEASE, responder.operations())

    def test_a_view_is_released_when_the_last_memoryview_is_gone(self):
        responder, client = self.large()
        view = client.get("b", "k", range="bytes=5000-9999")
        kept = view.memory[10:20]
        view.release()
        del view
        gc.collect()
        self.assertEqual(kept.tobytes(), LARGE[5010:5020])
        self.assertEqual(self.released(responder), [])
        del kept
        self.assertEqual(self.released(responder), [2])

    def test_what_nobody_looks_at_is_released_too(self):
        responder, client = self.large()
        client.get("b", "k")
        self.assertEqual(self.released(responder), [2])

    def test_many_that_are_released_do_not_wait_for_the_next_read(self):
        responder, client = self.large()
        views = [client.get("b", "k") for _ in range(5)]
        del views
        self.until(lambda: sorted(responder.released()) == [2, 3, 4, 5, 6])
        self.assertEqual(responder.operations().count(wire.RELEASE), 5)

    def test_a_view_cannot_be_written_to(self):
        _, client = self.large()
        view = client.get("b", "k")
        self.assertTrue(view.memory.readonly)
        with self.assertRaises(TypeError):
            view.memory[0] = 1

    def test_a_view_behaves_as_the_bytes_do(self):
        _, client = self.large()
        view = client.get("b", "k")
        self.assertEqual((len(view), view[3], bytes(view[1:4]), bytes(view)), (len(LARGE), 3, b"\1\2\3", LARGE))
        self.assertTrue(view == LARGE and view != b"" and list(view)[:3] == [0, 1, 2])

    def test_without_descriptors_to_map_it_the_bytes_are_copied(self):
        _, client = self.large()
        view = client.get("b", "k")
        original = mmap.mmap

        def none(*_, **__):
            raise OSError(24, "Too many open files")

        mmap.mmap = none
        try:
            self.assertEqual(view._segment.read(1, 3), LARGE[1:3])
        finally:
            mmap.mmap = original

    def test_hints_that_find_no_room_go_with_the_next_request(self):
        responder, client = self.large()
        view = client.get("b", "k")
        used = client._pool._idle[0]
        used._unsent.append(wire.pack(wire.RELEASE, 0, {"handle": 77}))
        self.assertEqual(len(client.head("b", "k").headers) > 0, True)
        self.until(lambda: (wire.RELEASE, {"handle": 77}) in responder.seen)
        del view


class Drafts(WithResponder):
    def test_what_is_written_into_a_draft_is_the_object_once_it_is_committed(self):
        responder = self.serve()
        with responder.client.create("b", "k", len(LARGE)) as draft:
            draft.memory[:] = LARGE
            put = draft.commit(metadata={"Who": "me"}, content_type="x/y")
        self.assertTrue(put.etag)
        view = responder.client.get("b", "k")
        self.assertEqual((bytes(view), view.metadata, view.content_type), (LARGE, {"who": "me"}, "x/y"))
        with self.assertRaises(ValueError):
            draft.memory[0] = 1

    def test_a_draft_with_a_view_in_use_is_busy_and_can_be_committed_later(self):
        responder = self.serve()
        draft = responder.client.create("b", "k", 100)
        part = draft.memory[:10]
        with self.assertRaises(nigh.Busy):
            draft.commit()
        part[:] = b"0123456789"
        part.release()
        draft.commit()
        self.assertEqual(bytes(responder.client.get("b", "k"))[:10], b"0123456789")

    def test_a_draft_that_is_left_or_forgotten_is_abandoned(self):
        responder = self.serve()
        with self.assertRaises(KeyError), responder.client.create("b", "k", 100):
            raise KeyError
        responder.client.create("b", "k", 100)
        gc.collect()
        self.until(lambda: responder.operations().count(wire.ABANDON) == 2)
        pool = responder.client._pool
        self.assertEqual(len(pool._idle), pool._count)

    def test_a_source_that_ends_early_leaves_no_segment_behind(self):
        responder = self.serve()

        class Short:
            def tell(self):
                return 0

            def seek(self, offset, whence=0):
                return 1 << 20

            def read(self, amount):
                return b""

        with self.assertRaises(EOFError):
            responder.client.put("b", "k", Short())
        self.until(lambda: wire.ABANDON in responder.operations())


class Readers(WithResponder):
    def test_an_object_is_read_as_a_file(self):
        responder = self.serve()
        responder.client.put("b", "k", LARGE)
        with responder.client.open("b", "k") as file:
            self.assertEqual((file.read(3), file.tell(), file.seek(-2, os.SEEK_END)), (LARGE[:3], 3, len(LARGE) - 2))
            self.assertEqual((file.read(), file.read(1), file.seek(1 << 30)), (LARGE[-2:], b"", 1 << 30))
            self.assertEqual(file.read(), b"")
            buffer = bytearray(10)
            file.seek(100)
            self.assertEqual((file.readinto(buffer), bytes(buffer)), (10, LARGE[100:110]))
        with self.assertRaises(ValueError):
            file.read()


if __name__ == "__main__":
    unittest.main()
