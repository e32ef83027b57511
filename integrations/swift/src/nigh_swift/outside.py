"""Requests of everybody else: readers see what Nigh acknowledged, writers make Nigh forget its copies first.

A read that meets a shadow waits, bounded, until the node that has the payload has pushed it, and is then sent again; a
HEAD of one is answered from its tags. A write to a container that Nigh caches is told to the node before it begins and
when it ended. Where a node cannot be asked: 503, never an old or an empty payload.
"""

from __future__ import annotations

import time
import uuid
from typing import Any

from eventlet import sleep
from swift.common.exceptions import ChunkReadError
from swift.common.swob import HTTPServiceUnavailable, Request, Response
from swift.common.utils import Timestamp, close_if_possible

from nigh_swift.listing import true_listing
from nigh_swift.nodes import Nodes, Unreachable
from nigh_swift.own import strip_ours
from nigh_swift.settings import Settings
from nigh_swift.shadow import Shadow, bare_type
from nigh_swift.state import App, Target, Unsure, container_of, look, refused_by_rights, shadow_in

#: Between two looks at an object that a node says it pushed, in seconds, doubled from the first to the second.
PAUSE_S, PAUSE_S_MAX = 0.02, 1.0
#: Headers of an answer that are the answer's and not the object's.
_OF_THE_ANSWER = ("Accept-Ranges", "Date", "X-Trans-Id", "X-Openstack-Request-Id")


class LeasedInput:
    """A body that breaks off when the lease of its write ends: no write commits after that."""

    def __init__(self, source: Any, until: float) -> None:
        self._source, self._until = source, until

    def _check(self) -> None:
        if time.monotonic() > self._until:
            raise ChunkReadError("the upload took longer than write_lease of [filter:nigh]")

    def read(self, *args: Any) -> bytes:
        """As of the body."""
        self._check()
        data: bytes = self._source.read(*args)
        self._check()
        return data

    def readline(self, *args: Any) -> bytes:
        """As of the body."""
        self._check()
        line: bytes = self._source.readline(*args)
        self._check()
        return line

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)


class Outside:
    """What readers and writers other than Nigh get."""

    def __init__(self, app: App, settings: Settings, nodes: Nodes, logger: Any) -> None:
        self._app, self._settings, self._nodes, self._logger = app, settings, nodes, logger

    def listing(self, req: Request) -> Response:
        """A container's listing."""
        answer = req.get_response(self._app)
        if answer.status_int == 200 and answer.headers.get("Content-Type", "").startswith("application/json"):
            answer.body = true_listing(answer.body, lambda timestamp: Timestamp(timestamp).isoformat)
        return answer

    def read(self, req: Request) -> Response:
        """GET or HEAD of an object."""
        if container_of(self._app, req).node is not None:
            req.headers["X-Newest"] = "true"
        try:
            if req.method == "HEAD":
                return self._head(req)
            return self._get(req)
        except (Unreachable, Unsure) as error:
            return self._unavailable(req, error)

    def _head(self, req: Request) -> Response:
        answer = req.get_response(self._app)
        shadow = shadow_in(answer.headers)
        return _shown(answer) if shadow is None else _head_of(req, shadow, answer)

    def _get(self, req: Request) -> Response:
        deadline = time.monotonic() + self._settings.push_timeout
        pause = 0.0
        while True:
            answer = req.get_response(self._app)
            shadow = shadow_in(answer.headers)
            if shadow is None:
                return _shown(answer)
            # What comes with a shadow is no payload of anybody's: it is not even read.
            close_if_possible(answer.app_iter)
            self._push(Target.of(req), shadow, deadline)
            pause = _wait(pause, deadline)

    def _push(self, target: Target, shadow: Shadow, deadline: float) -> None:
        """Has the shadow's node push it. Raises Unreachable, also if the time is over."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise Unreachable(f"version {shadow.version} is still not in Swift after {self._settings.push_timeout:g} s")
        said = self._nodes.push(shadow.node, target.names(), str(shadow.version), left)
        if said not in ("pushed", "superseded"):
            raise Unreachable(f"node {shadow.node} says of version {shadow.version}: {said[:40]!r}")

    def write(self, req: Request) -> Response:
        """PUT, POST or DELETE of an object."""
        strip_ours(req)
        if req.headers.get("Content-Type"):
            req.headers["Content-Type"] = bare_type(req.headers["Content-Type"])
        container = container_of(self._app, req)
        if container.node is None:
            return req.get_response(self._app)
        refused = refused_by_rights(req, container)
        if refused is not None:
            return refused
        told = Told(self._nodes, container.node, Target.of(req), req.method, self._settings.write_lease)
        try:
            floor = told.begin()
        except Unreachable as error:
            if self._settings.refuse_unreachable:
                return self._unavailable(req, error)
            self._logger.warning("nigh: %s is written although its node was not told: %s", req.path, error)
            floor = None
        answer: Response | None = None
        try:
            if req.method == "POST":
                self._push_first(req)
            # Younger than all that the node knows of, whatever this proxy's clock says.
            if floor is not None and "X-Timestamp" not in req.headers:
                req.headers["X-Timestamp"] = max(Timestamp.now(), Timestamp(floor.normal, delta=1)).internal
            if req.method == "PUT":
                req.environ["wsgi.input"] = LeasedInput(req.environ["wsgi.input"], told.until)
            answer = req.get_response(self._app)
        except (Unreachable, Unsure) as error:
            answer = self._unavailable(req, error)
        finally:
            try:
                told.end(req, answer)
            except Unreachable as error:
                # The node holds its copy back until the lease ends: nothing stale is served.
                self._logger.warning("nigh: the end of a write to %s was not told: %s", req.path, error)
        return answer

    def _push_first(self, req: Request) -> None:
        """New metadata belong on the payload, and would take the tags away. Raises Unreachable, Unsure."""
        deadline = time.monotonic() + self._settings.push_timeout
        target, pause = Target.of(req), 0.0
        while True:
            shadow = look(self._app, req, target).shadow
            if shadow is None:
                return
            self._push(target, shadow, deadline)
            pause = _wait(pause, deadline)

    def _unavailable(self, req: Request, error: Exception) -> Response:
        self._logger.warning("nigh: %s %s is refused: %s", req.method, req.path, error)
        return HTTPServiceUnavailable(
            request=req,
            headers={"Retry-After": str(self._settings.retry_after)},
            content_type="text/plain",
            body=b"The newest version of this object cannot be reached now. Try again.\n",
        )


class Told:
    """One outside write, as its node hears of it: its begin, its end, and until when it can commit."""

    def __init__(self, nodes: Nodes, node: str, target: Target, method: str, lease_s: float) -> None:
        self._nodes, self._node = nodes, node
        self._message = {**target.names(), "token": uuid.uuid4().hex, "method": method, "lease": lease_s}
        self.until = time.monotonic() + lease_s

    def begin(self) -> Timestamp | None:
        """Returns the timestamp of the newest that the node wrote there, if it knows. Raises Unreachable."""
        answer = self._nodes.invalidate(self._node, {**self._message, "phase": "begin"})
        newest = answer.get("newest")
        try:
            return Timestamp(newest) if newest else None
        except (TypeError, ValueError) as error:
            raise Unreachable(f"node {self._node} answered no timestamp") from error

    def end(self, req: Request, answer: Response | None) -> None:
        """`applied` is true if the write is there, false if it is not and will not be, null if nobody knows."""
        status = answer.status_int if answer is not None else 0
        applied: bool | None = None
        if req.method == "PUT" and status == 202:
            applied = False
        elif 200 <= status < 300:
            applied = True
        elif 400 <= status < 500 and status not in (404, 408, 409, 499):
            applied = False
        headers = answer.headers if answer is not None else {}
        message = {
            **self._message,
            "phase": "end",
            "status": status,
            "applied": applied,
            "deleted": req.method == "DELETE" and status in (204, 404),
            "etag": headers.get("Etag", "").strip('"'),
            "timestamp": req.headers.get("X-Timestamp", ""),
        }
        self._nodes.invalidate(self._node, message)


def _wait(pause_s: float, deadline: float) -> float:
    """Waits, but not beyond the deadline; returns the next wait. The first look after a push is at once."""
    sleep(max(min(pause_s, deadline - time.monotonic()), 0))
    return min(max(2 * pause_s, PAUSE_S), PAUSE_S_MAX)


def _shown(answer: Response) -> Response:
    """An answer without our parameter in its content type."""
    listed = answer.headers.get("Content-Type")
    if listed:
        answer.headers["Content-Type"] = bare_type(listed)
    return answer


def _head_of(req: Request, shadow: Shadow, answer: Response) -> Response:
    """What HEAD would say if the payload were there, conditions included."""
    headers = {name: answer.headers[name] for name in _OF_THE_ANSWER if name in answer.headers}
    headers.update({name.title(): value for name, value in shadow.headers.items()})
    timestamp = Timestamp(shadow.timestamp)
    headers["X-Timestamp"] = timestamp.normal
    headers["Content-Type"] = shadow.content_type
    head = Response(request=req, headers=headers, conditional_response=True)
    # As Swift writes it; its own setter would add quotes.
    head.headers["Etag"] = shadow.etag
    head.last_modified = timestamp.ceil()
    head.content_length = shadow.size
    return head
