"""What the middleware asks of Nigh's nodes: to push an object now, and to hear of an outside write.

Every question is signed, one HTTP request, and ends within its bound. A node is known by its id alone; the address is
the configuration's, so that no tag leads a proxy anywhere else.
"""

from __future__ import annotations

import json
import time
from typing import Any
from urllib.parse import urlsplit

from eventlet import Timeout
from eventlet.green.http import client

from nigh_swift import INVALIDATE, PUSH
from nigh_swift.settings import Settings
from nigh_swift.signing import TO_NIGH, sign

#: Of a node's answer, in bytes.
ANSWER_BYTES_MAX = 64 * 1024


class Unreachable(Exception):
    """A node that did not answer in the bound, or did not do what it was asked."""


class Nodes:
    """The nodes of the configuration."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def push(self, node: str, target: dict[str, str], version: str, bound_s: float) -> str:
        """Asks `node` to have `version` of the object in Swift; returns what it says of it: `pushed`, or
        `superseded` if a newer one is there. Raises Unreachable."""
        answer = self._ask(node, PUSH, {**target, "version": version}, bound_s)
        return str(answer.get("state", ""))

    def invalidate(self, node: str, message: dict[str, Any]) -> dict[str, Any]:
        """Tells `node` of an outside write. Returns its answer. Raises Unreachable."""
        return self._ask(node, INVALIDATE, message, self._settings.invalidate_timeout)

    def _ask(self, node: str, path: str, message: dict[str, Any], bound_s: float) -> dict[str, Any]:
        url = self._settings.nodes.get(node)
        if url is None:
            raise Unreachable(f"node {node!r} is not among `nodes` of [filter:nigh]")
        body = json.dumps(message, sort_keys=True).encode()
        parts = urlsplit(url)
        path = parts.path + path
        headers = sign(self._settings.secrets[0], TO_NIGH, "POST", path, now=time.time(), body=body)
        headers["content-type"] = "application/json"
        make = client.HTTPSConnection if parts.scheme == "https" else client.HTTPConnection
        connection = make(parts.hostname, parts.port, timeout=bound_s)
        try:
            # The socket's own time-out is for one step of it; this one is for all.
            with Timeout(bound_s):
                connection.request("POST", path, body=body, headers=headers)
                answer = connection.getresponse()
                text = answer.read(ANSWER_BYTES_MAX)
        except Timeout as error:
            raise Unreachable(f"node {node} at {url} did not answer within {bound_s:.3g} s") from error
        except (OSError, client.HTTPException) as error:
            raise Unreachable(f"node {node} at {url}: {error or type(error).__name__}") from error
        finally:
            connection.close()
        if answer.status != 200:
            raise Unreachable(f"node {node} at {url} answered {answer.status}")
        try:
            members = json.loads(text)
        except ValueError as error:
            raise Unreachable(f"node {node} at {url} answered no JSON") from error
        if not isinstance(members, dict):
            raise Unreachable(f"node {node} at {url} answered no JSON object")
        return members
