"""Runs a sample function as it is and says where its time went: extract, transform, load.

The function's client, its module's `s3`, is replaced by one that hands every call on and times it: whatever store is
behind it, and whatever library, is measured by one ruler. Extraction is `get_object` and the reading of its body, load is
`put_object`, transformation is the rest of the handler's time. Times are wall clock, microseconds; `cpu_us` is the
processor time of this process in the same stretch.
"""

import json
import time

import app


class _Ruler:
    def __init__(self):
        self.extract_ns = 0
        self.load_ns = 0


_ruler = _Ruler()


class _Body:
    def __init__(self, body):
        self._body = body

    def read(self, *arguments):
        began = time.perf_counter_ns()
        try:
            return self._body.read(*arguments)
        finally:
            _ruler.extract_ns += time.perf_counter_ns() - began

    def iter_chunks(self, chunk_size=1024):
        while chunk := self.read(chunk_size):
            yield chunk

    def iter_lines(self, chunk_size=1024, keepends=False):
        pending = b""
        for chunk in self.iter_chunks(chunk_size):
            lines = (pending + chunk).splitlines(True)
            for line in lines[:-1]:
                yield line.splitlines(keepends)[0]
            pending = lines[-1]
        if pending:
            yield pending.splitlines(keepends)[0]


class _Client:
    def __init__(self, client):
        self._client = client

    def get_object(self, **arguments):
        began = time.perf_counter_ns()
        try:
            answer = self._client.get_object(**arguments)
        finally:
            _ruler.extract_ns += time.perf_counter_ns() - began
        return {**answer, "Body": _Body(answer["Body"])}

    def put_object(self, **arguments):
        began = time.perf_counter_ns()
        try:
            return self._client.put_object(**arguments)
        finally:
            _ruler.load_ns += time.perf_counter_ns() - began


app.s3 = _Client(app.s3)


def _measured(handler, event, context):
    """What `handler` answers, and where its time went."""
    _ruler.__init__()
    began, cpu_began = time.perf_counter_ns(), time.process_time_ns()
    answer = handler(event, context)
    total_ns, cpu_ns = time.perf_counter_ns() - began, time.process_time_ns() - cpu_began
    return answer, {
        "total_us": total_ns / 1000,
        "extract_us": _ruler.extract_ns / 1000,
        "load_us": _ruler.load_ns / 1000,
        "cpu_us": cpu_ns / 1000,
    }


def handler(event, context):
    return _measured(app.handler, event, context)[1]


def stage(event, context):
    """One stage of a pipeline, which the event names; the next one needs its answer."""
    answer, figures = _measured(getattr(app, event["stage"]), event, context)
    return {"answer": answer, **figures}


def __getattr__(name):
    """`measured.NAME` is the handler `app.NAME`, which also prints where its time went: a state machine passes nothing but
    what its functions answer."""
    function = getattr(app, name)

    def told(event, context):
        answer, figures = _measured(function, event, context)
        print("nigh-stage", json.dumps(figures), flush=True)
        return answer

    return told
