"""How bytes become an object: in the packet below 64 KiB, else through a segment that the node makes and seals.

The client and the hook share it. What the store refuses is raised as `Refused`, what the fast path does not carry as
`Unavailable`; a segment that was made and not committed is given back in either case.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Tuple, Union

from nigh import wire
from nigh.connection import Answer, Connection, Pool
from nigh.errors import NoServer, ProtocolError, Refused, UseHttp

# What a file is read in on its way into a segment.
_PIECE_BYTES = 1 << 20


def checked(answer: Answer) -> Answer:
    """`answer`, if it is no error and no word that HTTP must be asked."""
    if answer.is_in_packet:
        return answer
    if answer.status == 307:
        answer.close()
        raise UseHttp("the fast path does not carry this object; ask over HTTP")
    return answer.check()


def store(
    pool: Pool, bucket: str, key: str, headers: Dict[str, str], source: Union[memoryview, Any], size: int
) -> Answer:
    """Puts `size` bytes: all of a memoryview, or what a file gives from where it stands."""
    if size <= wire.INLINE_BYTES_MAX:
        body = bytes(source) if isinstance(source, memoryview) else _read_exactly(source, size)
        return checked(pool.request(wire.PUT, {"bucket": bucket, "key": key, "headers": headers}, body))
    connection, answer = create(pool, size)
    handle = wire.number(answer.fields, "handle")
    try:
        try:
            _fill(answer.descriptor, source, size)
        finally:
            answer.close()
    except BaseException:
        connection.abandon(handle)
        pool.give(connection)
        raise
    return commit(pool, connection, handle, bucket, key, headers)


def create(pool: Pool, size: int) -> Tuple[Connection, Answer]:
    """A segment of `size` bytes, and the connection that it belongs to: the caller's until `commit`, or `give`."""
    while True:
        connection, is_new = pool.take()
        try:
            answer = checked(connection.request(wire.CREATE, {"length": size}))
            if answer.descriptor < 0 or type(answer.fields.get("handle")) is not int:
                answer.close()
                connection.close()
                raise ProtocolError("a segment was made, and no descriptor or handle came")
            return connection, answer
        except NoServer:
            # One that had stood idle may be dead; a new one is not.
            pool.give(connection)
            if is_new:
                raise
        except BaseException:
            pool.give(connection)
            raise


def commit(pool: Pool, connection: Connection, handle: int, bucket: str, key: str, headers: Dict[str, str]) -> Answer:
    """Has the node seal and store what was made. Gives the connection back."""
    fields = {"handle": handle, "bucket": bucket, "key": key, "headers": headers}
    try:
        return checked(connection.request(wire.COMMIT, fields))
    except Refused as error:
        if error.code == "SegmentBusy":
            # It stands yet, and nobody will commit it again.
            connection.abandon(handle)
        raise
    finally:
        pool.give(connection)


def _fill(descriptor: int, source: Union[memoryview, Any], size: int) -> None:
    if isinstance(source, memoryview):
        _write(descriptor, source, 0)
        return
    offset = 0
    while offset < size:
        piece = source.read(min(_PIECE_BYTES, size - offset))
        if not piece:
            raise EOFError(f"the source ended after {offset} of {size} bytes")
        _write(descriptor, memoryview(piece), offset)
        offset += len(piece)


def _write(descriptor: int, data: memoryview, offset: int) -> None:
    while data:
        written = os.pwrite(descriptor, data, offset)
        data, offset = data[written:], offset + written


def _read_exactly(source: Any, size: int) -> bytes:
    parts: List[bytes] = []
    left = size
    while left:
        part = source.read(left)
        if not part:
            raise EOFError(f"the source ended after {size - left} of {size} bytes")
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
