"""Runs one handler of functions/ under the tracer: once to warm it, then once between the tracer's marks.

The function is imported as it is; its S3 client is replaced by one that serves a local file. The mark begins when the
handler has all of its input in its hands, and ends when it hands its output to the store, so that the transformation
alone is recorded.

    run_handler.py FUNCTION INPUT EVENT-ARGUMENTS-AS-JSON [WARM-UP-INPUT]
"""

import contextlib
import importlib.util
import json
import os
import sys
from io import BytesIO
from pathlib import Path

FUNCTIONS = Path(__file__).resolve().parents[2] / "functions"
# The `which` of getpriority(2) that the plugin takes for its mark; the kernel refuses it.
MARK = 0x4E696768


def mark(begins: bool) -> None:
    with contextlib.suppress(OSError):
        os.getpriority(MARK, int(begins))


class Body:
    """What botocore's StreamingBody gives the functions: all at once, or in pieces."""

    def __init__(self, data: bytes):
        self.data = data

    def read(self) -> bytes:
        data = bytes(bytearray(self.data))
        mark(True)
        return data

    def iter_chunks(self, size: int):
        stream = BytesIO(self.data)
        while piece := stream.read(size):
            yield piece
        mark(True)


class LocalStore:
    def __init__(self, data: bytes):
        self.data = data

    def get_object(self, Bucket: str, Key: str) -> dict:
        return {"Body": Body(self.data)}

    def put_object(self, Bucket: str, Key: str, Body, ContentType: str) -> None:
        mark(False)


def main() -> None:
    function, name, arguments, *warm_up = sys.argv[1:]
    os.environ.update(AWS_DEFAULT_REGION="us-east-1", AWS_ACCESS_KEY_ID="none", AWS_SECRET_ACCESS_KEY="none")
    spec = importlib.util.spec_from_file_location("app", FUNCTIONS / function / "app.py")
    app = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(app)
    event = {"input": {"bucket": "b", "key": "in"}, "output": {"bucket": "b", "key": "out"}, **json.loads(arguments)}

    global mark
    real_mark, mark = mark, lambda begins: None
    for index, path in enumerate([*(warm_up or [name]), name]):
        if index == 1:
            mark = real_mark
        app.s3 = LocalStore(Path(path).read_bytes())
        app.handler(event, None)


main()
