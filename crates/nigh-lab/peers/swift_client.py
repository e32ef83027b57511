"""Stands in for boto3 where a sample function is to reach Swift by its own API: `client("s3")` with `get_object` and
`put_object`.

python-swiftclient, one connection kept, as its users have it; a bucket is a container.
"""

import io
import os

import swiftclient


class _Client:
    def __init__(self):
        self._swift = swiftclient.Connection(
            authurl=os.environ["NIGH_LAB_SWIFT_AUTH"],
            user=os.environ["NIGH_LAB_SWIFT_USER"],
            key=os.environ["NIGH_LAB_SWIFT_KEY"],
        )

    def get_object(self, Bucket, Key):
        _, contents = self._swift.get_object(Bucket, Key)
        return {"Body": io.BytesIO(contents)}

    def put_object(self, Bucket, Key, Body, ContentType):
        self._swift.put_object(Bucket, Key, contents=Body, content_type=ContentType)


def client(service):
    return _Client()
