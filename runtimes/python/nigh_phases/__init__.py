"""Measures the S3 calls of a function from the function's side, without a change to the function.

botocore loads it when `BOTOCORE_EXPERIMENTAL__PLUGINS=nigh_phases=nigh_phases` is in the environment, and it then
writes one line to standard error for each S3 call of each client:

    nigh-phase {"op":"GetObject","began_us":1700000000000000,"cpu_us":412000,"took_us":2113,"bytes":790000}

`began_us` is the wall clock at the call, microseconds since 1970. `cpu_us` is the processor time that the function and
the processes it has waited for had used by then: between two calls it grows by what the function's work cost, however
many others were served meanwhile. `took_us` is how long the function waited: in the
call itself and then in each read of the answer's body, but not between those reads, which is the function's own work.
`bytes` counts the payload: read from the body, or sent by a put. A call that failed has `"error"` with S3's error code
or the exception's class. The line of a call with a body is written when the body has been read to its end, or was
closed or forgotten before that.

It hooks only documented events (`provide-client-params`, `after-call`, `after-call-error`), never answers one, and
leaves requests and answers as they are, but for one thing: `with response["Body"] as body` gives the body and not the
socket under it. Experiments use it in the same way whatever store is behind the endpoint, so that two stores are
measured by one ruler.
"""

import contextlib
import functools
import os
import resource
import time

_CALL = "nigh_phases_call"


def initialize_client_plugin(client):
    """What botocore calls with each new client."""
    if client.meta.service_model.service_name != "s3":
        return
    events = client.meta.events
    events.register_first("provide-client-params.s3", _call_began)
    events.register_last("after-call.s3", _call_ended)
    events.register_last("after-call-error.s3", _call_failed)


class Call:
    """One S3 call: what it moved, and how long its caller waited for it. Begins when it is made."""

    def __init__(self, operation: str, payload_bytes: int):
        self.operation = operation
        self.bytes = payload_bytes
        self.error: str | None = None
        self._began_us = time.time_ns() // 1000
        self._cpu_us = _processor_us()
        self._waited_ns = 0
        self._told = False
        self.enter()

    def enter(self):
        """The caller waits from here on."""
        self._entered_ns = time.perf_counter_ns()

    def leave(self):
        """The caller has what it asked for."""
        self._waited_ns += time.perf_counter_ns() - self._entered_ns

    def tell(self):
        """Writes the line, once, in one write: lines of several threads do not mix."""
        if self._told:
            return
        self._told = True
        error = f',"error":"{self.error}"' if self.error else ""
        line = (
            f'nigh-phase {{"op":"{self.operation}","began_us":{self._began_us},"cpu_us":{self._cpu_us},'
            f'"took_us":{self._waited_ns // 1000},"bytes":{self.bytes}{error}}}\n'
        )
        # A function whose standard error nobody reads must not fail by being measured.
        with contextlib.suppress(OSError):
            os.write(2, line.encode("ascii", "replace"))


@functools.cache
def _measured(body_class):
    """`body_class` with its reads timed. What else a body offers (iteration, lines, chunks) is built on these."""

    class MeasuredBody(body_class):
        def read(self, amt=None):
            return self._timed(super().read, amt, to_the_end=amt is None or amt < 0)

        def readinto(self, buffer):
            return self._timed(super().readinto, buffer, to_the_end=False)

        def readlines(self):
            return self._timed(super().readlines, to_the_end=True)

        def close(self):
            super().close()
            self.__dict__[_CALL].tell()

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.close()

        def __del__(self):
            self.__dict__[_CALL].tell()

        def _timed(self, read, *arguments, to_the_end):
            call = self.__dict__[_CALL]
            call.enter()
            try:
                got = read(*arguments)
            except Exception as error:
                call.leave()
                call.error = type(error).__name__
                call.tell()
                raise
            call.leave()
            moved = got if isinstance(got, int) else sum(map(len, got)) if isinstance(got, list) else len(got)
            call.bytes += moved
            if to_the_end or moved == 0:
                call.tell()
            return got

    if hasattr(body_class, "view"):
        # Nigh's hook gives bodies one: a read without a copy.
        def view(self, amt=None):
            return self._timed(super(MeasuredBody, self).view, amt, to_the_end=amt is None or amt < 0)

        MeasuredBody.view = view
    MeasuredBody.__name__ = MeasuredBody.__qualname__ = body_class.__name__
    return MeasuredBody


def _call_began(params, model, context, **_):
    context[_CALL] = Call(model.name, _payload_bytes(params.get("Body")))


def _call_ended(parsed, context, **_):
    call = context.get(_CALL)
    if call is None:
        return
    call.leave()
    if "Error" in parsed:
        call.error = str(parsed["Error"].get("Code", "Unknown"))
    body = parsed.get("Body")
    if call.error is None and hasattr(body, "read"):
        body.__dict__[_CALL] = call
        body.__class__ = _measured(type(body))
    else:
        call.tell()


def _call_failed(exception, context, **_):
    call = context.get(_CALL)
    if call is not None:
        call.leave()
        call.error = type(exception).__name__
        call.tell()


def _processor_us() -> int:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return round(sum(one.ru_utime + one.ru_stime for one in used) * 1e6)


def _payload_bytes(body) -> int:
    """The bytes a put sends, from where its body stands now; zero where that cannot be told without reading it."""
    if body is None:
        return 0
    if isinstance(body, str):
        return len(body.encode())
    if hasattr(body, "__len__"):
        return len(body)
    try:
        position = body.tell()
        end = body.seek(0, os.SEEK_END)
        body.seek(position)
    except (AttributeError, OSError, ValueError):
        return 0
    return end - position
