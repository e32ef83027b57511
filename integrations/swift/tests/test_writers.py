"""Outside writers, and their races with Nigh's pushes, on a real Swift."""

from __future__ import annotations

import base64
import hashlib
import hmac
import io
import json
import re
import socket
import tarfile
import threading
import time
import unittest

from swift_server import SECRET
from world import OnSwift, md5

from nigh_swift.client import Answer, Conflict
from nigh_swift.signing import TO_SWIFT, sign

OURS, THEIRS = b"what Nigh acknowledged", b"what an outsider wrote"


class Writers(OnSwift):
    """Nigh hears of every outside write before it can be seen, and overwrites none."""

    def phases(self, name: str) -> list[tuple[str, str, object]]:
        """What the node was told of an object: method, phase, whether it was applied."""
        return [(m["method"], m["phase"], m.get("applied")) for m in self.node.told if m["object"] == name]

    def test_every_way_of_writing_is_told_before_and_after(self) -> None:
        put = self.ask("PUT", "a", {"content-type": "text/plain"}, THEIRS)
        self.assertEqual(put.status, 201)
        begin, end = self.node.told
        self.assertEqual((begin["phase"], begin["container"], begin["account"]), ("begin", self.container, "AUTH_test"))
        self.assertEqual(
            (end["phase"], end["token"], end["etag"], end["deleted"]), ("end", begin["token"], md5(THEIRS), False)
        )
        self.assertEqual(
            end["timestamp"].partition(".")[0], self.ask("HEAD", "a").headers["x-timestamp"].partition(".")[0]
        )
        self.assertEqual(self.ask("POST", "a", {"x-object-meta-x": "1"}).status, 202)
        self.assertEqual(self.ask("COPY", "a", {"destination": f"{self.container}/b"}).status, 201)
        self.assertEqual(self.ask("DELETE", "a").status, 204)
        told = [("PUT", "begin", None), ("PUT", "end", True)]
        self.assertEqual(
            self.phases("a"),
            told + [("POST", "begin", None), ("POST", "end", True), ("DELETE", "begin", None), ("DELETE", "end", True)],
        )
        self.assertTrue(self.node.told[-1]["deleted"])
        self.assertEqual(self.phases("b"), told)

        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            entry = tarfile.TarInfo("unpacked")
            entry.size = len(THEIRS)
            tar.addfile(entry, io.BytesIO(THEIRS))
        self.assertEqual(self.ask("PUT", "", {}, archive.getvalue(), "?extract-archive=tar").status, 200)
        self.assertEqual(self.phases("unpacked"), told)
        deleted = self.world.outside.send(
            "POST",
            f"{self.world.path}?bulk-delete",
            {"content-type": "text/plain"},
            f"/{self.container}/unpacked\n".encode(),
        )
        self.assertEqual(
            (deleted.status, self.phases("unpacked")[2:]), (200, [("DELETE", "begin", None), ("DELETE", "end", True)])
        )

        manifest = json.dumps([{"path": f"/{self.container}/b"}]).encode()
        self.assertEqual(self.ask("PUT", "large", {}, manifest, "?multipart-manifest=put").status, 201)
        self.assertEqual(self.phases("large"), told)

    def test_the_completion_of_an_upload_through_s3_is_told(self) -> None:
        def s3(method: str, resource: str, body: bytes = b"", kind: str = "") -> Answer:
            date = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime())
            text = f"{method}\n\n{kind}\n{date}\n{resource}"
            digest = base64.b64encode(hmac.new(b"testing", text.encode(), hashlib.sha1).digest()).decode()
            headers = {"date": date, "authorization": f"AWS test:tester:{digest}", "content-type": kind}
            return self.world.client(self.world.swift.port, "").send(method, resource, headers, body)

        # s3api keeps the parts in a container of its own, which it makes.
        made = s3("POST", f"/{self.container}/whole?uploads")
        self.assertEqual(made.status, 200, made.body)
        upload = re.search(r"<UploadId>([^<]+)", made.body.decode())[1]
        part = s3("PUT", f"/{self.container}/whole?partNumber=1&uploadId={upload}", THEIRS)
        xml = f"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{part.headers['etag']}</ETag></Part></CompleteMultipartUpload>"
        self.assertEqual(self.phases("whole"), [])
        done = s3("POST", f"/{self.container}/whole?uploadId={upload}", xml.encode(), "application/xml")
        self.assertEqual(
            (done.status, self.phases("whole")), (200, [("PUT", "begin", None), ("PUT", "end", True)]), done.body
        )
        self.assertEqual(self.ask("GET", "whole").body, THEIRS)

    def test_once_an_outside_write_is_answered_the_node_serves_nothing_older(self) -> None:
        version = self.version()
        self.node.write(self.container, "o", version, OURS)
        self.assertEqual(self.node.push(self.container, "o", version), "pushed")
        for number in range(5):
            theirs = b"%d" % number
            self.assertEqual(self.node.read(self.container, "o"), OURS if number == 0 else b"%d" % (number - 1))
            self.assertEqual(self.ask("PUT", "o", {}, theirs).status, 201)
            self.assertEqual(self.node.read(self.container, "o"), theirs)
        self.assertEqual(self.ask("DELETE", "o").status, 204)
        self.assertIsNone(self.node.read(self.container, "o"))

    def test_who_may_not_write_makes_nigh_forget_nothing(self) -> None:
        for method in ("PUT", "POST", "DELETE"):
            self.assertEqual(self.ask(method, "a", client=self.world.reader).status, 403)
        self.assertEqual(self.node.told, [])

    def test_containers_that_nigh_does_not_cache_are_left_alone(self) -> None:
        self.assertEqual(self.own.cache(self.container, "").status, 204)
        self.assertEqual(self.ask("PUT", "a", {}, THEIRS).status, 201)
        self.assertEqual(self.ask("GET", "a").body, THEIRS)
        self.assertEqual(self.node.told, [])
        refused = self.own.placeholder(self.container, "a", self.tags(OURS))
        self.assertEqual((refused.status, refused.state), (409, "not-cached"))
        self.assertEqual(self.own.cache(self.container, "nobody").status, 400)

    def test_a_write_is_refused_before_it_begins_if_the_node_is_not_reached_or_goes_on_if_that_is_set(self) -> None:
        self.assertEqual(self.own.cache(self.container, "dead").status, 204)
        answer = self.ask("PUT", "a", {}, THEIRS)
        self.assertEqual((answer.status, answer.headers["retry-after"]), (503, "7"))
        self.assertEqual(self.ask("GET", "a").status, 404)
        self.assertEqual(self.ask("PUT", "a", {}, THEIRS, client=self.world.other).status, 201)
        self.assertEqual(self.ask("GET", "a").body, THEIRS)

    def test_new_metadata_come_after_the_push_and_take_no_tags_away(self) -> None:
        for name, old in (("fresh", None), ("over", b"old")):
            with self.subTest(name):
                if old:
                    self.ask("PUT", name, {}, old)
                self.node.write(self.container, name, self.version(), OURS)
                self.assertEqual(self.ask("POST", name, {"x-object-meta-color": "red"}).status, 202)
                answer = self.ask("GET", name)
                self.assertEqual((answer.body, answer.headers["x-object-meta-color"]), (OURS, "red"))
        self.assertEqual(self.own.placeholder(self.container, "dead", self.tags(OURS, node="dead")).status, 201)
        self.assertEqual(self.ask("POST", "dead", {"x-object-meta-color": "red"}).status, 503)
        self.assertEqual(self.ask("HEAD", "dead").headers["content-length"], str(len(OURS)))

    def test_a_write_or_delete_after_the_placeholder_is_never_overwritten_by_the_push(self) -> None:
        for old in (None, b"old"):
            for method, status in (("PUT", 201), ("DELETE", 204)):
                with self.subTest(old=old, method=method):
                    name = f"{method}-{old is None}"
                    if old:
                        self.ask("PUT", name, {}, old)
                    version = self.version()
                    self.assertEqual(self.own.placeholder(self.container, name, self.tags(OURS, version)).status, 201)
                    self.assertEqual(self.ask(method, name, {}, THEIRS if method == "PUT" else b"").status, status)
                    push = self.own.push(self.container, name, version, OURS, {"content-type": "text/plain"})
                    self.assertEqual((push.status, push.state), (412, "outside"))
                    after = self.ask("GET", name)
                    self.assertEqual(
                        (after.status, after.body if method == "PUT" else b""),
                        (200, THEIRS) if method == "PUT" else (404, b""),
                    )

    def test_a_write_or_delete_that_comes_during_the_push_wins(self) -> None:
        # The push has looked and its body is half there when the outsider writes: only the order of times is left.
        for method, status in (("PUT", 201), ("DELETE", 204)):
            for old in (None, b"old"):
                with self.subTest(method=method, old=old):
                    name = f"half-{method}-{old is None}"
                    if old:
                        self.ask("PUT", name, {}, old)
                    payload, version = b"x" * 70_000, self.version()
                    self.assertEqual(
                        self.own.placeholder(self.container, name, self.tags(payload, version)).status, 201
                    )
                    slow = SlowPut(self, name, payload, version)
                    time.sleep(0.3)
                    self.assertEqual(self.ask(method, name, {}, THEIRS if method == "PUT" else b"").status, status)
                    answered = slow.finish()
                    self.assertIn(answered, (201, 409))
                    after = self.ask("GET", name)
                    self.assertEqual(after.status, 200 if method == "PUT" else 404)
                    if method == "PUT":
                        self.assertEqual(after.body, THEIRS)
                    again = self.own.push(self.container, name, version, payload, {})
                    self.assertEqual((again.status, again.state), (412, "outside"))

    def test_an_outside_upload_that_began_after_the_placeholder_wins_though_the_push_was_faster(self) -> None:
        for old in (None, b"old"):
            with self.subTest(old=old):
                name, theirs = f"slow-{old is None}", THEIRS * 4000
                if old:
                    self.ask("PUT", name, {}, old)
                version = self.version()
                self.assertEqual(self.own.placeholder(self.container, name, self.tags(OURS, version)).status, 201)
                slow = SlowPut(self, name, theirs)
                time.sleep(0.3)
                self.assertEqual(self.own.push(self.container, name, version, OURS, {}).status, 201)
                self.assertEqual(self.ask("GET", name).body, OURS)
                self.assertEqual(slow.finish(), 201)
                self.assertEqual(self.ask("GET", name).body, theirs)

    def test_outside_puts_against_pushes_end_with_the_last_of_them(self) -> None:
        lost: list[object] = []

        def race(name: str) -> None:
            for round_ in range(6):
                version = self.version()
                try:
                    self.node.write(self.container, name, version, b"ours %d" % round_)
                except Conflict as conflict:
                    lost.append(conflict)
                pushing = threading.Thread(target=self.node.push, args=(self.container, name, version))
                pushing.start()
                theirs = b"theirs %d" % round_
                status = self.ask("PUT", name, {}, theirs).status
                pushing.join()
                # The outsider's write began after ours was acknowledged: it is the last.
                found = self.ask("GET", name).body
                if status != 201 or found != theirs or self.node.read(self.container, name) != theirs:
                    lost.append((name, round_, status, found))

        racers = [threading.Thread(target=race, args=(f"r{number}",)) for number in range(2)]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join()
        self.assertEqual(lost, [])

    def test_an_outside_write_is_younger_than_what_the_node_wrote_though_the_proxys_clock_is_behind(self) -> None:
        ahead = time.time() + 500
        key = self.node._key(self.container, "o")
        key.newest = f"{ahead:016.5f}"
        self.assertEqual(self.ask("PUT", "o", {}, THEIRS).status, 201)
        self.assertGreater(float(self.ask("HEAD", "o").headers["x-timestamp"]), ahead)
        version = self.version()
        placed = self.own.placeholder(self.container, "o", self.tags(OURS, version))
        self.assertEqual(placed.status, 201)
        self.assertGreater(float(placed.timestamp.partition("_")[0]), ahead)
        self.assertEqual(self.own.push(self.container, "o", version, OURS, {}).status, 201)
        self.assertEqual(self.ask("GET", "o").body, OURS)

    def test_an_upload_that_outlasts_its_lease_writes_nothing(self) -> None:
        begun = self.world.swift.other_port
        with socket.create_connection(("127.0.0.1", begun), timeout=20) as connection:
            path = f"{self.world.path}/{self.container}/slow"
            head = (
                f"PUT {path} HTTP/1.1\r\nHost: x\r\nX-Auth-Token: {self.world.token}\r\nContent-Length: 8\r\n\r\n1234"
            )
            connection.sendall(head.encode())
            time.sleep(2.0)
            connection.sendall(b"5678")
            status = connection.recv(100).split()[1]
        self.assertEqual(status, b"499")
        self.assertEqual(self.ask("GET", "slow").status, 404)
        self.assertEqual(self.phases("slow"), [("PUT", "begin", None), ("PUT", "end", None)])


class SlowPut:
    """A PUT whose body stops half way until `finish`; a push if a version is given, else an outsider's."""

    def __init__(self, test: Writers, name: str, payload: bytes, version: object = None) -> None:
        path = f"{test.world.path}/{test.container}/{name}"
        headers = {"host": "x", "x-auth-token": test.world.token, "content-length": str(len(payload))}
        if version is not None:
            signed = {"x-nigh-op": "push", "x-nigh-version": str(version)}
            headers.update(sign(SECRET, TO_SWIFT, "PUT", path, now=time.time(), headers=signed))
        head = "\r\n".join([f"PUT {path} HTTP/1.1"] + [f"{key}: {value}" for key, value in headers.items()])
        self._connection = socket.create_connection(("127.0.0.1", test.world.swift.port), timeout=20)
        self._connection.sendall(head.encode() + b"\r\n\r\n" + payload[: len(payload) // 2])
        self._rest = payload[len(payload) // 2 :]

    def finish(self) -> int:
        """Sends the rest; returns the answer's status."""
        with self._connection:
            self._connection.sendall(self._rest)
            return int(self._connection.recv(100).split()[1])


if __name__ == "__main__":
    unittest.main()
