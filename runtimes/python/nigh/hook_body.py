"""The `Body` of a get by the fast path: botocore's streaming body, with the bytes already here.

Beside what every body does, `view()` gives the rest of it as a memoryview without a copy.
"""

from __future__ import annotations

import base64
import io
from typing import Any, Optional

from botocore.exceptions import FlexibleChecksumError, IncompleteReadError
from botocore.response import StreamingBody
from urllib3.response import HTTPResponse

from nigh.segment import Segment


class FastBody(StreamingBody):
    """Reads a segment from its begin to its end, and lets it go there."""

    def __init__(self, segment: Segment, headers: Any, status: int):
        # Not the parent's: there is no stream yet, and mostly never.
        self._segment = segment
        self._position = 0
        self._cut = False
        self._headers = headers
        self._status = status
        self._raw: Optional[_Raw] = None

    @property
    def _raw_stream(self) -> "_Raw":
        # What a `with` gives, and what only knows a response of urllib3's.
        if self._raw is None:
            self._raw = _Raw(self)
        return self._raw

    @property
    def _content_length(self) -> str:
        return str(self._segment.length)

    @property
    def _amount_read(self) -> int:
        return self._position

    def set_socket_timeout(self, timeout: Any) -> None:
        """Nothing: no byte is waited for."""

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def read(self, amt: Optional[int] = None) -> bytes:
        begin, end = self._next(amt)
        if begin == end:
            return b""
        data = self._segment.read(begin, end)
        self._moved(end)
        return data

    def readinto(self, b: Any) -> int:
        begin, end = self._next(len(b))
        if end > begin:
            target = memoryview(b).cast("B")
            target[: end - begin] = self._segment.read(begin, end)
            self._moved(end)
        return end - begin

    def view(self, amt: Optional[int] = None) -> memoryview:
        """As `read`, without a copy: a read-only memoryview. It stays good as long as somebody holds it."""
        begin, end = self._next(amt)
        if begin == end:
            return memoryview(b"")
        try:
            view = self._segment.view()[begin:end]
        except OSError:
            # Out of descriptors or of mappings: a copy takes neither.
            view = memoryview(self._segment.read(begin, end))
        self._moved(end)
        return view

    def close(self) -> None:
        if self._position < self._segment.length:
            self._cut = True
        self._segment.close()

    def _next(self, amount: Optional[int]) -> "tuple[int, int]":
        length = self._segment.length
        if self._cut and amount != 0:
            if amount is None or amount > 0:
                raise IncompleteReadError(actual_bytes=self._position, expected_bytes=length)
            return length, length
        if amount is None or amount < 0:
            return self._position, length
        return self._position, min(self._position + amount, length)

    def _moved(self, position: int) -> None:
        self._position = position
        if position == self._segment.length:
            # A body is read once. What it held counts until it is let go, and the answer may live long.
            self._segment.close()


class CheckedBody(FastBody):
    """The same where the caller has asked for the object's checksum to be computed and compared."""

    def __init__(self, segment: Segment, headers: Any, status: int, checksum: Any, expected: str):
        super().__init__(segment, headers, status)
        self._checksum = checksum
        self._expected = expected

    @property
    def checksum(self) -> Any:
        return self._checksum

    def read(self, amt: Optional[int] = None) -> bytes:
        chunk = super().read(amt)
        self._checksum.update(chunk)
        if amt is None or (not chunk and amt > 0):
            self._validate()
        return chunk

    def readinto(self, b: Any) -> int:
        count = super().readinto(b)
        self._checksum.update(memoryview(b).cast("B")[:count])
        if count == 0 and len(b) > 0:
            self._validate()
        return count

    def view(self, amt: Optional[int] = None) -> memoryview:
        view = super().view(amt)
        self._checksum.update(view)
        if amt is None or (not view and amt > 0):
            self._validate()
        return view

    def _validate(self) -> None:
        if self._checksum.digest() != base64.b64decode(self._expected):
            raise FlexibleChecksumError(
                error_msg=f"Expected checksum {self._expected} did not match calculated "
                f"checksum: {self._checksum.b64digest()}"
            )


class _Source(io.RawIOBase):
    """A body as the file that a response of urllib3's reads from."""

    def __init__(self, body: FastBody):
        self._body = body

    def readable(self) -> bool:
        return True

    def read(self, size: Optional[int] = -1) -> bytes:
        return b"" if self.closed else FastBody.read(self._body, size)

    def close(self) -> None:
        if not self.closed:
            FastBody.close(self._body)
        super().close()


class _Raw(HTTPResponse):
    """What botocore's bodies give in a `with`."""

    def __init__(self, body: FastBody):
        super().__init__(
            body=_Source(body),
            headers=body._headers,
            status=body._status,
            preload_content=False,
            decode_content=False,
            request_method="GET",
        )
        self._fast_body = body

    def tell(self) -> int:
        return self._fast_body.tell()

    def view(self, amt: Optional[int] = None) -> memoryview:
        """As `FastBody.view`."""
        return self._fast_body.view(amt)


def view_by_copy(self: StreamingBody, amt: Optional[int] = None) -> memoryview:
    """`Body.view()` where an answer came over HTTP: the same bytes, copied."""
    return memoryview(self.read(amt))
