"""One client of one store, for `nigh bench objects`: does what it is told and says what it took.

    objects_client.py boto3|nigh|redis

Orders come as JSON, one a line, and each has its answer:
`{"do": "prepare", "bytes": n}` stores an object of n bytes and compares what each kind of read gives: `{}`;
`{"do": "read"|"view"|"put", "bytes": n, "count": c}` does that c times: `{"us": [...], "cpu_us": x}`, the latter of this
process for each call; `{"do": "ways"}` says which way boto3's calls went: `{"fast": {...}, "http": {...}}`;
`{"do": "client"}` says whether Nigh's client is native here: `{"client": "native"|"Python"}`.
A read looks at the first byte: a view is mapped by then. The process ends with its input.
"""

import json
import os
import sys
import time

BUCKET = "bench-bucket"


def boto3_store():
    import boto3

    s3 = boto3.client("s3")
    s3.create_bucket(Bucket=BUCKET)

    def body(key):
        return s3.get_object(Bucket=BUCKET, Key=key)["Body"]

    reads = {"read": lambda key: body(key).read()}
    if "nigh.hook" in sys.modules:
        reads["view"] = lambda key: body(key).view()
    return reads, lambda key, data: s3.put_object(Bucket=BUCKET, Key=key, Body=data)


def nigh_store():
    from nigh import Client

    client = Client()
    reads = {
        "read": lambda key: client.get_bytes(BUCKET, key),
        "view": lambda key: client.get(BUCKET, key).memory,
    }
    return reads, lambda key, data: client.put(BUCKET, key, data)


def redis_store():
    import redis
    from redis._parsers import _HiredisParser
    from redis.connection import DefaultParser

    # The slow parser would be measured without a word otherwise.
    if DefaultParser is not _HiredisParser:
        raise ImportError("redis-py does not find hiredis")
    client = redis.Redis(
        unix_socket_path=os.environ["NIGH_LAB_REDIS_SOCKET"], password=os.environ["NIGH_LAB_REDIS_PASSWORD"]
    )
    return {"read": client.get}, client.set


def ways():
    hook = sys.modules.get("nigh.hook")
    return hook.counters() if hook else {"fast": {}, "http": {}}


def client():
    from nigh import native

    return {"client": "Python" if native.module is None else "native"}


def data_of(size):
    return (bytes(range(251)) * (size // 251 + 1))[:size]


def prepare(store, size):
    reads, put = store
    data, key = data_of(size), f"object-{size}"
    put(key, data)
    for name, read in reads.items():
        if read(key) != data:
            raise ValueError(f"{name} gives other bytes than were stored")
    return {}


def measure(store, order):
    reads, put = store
    size, spans = order["bytes"], []
    if order["do"] == "put":
        data = data_of(size)

        def call():
            put(f"written-{size}", data)

    else:
        read, key = reads[order["do"]], f"object-{size}"

        def call():
            read(key)[0]

    # Not counted: whoever had the processor before has left its data in the caches.
    call()
    cpu = time.process_time_ns()
    for _ in range(order["count"]):
        began = time.perf_counter_ns()
        call()
        spans.append(time.perf_counter_ns() - began)
    cpu = time.process_time_ns() - cpu
    return {"us": [span / 1000 for span in spans], "cpu_us": cpu / 1000 / order["count"]}


def main():
    store = {"boto3": boto3_store, "nigh": nigh_store, "redis": redis_store}[sys.argv[1]]()
    for line in sys.stdin:
        order = json.loads(line)
        if order["do"] == "prepare":
            answer = prepare(store, order["bytes"])
        elif order["do"] == "ways":
            answer = ways()
        elif order["do"] == "client":
            answer = client()
        else:
            answer = measure(store, order)
        print(json.dumps(answer), flush=True)


main()
