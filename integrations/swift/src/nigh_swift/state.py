"""What Swift holds of an object now, and how the middleware asks for it.

A look is a HEAD with `X-Newest`: all replicas that answer are asked, and the newest data file wins. That orders by the
data file's time alone, so tags beside a kept payload, which a POST wrote, must stand on every replica to be sure to be
seen: `stands_everywhere` finds out. Follows Swift 2.30 (`proxy/controllers/base.py`, `obj/server.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eventlet import GreenPool, Timeout
from swift.common.direct_client import direct_head_object
from swift.common.exceptions import ClientException
from swift.common.storage_policy import POLICIES
from swift.common.swob import HeaderKeyDict, Request, Response, wsgi_quote, wsgi_to_str
from swift.common.utils import Timestamp, drain_and_close
from swift.common.wsgi import make_pre_authed_request, make_subrequest
from swift.proxy.controllers.base import get_container_info

from nigh_swift.shadow import CACHED, KEPT, KEPT_HEADER, VERSION_HEADER, BadTags, Shadow, Version, shadow_of

#: What Swift's logs say of the middleware's own requests.
SOURCE = "NIGH"
#: For a connection to, and an answer from, an object server, in seconds.
CONNECT_S, ANSWER_S = 2, 10
#: Replicas asked at a time.
REPLICAS_AT_ONCE = 16

App = Any


class Unsure(Exception):
    """Swift did not say what it holds."""


@dataclass(frozen=True)
class Target:
    """An object's place. `path` is percent-encoded, the names are text."""

    path: str
    account: str
    container: str
    object: str

    @classmethod
    def of(cls, req: Request) -> Target:
        """Of a request for an object."""
        _, account, container, name = req.split_path(4, 4, True)
        return cls(wsgi_quote(req.path_info), wsgi_to_str(account), wsgi_to_str(container), wsgi_to_str(name))

    def names(self) -> dict[str, str]:
        """As messages to nodes name it."""
        return {"account": self.account, "container": self.container, "object": self.object}


@dataclass(frozen=True)
class Container:
    """Of a container, what decides here."""

    node: str | None
    policy: int
    read_acl: str | None
    write_acl: str | None


@dataclass(frozen=True)
class State:
    """An object as Swift holds it. `timestamp` is the newest of its data, metadata or tombstone; zero if unknown."""

    exists: bool
    timestamp: Timestamp
    etag: str
    shadow: Shadow | None
    pushed: Version | None
    headers: Mapping[str, str]

    @property
    def version(self) -> Version | None:
        """Nigh's newest version in it: of the shadow, else of the payload."""
        return self.shadow.version if self.shadow else self.pushed

    @property
    def keeps_payload(self) -> bool:
        """Whether there is a payload beside which tags can stand."""
        return self.exists and (self.shadow is None or self.shadow.kind == KEPT)


def container_of(app: App, req: Request) -> Container:
    """The container of a request, from Swift's own cache of such."""
    info = get_container_info(req.environ, app, swift_source=SOURCE)
    node = (info.get("sysmeta") or {}).get(CACHED) or None
    return Container(node, int(info.get("storage_policy") or 0), info.get("read_acl"), info.get("write_acl"))


def refused_by_rights(req: Request, container: Container) -> Response | None:
    """What the proxy's own question of rights to write answers, asked before it is."""
    authorize = req.environ.get("swift.authorize")
    if authorize is None:
        return None
    req.acl = container.write_acl
    refusal: Response | None = authorize(req)
    return refusal


def shadow_in(headers: Mapping[str, str]) -> Shadow | None:
    """The shadow among an answer's headers. Raises Unsure if its tags do not parse: never taken for a payload."""
    try:
        return shadow_of(headers)
    except BadTags as error:
        raise Unsure(f"the tags in Swift are damaged: {error}") from error


def look(app: App, req: Request, target: Target) -> State:
    """What Swift holds of the object now. Raises Unsure."""
    head = make_pre_authed_request(
        req.environ, "HEAD", target.path, headers={"X-Newest": "true"}, swift_source=SOURCE, agent="%(orig)s"
    )
    answer = head.get_response(app)
    drain_and_close(answer)
    if answer.status_int not in (200, 404):
        raise Unsure(f"Swift answered {answer.status} when asked what is there")
    headers = HeaderKeyDict(answer.headers)
    pushed = headers.get(VERSION_HEADER)
    found = answer.status_int == 200
    try:
        return State(
            exists=found,
            timestamp=Timestamp(headers.get("X-Backend-Timestamp", 0)),
            etag=headers.get("Etag", "").strip('"') if found else "",
            shadow=shadow_in(headers) if found else None,
            pushed=Version.parse(pushed) if found and pushed else None,
            headers=headers,
        )
    except ValueError as error:
        raise Unsure(f"what Swift says of the object does not parse: {error}") from error


def write(app: App, req: Request, target: Target, method: str, headers: Mapping[str, str]) -> Any:
    """A write without a body, in the name and with the rights of `req`. Returns the answer."""
    sent = make_subrequest(
        req.environ,
        method,
        target.path,
        body=b"" if method == "PUT" else None,
        headers=dict(headers),
        swift_source=SOURCE,
        agent="%(orig)s",
    )
    answer = sent.get_response(app)
    drain_and_close(answer)
    return answer


def stands_everywhere(target: Target, policy: int, swift_dir: str, tags: str) -> bool:
    """Whether each replica of the object has these tags beside its payload.

    A POST that was answered well is no proof: one that meets younger metadata and brings a content type changes the
    content type alone.
    """
    part, nodes = POLICIES.get_object_ring(policy, swift_dir).get_nodes(target.account, target.container, target.object)

    def has(node: dict[str, Any]) -> bool:
        try:
            headers = direct_head_object(
                node,
                part,
                target.account,
                target.container,
                target.object,
                CONNECT_S,
                ANSWER_S,
                {"X-Backend-Storage-Policy-Index": str(policy)},
            )
        except (ClientException, Timeout, OSError):
            return False
        return bool(headers.get(KEPT_HEADER) == tags)

    return all(GreenPool(REPLICAS_AT_ONCE).imap(has, nodes))
