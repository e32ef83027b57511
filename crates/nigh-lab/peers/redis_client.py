"""Stands in for boto3 where a sample function is to reach Redis: `client("s3")` with `get_object` and `put_object`.

redis-py with hiredis, one connection, as its users have it. An object is the value of the key `bucket/key`.
"""

import io
import os

import redis
from redis._parsers import _HiredisParser
from redis.connection import DefaultParser

# The slow parser would be measured without a word otherwise.
if DefaultParser is not _HiredisParser:
    raise ImportError("redis-py does not find hiredis")


class _Client:
    def __init__(self):
        port, password = int(os.environ["NIGH_LAB_REDIS_PORT"]), os.environ["NIGH_LAB_REDIS_PASSWORD"]
        self._redis = redis.Redis(host="127.0.0.1", port=port, password=password)

    def get_object(self, Bucket, Key):
        value = self._redis.get(f"{Bucket}/{Key}")
        if value is None:
            raise KeyError(f"{Bucket}/{Key}")
        return {"Body": io.BytesIO(value)}

    def put_object(self, Bucket, Key, Body, ContentType):
        # boto3 takes files, too.
        self._redis.set(f"{Bucket}/{Key}", Body.read() if hasattr(Body, "read") else Body)


def client(service):
    return _Client()
