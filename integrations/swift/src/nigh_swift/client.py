"""The protocol's other side, as reference and for tests: a client of the signed requests, and a node.

Needs the standard library alone. `Client` is what Nigh sends to Swift. `Node` is a small node in one process: it keeps
payloads in memory (so it promises nothing after its end), answers the middleware, and pushes by the signed protocol.
What a real node must do is what this one does; the README says why.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable
from urllib.parse import quote, urlsplit

from nigh_swift import INVALIDATE, PUSH
from nigh_swift.shadow import Shadow, Version
from nigh_swift.signing import TO_NIGH, TO_SWIFT, Refused, sign, verify

#: Nonces a node remembers; each for as long as its date can hold.
NONCES_MAX = 100_000
#: Of a request of the middleware, in bytes.
REQUEST_BYTES_MAX = 64 * 1024
#: What makes a Swift without the middleware refuse a write that is not for it: a past date of expiry, and a condition on
#: such a date.
GUARDS = {"PUT": {"x-delete-at": "1"}, "DELETE": {"x-if-delete-at": "1"}}
#: For one request to Swift, in seconds.
SWIFT_S = 30.0


@dataclass(frozen=True)
class Answer:
    """What Swift answered. Header names are lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def timestamp(self) -> str:
        """The timestamp that Swift orders what was written by."""
        return self.headers.get("x-nigh-timestamp", "")

    @property
    def state(self) -> str:
        """Of a refusal, its word."""
        try:
            return str(json.loads(self.body).get("state", ""))
        except (ValueError, AttributeError):
            return ""


class Client:
    """Signed requests to the objects of one account."""

    def __init__(self, storage_url: str, token: str, secret: bytes, clock: Callable[[], float] = time.time) -> None:
        parts = urlsplit(storage_url)
        if not parts.hostname:
            raise ValueError(f"{storage_url!r} is no storage URL")
        self._make = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._host, self._port, self._base = parts.hostname, parts.port, parts.path.rstrip("/")
        self._token, self._secret, self._clock = token, secret, clock

    def placeholder(self, container: str, name: str, tags: Shadow, expect: str = "any") -> Answer:
        """Puts a placeholder of a version: 201, with its timestamp."""
        return self.ask(
            "PUT", container, name, "placeholder", {"x-nigh-shadow": tags.encode(), "x-nigh-expect": expect}
        )

    def push(self, container: str, name: str, version: Version, payload: bytes, headers: Mapping[str, str]) -> Answer:
        """Replaces the placeholder of `version` by its payload: 201; 412 or 409 if something else is there."""
        return self.ask("PUT", container, name, "push", {"x-nigh-version": str(version)}, headers, payload)

    def put(
        self,
        container: str,
        name: str,
        version: Version,
        payload: bytes,
        headers: Mapping[str, str],
        expect: str = "any",
    ) -> Answer:
        """Writes a version through, if what is there is what is expected."""
        signed = {"x-nigh-version": str(version), "x-nigh-expect": expect}
        return self.ask("PUT", container, name, "put", signed, headers, payload)

    def delete(self, container: str, name: str, version: Version, expect: str = "any") -> Answer:
        """Deletes as `version`, if what is there is what is expected."""
        return self.ask("DELETE", container, name, "delete", {"x-nigh-version": str(version), "x-nigh-expect": expect})

    def drop(self, container: str, name: str, version: Version) -> Answer:
        """Takes a placeholder back."""
        return self.ask("DELETE", container, name, "drop", {"x-nigh-version": str(version)})

    def cache(self, container: str, node: str) -> Answer:
        """Says that `node` caches the container; that none does, if empty."""
        return self.ask("POST", container, "", "cache", {"x-nigh-cached": node})

    def own(self, method: str, container: str, name: str, headers: Mapping[str, str] | None = None) -> Answer:
        """A plain request of Nigh's own: it meets no middleware, and is told the tags."""
        return self.ask(method, container, name, "own", {}, headers)

    def ask(
        self,
        method: str,
        container: str,
        name: str,
        operation: str,
        signed: Mapping[str, str],
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Answer:
        """Any signed request."""
        path = f"{self._base}/{quote(container)}" + (f"/{quote(name)}" if name else "")
        head = sign(self._secret, TO_SWIFT, method, path, headers={"x-nigh-op": operation, **signed}, now=self._clock())
        guard = {} if operation in ("own", "cache") else GUARDS.get(method, {})
        return self.send(method, path, {**(headers or {}), **guard, **head}, body)

    def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> Answer:
        """A request as it is, with the token alone added."""
        connection = self._make(self._host, self._port, timeout=SWIFT_S)
        try:
            sent = {"x-auth-token": self._token, "content-length": str(len(body)), **headers}
            connection.request(method, path, body=body, headers=sent)
            answer = connection.getresponse()
            found = {key.lower(): value for key, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read())
        finally:
            connection.close()


@dataclass
class Held:
    """A version that a node acknowledged, and whether Swift has its payload."""

    version: Version
    payload: bytes
    content_type: str
    headers: dict[str, str]
    timestamp: str
    dirty: bool


@dataclass
class _Key:
    """All that concerns one object. `lock` is held during every request to Swift that changes it."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    held: Held | None = None
    newest: str = ""
    #: Outside writes under way: their tokens, and when each lease ends.
    pending: dict[str, float] = field(default_factory=dict)


class Conflict(Exception):
    """A version that Swift would not take: what is there is younger, or others'."""


class Node:
    """A node with an object memory of one process. Methods may be called from any thread."""

    def __init__(self, name: str, secret: bytes, skew_s: float = 60.0) -> None:
        self.name, self._secret, self._skew_s = name, secret, skew_s
        self.client: Client | None = None
        self.told: list[dict[str, Any]] = []
        self.conflicts: list[tuple[str, str, Held]] = []
        self._keys: dict[tuple[str, str], _Key] = {}
        self._guard = threading.Lock()
        self._nonces: OrderedDict[str, float] = OrderedDict()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def stop(self) -> None:
        """Ends it; what was not pushed is lost."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def write(
        self,
        container: str,
        name: str,
        version: Version,
        payload: bytes,
        content_type: str = "text/plain",
        headers: dict[str, str] | None = None,
    ) -> Held:
        """A write of a function: acknowledged when this returns. Raises Conflict."""
        key, headers = self._key(container, name), dict(headers or {})
        with key.lock:
            through = self._has_pending(key)
            if through:
                answer = self._swift().put(container, name, version, payload, {"content-type": content_type, **headers})
            else:
                etag = hashlib.md5(payload, usedforsecurity=False).hexdigest()
                tags = Shadow(version, len(payload), etag, content_type, self.name, headers)
                answer = self._swift().placeholder(container, name, tags)
            if answer.status != 201:
                raise Conflict(f"{answer.status} {answer.body!r}")
            key.newest = answer.timestamp
            held = Held(version, payload, content_type, headers, answer.timestamp, dirty=not through)
            key.held = None if through else held
            return held

    def read(self, container: str, name: str) -> bytes | None:
        """A read of a function: from memory, else from Swift (None if nothing is there)."""
        key = self._key(container, name)
        with key.lock:
            if key.held is not None and not self._has_pending(key):
                return key.held.payload
        answer = self._swift().own("GET", container, name, {"x-newest": "true"})
        if "x-nigh-shadow" in answer.headers:
            with key.lock:
                return key.held.payload if key.held else None
        return answer.body if answer.status == 200 else None

    def push(self, container: str, name: str, version: Version) -> str:
        """Has the payload in Swift: `pushed`, `superseded`, or `unknown` if this node does not have it."""
        key = self._key(container, name)
        with key.lock:
            held = key.held
            if held is None or held.version != version:
                return "superseded" if held is not None and held.version > version else "unknown"
            if not held.dirty:
                return "pushed"
            sent = {"content-type": held.content_type, **held.headers}
            answer = self._swift().push(container, name, version, held.payload, sent)
            if answer.status == 201:
                held.dirty = False
                key.newest = answer.timestamp
                return "pushed"
            if answer.status in (409, 412) and answer.state in ("outside", "newer"):
                # Others wrote after it, and were acknowledged after it: nothing of theirs is overwritten.
                self.conflicts.append((container, name, held))
                key.held = None
                return "superseded"
            return "failed"

    def invalidate(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """An outside write begins or has ended."""
        container, name, token = str(message["container"]), str(message["object"]), str(message["token"])
        key = self._key(container, name)
        # With the lock: no placeholder is on its way when a begin is answered.
        with key.lock:
            self.told.append(dict(message))
            if message["phase"] == "begin":
                key.pending[token] = time.monotonic() + float(message["lease"])
                if key.held is not None and not key.held.dirty:
                    key.held = None
                return {"newest": key.newest}
            key.pending.pop(token, None)
            younger = key.held is not None and str(message["timestamp"]) > key.held.timestamp
            # New metadata do not replace a payload that Swift does not have.
            if message["applied"] and younger and not (message["method"] == "POST" and key.held and key.held.dirty):
                key.held = None
            return {}

    def _swift(self) -> Client:
        if self.client is None:
            raise Conflict("the node has no client of Swift yet")
        return self.client

    def _key(self, container: str, name: str) -> _Key:
        with self._guard:
            return self._keys.setdefault((container, name), _Key())

    @staticmethod
    def _has_pending(key: _Key) -> bool:
        now = time.monotonic()
        key.pending = {token: until for token, until in key.pending.items() if until > now}
        return bool(key.pending)

    def check(self, path: str, headers: Mapping[str, str], body: bytes) -> None:
        """Raises Refused if the middleware did not send this, or sent it before."""
        now = time.time()
        nonce = verify([self._secret], TO_NIGH, "POST", path, now=now, skew_s=self._skew_s, headers=headers, body=body)
        with self._guard:
            while self._nonces and next(iter(self._nonces.values())) < now - 2 * self._skew_s:
                self._nonces.popitem(last=False)
            if nonce in self._nonces or len(self._nonces) >= NONCES_MAX:
                raise Refused("the nonce was used before, or too many are remembered")
            self._nonces[nonce] = now


def _handler(node: Node) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """The node's door for the middleware."""

        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            """A signed question."""
            length = int(self.headers.get("content-length", "0"))
            if length > REQUEST_BYTES_MAX:
                self.close_connection = True
                return self._send(413, {})
            body = self.rfile.read(length)
            status, members = self._answer_to(body)
            try:
                self._send(status, members)
            except ConnectionError:
                # The middleware's bound was shorter.
                self.close_connection = True

        def _answer_to(self, body: bytes) -> tuple[int, dict[str, Any]]:
            try:
                node.check(self.path, dict(self.headers.items()), body)
                message = json.loads(body)
                if self.path == PUSH:
                    version = Version.parse(message["version"])
                    return 200, {"state": node.push(message["container"], message["object"], version)}
                if self.path == INVALIDATE:
                    return 200, node.invalidate(message)
            except Refused as refused:
                return 403, {"reason": str(refused)}
            except (ValueError, KeyError, TypeError) as error:
                return 400, {"reason": str(error)}
            except OSError as error:
                return 503, {"reason": str(error)}
            return 404, {}

        def _send(self, status: int, members: dict[str, Any]) -> None:
            body = json.dumps(members).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the base class's
            """Says nothing: a library's server."""

    return Handler
