"""Nigh's own requests: `placeholder`, `push`, `put`, `delete`, `drop`, `cache` and `own`, each signed.

Swift has no compare-and-swap, but it orders every write by a timestamp and keeps the newest, whatever arrives last. So
a write that expects a state gets that state's timestamp with the smallest step above it: it replaces this state and
nothing younger, and whatever is written after the state wins, before or after this write arrives. The README,
"Order", argues it. Nothing here waits for a node of Nigh.
"""

from __future__ import annotations

import json
from typing import Any, Callable

from swift.common.swob import HTTPException, Request, Response
from swift.common.utils import Timestamp

from nigh_swift import state as swift_state
from nigh_swift.settings import Settings
from nigh_swift.shadow import (
    ATTRIBUTES,
    CACHED,
    EMPTY,
    EMPTY_HEADER,
    KEPT,
    KEPT_HEADER,
    OURS,
    USER_META,
    VERSION_HEADER,
    BadTags,
    Shadow,
    Version,
    bare_type,
)
from nigh_swift.state import App, State, Target, look, write

OP, TAGS, VERSION, EXPECT, NODE = "X-Nigh-Op", "X-Nigh-Shadow", "X-Nigh-Version", "X-Nigh-Expect", "X-Nigh-Cached"
#: What answers tell Nigh: the timestamp that Swift orders a version by, and the tags of a shadow.
TIMESTAMP = "X-Nigh-Timestamp"
#: Nigh's writes carry these, with this value. A Swift without the middleware refuses them for it and writes nothing; the
#: middleware takes them out.
GUARDS, GUARD = ("X-Delete-At", "X-If-Delete-At"), "1"
#: A placeholder that meets another write looks again so often.
ATTEMPTS = 4
_MD5_LETTERS = frozenset("0123456789abcdef")
#: Headers of a stored object that a POST would remove if it did not repeat them.
_REPEATED = (*ATTRIBUTES, "x-delete-at", "x-object-manifest")
_REPEATED_PREFIXES = (USER_META, "x-object-transient-sysmeta-")


class Refusal(Exception):
    """An answer other than success, with a word for Nigh and what is there instead."""

    def __init__(self, status: int, word: str, why: str, now: State | None = None) -> None:
        super().__init__(why)
        members: dict[str, Any] = {"state": word, "reason": why}
        if now is not None:
            members["exists"] = now.exists
            members["etag"] = now.shadow.etag if now.shadow else now.etag
            members["version"] = str(now.version) if now.version else None
            members["shadow"] = now.shadow is not None
            members["timestamp"] = now.timestamp.internal
        self.status, self.members = status, members

    def answer(self, req: Request) -> Response:
        """As a response."""
        return Response(
            request=req, status=self.status, body=json.dumps(self.members).encode(), content_type="application/json"
        )


class Own:
    """What Nigh asks of Swift. The signature was verified."""

    def __init__(self, app: App, settings: Settings) -> None:
        self._app, self._settings = app, settings

    def handle(self, req: Request, has_object: bool) -> Response:
        """Does what the request's operation says."""
        name = req.headers.get(OP, "")
        for guard in GUARDS:
            if req.headers.get(guard) == GUARD:
                del req.headers[guard]
        if name == "own":
            return self._plain(req)
        if name == "cache" and not has_object:
            return self._cache(req)
        operations: dict[str, tuple[str, Callable[[Request, Target], Response]]] = {
            "placeholder": ("PUT", self._placeholder),
            "push": ("PUT", self._push),
            "put": ("PUT", self._put),
            "delete": ("DELETE", self._delete),
            "drop": ("DELETE", self._drop),
        }
        method, operation = operations.get(name, ("", None))
        try:
            if operation is None or not has_object or req.method != method:
                raise Refusal(400, "unknown", f"{name[:40]!r} is no operation on this with {req.method}")
            return operation(req, Target.of(req))
        except BadTags as error:
            return Refusal(400, "bad", str(error)).answer(req)
        except swift_state.Unsure as error:
            return Refusal(503, "unsure", str(error)).answer(req)
        except Refusal as refusal:
            return refusal.answer(req)
        except HTTPException as answer:
            return answer

    def _plain(self, req: Request) -> Response:
        """As if there were no middleware, but of the newest replica, and told what the tags say."""
        if req.method in ("GET", "HEAD"):
            req.headers["X-Newest"] = "true"
        answer = req.get_response(self._app)
        shadow = swift_state.shadow_in(answer.headers)
        if shadow is not None:
            answer.headers[TAGS] = shadow.encode()
        if "X-Backend-Timestamp" in answer.headers:
            answer.headers[TIMESTAMP] = answer.headers["X-Backend-Timestamp"]
        if VERSION_HEADER in answer.headers:
            answer.headers[VERSION] = answer.headers[VERSION_HEADER]
        if req.method in ("GET", "HEAD"):
            answer.headers["Content-Type"] = bare_type(answer.headers.get("Content-Type", ""))
        return answer

    def _cache(self, req: Request) -> Response:
        """Notes at the container which node caches it, or that none does (empty)."""
        node = req.headers.get(NODE, "")
        if req.method not in ("PUT", "POST") or (node and node not in self._settings.nodes):
            why = f"PUT or POST a container with {NODE}: an id of `nodes` in [filter:nigh], or empty"
            return Refusal(400, "unknown", why).answer(req)
        req.headers[f"X-Container-Sysmeta-{CACHED}"] = node
        return req.get_response(self._app)

    def _placeholder(self, req: Request, target: Target) -> Response:
        tags = Shadow.decode(req.headers.get(TAGS, ""))
        container = swift_state.container_of(self._app, req)
        if container.node is None:
            raise Refusal(409, "not-cached", "the container is not marked as cached by Nigh; `cache` it first")
        keep = True
        for _ in range(ATTEMPTS):
            now = look(self._app, req, target)
            if now.version is not None and now.version > tags.version or now.pushed == tags.version:
                raise Refusal(409, "newer", f"Swift has version {now.version}", now)
            _check(now, req.headers.get(EXPECT, "any"))
            timestamp = _after(now)
            if keep and now.keeps_payload:
                standing = tags.standing(timestamp.internal, KEPT)
                answer = write(self._app, req, target, "POST", _kept_headers(now, standing))
                if answer.status_int in (404, 409):
                    continue
                _only(answer, 202)
                directory = self._settings.swift_dir
                if swift_state.stands_everywhere(target, container.policy, directory, standing.encode()):
                    return _done(req, standing.timestamp)
                # A reader could meet a replica that has the old payload and not the tags.
                keep = False
                continue
            standing = tags.standing(timestamp.internal, EMPTY)
            answer = write(self._app, req, target, "PUT", _empty_headers(standing))
            if answer.status_int == 202:
                continue
            _only(answer, 201)
            return _done(req, standing.timestamp)
        raise Refusal(409, "raced", f"others wrote to the object {ATTEMPTS} times meanwhile")

    def _push(self, req: Request, target: Target) -> Response:
        version = Version.parse(req.headers.get(VERSION, ""))
        now = look(self._app, req, target)
        standing = now.shadow if now.shadow and now.shadow.version == version else None
        if standing is None and (now.shadow is not None or now.pushed != version):
            newer = now.version is not None and now.version > version
            raise Refusal(412, "newer" if newer else "outside", f"version {version} does not stand in Swift", now)
        if standing is not None and "X-Static-Large-Object" not in req.headers:
            if req.content_length is not None and req.content_length != standing.size:
                why = f"the payload has {req.content_length} bytes, the tags say {standing.size}"
                raise Refusal(422, "mismatch", why, now)
            if len(standing.etag) == 32 and _MD5_LETTERS.issuperset(standing.etag):
                # Swift refuses a payload that is another.
                req.headers["Etag"] = standing.etag
        return self._write_payload(req, version, Timestamp(now.timestamp, offset=1))

    def _put(self, req: Request, target: Target) -> Response:
        """A write-through: the payload at once, if what is there is what Nigh expects."""
        version = Version.parse(req.headers.get(VERSION, ""))
        now = look(self._app, req, target)
        if now.version is not None and now.version > version:
            raise Refusal(409, "newer", f"Swift has version {now.version}", now)
        return self._write_payload(req, version, self._time_for(req, now))

    def _time_for(self, req: Request, now: State) -> Timestamp:
        """Just above what is expected and there; after all that is there if anything may be."""
        expected = req.headers.get(EXPECT, "any")
        # A request that is repeated finds what it did itself.
        if now.shadow is None and now.pushed is not None and str(now.pushed) == req.headers.get(VERSION):
            return Timestamp(now.timestamp, offset=1)
        _check(now, expected)
        return _after(now) if expected == "any" or not now.exists else Timestamp(now.timestamp, offset=1)

    def _write_payload(self, req: Request, version: Version, timestamp: Timestamp) -> Response:
        strip_ours(req)
        req.headers[VERSION_HEADER] = str(version)
        req.headers["X-Timestamp"] = timestamp.internal
        req.headers["Content-Type"] = bare_type(req.headers.get("Content-Type") or "")
        answer = req.get_response(self._app)
        if answer.status_int == 202:
            raise Refusal(409, "raced", "a younger write came meanwhile; nothing was overwritten")
        answer.headers[TIMESTAMP] = timestamp.internal
        return answer

    def _delete(self, req: Request, target: Target) -> Response:
        now = look(self._app, req, target)
        version = req.headers.get(VERSION)
        if version and now.version is not None and now.version > Version.parse(version):
            raise Refusal(409, "newer", f"Swift has version {now.version}", now)
        if not now.exists:
            refused = swift_state.refused_by_rights(req, swift_state.container_of(self._app, req))
            return refused or _done(req, now.timestamp.internal, 404)
        timestamp = self._time_for(req, now)
        answer = write(self._app, req, target, "DELETE", {"X-Timestamp": timestamp.internal})
        if answer.status_int == 409:
            raise Refusal(409, "raced", "a younger write came meanwhile; nothing was deleted")
        _only(answer, 204, 404)
        return _done(req, timestamp.internal, answer.status_int)

    def _drop(self, req: Request, target: Target) -> Response:
        """Takes a placeholder back: the object is as it was before."""
        version = Version.parse(req.headers.get(VERSION, ""))
        now = look(self._app, req, target)
        if not now.shadow or now.shadow.version != version:
            raise Refusal(412, "outside", f"no placeholder of version {version} stands in Swift", now)
        if now.shadow.kind == EMPTY:
            timestamp = Timestamp(now.timestamp, offset=1)
            answer = write(self._app, req, target, "DELETE", {"X-Timestamp": timestamp.internal})
        else:
            # A container takes a new content type of a later tick only, whatever the offset.
            timestamp = Timestamp(now.timestamp, delta=1)
            headers = _repeated(now)
            headers["X-Timestamp"] = timestamp.internal
            headers["Content-Type"] = bare_type(now.headers.get("Content-Type", ""))
            answer = write(self._app, req, target, "POST", headers)
        if answer.status_int == 409:
            raise Refusal(409, "raced", "a younger write came meanwhile; the placeholder is gone with it")
        _only(answer, 202, 204, 404)
        return _done(req, timestamp.internal, 204)


def strip_ours(req: Request) -> None:
    """Takes out of a request what only the middleware may put in: also what a copy has taken along."""
    for name in [name for name in req.headers if name.lower().startswith(OURS)]:
        del req.headers[name]


def _check(now: State, expected: str) -> None:
    """Raises Refusal if what is there is not what is expected."""
    kind, _, value = expected.partition(":")
    etag = now.shadow.etag if now.shadow else now.etag
    holds = {
        "any": True,
        "absent": not now.exists,
        "present": now.exists,
        "etag": now.exists and etag == value,
        "version": now.exists and str(now.version) == value,
    }.get(kind)
    if holds is None:
        raise Refusal(
            400, "unknown", f"{expected[:40]!r} is none of any, absent, present, etag:<etag>, version:<version>"
        )
    if not holds:
        raise Refusal(412, "outside", f"the object is not as expected ({expected[:80]})", now)


def _after(now: State) -> Timestamp:
    """This moment, or just after what is there if that is of a clock ahead of ours."""
    current = Timestamp.now()
    return current if current > now.timestamp else Timestamp(now.timestamp.normal, delta=1)


def _repeated(now: State) -> dict[str, str]:
    """What a POST must repeat to leave the object's metadata as they are, without our tags."""
    kept = {
        name: value
        for name, value in now.headers.items()
        if name.lower() in _REPEATED or name.lower().startswith(_REPEATED_PREFIXES)
    }
    kept.pop(KEPT_HEADER, None)
    return kept


def _kept_headers(now: State, standing: Shadow) -> dict[str, str]:
    headers = _repeated(now)
    headers["X-Timestamp"] = standing.timestamp
    headers["Content-Type"] = standing.listed_type(now.headers.get("Content-Type", ""))
    headers[KEPT_HEADER] = standing.encode()
    return headers


def _empty_headers(standing: Shadow) -> dict[str, str]:
    return {
        "X-Timestamp": standing.timestamp,
        "Content-Length": "0",
        "Content-Type": standing.listed_type(standing.content_type),
        EMPTY_HEADER: standing.encode(),
        # The container counts the true bytes, also where this middleware is not.
        "X-Object-Sysmeta-Container-Update-Override-Size": str(standing.size),
        "X-Object-Sysmeta-Container-Update-Override-Etag": standing.etag,
    }


def _only(answer: Any, *statuses: int) -> None:
    """Raises what Swift answered if it is none of `statuses`: refusals of rights and of room are Nigh's to read."""
    if answer.status_int not in statuses:
        status = answer.status_int if answer.status_int in (401, 403, 404, 413, 507) else 503
        raise Refusal(status, "swift", f"Swift answered {answer.status}")


def _done(req: Request, timestamp: str, status: int = 201) -> Response:
    return Response(request=req, status=status, headers={TIMESTAMP: timestamp})
