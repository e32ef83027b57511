"""A botocore put by the fast path: the body as botocore has it, the checksum left to the node.

botocore computes a checksum and a SHA-256 of the body after `before-call`, so a put that is answered there pays for
neither. A body that was read and could not be sent is put back to where it stood, for HTTP to send; where that cannot
be done, the call fails as a broken connection does.
"""

from __future__ import annotations

import io
import uuid
from typing import Any, Dict, Optional, Union

from botocore.exceptions import ConnectionClosedError
from botocore.utils import determine_content_length

from nigh import upload
from nigh.connection import Answer, Pool
from nigh.errors import Refused
from nigh.hook_request import Http, put_headers

# Errors after which a call is over, whatever became of its body.
_FINAL = frozenset((404, 412))


class Spent(ConnectionClosedError):
    """The body is read, cannot be read again, and was not sent."""

    reason = "spent"


class _Body:
    """The body of one call: its bytes, or a file to read them from."""

    def __init__(self, body: Any, declared: Optional[str]):
        self._begin: Optional[int] = None
        self._file = body
        self.source: Union[memoryview, Any]
        if isinstance(body, (bytes, bytearray)):
            self._file, self.source, size = None, memoryview(body), len(body)
        elif type(body) is io.BytesIO:
            self._begin = body.tell()
            # The bytes themselves where it was made of bytes, which botocore does of a put's.
            self.source = memoryview(body.getvalue())[self._begin :]
            size = len(self.source)
        else:
            self.source, size = body, self._size_of_file(body, declared)
        if declared is not None and int(declared) != size:
            raise Http("length")
        self.size = size

    def _size_of_file(self, body: Any, declared: Optional[str]) -> int:
        if not hasattr(body, "read"):
            raise Http("body")
        try:
            self._begin = body.tell()
            body.seek(self._begin)
        except (AttributeError, OSError, ValueError):
            self._begin = None
        size = determine_content_length(body) if self._begin is not None or hasattr(body, "__len__") else None
        if size is None:
            if declared is None:
                raise Http("length")
            size = int(declared)
        return size

    def begin(self) -> None:
        """What s3transfer wants to hear before bytes go out: from here on reads are progress."""
        if hasattr(self._file, "signal_transferring"):
            self._file.signal_transferring()

    def end(self) -> None:
        """Leaves a file where HTTP would: at its end."""
        if type(self._file) is io.BytesIO:
            self._file.seek(0, io.SEEK_END)

    def rewind(self) -> bool:
        """Puts it back to where it stood; False if it cannot be."""
        if self._file is None:
            return True
        if self._begin is None:
            return False
        self._file.seek(self._begin)
        return True


def put(pool: Pool, bucket: str, key: str, request: Any, context: Dict[str, Any]) -> Answer:
    """Stores the body. Raises `Refused` for what is final, `Spent`, or anything else for HTTP."""
    headers = put_headers(request)
    declared = next((value for name, value in request["headers"].items() if name.lower() == "content-length"), None)
    body = _Body(request["body"], declared)
    # The same for HTTP, if it comes to that: a put that was sent twice is one put.
    headers["amz-sdk-invocation-id"] = context.setdefault("retries", {}).setdefault("invocation-id", str(uuid.uuid4()))
    try:
        body.begin()
        answer = upload.store(pool, bucket, key, headers, body.source, body.size)
    except Exception as error:
        if isinstance(error, Refused) and error.status in _FINAL:
            body.end()
            raise
        if not body.rewind():
            raise Spent(endpoint_url=request["url"], error=error) from error
        raise
    body.end()
    return answer
