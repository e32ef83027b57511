"""Objects by the fast path alone: a get is a view of shared memory, a put of a large object fills a segment in place.

    client = Client()
    with client.get("bucket", "key") as view:
        total = sum(view.memory)

Everything is what the S3 door would answer; what the fast path does not carry raises `Unavailable`, and an S3 client
may be asked instead. A `Client` may be shared by threads and used after fork.
"""

from __future__ import annotations

import io
import mmap
import os
import uuid
from typing import Any, BinaryIO, Dict, Iterator, Mapping, Optional, Tuple, Union

from nigh import upload, wire
from nigh.connection import TIMEOUT_S, Answer, Pool
from nigh.errors import Busy, NoServer
from nigh.segment import NO_DESCRIPTOR, segment_of
from nigh.upload import checked

Data = Union[bytes, bytearray, memoryview]

_METADATA_PREFIX = "x-amz-meta-"


class Head:
    """What is known of an object."""

    def __init__(self, answer: Answer):
        self._answer = answer

    @property
    def headers(self) -> Dict[str, str]:
        """The headers of S3's answer, by lower-case name."""
        return self._answer.headers

    @property
    def etag(self) -> str:
        """The entity tag, in its quotes."""
        return self.headers.get("etag", "")

    @property
    def content_type(self) -> Optional[str]:
        """As it was stored."""
        return self.headers.get("content-type")

    @property
    def content_length(self) -> int:
        """Bytes of the object, or of the range that was asked for."""
        return int(self.headers["content-length"])

    @property
    def metadata(self) -> Dict[str, str]:
        """The user's metadata."""
        cut = len(_METADATA_PREFIX)
        return {name[cut:]: value for name, value in self.headers.items() if name.startswith(_METADATA_PREFIX)}


class View(Head):
    """An object's bytes where they lie. Read-only; one version of the object, whatever is written meanwhile.

    `memory` is the memoryview; `len`, indexing, slicing, iteration and comparison go to it. It stays good after
    `release` as long as somebody holds it; the node counts its bytes as held until then.
    """

    def __init__(self, answer: Answer):
        super().__init__(answer)
        self._segment = segment_of(answer)
        self._memory: Optional[memoryview] = None

    @property
    def memory(self) -> memoryview:
        """The bytes, without a copy."""
        if self._memory is None:
            self._memory = self._segment.view()
        return self._memory

    def tobytes(self) -> bytes:
        """The bytes, copied."""
        return self._segment.read(0, self._segment.length)

    __bytes__ = tobytes

    def release(self) -> None:
        """Lets the bytes go."""
        self._memory = None
        self._segment.close()

    def __len__(self) -> int:
        return self._segment.length

    def __getitem__(self, index: Any) -> Any:
        return self.memory[index]

    def __iter__(self) -> Iterator[int]:
        return iter(self.memory)

    def __eq__(self, other: object) -> bool:
        return self.memory == (other.memory if isinstance(other, View) else other)

    __hash__ = None  # type: ignore[assignment]

    def __buffer__(self, flags: int) -> memoryview:
        # From 3.12 on a view goes wherever a buffer does; before, its `memory` does.
        return self.memory

    def __enter__(self) -> "View":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"<nigh.View of {len(self)} bytes, {self.etag}>"


class Reader(io.BufferedIOBase):
    """An object as a file open for reading: seekable, one version, its bytes copied only as far as they are read."""

    def __init__(self, view: View):
        self.object = view
        self._segment = view._segment
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        self._check()
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._check()
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._segment.length}[whence]
        if base + offset < 0:
            raise ValueError(f"a negative position: {base + offset}")
        self._position = base + offset
        return self._position

    def read(self, size: Optional[int] = -1) -> bytes:
        begin, end = self._next(size)
        self._position = end
        return self._segment.read(begin, end) if end > begin else b""

    read1 = read

    def readinto(self, buffer: Any) -> int:
        target = memoryview(buffer).cast("B")
        begin, end = self._next(len(target))
        if end > begin:
            target[: end - begin] = self._segment.view()[begin:end]
        self._position = max(self._position, end)
        return end - begin

    readinto1 = readinto

    def close(self) -> None:
        if not self.closed:
            self.object.release()
        super().close()

    def _next(self, size: Optional[int]) -> Tuple[int, int]:
        self._check()
        begin = min(self._position, self._segment.length)
        if size is None or size < 0:
            return begin, self._segment.length
        return begin, min(begin + size, self._segment.length)

    def _check(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")


class Put:
    """A put that was acknowledged: it is durable."""

    def __init__(self, headers: Mapping[str, str]):
        self.headers = dict(headers)
        self.etag = self.headers.get("etag", "")


class Draft:
    """An object to be: memory to write into, which `commit` seals and publishes at once, without a copy.

    Leaving its `with` block without `commit` abandons it. Until then one of the process's connections is its own.
    """

    def __init__(self, pool: Pool, bucket: str, key: str, size: int):
        self._pool, self._bucket, self._key = pool, bucket, key
        self._connection, answer = upload.create(pool, size)
        self._handle = wire.number(answer.fields, "handle")
        try:
            self._mapping = mmap.mmap(answer.descriptor, size, flags=mmap.MAP_SHARED, **NO_DESCRIPTOR)
        except BaseException:
            self._give_back()
            raise
        finally:
            answer.close()
        self.size = size
        self._memory: Optional[memoryview] = memoryview(self._mapping)

    @property
    def memory(self) -> memoryview:
        """The bytes to fill. Zeros at first."""
        if self._memory is None:
            raise ValueError("the draft was committed or abandoned")
        return self._memory

    def commit(self, **options: Any) -> Put:
        """Stores what is in `memory`; options as `Client.put`. `Busy` while another view of it is in use."""
        memory = self.memory
        memory.release()
        self._memory = None
        try:
            self._mapping.close()
        except BufferError:
            self._memory = memoryview(self._mapping)
            raise Busy("a view made of the draft's memory is in use; release it and commit again") from None
        headers = _put_headers(**options)
        return Put(upload.commit(self._pool, self._connection, self._handle, self._bucket, self._key, headers).headers)

    def abandon(self) -> None:
        """Gives the memory back."""
        if self._memory is None:
            return
        self._memory = None
        self._give_back()

    def _give_back(self) -> None:
        self._connection.abandon(self._handle)
        self._pool.give(self._connection)

    def __enter__(self) -> "Draft":
        return self

    def __exit__(self, *_: object) -> None:
        self.abandon()

    def __del__(self) -> None:
        if getattr(self, "_memory", None) is not None:
            self.abandon()


class Client:
    """The fast path of this process's environment, or of the address and key given.

    `address`: `NIGH_FAST_PATH`; `@name` is an abstract socket, anything else a path. The key: `AWS_ACCESS_KEY_ID` and
    `AWS_SECRET_ACCESS_KEY`. Raises `NoServer` if there is no address or no key.
    """

    def __init__(
        self,
        address: Optional[str] = None,
        access_key: Optional[str] = None,
        secret_key: Optional[str] = None,
        timeout_s: float = TIMEOUT_S,
    ):
        address = address or os.environ.get("NIGH_FAST_PATH")
        access_key = access_key or os.environ.get("AWS_ACCESS_KEY_ID")
        secret_key = secret_key or os.environ.get("AWS_SECRET_ACCESS_KEY")
        if not address:
            raise NoServer(
                "no fast path: NIGH_FAST_PATH is not set; is this a sandbox of Nigh's, with s3.fast_path on?"
            )
        if not access_key or not secret_key:
            raise NoServer("no key for the fast path: AWS_ACCESS_KEY_ID or AWS_SECRET_ACCESS_KEY is not set")
        self._pool = Pool(address, access_key, secret_key, timeout_s)

    def get(
        self,
        bucket: str,
        key: str,
        *,
        range: Optional[str] = None,
        part: Optional[int] = None,
        if_match: Optional[str] = None,
        if_none_match: Optional[str] = None,
    ) -> View:
        """The object, or the `range` (`bytes=0-9`) or part of it. Raises `NotFound`, `PreconditionFailed`, ..."""
        return View(self._read(wire.GET, bucket, key, range, part, if_match, if_none_match))

    def get_bytes(self, bucket: str, key: str, **options: Any) -> bytes:
        """The same, copied."""
        with self.get(bucket, key, **options) as view:
            return view.tobytes()

    def head(
        self,
        bucket: str,
        key: str,
        *,
        part: Optional[int] = None,
        if_match: Optional[str] = None,
        if_none_match: Optional[str] = None,
    ) -> Head:
        """What is known of the object, without its bytes."""
        return Head(self._read(wire.HEAD, bucket, key, None, part, if_match, if_none_match))

    def open(self, bucket: str, key: str, **options: Any) -> Reader:
        """The object as a file."""
        return Reader(self.get(bucket, key, **options))

    def put(self, bucket: str, key: str, data: Union[Data, BinaryIO], **options: Any) -> Put:
        """Stores `data`: bytes or what offers them, or a file that can tell its length.

        Options: `content_type`, `metadata` (a dict of texts), `if_match`, `if_none_match` ("*": only if nothing is
        there), `headers` (other request headers of an S3 put). Each call is a request of its own; to repeat one
        whose answer was lost, give both the same `amz-sdk-invocation-id` (a UUID) in `headers`.
        """
        headers = _put_headers(**options)
        source: Union[memoryview, BinaryIO]
        if isinstance(data, (bytes, bytearray, memoryview)):
            source = memoryview(data).cast("B")
            size = len(source)
        else:
            source = data
            begin = data.tell()
            size = data.seek(0, os.SEEK_END) - begin
            data.seek(begin)
        return Put(upload.store(self._pool, bucket, key, headers, source, size).headers)

    def create(self, bucket: str, key: str, size: int) -> Draft:
        """Memory for an object of `size` bytes, at least one."""
        if size < 1:
            raise ValueError("an object without bytes has no memory to write into; put it")
        return Draft(self._pool, bucket, key, size)

    def close(self) -> None:
        """Closes the connections that stand idle. The client can be used on."""
        self._pool.close()

    def _read(
        self,
        operation: int,
        bucket: str,
        key: str,
        range: Optional[str],
        part: Optional[int],
        if_match: Optional[str],
        if_none_match: Optional[str],
    ) -> Answer:
        fields: Dict[str, Any] = {"bucket": bucket, "key": key}
        if range is not None:
            fields["range"] = range
        if part is not None:
            fields["part"] = part
        if if_match is not None:
            fields["if_match"] = if_match
        if if_none_match is not None:
            fields["if_none_match"] = if_none_match
        return checked(self._pool.request(operation, fields))


def _put_headers(
    content_type: Optional[str] = None,
    metadata: Optional[Mapping[str, str]] = None,
    if_match: Optional[str] = None,
    if_none_match: Optional[str] = None,
    headers: Optional[Mapping[str, str]] = None,
) -> Dict[str, str]:
    given = {name.lower(): value for name, value in (headers or {}).items()}
    given.update((_METADATA_PREFIX + name.lower(), value) for name, value in (metadata or {}).items())
    # Whoever sends the same again after a lost answer gets that answer, and writes once.
    given.setdefault("amz-sdk-invocation-id", str(uuid.uuid4()))
    for name, value in (("content-type", content_type), ("if-match", if_match), ("if-none-match", if_none_match)):
        if value is not None:
            given[name] = value
    return given
