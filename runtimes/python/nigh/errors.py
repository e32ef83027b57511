"""What can go wrong on the fast path, and what each of it means for the caller.

Two families: `Refused` is the store's own answer (a key that is not there, a condition that does not hold) and would be
the same over HTTP; `Unavailable` says that the fast path could not carry the call, so that HTTP may be asked instead.
"""

from __future__ import annotations

from typing import Mapping


class NighError(Exception):
    """Any error of this package."""


class Unavailable(NighError):
    """The fast path did not carry the call. `reason` is one word, for counting."""

    reason = "unavailable"


class NoServer(Unavailable):
    """Nobody listens, or the connection broke before the answer came."""

    reason = "no-server"


class NotAdmitted(Unavailable):
    """The server did not take the key."""

    reason = "not-admitted"


class TimedOut(Unavailable):
    """No answer within the bound, or no connection became free."""

    reason = "timeout"


class ProtocolError(Unavailable):
    """What came was not the protocol; the connection is closed."""

    reason = "protocol"


class UseHttp(Unavailable):
    """The server says that this object comes over HTTP only: it is too large to keep, or its copy for a packet."""

    reason = "use-http"


class Busy(NighError):
    """A draft cannot be committed while a writable view of it is in use. Release the views and commit again."""


class Refused(NighError):
    """The store's answer was an error. `code` and `message` are S3's, `status` HTTP's, `headers` by lower-case name."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str]):
        super().__init__(f"{code} ({status}): {message}")
        self.status = status
        self.code = code
        self.message = message
        self.headers = dict(headers)


class NotFound(Refused):
    """There is no such key, or no such bucket (`code` tells which)."""


class AccessDenied(Refused):
    """The key may not do that, or the invocation has ended."""


class PreconditionFailed(Refused):
    """A condition of the call does not hold."""


class NotModified(Refused):
    """The object is the one the caller has. No fault: the answer to a condition."""


class InvalidRange(Refused):
    """The range begins behind the object's end."""


_BY_STATUS = {304: NotModified, 403: AccessDenied, 404: NotFound, 412: PreconditionFailed, 416: InvalidRange}


def refused(status: int, code: str, message: str, headers: Mapping[str, str]) -> Refused:
    """The error of an answer with this status."""
    return _BY_STATUS.get(status, Refused)(status, code, message, headers)
