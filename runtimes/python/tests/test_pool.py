"""The pool: threads that share connections, forks, and servers that are gone for a moment."""

import ctypes
import os
import threading
import time
import unittest
from unittest import mock

from nigh import connection, wire
from nigh.errors import NoServer, NotAdmitted, ProtocolError, TimedOut
from tests.both import by_both
from tests.responder import KEY, SECRET
from tests.with_responder import LARGE, WithResponder, name_of_socket, opened


@by_both
class Sharing(WithResponder):
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

    def full(self):
        """A pool, and all the connections that it may have."""
        pool = connection.Pool(self.serve().address, KEY, SECRET)
        taken = [pool.take() for _ in range(32)]
        self.assertEqual([is_new for _, is_new in taken], [True] * 32)
        return pool, [one for one, _ in taken]

    def test_a_thread_that_finds_all_busy_for_too_long_times_out(self):
        pool, taken = self.full()
        pool._timeout_s = 0.2
        with self.assertRaises(TimedOut) as caught:
            pool.take()
        self.assertIn("all 32 connections", str(caught.exception))
        self.assertEqual((pool._count, pool._waiting), (32, 0))
        pool.give(taken[0])
        self.assertEqual(pool.take(), (taken[0], False))

    def test_a_thread_that_finds_all_busy_waits_for_what_is_left_of_the_time_out(self):
        pool, _ = self.full()
        now, waits = [100.0], []

        def wait(seconds):
            waits.append(seconds)
            now[0] += 25
            return seconds > 25

        with mock.patch.object(connection.time, "monotonic", lambda: now[0]):
            with mock.patch.object(pool._changed, "wait", wait), self.assertRaises(TimedOut):
                pool.take()
        self.assertEqual(waits, [60, 35, 10])

    def test_a_replacement_waits_where_all_are_busy(self):
        pool, taken = self.full()
        got = []
        thread = threading.Thread(target=lambda: got.append(pool._open_another()))
        thread.start()
        self.until(lambda: pool._waiting == 1)
        pool.give(taken[0])
        thread.join()
        self.assertEqual((got, pool._count, pool._waiting), ([taken[0]], 32, 0))

    def test_a_replacement_is_new_whatever_stands_idle(self):
        pool = connection.Pool(self.serve().address, KEY, SECRET)
        idle = pool.take()[0]
        pool.give(idle)
        self.assertIsNot(pool._open_another(), idle)
        self.assertEqual((pool._count, pool._idle), (2, [idle]))

    def test_a_new_connection_that_breaks_is_not_replaced(self):
        responder = self.serve(lambda *_: "hang up")
        with self.assertRaises(NoServer):
            responder.client.get("b", "k")
        self.assertEqual(responder.operations(), [wire.GET])

    def test_a_failure_to_connect_lets_a_thread_that_waits_try(self):
        pool, taken = self.full()
        failed = []

        def wait():
            try:
                pool.take()
            except NoServer as error:
                failed.append(error)

        threads = [threading.Thread(target=wait) for _ in range(3)]
        for thread in threads:
            thread.start()
        self.until(lambda: pool._waiting == 3)
        pool._down_until = time.monotonic() + 60
        taken[0].close()
        pool.give(taken[0])
        for thread in threads:
            thread.join()
        self.assertEqual((len(failed), pool._count, pool._waiting), (3, 31, 0))

    def test_closing_closes_what_stands_idle(self):
        pool, taken = self.full()
        for one in taken[:3]:
            pool.give(one)
        pool.close()
        self.assertEqual([one.open for one in taken], [False] * 3 + [True] * 29)
        self.assertEqual((pool._count, pool._idle), (29, []))

    def test_a_time_out_is_as_long_as_botocores_unless_another_is_asked_for(self):
        self.assertEqual(connection.Pool("/nowhere", KEY, SECRET)._timeout_s, 60)


@by_both
class Down(WithResponder):
    def at(self, now, pool):
        """What comes of a take at this time."""
        with mock.patch.object(connection.time, "monotonic", lambda: now):
            try:
                pool.give(pool.take()[0])
                return "connected"
            except (NoServer, NotAdmitted, ProtocolError) as error:
                return "left alone" if "a moment ago" in str(error) else type(error)
            finally:
                self.assertEqual(pool._count, len(pool._idle))

    def test_a_server_that_did_not_answer_is_left_alone_for_a_second(self):
        responder = self.serve()
        pool = connection.Pool("/nowhere/fast.sock", KEY, SECRET)
        self.assertEqual(self.at(100, pool), NoServer)
        pool.address = responder.address
        self.assertEqual([self.at(now, pool) for now in (100, 100.99, 101)], ["left alone", "left alone", "connected"])

    def test_one_that_does_not_take_the_key_or_speaks_otherwise_is_left_alone_too(self):
        for error in (NotAdmitted("no"), ProtocolError("no")):
            pool = connection.Pool(self.serve().address, KEY, SECRET)
            with mock.patch.object(connection, "connect", side_effect=error):
                self.assertEqual(self.at(100, pool), type(error))
            self.assertEqual([self.at(now, pool) for now in (100.99, 101)], ["left alone", "connected"])


@by_both
class Forks(WithResponder):
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

    def test_a_child_keeps_none_of_its_parent_s_sockets_open(self):
        client = self.serve().client
        client.put("b", "k", b"small")
        pool = client._pool
        one = pool._idle[0]

        def child():
            assert (one.open, one.fileno(), pool._idle, pool._count) == (False, -1, [], 0)

        self.in_a_child(child)
        self.assertEqual((one.open, pool._idle), (True, [one]))

    def test_a_child_keeps_no_socket_open_on_which_a_thread_of_its_parent_waits(self):
        released = threading.Event()
        self.addCleanup(released.set)
        responder = self.serve(lambda operation, *_: operation == wire.HEAD and not released.wait(20))
        client = responder.client
        client.put("b", "k", b"1")
        thread = threading.Thread(target=client.head, args=("b", "k"))
        thread.start()
        self.until(lambda: wire.HEAD in responder.operations())
        (one,) = client._pool._all
        name = name_of_socket(one)

        def child():
            assert (one.open, one.fileno(), opened(name)) == (False, -1, [])

        self.in_a_child(child)
        self.assertEqual(len(opened(name)), 1)
        released.set()
        thread.join()
        self.assertTrue(one.open)

    def test_a_fork_that_python_did_not_see_is_noticed_by_the_next_request(self):
        pool = connection.Pool(self.serve().address, KEY, SECRET)
        parents = pool.take()[0]
        pool.give(parents)

        def child():
            own, is_new = pool.take()
            assert (is_new, parents.open, pool._pid, pool._count) == (True, False, os.getpid(), 1)
            pool.give(parents)
            assert (pool._idle, pool._count) == ([], 1)
            pool.give(own)
            assert pool._idle == [own]

        # Only os.fork() calls what is registered with Python.
        self.in_a_child(child, fork=ctypes.PyDLL(None).fork)
        self.assertEqual((parents.open, pool._idle), (True, [parents]))

    def test_a_child_without_standard_input_uses_descriptor_0_as_any_other(self):
        client = self.serve().client
        client.put("b", "large", LARGE)
        client.put("b", "small", b"small")

        def child():
            assert client.get_bytes("b", "small") == b"small"
            os.close(0)
            view = client.get("b", "large")
            assert os.readlink("/proc/self/fd/0").startswith("/memfd:")
            assert view.tobytes() == LARGE
            del view
            with client.create("b", "k", 5) as draft:
                draft.memory[:] = b"12345"
                draft.commit()
            answer = client._pool._idle[0].request(wire.GET, {"bucket": "b", "key": "large"})
            assert answer.descriptor == 0
            answer.close()
            try:
                os.fstat(0)
            except OSError:
                return
            raise AssertionError("descriptor 0 is still open")

        self.in_a_child(child)


class ProcessIds(WithResponder):
    """Of the client in Python, whose connections can be given any."""

    def test_any_other_process_id_is_another_process(self):
        for pid in (0, 1 << 30):
            pool = connection.Pool(self.serve().address, KEY, SECRET)
            parents = pool.take()[0]
            pool.give(parents)
            # As the child's memory would be.
            parents.pid = pool._pid = pid
            own, is_new = pool.take()
            self.assertEqual((is_new, parents.open, pool._pid, pool._count), (True, False, os.getpid(), 1))
            pool.give(parents)
            self.assertEqual((pool._idle, pool._count), ([], 1))
            pool.give(own)
            self.assertEqual(pool._idle, [own])


if __name__ == "__main__":
    unittest.main()
