"""The native client beside the one in Python: the same results, the same errors; and when there is none."""

import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

import nigh
from nigh import connection, native, wire
from tests.both import NATIVE, ByClient, by_both
from tests.responder import HEADER, KEY, SECRET, Responder, packet, sealed
from tests.with_responder import LARGE, WithResponder, name_of_socket, opened

ROOT = Path(__file__).parent.parent
ANSWER = {"status": 200, "headers": {}, "length": 5, "handle": 1, "offset": 0}


def with_text(text, flags=0, kind=wire.ANSWER, request_id=1):
    return HEADER.pack(1, kind, flags, request_id, len(text), 5) + text + b"12345"


# Replies to a first request, each a packet and what makes its descriptors.
STRANGE = {
    "no header": (b"\1\1\0",),
    "nothing": (b"",),
    "another version": (packet(1, 1, ANSWER, version=2),),
    "an unknown kind": (packet(7, 1, ANSWER),),
    "cut": (packet(1, 1, ANSWER, b"12345")[:-1],),
    "lengths beyond the packet": (HEADER.pack(1, 1, 0, 1, 0xFFFFFFFF, 0xFFFFFFFF) + b"{}",),
    "another request's": (packet(1, 2, ANSWER),),
    "a greeting": (packet(0, 1, {"nonce": "1"}),),
    "the end": (packet(2, 1, {"status": 400, "code": "BadRequest", "message": "why"}),),
    "the end, without a reason": (packet(2, 1, {}),),
    "the end, in no JSON": (with_text(b"?", kind=wire.FATAL),),
    "no JSON": (with_text(b"{"),),
    "no UTF-8": (with_text(b'{"status":"\xff"}'),),
    "no UTF-8 in a field that nobody reads": (with_text(b'{"status":404,"x":"\xff"}'),),
    "a list": (with_text(b"[200,1,0,5,{}]"),),
    "deep": (with_text(b'{"status":200,"x":' + b"[" * 500 + b"]" * 500 + b"}"),),
    "deeper than anybody reads": (with_text(b'{"status":404,"x":' + b"[" * 50_000 + b"]" * 50_000 + b"}"),),
    "half a character in a header": (with_text(b'{"status":404,"headers":{"a":"\\ud800"}}'),),
    "no status": (packet(1, 1, {"headers": {}}),),
    "a status in words": (packet(1, 1, {**ANSWER, "status": "200"}),),
    "a negative status": (packet(1, 1, {**ANSWER, "status": -200}),),
    "a status of more than 64 bits": (packet(1, 1, {**ANSWER, "status": 1 << 64}),),
    "a status that is told twice": (with_text(b'{"status":500,"status":404,"code":"NoSuchKey"}'),),
    "a status that is nothing with a sign": (with_text(b'{"status":-0}'),),
    "a status with a fraction": (with_text(b'{"status":200.0}'),),
    "headers in a list": (packet(1, 1, {**ANSWER, "headers": []}),),
    "a header that is a number": (packet(1, 1, {**ANSWER, "headers": {"a": 1}}),),
    "no headers": (packet(1, 1, {"status": 404, "code": "NoSuchKey", "message": "no"}),),
    "an error without a code": (packet(1, 1, {"status": 500}),),
    "not modified": (packet(1, 1, {"status": 304, "headers": {"etag": "x"}}),),
    "over HTTP": (packet(1, 1, {"status": 307}),),
    "over HTTP, with a segment": (packet(1, 1, {"status": 307}), lambda: sealed(b"12345")),
    "no segment": (packet(1, 1, ANSWER, b"12345"),),
    "a segment without a length": (packet(1, 1, {**ANSWER, "length": None}), lambda: sealed(b"12345")),
    "a segment without an offset": (packet(1, 1, {**ANSWER, "offset": "0"}), lambda: sealed(b"12345")),
    "a segment without a handle": (packet(1, 1, {**ANSWER, "handle": -1}), lambda: sealed(b"12345")),
    "a segment with too large a handle": (packet(1, 1, {**ANSWER, "handle": 1 << 64}), lambda: sealed(b"12345")),
    "a segment that ends beyond 64 bits": (packet(1, 1, {**ANSWER, "offset": (1 << 64) - 1}), lambda: sealed(b"12345")),
    "a segment that is short": (packet(1, 1, {**ANSWER, "offset": 1}), lambda: sealed(b"12345")),
    "a segment that is open": (packet(1, 1, ANSWER), lambda: sealed(b"12345", 0)),
    "two segments": (packet(1, 1, ANSWER), lambda: sealed(b"12345"), lambda: sealed(b"12345")),
    "a segment and the bytes": (packet(1, 1, ANSWER, b"12345", wire.IN_PACKET), lambda: sealed(b"12345")),
    "the bytes": (packet(1, 1, ANSWER, b"12345", wire.IN_PACKET),),
    "the bytes, and no JSON": (with_text(b"{", wire.IN_PACKET),),
    "an empty segment": (packet(1, 1, {**ANSWER, "length": 0}), lambda: sealed(b"12345")),
    "a segment": (packet(1, 1, {**ANSWER, "headers": {"etag": '"e"', "x-amz-meta-a": "ü"}}), lambda: sealed(b"12345")),
}


class Same(ByClient):
    by = NATIVE

    def outcome(self, reply):
        data, *segments = reply
        responder = Responder(lambda *_: (data, *(make() for make in segments)))
        self.addCleanup(responder.close)
        client = nigh.Client(responder.address, KEY, SECRET, timeout_s=5)
        try:
            view = client.get("b", "k")
            said = [len(view), view.tobytes(), bytes(view.memory), view[1:3].tobytes(), view.metadata, view.etag]
        except nigh.NighError as error:
            said = [type(error), str(error), getattr(error, "headers", None)]
        return said, client._pool._count

    def test_whatever_a_server_says_both_clients_make_the_same_of_it(self):
        by_native = {name: self.outcome(reply) for name, reply in STRANGE.items()}
        self.in_python()
        for name, reply in STRANGE.items():
            with self.subTest(name):
                self.assertEqual(by_native[name], self.outcome(reply))

    def test_both_clients_ask_for_the_same(self):
        keys = ["k", "", "grün/日本/😀", 'quoted "\\" and \n', "\x00\x1f\x7f", "\ud800", "k" * 5000, "k" * 100_000]

        def asked():
            responder = Responder()
            self.addCleanup(responder.close)
            client = nigh.Client(responder.address, KEY, SECRET, timeout_s=5)
            raised = []
            for key in keys:
                for call in (client.get, client.head):
                    try:
                        call("b", key)
                    except (nigh.NighError, ValueError) as error:
                        raised.append((type(error), str(error)))
            return responder.seen, raised

        by_native = asked()
        self.in_python()
        self.assertEqual(by_native, asked())

    def test_a_view_is_of_the_node_s_memory(self):
        responder = Responder()
        self.addCleanup(responder.close)
        client = nigh.Client(responder.address, KEY, SECRET)
        client.put("b", "k", LARGE)
        memory = client.get("b", "k", range="bytes=5-99999").memory
        self.assertEqual((type(memory.obj).__name__, memory.format, memory.readonly), ("Mapping", "B", True))
        self.assertEqual(memory, LARGE[5:100_000])
        with self.assertRaises((BufferError, TypeError)):
            io.BytesIO(b"x").readinto(memory.obj)


@by_both
class Lives(WithResponder):
    def test_sixteen_threads_read_two_hundred_times_each(self):
        responder, client = self.large()
        client.put("b", "small", b"small")
        wrong = []

        def work():
            try:
                for number in range(100):
                    if client.get_bytes("b", "small") != b"small":
                        wrong.append("small")
                    with client.get("b", "k") as view:
                        if view.memory[number : number + 9] != LARGE[number : number + 9] or view.tobytes() != LARGE:
                            wrong.append(number)
            except Exception as error:
                wrong.append(error)

        threads = [threading.Thread(target=work) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_children_that_are_forked_amid_busy_threads_read_too(self):
        responder, client = self.large()
        ends = threading.Event()
        self.addCleanup(ends.set)

        def work():
            while not ends.is_set():
                # Five that are let go at once are told at once.
                views = [client.get("b", "k") for _ in range(6)]
                del views

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()

        def child():
            # One that waits for ever is ended, and fails.
            signal.alarm(20)
            assert client.get_bytes("b", "k") == LARGE

        for _ in range(40):
            self.in_a_child(child)
        ends.set()
        for thread in threads:
            thread.join()
        self.assertEqual(client.get_bytes("b", "k"), LARGE)

    def test_a_signal_s_handler_interrupts_a_wait(self):
        responder = self.serve(lambda operation, *_: "hang" if operation == wire.GET else None)
        responder.client.put("b", "k", b"1")
        interrupted = threading.Event()

        def interrupt(*_):
            if not interrupted.is_set():
                interrupted.set()
                raise KeyboardInterrupt

        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, interrupt))
        waiting = threading.main_thread().ident

        def send():
            # Again, where it came before the wait began.
            while not interrupted.wait(0.05):
                if wire.GET in responder.operations():
                    signal.pthread_kill(waiting, signal.SIGINT)

        thread = threading.Thread(target=send)
        thread.start()
        with self.assertRaises(KeyboardInterrupt):
            responder.client.get("b", "k")
        thread.join()
        # The answer may still come; no other request gets it.
        self.assertEqual(responder.client._pool._count, 0)
        self.assertEqual(responder.client.head("b", "k").content_length, 1)

    def test_a_handler_that_forks_leaves_the_answer_to_the_parent(self):
        begun, forked = threading.Event(), threading.Event()
        self.addCleanup(forked.set)

        def spoil(operation, *_):
            if operation == wire.GET:
                begun.set()
                forked.wait(20)

        responder = self.serve(spoil)
        responder.client.put("b", "k", LARGE)
        (one,) = responder.client._pool._idle
        name = name_of_socket(one)
        codes = []

        def fork(*_):
            child = os.fork()
            if child == 0:
                # It goes back to the wait, which is not its own.
                raise SystemExit
            codes.append(os.waitpid(child, 0)[1])
            forked.set()

        self.addCleanup(signal.signal, signal.SIGUSR1, signal.signal(signal.SIGUSR1, fork))
        waiting = threading.main_thread().ident

        def send():
            begun.wait(20)
            # A handler runs once for signals that came while it ran.
            time.sleep(0.1)
            signal.pthread_kill(waiting, signal.SIGUSR1)

        thread = threading.Thread(target=send)
        thread.start()
        parent = os.getpid()
        try:
            data = responder.client.get_bytes("b", "k")
        finally:
            if os.getpid() != parent:
                os._exit(len(opened(name)))
        thread.join()
        self.assertEqual((codes, data), ([0], LARGE))

    def test_a_signal_that_nobody_minds_does_not_end_a_wait(self):
        begun, seen = threading.Event(), threading.Event()

        def spoil(operation, *_):
            if operation == wire.GET:
                begun.set()
                seen.wait(5)

        responder = self.serve(spoil)
        responder.client.put("b", "k", b"1")
        self.addCleanup(signal.signal, signal.SIGUSR1, signal.signal(signal.SIGUSR1, lambda *_: seen.set()))
        waiting = threading.main_thread().ident

        def send():
            begun.wait(5)
            while not seen.wait(0.05):
                signal.pthread_kill(waiting, signal.SIGUSR1)

        thread = threading.Thread(target=send)
        thread.start()
        self.assertEqual(responder.client.get_bytes("b", "k"), b"1")
        thread.join()


# Waits for an answer, and comes back when the interpreter ends already.
ENDS = """
import sys, threading, time, nigh

class AtTheEnd:
    def __del__(self):
        print("ends", flush=True)
        time.sleep(1)

last = AtTheEnd()
client = nigh.Client(*sys.argv[1:])
threading.Thread(target=client.get, args=("b", "k"), daemon=True).start()
sys.stdin.readline()
"""


@by_both
class Ends(WithResponder):
    def test_a_program_ends_though_a_thread_waits_for_an_answer_that_comes_then(self):
        ends = threading.Event()
        self.addCleanup(ends.set)
        responder = self.serve(lambda operation, *_: operation == wire.GET and not ends.wait(20) and "hang")
        responder.client.put("b", "k", LARGE)
        file = "off" if native.module is None else native.module.__file__
        command = [sys.executable, "-c", ENDS, responder.address, KEY, SECRET]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        environment = {**os.environ, "NIGH_NATIVE": file}
        with subprocess.Popen(command, cwd=ROOT, env=environment, text=True, **pipes) as program:
            self.until(lambda: wire.GET in responder.operations())
            program.stdin.write("\n")
            program.stdin.flush()
            self.assertEqual(program.stdout.readline(), "ends\n")
            ends.set()
            self.assertEqual(program.communicate(timeout=20), ("", ""))
        self.assertEqual(program.returncode, 0)


class Alone(WithResponder):
    """What the native module refuses, and Python's client cannot be asked for."""

    by = NATIVE

    def test_a_second_request_at_the_same_time_is_refused_and_harms_the_first_in_nothing(self):
        answers = threading.Event()
        self.addCleanup(answers.set)
        responder = self.serve(lambda operation, *_: operation == wire.GET and not answers.wait(20) and "hang")
        responder.client.put("b", "k", b"small")
        (one,) = responder.client._pool._idle
        got = []
        thread = threading.Thread(target=lambda: got.append(responder.client.get_bytes("b", "k")))
        thread.start()
        self.until(lambda: wire.GET in responder.operations())
        for call in (one.exchange, lambda: one.request(wire.HEAD, {"bucket": "b", "key": "k"})):
            with self.assertRaises(RuntimeError):
                call()
        answers.set()
        thread.join()
        self.assertEqual((got, one.open), ([b"small"], True))
        self.assertEqual(responder.client.head("b", "k").content_length, 5)

    def test_a_child_sends_no_request_on_its_parent_s_connection(self):
        responder = self.serve()
        one = connection.connect(responder.address, KEY, SECRET, 20)
        self.addCleanup(one.close)

        def child():
            try:
                one.request(wire.HEAD, {"bucket": "b", "key": "k"})
            except nigh.NoServer:
                return
            raise AssertionError("it was sent")

        self.in_a_child(child)
        self.assertEqual(responder.seen, [])

    def test_a_copy_is_within_the_segment(self):
        responder, client = self.large()
        client.put("b", "small", b"small")
        for key, length in (("k", len(LARGE)), ("small", 5)):
            segment = client.get("b", key)._segment
            for begin, end in ((0, length + 1), (length, length + 1), (2, 1), (length + 1, length + 1)):
                with self.assertRaises(ValueError):
                    segment.read(begin, end)
            self.assertEqual(segment.read(length, length), b"")
            self.assertEqual(segment.read(length - 1, length), client.get_bytes("b", key)[-1:])
            for begin, end in ((-1, 1), (0, 1 << 64)):
                with self.assertRaises(OverflowError):
                    segment.read(begin, end)

    def test_what_runs_while_an_answer_is_decoded_may_read_the_same_answer(self):
        _, client = self.large()
        head = client.head("b", "k")

        def child():
            signal.alarm(20)
            decode, seen = wire.decode, []

            def and_read(text):
                wire.decode = decode
                seen.append(head.etag)
                return decode(text)

            wire.decode = and_read
            seen.append(head.etag)
            assert len(seen) == 2 and seen[0] == seen[1], seen

        self.in_a_child(child)

    def test_time_outs_that_are_none_are_refused(self):
        for timeout_s in (-1, float("nan"), float("inf")):
            with self.assertRaises(ValueError):
                native.module.Connection("/nowhere", timeout_s)


class Loading(ByClient):
    """What a process of its own has for `nigh.native.module`, in which words."""

    by = NATIVE

    def module_of(self, **environment):
        code = "from nigh import Client, native; print(getattr(native.module, '__name__', None))"
        environment = {**{name: value for name, value in os.environ.items() if name != "NIGH_NATIVE"}, **environment}
        ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
        return ran.stdout.strip(), ran.stderr

    def test_a_module_that_cannot_be_loaded_is_left_out_without_a_word(self):
        with tempfile.TemporaryDirectory() as folder:
            garbage = Path(folder) / "garbage.so"
            garbage.write_bytes(b"\x7fELF but no more")
            # A program is no module.
            for file in (garbage, sys.executable, Path(folder) / "none.so", "off"):
                self.assertEqual(self.module_of(NIGH_NATIVE=str(file)), ("None", ""), file)
            whole = Path(folder) / "copy.so"
            shutil.copy(native.module.__file__, whole)
            self.assertEqual(self.module_of(NIGH_NATIVE=str(whole)), ("nigh.nigh_native", ""))


if __name__ == "__main__":
    unittest.main()
