"""The bytes of one answer: in the packet, or in a sealed segment of the node's that is mapped only if somebody looks.

A segment is read by copy (`pread`, which maps nothing) or as a view (`mmap`). What holds it is told to the node at the
end: when the last view is gone, or the segment is closed unread. A descriptor that is no sealed segment of the length
announced is refused before anybody sees a byte of it: a file that could shrink would end the process by SIGBUS.

Closed, it gives no bytes: ValueError.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import sys
import threading
import weakref
from typing import Any, Callable, Dict, Optional, Set

from nigh import wire
from nigh.connection import Answer
from nigh.errors import ProtocolError

# Linux 5.1 and newer; Python has no name for it everywhere.
_F_SEAL_FUTURE_WRITE = 0x10
_SEALS_AGAINST_WRITING = fcntl.F_SEAL_WRITE | _F_SEAL_FUTURE_WRITE
# One pread(2) gives at most this.
_READ_BYTES_MAX = 0x7FFFF000
# From 3.13 on a mapping does not keep a descriptor of its own.
NO_DESCRIPTOR: Dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}


class _Watch(weakref.ref):  # type: ignore[type-arg]
    """Tells when a mapping is gone, for a third of what `weakref.finalize` takes."""

    __slots__ = ("release",)
    release: Callable[[], None]

    def is_gone(self) -> None:
        _watches.discard(self)
        self.release()


# All there are: a weak reference that nobody keeps tells nobody.
_watches: "Set[_Watch]" = set()


class Segment:
    """So many bytes that do not change. Its methods may be called by several threads."""

    __slots__ = ("length", "_bytes", "_descriptor", "_offset", "_mapping", "_release", "_lock")

    def __init__(self, answer: Answer):
        # The answer may live longer than the bytes are wanted.
        self._bytes: Optional[bytes] = answer.body
        answer.body = b""
        self._mapping: Optional[memoryview] = None
        self._descriptor = -1
        if answer.is_in_packet:
            self.length = len(self._bytes)
            return
        try:
            self.length = wire.number(answer.fields, "length")
            if answer.descriptor < 0:
                raise ProtocolError(f"neither a segment nor the {self.length} bytes came")
            self._bytes = None
            self._offset = wire.number(answer.fields, "offset")
            handle = wire.number(answer.fields, "handle")
            _check(answer.descriptor, self._offset + self.length)
        except BaseException:
            answer.close()
            raise
        connection = answer.connection
        self._release: Callable[[], None] = lambda: connection.release(handle)
        self._lock = threading.Lock()
        self._descriptor, answer.descriptor = answer.descriptor, -1

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Lets the bytes go. Views that were given out stay good."""
        if self._descriptor >= 0:
            with self._lock:
                descriptor, self._descriptor = self._descriptor, -1
                if descriptor >= 0:
                    os.close(descriptor)
                    self._release()
        self._bytes = self._mapping = None

    def view(self) -> memoryview:
        """All of it, without a copy, read-only. OSError if it cannot be mapped (too many descriptors, no memory)."""
        if self._bytes is not None:
            return memoryview(self._bytes)
        mapping = self._mapping
        if mapping is None:
            self._check_held()
            with self._lock:
                mapping = self._mapping
                if mapping is None:
                    mapping = self._mapping = self._map()
        # Another each time: whoever has one may release it.
        return memoryview(mapping)

    def read(self, begin: int, end: int) -> bytes:
        """A copy of the bytes from `begin` up to `end`, both within it."""
        if self._bytes is not None:
            return self._bytes if end - begin == self.length else self._bytes[begin:end]
        if self._mapping is None and end - begin < self.length:
            # Who reads in pieces reads many: one mapping is cheaper than a call for each.
            try:
                self.view()
            except OSError:
                pass
        if self._mapping is not None:
            return bytes(self._mapping[begin:end])
        return self._copy(begin, end)

    def _check_held(self) -> None:
        if self._descriptor < 0:
            raise ValueError("the bytes were let go")

    def _map(self) -> memoryview:
        self._check_held()
        if not self.length:
            # To mmap this is the whole file.
            return memoryview(b"")
        begins = self._offset - self._offset % mmap.ALLOCATIONGRANULARITY
        skipped = self._offset - begins
        mapped = mmap.mmap(
            self._descriptor,
            skipped + self.length,
            flags=mmap.MAP_SHARED,
            prot=mmap.PROT_READ,
            offset=begins,
            **NO_DESCRIPTOR,
        )
        watch = _Watch(mapped, _Watch.is_gone)
        watch.release = self._release
        _watches.add(watch)
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)
        return memoryview(mapped)[skipped:]

    def _copy(self, begin: int, end: int) -> bytes:
        self._check_held()
        with self._lock:
            # Another thread may have mapped or closed it meanwhile.
            if self._mapping is not None:
                return bytes(self._mapping[begin:end])
            self._check_held()
            parts = []
            while begin < end:
                part = os.pread(self._descriptor, min(end - begin, _READ_BYTES_MAX), self._offset + begin)
                if not part:
                    raise ProtocolError(f"a segment ended {end - begin} bytes early")
                parts.append(part)
                begin += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


def segment_of(answer: Any) -> Segment:
    """The bytes of an answer, by what brought it: `Segment`, or the native module's of the same methods."""
    if type(answer) is Answer:
        return Segment(answer)
    segment: Segment = answer.segment()
    return segment


def _check(descriptor: int, length: int) -> None:
    """Refuses what is not sealed or shorter than announced."""
    try:
        seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    except OSError:
        seals = 0
    if not (seals & fcntl.F_SEAL_SHRINK and seals & _SEALS_AGAINST_WRITING):
        raise ProtocolError("a descriptor came that is no sealed segment")
    # The least that tells its size: the file is this descriptor's own, and nobody goes by its position.
    size = os.lseek(descriptor, 0, os.SEEK_END)
    if size < length:
        raise ProtocolError(f"a segment of {size} bytes came where {length} were announced")
