"""Packets of the fast path, as docs/design/fast-path.md draws them. Pure: bytes in, values out.

A packet is a header of 16 bytes, a JSON object and a body; the two lengths fill the packet exactly. Whatever is not
that is a `ProtocolError`, never a guess.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import json
import struct
from typing import Any, Dict, NamedTuple, Sequence

from nigh.errors import ProtocolError

VERSION = 1
# The longest packet either side sends.
PACKET_BYTES_MAX = 256 << 10
# A put's body goes into the packet below this size; from it on it goes into a segment.
INLINE_BYTES_MAX = (64 << 10) - 1
# The JSON of a request: a key of 1 KiB, 8 KiB of headers, each character at most six bytes as an escape.
REQUEST_JSON_BYTES_MAX = 96 << 10

HELLO, GET, HEAD, PUT, CREATE, COMMIT, RELEASE, ABANDON = range(1, 9)
GREETING, ANSWER, FATAL = range(3)
# An answer's flag: it is a success, and its body is all the bytes that were asked for.
IN_PACKET = 2

_HEADER = struct.Struct("<BBHIII")
_HEADER_BYTES = _HEADER.size
_encode = json.JSONEncoder(separators=(",", ":")).encode
_decode = json.JSONDecoder().decode
_TEXTS = frozenset((str,))
_NUMBERS_END = 1 << 64
_PROOF_PREFIX = b"nigh fast path 1\n"


class Packet(NamedTuple):
    """What the server said. `text` is its JSON, for `decode`: not every answer's is looked at."""

    kind: int
    flags: int
    request_id: int
    text: bytes
    body: bytes


def pack(
    operation: int, request_id: int, fields: Dict[str, Any], body: bytes = b"", released: Sequence[int] = ()
) -> bytes:
    """One request. `released`, of a GET or HEAD: handles of segments that are not used any more. A body beyond
    `INLINE_BYTES_MAX` or a JSON beyond its bound is the caller's mistake: ValueError."""
    if len(fields) == 2 and (operation == GET or operation == HEAD):
        text = _named(fields["bucket"], fields["key"])
    else:
        text = _encode(fields).encode("ascii")
    if released:
        text = b'%s,"released":%s}' % (text[:-1], _encode(list(released)).encode("ascii"))
    if len(text) > REQUEST_JSON_BYTES_MAX or len(body) > INLINE_BYTES_MAX:
        raise ValueError(f"a request of {len(text)} bytes of JSON and {len(body)} of body does not fit a packet")
    return _HEADER.pack(VERSION, operation, 0, request_id, len(text), len(body)) + text + body


@functools.lru_cache(maxsize=256)
def _named(bucket: str, key: str) -> bytes:
    """The fields of a plain read. Who reads an object often asks in the same words."""
    return _encode({"bucket": bucket, "key": key}).encode("ascii")


def unpack(packet: memoryview) -> Packet:
    """One reply."""
    if len(packet) < _HEADER_BYTES:
        raise ProtocolError(f"a packet of {len(packet)} bytes, shorter than its header")
    version, kind, flags, request_id, text_bytes, body_bytes = _HEADER.unpack_from(packet)
    if version != VERSION:
        raise ProtocolError(f"the server speaks version {version}, this client {VERSION}; use the package of that Nigh")
    if kind > FATAL:
        raise ProtocolError(f"a reply of the unknown kind {kind}")
    body_begins = _HEADER_BYTES + text_bytes
    if body_begins + body_bytes != len(packet):
        raise ProtocolError(f"lengths {text_bytes} and {body_bytes} do not fill a packet of {len(packet)} bytes")
    text, body = bytes(packet[_HEADER_BYTES:body_begins]), bytes(packet[body_begins:])
    return Packet(kind, flags, request_id, text, body)


def decode(text: bytes) -> Dict[str, Any]:
    """The fields of a reply."""
    try:
        fields = _decode(str(text, "utf-8"))
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a reply's JSON is none: {error}") from None
    if type(fields) is not dict:
        raise ProtocolError("a reply's JSON is no object")
    return fields


def fatal(text: bytes) -> ProtocolError:
    """The error of a reply that ends the connection."""
    fields = decode(text)
    return ProtocolError(f"the server ends the connection: {fields.get('code')}: {fields.get('message')}")


def proof(secret: str, nonce: str) -> str:
    """What shows the server that the client has the key's secret."""
    return hmac.new(secret.encode(), _PROOF_PREFIX + nonce.encode(), hashlib.sha256).hexdigest()


def text(fields: Dict[str, Any], name: str) -> str:
    """The text called `name` in a reply."""
    value = fields.get(name)
    if type(value) is not str:
        raise ProtocolError(f"a reply's {name!r} is no text")
    return value


def number(fields: Dict[str, Any], name: str) -> int:
    """The whole number called `name` in a reply, of 64 bits and not negative."""
    value = fields.get(name)
    if type(value) is not int or not 0 <= value < _NUMBERS_END:
        raise ProtocolError(f"a reply's {name!r} is no number")
    return value


def headers(fields: Dict[str, Any]) -> Dict[str, str]:
    """The headers in a reply, by lower-case name."""
    value = fields.get("headers")
    if value is None:
        return {}
    if type(value) is not dict or not _TEXTS.issuperset(map(type, value.values())):
        raise ProtocolError("a reply's headers are not texts by name")
    return value
