"""Outside readers of shadows, on a real Swift."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
import unittest
from urllib.parse import quote

from world import OnSwift, md5

from nigh_swift.client import Answer

OLD, NEW = b"the old payload", b"the payload that Nigh acknowledged"


class Readers(OnSwift):
    """Whoever reads a shadow gets what Nigh acknowledged, in any form of reading."""

    def shadowed(self, name: str, old: bytes | None, new: bytes = NEW) -> None:
        """Leaves a shadow of `new`, over `old` if it is not None."""
        if old is not None:
            self.assertEqual(
                self.ask("PUT", name, {"content-type": "text/plain", "x-object-meta-age": "old"}, old).status, 201
            )
        self.node.write(self.container, name, self.version(), new, headers={"x-object-meta-age": "new"})
        state = self.own.own("HEAD", self.container, name)
        self.assertIn("x-nigh-shadow", state.headers)

    def both(self):
        """A new object's shadow, and one over an old payload."""
        yield from (("fresh", None), ("over", OLD))

    def test_a_get_of_a_shadow_waits_for_the_push_and_gives_the_payload(self) -> None:
        for name, old in self.both():
            with self.subTest(name):
                self.shadowed(name, old)
                answer = self.ask("GET", name)
                self.assertEqual((answer.status, answer.body), (200, NEW))
                self.assertEqual(answer.headers["etag"], md5(NEW))
                self.assertEqual(answer.headers["content-type"], "text/plain")
                self.assertEqual(answer.headers["x-object-meta-age"], "new")
                self.assertNotIn("x-nigh-shadow", self.own.own("HEAD", self.container, name).headers)

    def test_ranges_and_conditions_are_those_of_the_acknowledged_payload(self) -> None:
        cases: list[tuple[dict[str, str], int, bytes]] = [
            ({"range": "bytes=4-10"}, 206, NEW[4:11]),
            ({"range": "bytes=-7"}, 206, NEW[-7:]),
            ({"range": f"bytes={len(OLD) + 2}-"}, 206, NEW[len(OLD) + 2 :]),
            ({"range": "bytes=900-"}, 416, b""),
            ({"if-none-match": md5(OLD)}, 200, NEW),
            ({"if-none-match": md5(b"")}, 200, NEW),
            ({"if-none-match": md5(NEW)}, 304, b""),
            ({"if-match": md5(NEW)}, 200, NEW),
            ({"if-match": md5(OLD)}, 412, b""),
            ({"if-match": md5(b"")}, 412, b""),
            ({"if-unmodified-since": "Mon, 01 Jan 2001 00:00:00 GMT"}, 412, b""),
            ({"x-newest": "true"}, 200, NEW),
        ]
        for number, (headers, status, body) in enumerate(cases):
            for kind, old in self.both():
                with self.subTest(kind=kind, headers=headers):
                    name = f"{kind}{number}"
                    self.shadowed(name, old)
                    answer = self.ask("GET", name, headers)
                    self.assertEqual(answer.status, status)
                    if status in (200, 206):
                        self.assertEqual(answer.body, body)
                    self.assertNotIn("x-nigh-shadow", self.own.own("HEAD", self.container, name).headers)

    def test_a_head_is_true_at_once_and_says_the_same_after_the_push(self) -> None:
        said = ("etag", "content-length", "content-type", "last-modified", "x-timestamp", "x-object-meta-age")
        for name, old in self.both():
            with self.subTest(name):
                self.shadowed(name, old)
                before = self.ask("HEAD", name)
                self.assertEqual((before.status, before.headers["content-length"]), (200, str(len(NEW))))
                self.assertEqual(before.headers["etag"], md5(NEW))
                self.assertEqual(self.ask("HEAD", name, {"if-none-match": md5(NEW)}).status, 304)
                self.assertEqual(self.ask("HEAD", name, {"if-match": md5(OLD)}).status, 412)
                self.assertIn(
                    "x-nigh-shadow", self.own.own("HEAD", self.container, name).headers, "a HEAD needs no push"
                )
                self.assertEqual(self.ask("GET", name).status, 200)
                after = self.ask("HEAD", name)
                self.assertEqual(
                    {key: before.headers.get(key) for key in said}, {key: after.headers.get(key) for key in said}
                )

    def test_listings_are_true_in_every_form_and_the_same_after_the_push(self) -> None:
        self.ask("PUT", "a/plain", {"content-type": "image/png"}, b"123")
        self.shadowed("a/fresh", None)
        self.shadowed("a/over", OLD)
        self.shadowed("b", OLD, b"other")
        expected = {
            "a/fresh": (len(NEW), md5(NEW)),
            "a/over": (len(NEW), md5(NEW)),
            "a/plain": (3, md5(b"123")),
            "b": (5, md5(b"other")),
        }

        def listed(query: str) -> dict[str, tuple[int, str]]:
            entries = json.loads(self.ask("GET", query="?format=json" + query).body)
            self.assertTrue(all("nigh" not in json.dumps(entry) for entry in entries))
            return {
                entry.get("name", entry.get("subdir")): (entry.get("bytes"), entry.get("hash")) for entry in entries
            }

        self.assertEqual(listed(""), expected)
        self.assertEqual(list(listed("&reverse=true")), list(reversed(expected)))
        self.assertEqual(listed("&prefix=a/o"), {"a/over": expected["a/over"]})
        self.assertEqual(listed("&limit=1&marker=a/fresh"), {"a/over": expected["a/over"]})
        self.assertEqual(listed("&delimiter=/"), {"a/": (None, None), "b": expected["b"]})
        self.assertEqual(self.ask("GET").body.split(), [name.encode() for name in expected])
        xml = self.ask("GET", query="?format=xml").body.decode()
        self.assertEqual((xml.count(f"<bytes>{len(NEW)}</bytes>"), xml.count(f"<hash>{md5(NEW)}</hash>")), (2, 2))
        self.assertNotIn("nigh", xml)
        before = json.loads(self.ask("GET", query="?format=json").body)
        for name in expected:
            self.ask("GET", name)
        self.assertEqual(before, json.loads(self.ask("GET", query="?format=json").body))

    def test_copies_manifests_and_temporary_urls_of_shadows_wait_too(self) -> None:
        self.shadowed("source", OLD)
        self.assertEqual(self.ask("COPY", "source", {"destination": f"{self.container}/copied"}).status, 201)
        self.assertEqual(self.ask("GET", "copied").body, NEW)
        self.shadowed("source2", None)
        copied = self.ask("PUT", "copied2", {"x-copy-from": f"{self.container}/source2"})
        self.assertEqual((copied.status, self.ask("GET", "copied2").body), (201, NEW))

        self.shadowed("part-1", None, b"one ")
        self.shadowed("part-2", OLD, b"two")
        self.ask("PUT", "dynamic", {"x-object-manifest": f"{self.container}/part-"})
        self.assertEqual(self.ask("GET", "dynamic").body, b"one two")

        self.shadowed("segment-1", None, b"uno ")
        self.shadowed("segment-2", OLD, b"due")
        manifest = [
            {"path": f"/{self.container}/segment-{n}", "etag": md5(p), "size_bytes": len(p)}
            for n, p in ((1, b"uno "), (2, b"due"))
        ]
        put = self.ask("PUT", "static", {}, json.dumps(manifest).encode(), "?multipart-manifest=put")
        self.assertEqual((put.status, self.ask("GET", "static").body), (201, b"uno due"))
        self.shadowed("static", None, NEW)
        self.assertEqual(self.ask("HEAD", "static").headers["content-length"], str(len(NEW)))
        self.assertEqual(self.ask("GET", "static").body, NEW, "the shadow hides the manifest")

        self.world.outside.send("POST", self.world.path, {"x-account-meta-temp-url-key": "k"})
        self.shadowed("shared", OLD)
        path, expires = f"{self.world.path}/{self.container}/shared", int(time.time()) + 60
        signature = hmac.new(b"k", f"GET\n{expires}\n{path}".encode(), hashlib.sha256).hexdigest()
        anonymous = self.world.client(self.world.swift.port, "")
        url = f"{path}?temp_url_sig={signature}&temp_url_expires={expires}"
        self.assertEqual(anonymous.send("GET", url, {}).body, NEW)

    def test_readers_through_s3_wait_too(self) -> None:
        # Swift's own S3 door, with version 2 of the signature: the shortest to make.
        self.shadowed("s3/object", OLD)

        def s3(method: str, resource: str, query: str = "") -> Answer:
            date = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime())
            text = f"{method}\n\n\n{date}\n{resource}"
            digest = hmac.new(b"testing", text.encode(), hashlib.sha1).digest()
            headers = {"date": date, "authorization": f"AWS test:tester:{base64.b64encode(digest).decode()}"}
            client = self.world.client(self.world.swift.port, "")
            return client.send(method, quote(resource) + query, headers)

        listing = s3("GET", f"/{self.container}")
        self.assertIn(f"<Size>{len(NEW)}</Size>", listing.body.decode())
        head = s3("HEAD", f"/{self.container}/s3/object")
        self.assertEqual((head.status, head.headers["content-length"]), (200, str(len(NEW))))
        self.assertEqual(s3("GET", f"/{self.container}/s3/object").body, NEW)

    def test_a_shadow_whose_node_is_not_reached_is_refused_with_retry_after_and_never_served_old(self) -> None:
        for name, old in self.both():
            with self.subTest(name):
                if old is not None:
                    self.ask("PUT", name, {}, old)
                tags = self.tags(NEW, node="dead")
                self.assertEqual(self.own.placeholder(self.container, name, tags).status, 201)
                answer = self.ask("GET", name)
                self.assertEqual((answer.status, answer.headers["retry-after"]), (503, "7"))
                self.assertNotIn(OLD, answer.body)
                self.assertEqual(self.ask("HEAD", name).headers["content-length"], str(len(NEW)))

    def test_a_node_that_has_not_the_payload_or_hangs_costs_the_bound_and_a_503(self) -> None:
        self.assertEqual(self.own.placeholder(self.container, "lost", self.tags(NEW)).status, 201)
        self.assertEqual(self.ask("GET", "lost").status, 503)
        self.shadowed("held", None)
        key = self.node._key(self.container, "held")
        begin = time.monotonic()
        with key.lock:
            self.assertEqual(self.ask("GET", "held").status, 503)
        self.assertTrue(1.5 < time.monotonic() - begin < 10)
        self.assertEqual(self.ask("GET", "held").body, NEW, "it is there when the node answers again")

    def test_readers_during_writes_and_pushes_never_go_back_and_never_see_a_mix(self) -> None:
        rounds, failures, stop = 15, [], threading.Event()
        acknowledged, served = [0], [0]
        bodies = [f"{number:04}-".encode() * (20 + number) for number in range(rounds + 1)]
        self.ask("PUT", "raced", {}, bodies[0])

        def read() -> None:
            last = 0
            while not stop.is_set():
                floor = acknowledged[0]
                answer = self.ask("GET", "raced")
                if answer.status == 503:
                    # A busy machine's bound: refused, and never old.
                    continue
                served[0] += 1
                number = int(answer.body[:4]) if answer.status == 200 and answer.body[:4].isdigit() else -1
                if answer.status != 200 or answer.body != bodies[number] or number < max(floor, last):
                    failures.append((floor, last, answer.status, answer.body[:40]))
                last = max(last, number)

        readers = [threading.Thread(target=read) for _ in range(3)]
        for reader in readers:
            reader.start()
        for number in range(1, rounds + 1):
            version = self.version()
            self.node.write(self.container, "raced", version, bodies[number])
            before, acknowledged[0] = served[0], number
            if number % 3 == 0:
                self.node.push(self.container, "raced", version)
            # However slow the machine, somebody reads between two writes.
            until = time.monotonic() + 60
            while served[0] == before and time.monotonic() < until:
                time.sleep(0.001)
        stop.set()
        for reader in readers:
            reader.join()
        self.assertEqual(failures, [])
        self.assertGreaterEqual(served[0], rounds)
        self.assertEqual(self.node.conflicts, [])


if __name__ == "__main__":
    unittest.main()
