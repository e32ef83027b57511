"""Connections to the fast path: one thread at a time has one, a pool has few, and none outlives a fork.

A connection carries one request at a time, so that an answer needs no dispatch between threads; the pool gives an idle
one or opens another, up to `CONNECTIONS_MAX`. All waits are bounded by the kernel (`SO_RCVTIMEO`), which costs no call
a request. A child of fork(2) forgets its parent's connections and opens its own.

`Connection` and `Answer` are here in Python. Where there is the native module the pool opens its connections instead, which
do and raise the same.
"""

from __future__ import annotations

import array
import collections
import os
import socket
import struct
import threading
import time
import weakref
from typing import Any, Deque, Dict, List, Optional, Tuple

from nigh import native, wire
from nigh.errors import NoServer, NotAdmitted, ProtocolError, TimedOut, refused

# A thread each; beyond it threads wait for one another. A sandbox may have 128.
CONNECTIONS_MAX = 32
# An answer waits for a disk at most; as long as botocore waits for a byte.
TIMEOUT_S = 60.0
# After a failure to connect nobody tries again for so long: callers are not slowed by a server that is gone.
DOWN_S = 1.0
# An answer brings one descriptor; more than fit here are a protocol error.
_DESCRIPTORS_MAX = 4
_ANCILLARY_BYTES = socket.CMSG_SPACE(_DESCRIPTORS_MAX * 4)
_REQUEST_ID_MASK = 0xFFFFFFFF
_READS = frozenset((wire.GET, wire.HEAD))
# Released segments that wait to be named in the next read; one more, and all are told at once. A hint of its own wakes
# the server a second time, and it finds out by itself before long.
_RELEASED_MAX = 4
# Hints that did not fit the socket's buffer; dropped beyond, the server finds out by itself.
_UNSENT_MAX = 1024
_CLOEXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_BROKEN = socket.MSG_TRUNC | socket.MSG_CTRUNC


class Answer:
    """The answer to one request. Who takes `descriptor` owns it; `close` closes it if nobody has.

    `fields`, `status` and `headers` are read when they are asked for where the bytes can be had without them.
    """

    __slots__ = ("connection", "body", "descriptor", "is_in_packet", "_text", "_fields", "_headers")

    def __init__(self, connection: "Connection", packet: wire.Packet, descriptor: int):
        self.connection = connection
        self._text = packet.text
        self.body = packet.body
        self.descriptor = descriptor
        self._fields: Optional[Dict[str, Any]] = None
        self._headers: Optional[Dict[str, str]] = None
        # A success whose bytes are those of `body`.
        self.is_in_packet = bool(packet.flags & wire.IN_PACKET)
        if self.is_in_packet:
            if descriptor >= 0:
                raise ProtocolError("a descriptor came, and the bytes in the packet")
        else:
            self._fields = wire.decode(packet.text)
            wire.number(self._fields, "status")
            self._headers = wire.headers(self._fields)

    @property
    def fields(self) -> Dict[str, Any]:
        if self._fields is None:
            self._fields = wire.decode(self._text)
        return self._fields

    @property
    def status(self) -> int:
        return wire.number(self.fields, "status")

    @property
    def headers(self) -> Dict[str, str]:
        if self._headers is None:
            self._headers = wire.headers(self.fields)
        return self._headers

    def close(self) -> None:
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def check(self) -> "Answer":
        """Itself, if it is no error."""
        if 200 <= self.status < 300:
            return self
        self.close()
        code, message = self.fields.get("code"), self.fields.get("message")
        if self.status == 304:
            code, message = code or "NotModified", message or "Not Modified"
        raise refused(self.status, str(code), str(message), self.headers)


class Connection:
    """One connection, of one process, used by one thread at a time; only `release` may be called by any."""

    def __init__(self, address: str, timeout_s: float):
        self.pid = os.getpid()
        self.open = True
        self._next_id = 0
        self._buffer = bytearray(wire.PACKET_BYTES_MAX)
        self._view = memoryview(self._buffer)
        self._released: Deque[int] = collections.deque(maxlen=_RELEASED_MAX + 1)
        self._unsent: Deque[bytes] = collections.deque(maxlen=_UNSENT_MAX)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        try:
            seconds = int(timeout_s)
            bound = struct.pack("ll", seconds, int((timeout_s - seconds) * 1e6))
            for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                self._socket.setsockopt(socket.SOL_SOCKET, option, bound)
            try:
                self._socket.connect("\0" + address[1:] if address.startswith("@") else address)
            except OSError as error:
                raise NoServer(f"the fast path at {address} does not answer: {error}") from None
        except BaseException:
            self.close()
            raise

    def request(self, operation: int, fields: Dict[str, Any], body: bytes = b"") -> Answer:
        """Asks and waits for the answer. After any `Unavailable` the connection is closed."""
        self._next_id = request_id = (self._next_id + 1) & _REQUEST_ID_MASK
        released = self._take_released() if self._released and operation in _READS else ()
        packet = wire.pack(operation, request_id, fields, body, released)
        descriptor = -1
        try:
            while self._unsent:
                self._send(self._unsent.popleft())
            self._send(packet)
            reply, descriptor = self._receive()
            if reply.kind != wire.ANSWER:
                raise wire.fatal(reply.text)
            if reply.request_id != request_id:
                raise ProtocolError(f"an answer to {reply.request_id}, not to {request_id}")
            return Answer(self, reply, descriptor)
        except BaseException:
            # Also where a signal's handler raised: an answer may still come, and would be another request's.
            if descriptor >= 0:
                os.close(descriptor)
            self.close()
            raise

    def exchange(self, packet: Optional[bytes] = None) -> Tuple[wire.Packet, int]:
        """Sends a packet and waits for the next; without one it only waits. For the handshake."""
        if packet is not None:
            self._send(packet)
        return self._receive()

    def release(self, handle: int) -> None:
        """Says that a segment is not used any more, with the next read or, if there are several, now. Never waits, never
        fails: the collector calls it too."""
        self._released.append(handle)
        if len(self._released) > _RELEASED_MAX:
            for released in self._take_released():
                self._hint(wire.RELEASE, released)

    def abandon(self, handle: int) -> None:
        """Says that a segment that was made is not wanted. Never waits, never fails."""
        self._hint(wire.ABANDON, handle)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self.open = False
        self._socket.close()

    def __del__(self) -> None:
        if hasattr(self, "_socket"):
            self._socket.close()

    def _take_released(self) -> List[int]:
        taken = []
        try:
            # Others may take some at the same time.
            while True:
                taken.append(self._released.popleft())
        except IndexError:
            return taken

    def _hint(self, operation: int, handle: int) -> None:
        if not self.open or self.pid != os.getpid():
            return
        packet = wire.pack(operation, 0, {"handle": handle})
        try:
            self._socket.send(packet, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except BlockingIOError:
            self._unsent.append(packet)
        except OSError:
            # The server is gone, and what it counted with it.
            return

    def _send(self, packet: bytes) -> None:
        try:
            self._socket.send(packet, socket.MSG_NOSIGNAL)
        except BlockingIOError:
            raise TimedOut("the fast path takes no requests") from None
        except OSError as error:
            raise NoServer(f"the fast path's connection broke: {error}") from None

    def _receive(self) -> Tuple[wire.Packet, int]:
        try:
            length, ancillary, flags, _ = self._socket.recvmsg_into([self._buffer], _ANCILLARY_BYTES, _CLOEXEC)
        except BlockingIOError:
            raise TimedOut("the fast path does not answer in time") from None
        except OSError as error:
            raise NoServer(f"the fast path's connection broke: {error}") from None
        descriptors = _descriptors(ancillary) if ancillary else []
        try:
            if flags & _BROKEN:
                raise ProtocolError("a packet longer than a packet may be, or more descriptors than one may bring")
            if length == 0:
                raise NoServer("the fast path closed the connection")
            if len(descriptors) > 1:
                raise ProtocolError(f"{len(descriptors)} descriptors with one packet")
            return wire.unpack(self._view[:length]), descriptors.pop() if descriptors else -1
        finally:
            for descriptor in descriptors:
                os.close(descriptor)


def _descriptors(ancillary: List[Tuple[int, int, bytes]]) -> List[int]:
    found = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    return list(found)


def connect(address: str, access_key: str, secret: str, timeout_s: float) -> Connection:
    """A connection on which the server takes requests of this key."""
    connection: Connection = (Connection if native.module is None else native.module.Connection)(address, timeout_s)
    try:
        greeting, descriptor = connection.exchange()
        _keep_none(descriptor)
        if greeting.kind != wire.GREETING:
            raise wire.fatal(greeting.text)
        mac = wire.proof(secret, wire.text(wire.decode(greeting.text), "nonce"))
        hello = wire.pack(wire.HELLO, 0, {"access_key": access_key, "mac": mac})
        admitted, descriptor = connection.exchange(hello)
        _keep_none(descriptor)
        fields = wire.decode(admitted.text)
        if admitted.kind != wire.ANSWER or "code" in fields:
            raise NotAdmitted(f"{address} does not take the key {access_key}: {fields.get('message')}")
    except BaseException:
        connection.close()
        raise
    return connection


def _keep_none(descriptor: int) -> None:
    if descriptor >= 0:
        os.close(descriptor)
        raise ProtocolError("a descriptor that belongs to no answer")


class Pool:
    """The connections of one process with one key. Safe in threads and after fork."""

    def __init__(self, address: str, access_key: str, secret: str, timeout_s: float = TIMEOUT_S):
        self.address = address
        self._access_key = access_key
        self._secret = secret
        self._timeout_s = timeout_s
        self._begin()
        _pools.add(self)

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._idle: List[Connection] = []
        self._all: "weakref.WeakSet[Connection]" = weakref.WeakSet()
        self._changed = threading.Condition()
        self._waiting = 0
        self._count = 0
        self._down_until = 0.0

    def request(self, operation: int, fields: Dict[str, Any], body: bytes = b"") -> Answer:
        """One request on any connection. Sent again, once, if a connection that had stood idle turns out to be dead."""
        connection, is_new = self.take()
        try:
            return connection.request(operation, fields, body)
        except NoServer:
            if is_new:
                raise
        finally:
            self.give(connection)
        connection = self._open_another()
        try:
            return connection.request(operation, fields, body)
        finally:
            self.give(connection)

    def take(self) -> Tuple[Connection, bool]:
        """A connection for this thread alone, and whether it is new; `give` it back."""
        if self._pid != os.getpid():
            # A fork that Python did not see.
            self.forget()
        try:
            return self._idle.pop(), False
        except IndexError:
            pass
        if self._has_room():
            return self._connect(), True
        ends = time.monotonic() + self._timeout_s
        with self._changed:
            self._waiting += 1
            try:
                while not self._idle and self._count >= CONNECTIONS_MAX:
                    if not self._changed.wait(ends - time.monotonic()):
                        raise TimedOut(f"all {CONNECTIONS_MAX} connections were busy for {self._timeout_s} s")
                if self._idle:
                    return self._idle.pop(), False
                self._count += 1
            finally:
                self._waiting -= 1
        return self._connect(), True

    def give(self, connection: Connection) -> None:
        """Takes a connection back; a closed one makes room for another."""
        if connection.pid != self._pid:
            return
        if connection.open:
            self._idle.append(connection)
        else:
            with self._changed:
                self._count -= 1
        if self._waiting:
            with self._changed:
                self._changed.notify()

    def forget(self) -> None:
        """What a child does with its parent's connections: closes its copies, tells the server nothing."""
        old = list(self._all)
        self._begin()
        for connection in old:
            connection.close()

    def close(self) -> None:
        """Closes the connections that stand idle."""
        while self._idle:
            connection = self._idle.pop()
            connection.close()
            self.give(connection)

    def _has_room(self) -> bool:
        with self._changed:
            if self._count >= CONNECTIONS_MAX:
                return False
            self._count += 1
            return True

    def _open_another(self) -> Connection:
        """A new connection, whatever stands idle: that may be as dead as the last one."""
        if not self._has_room():
            return self.take()[0]
        return self._connect()

    def _connect(self) -> Connection:
        """Opens one that has been counted."""
        try:
            if time.monotonic() < self._down_until:
                raise NoServer(f"the fast path at {self.address} did not answer a moment ago")
            try:
                connection = connect(self.address, self._access_key, self._secret, self._timeout_s)
            except (NoServer, NotAdmitted, ProtocolError):
                self._down_until = time.monotonic() + DOWN_S
                raise
        except BaseException:
            with self._changed:
                self._count -= 1
                self._changed.notify()
            raise
        self._all.add(connection)
        return connection


_pools: "weakref.WeakSet[Pool]" = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for pool in list(_pools):
        pool.forget()


os.register_at_fork(after_in_child=_after_fork_in_child)
