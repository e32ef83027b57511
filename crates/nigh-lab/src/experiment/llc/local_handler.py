"""Runs a sample function on one local file instead of a store, on given cores, and answers with what its work took.

Its processor time counts its own threads and the programs it starts; the wall time is the handler's.
"""

import importlib
import io
import os
import resource
import time

from botocore.response import StreamingBody

os.sched_setaffinity(0, {int(core) for core in os.environ["LAB_CORES"].split(",")})
with open(os.environ["LAB_INPUT"], "rb") as file:
    DATA = file.read()


class LocalObject:
    """The store's client, as far as the sample functions use it."""

    def get_object(self, **_):
        return {"Body": StreamingBody(io.BytesIO(DATA), len(DATA)), "ContentLength": len(DATA)}

    def put_object(self, Body=b"", **_):
        if hasattr(Body, "read"):
            while Body.read(1 << 20):
                pass
        return {}


app = importlib.import_module("app")
app.s3 = LocalObject()


def processor_s():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def handler(event, context):
    before, begin = processor_s(), time.perf_counter()
    app.handler(event, context)
    return {"wall_s": time.perf_counter() - begin, "processor_s": processor_s() - before}
