"""What the tests on a real Swift share: the cluster, a node, and an outside client."""

from __future__ import annotations

import hashlib
import itertools
import sys
import unittest
from pathlib import Path
from typing import Any
from urllib.parse import quote

import swift_server

from nigh_swift.client import Answer, Client, Node
from nigh_swift.shadow import Shadow, Version

sys.path.append(str(Path(__file__).resolve().parents[3] / "tests"))
from skipped import skip

DEAD = "http://127.0.0.1:9"
_world: World | None = None
_failed = False
_numbers = itertools.count(1)


def md5(payload: bytes) -> str:
    """An entity tag."""
    return hashlib.md5(payload, usedforsecurity=False).hexdigest()


class World:
    """The cluster and the node that stands for Nigh."""

    def __init__(self) -> None:
        self.node = Node("n1", swift_server.SECRET)
        nodes = f"n1={self.node.url} dead={DEAD}"
        quick = "push_timeout = 2\ninvalidate_timeout = 2\n"
        self.swift = swift_server.SwiftServer(
            nodes, quick + "retry_after = 7\n", quick + "on_unreachable = proceed\nwrite_lease = 1.5\n"
        )
        probe = Client(f"http://127.0.0.1:{self.swift.port}/", "", swift_server.SECRET)
        logins = {}
        for user, key in (("tester", "testing"), ("reader", "reading")):
            login = probe.send("GET", "/auth/v1.0", {"x-auth-user": f"test:{user}", "x-auth-key": key})
            logins[user] = login.headers["x-auth-token"]
        self.path = "/v1/AUTH_test"
        self.token = logins["tester"]
        self.own = self.client(self.swift.port, self.token)
        self.outside = self.own
        self.reader = self.client(self.swift.port, logins["reader"])
        self.other = self.client(self.swift.other_port, self.token)
        self.node.client = self.own

    def client(self, port: int, token: str, secret: bytes = swift_server.SECRET) -> Client:
        """A client of a proxy."""
        return Client(f"http://127.0.0.1:{port}{self.path}", token, secret)


def world() -> World:
    """The one of this run."""
    global _world, _failed
    if _failed:
        raise RuntimeError("the Swift of the tests did not start, see the first error")
    if _world is None:
        try:
            _world = World()
        except Exception:
            _failed = True
            raise
    return _world


class OnSwift(unittest.TestCase):
    """A test on a real Swift, with a container of its own that the node caches."""

    def setUp(self) -> None:
        missing = swift_server.missing()
        if missing:
            skip(self, missing)
        self.world = world()
        self.node, self.own = self.world.node, self.world.own
        self.container = f"c{next(_numbers)}"
        self.assertEqual(self.ask("PUT").status, 201)
        self.assertEqual(self.own.cache(self.container, "n1").status, 204)
        self.node.told.clear()

    def ask(
        self,
        method: str,
        name: str = "",
        headers: dict[str, str] | None = None,
        body: bytes = b"",
        query: str = "",
        client: Client | None = None,
    ) -> Answer:
        """An outside request to this test's container or an object of it."""
        path = f"{self.world.path}/{self.container}" + (f"/{quote(name)}" if name else "") + query
        return (client or self.world.outside).send(method, path, headers or {}, body)

    def version(self) -> Version:
        """A version younger than all before."""
        return Version(1, next(_numbers))

    def tags(self, payload: bytes, version: Version | None = None, **more: Any) -> Shadow:
        """Tags of a payload, of the node `n1` if nothing else is said."""
        node = more.pop("node", "n1")
        return Shadow(version or self.version(), len(payload), md5(payload), "text/plain", node, **more)
