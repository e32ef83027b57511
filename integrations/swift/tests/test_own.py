"""Nigh's own signed requests on a real Swift: order, expectations, replays, and what nobody else may do."""

from __future__ import annotations

import json
import random
import time
import unittest
import urllib.error
import urllib.request

from swift_server import MEDDLED, SECRET
from world import OnSwift, md5

from nigh_swift import INVALIDATE, PROTOCOL
from nigh_swift.client import GUARDS, Answer
from nigh_swift.shadow import EMPTY_HEADER, KEPT_HEADER, Shadow
from nigh_swift.signing import TO_NIGH, TO_SWIFT, sign

OLD, ONE, TWO = b"the old payload", b"version one", b"version two is longer"


class Order(OnSwift):
    """Each write replaces what Nigh expects there, and nothing younger."""

    def kind(self, name: str) -> str | None:
        """What sort of shadow an object is."""
        text = self.own.own("HEAD", self.container, name).headers.get("x-nigh-shadow")
        return Shadow.decode(text).kind if text else None

    def meddle(self, method: str) -> None:
        """Lets an outsider write just before the next write of the second proxy."""
        self.world.swift.meddle.write_text(method)

    def placed(self, name: str, payload: bytes, old: bytes | None = OLD):
        """A placeholder over an old payload; returns the version."""
        if old is not None:
            self.ask(
                "PUT", name, {"content-type": "image/png", "x-object-meta-age": "old", "content-language": "la"}, old
            )
        version = self.version()
        tags = self.tags(payload, version, headers={"x-object-meta-age": "new"})
        self.assertEqual(self.own.placeholder(self.container, name, tags).status, 201)
        self.assertEqual(self.kind(name), "empty" if old is None else "kept")
        return version

    def test_pushes_in_any_order_end_with_the_newest_version(self) -> None:
        for old in (None, OLD):
            name = f"o{old is None}"
            one = self.placed(name, ONE, old)
            two = self.version()
            self.assertEqual(self.own.placeholder(self.container, name, self.tags(TWO, two)).status, 201)
            late = self.own.push(self.container, name, one, ONE, {})
            self.assertEqual((late.status, late.state), (412, "newer"))
            self.assertEqual(self.own.push(self.container, name, two, TWO, {}).status, 201)
            self.assertEqual(self.own.push(self.container, name, two, TWO, {}).status, 201, "a push may be repeated")
            late = self.own.push(self.container, name, one, ONE, {})
            self.assertEqual((late.status, late.state), (412, "newer"))
            late = self.own.placeholder(self.container, name, self.tags(ONE, one))
            self.assertEqual((late.status, late.state), (409, "newer"))
            self.assertEqual((self.kind(name), self.ask("GET", name).body), (None, TWO))

    def test_a_placeholder_may_be_repeated_and_an_older_one_is_refused(self) -> None:
        one = self.placed("o", ONE)
        self.assertEqual(self.own.placeholder(self.container, "o", self.tags(ONE, one)).status, 201)
        two = self.version()
        self.assertEqual(self.own.placeholder(self.container, "o", self.tags(TWO, two)).status, 201)
        self.assertEqual(self.own.placeholder(self.container, "o", self.tags(ONE, one)).state, "newer")
        self.assertEqual(self.own.push(self.container, "o", two, TWO, {}).status, 201)

    def test_a_write_between_the_look_and_the_push_is_never_overwritten(self) -> None:
        for old in (None, OLD):
            for method in ("PUT", "DELETE"):
                with self.subTest(old=old, method=method):
                    name = f"{method}{old is None}"
                    version = self.placed(name, ONE, old)
                    self.meddle(method)
                    push = self.world.other.push(self.container, name, version, ONE, {})
                    self.assertEqual((push.status, push.state), (409, "raced"))
                    after = self.ask("GET", name)
                    self.assertEqual(
                        (after.status, after.body if method == "PUT" else b""),
                        (200, MEDDLED) if method == "PUT" else (404, b""),
                    )
                    again = self.own.push(self.container, name, version, ONE, {})
                    self.assertEqual((again.status, again.state), (412, "outside"))

    def test_a_write_between_the_look_and_an_expecting_write_or_delete_is_never_overwritten(self) -> None:
        for operation in ("put", "delete", "drop-empty", "drop-kept"):
            with self.subTest(operation):
                name = operation
                if operation.startswith("drop"):
                    version = self.placed(name, ONE, OLD if operation == "drop-kept" else None)
                else:
                    version = self.version()
                    self.ask("PUT", name, {}, OLD)
                self.meddle("PUT")
                if operation == "put":
                    answer = self.world.other.put(self.container, name, version, ONE, {}, f"etag:{md5(OLD)}")
                elif operation == "delete":
                    answer = self.world.other.delete(self.container, name, version, f"etag:{md5(OLD)}")
                else:
                    answer = self.world.other.drop(self.container, name, version)
                self.assertEqual(answer.status, 409, answer.body)
                self.assertEqual(self.ask("GET", name).body, MEDDLED)

    def test_a_write_between_the_look_and_the_placeholder_leaves_a_shadow_of_the_acknowledged_version_or_none(
        self,
    ) -> None:
        for old in (None, OLD):
            for method in ("PUT", "DELETE", "POST"):
                if old is None and method != "PUT":
                    continue
                with self.subTest(old=old, method=method):
                    name = f"p{method}{old is None}"
                    if old is not None:
                        self.ask("PUT", name, {}, old)
                    version = self.version()
                    self.meddle(method)
                    placed = self.world.other.placeholder(self.container, name, self.tags(ONE, version))
                    self.assertEqual(placed.status, 201)
                    self.assertEqual(self.ask("HEAD", name).headers["etag"], md5(ONE))
                    self.assertEqual(self.own.push(self.container, name, version, ONE, {}).status, 201)
                    self.assertEqual(self.ask("GET", name).body, ONE)

    def test_tags_that_cannot_stand_on_every_replica_replace_the_payload_instead(self) -> None:
        for number in range(4):
            self.ask("PUT", f"o{number}", {}, OLD)
        device = self.world.swift.folder / "devices" / "d3"
        away = device.with_name("away")
        device.rename(away)
        try:
            for number in range(4):
                placed = self.own.placeholder(self.container, f"o{number}", self.tags(ONE, node="dead"))
                self.assertEqual(placed.status, 201)
        finally:
            away.rename(device)
            time.sleep(0.6)
        # One replica has the old payload and no tags, and says so first as often as not.
        for number in range(4):
            self.assertEqual(self.kind(f"o{number}"), "empty")
            for _ in range(3):
                self.assertEqual(self.ask("GET", f"o{number}").status, 503)
                self.assertEqual(self.ask("HEAD", f"o{number}").headers["etag"], md5(ONE))

    def test_a_dropped_placeholder_leaves_the_object_as_it_was(self) -> None:
        self.ask(
            "PUT", "over", {"content-type": "image/png", "x-object-meta-age": "old", "content-language": "la"}, OLD
        )
        said = ("etag", "content-length", "content-type", "x-object-meta-age", "content-language")
        before, listed = self.ask("HEAD", "over"), json.loads(self.ask("GET", query="?format=json").body)
        version = self.placed("over", ONE)
        self.assertEqual(self.ask("HEAD", "over").headers["x-object-meta-age"], "new")
        fresh = self.placed("fresh", ONE, None)
        self.assertEqual(self.own.drop(self.container, "over", version).status, 204)
        self.assertEqual(self.own.drop(self.container, "fresh", fresh).status, 204)
        after = self.ask("GET", "over")
        self.assertEqual(after.body, OLD)
        self.assertEqual({key: before.headers[key] for key in said}, {key: after.headers.get(key) for key in said})
        self.assertEqual(self.ask("GET", "fresh").status, 404)
        relisted = json.loads(self.ask("GET", query="?format=json").body)
        kept = ("name", "bytes", "hash", "content_type")
        self.assertEqual(
            [{key: e[key] for key in kept} for e in relisted], [{key: e[key] for key in kept} for e in listed]
        )
        again = self.own.drop(self.container, "over", version)
        self.assertEqual((again.status, again.state), (412, "outside"))

    def test_puts_and_deletes_keep_to_what_they_expect(self) -> None:
        put, delete = self.own.put, self.own.delete
        self.assertEqual(put(self.container, "o", self.version(), ONE, {}, "present").status, 412)
        first = self.version()
        self.assertEqual(put(self.container, "o", first, ONE, {}, "absent").status, 201)
        self.assertEqual(put(self.container, "o", self.version(), TWO, {}, "absent").status, 412)
        self.assertEqual(put(self.container, "o", self.version(), TWO, {}, f"etag:{md5(OLD)}").status, 412)
        self.assertEqual(put(self.container, "o", self.version(), TWO, {}, "sometimes").status, 400)
        second = self.version()
        self.assertEqual(put(self.container, "o", second, TWO, {}, f"version:{first}").status, 201)
        self.assertEqual(put(self.container, "o", first, ONE, {}).state, "newer")
        self.assertEqual(delete(self.container, "o", first).state, "newer")
        self.assertEqual(delete(self.container, "o", self.version(), f"version:{first}").status, 412)
        self.assertEqual(self.ask("GET", "o").body, TWO)
        self.assertEqual(delete(self.container, "o", self.version(), f"version:{second}").status, 204)
        self.assertEqual(self.ask("GET", "o").status, 404)
        self.placed("shadow", ONE)
        self.assertEqual(delete(self.container, "shadow", self.version(), f"etag:{md5(ONE)}").status, 204)
        self.assertEqual(self.ask("GET", "shadow").status, 404)

    def test_writes_that_expect_something_may_be_repeated(self) -> None:
        version = self.version()
        for _ in range(2):
            self.assertEqual(self.own.put(self.container, "o", version, ONE, {}, "absent").status, 201)
        for status in (204, 404):
            self.assertEqual(self.own.delete(self.container, "o", self.version(), f"etag:{md5(ONE)}").status, status)

    def test_a_manifest_is_pushed_like_any_payload_and_replaces_its_placeholder_only(self) -> None:
        self.ask("PUT", "segment", {}, ONE)
        manifest = json.dumps([{"path": f"/{self.container}/segment", "etag": md5(ONE)}]).encode()
        etag, query = f'"{md5(md5(ONE).encode())}"', "multipart-manifest=put"
        path = f"{self.world.path}/{self.container}/large"

        def push(version: object) -> Answer:
            headers = {"x-nigh-op": "push", "x-nigh-version": str(version)}
            signed = sign(SECRET, TO_SWIFT, "PUT", path, query=query, now=time.time(), headers=headers)
            return self.own.send("PUT", f"{path}?{query}", {**GUARDS["PUT"], **signed}, manifest)

        version = self.version()
        tags = Shadow(version, len(ONE), etag, "text/plain", "n1")
        self.assertEqual(self.own.placeholder(self.container, "large", tags).status, 201)
        before = self.ask("HEAD", "large")
        self.assertEqual(push(version).status, 201)
        after = self.ask("GET", "large")
        self.assertEqual((after.body, after.headers["etag"]), (ONE, before.headers["etag"]))
        self.assertEqual(self.ask("PUT", "large", {}, TWO).status, 201)
        self.assertEqual(push(version).status, 412)
        self.assertEqual(self.ask("GET", "large").body, TWO)

    def test_a_push_of_other_bytes_than_the_tags_say_is_refused(self) -> None:
        version = self.placed("o", ONE)
        self.assertEqual(self.own.push(self.container, "o", version, ONE + b"!", {}).status, 422)
        self.assertEqual(self.own.push(self.container, "o", version, ONE[::-1], {}).status, 422)
        self.assertEqual(self.kind("o"), "kept")
        self.assertEqual(self.own.push(self.container, "o", version, ONE, {}).status, 201)


class Rights(OnSwift):
    """Tags are Nigh's alone to set, and nobody else's to see."""

    def placeholder_headers(self, **more: str) -> dict[str, str]:
        """What a placeholder is asked for with, not signed."""
        return {"x-nigh-op": "placeholder", "x-nigh-shadow": self.tags(ONE).encode(), **more}

    def test_what_is_forged_altered_late_or_repeated_is_refused(self) -> None:
        path = f"{self.world.path}/{self.container}/o"
        headers, now = self.placeholder_headers(), time.time()

        def signed(
            secret: bytes = SECRET, word: str = TO_SWIFT, of: str = path, at: float = now, **more: str
        ) -> dict[str, str]:
            return {**sign(secret, word, "PUT", of, headers=headers, now=at), **more}

        def put(sent: dict[str, str], query: str = "") -> Answer:
            return self.own.send("PUT", path + query, sent)

        for why, sent in {
            "another secret": signed(b"x" * 40),
            "the other direction": signed(word=TO_NIGH),
            "another object": signed(of=path + "x"),
            "too early": signed(at=now + 120),
            "too late": signed(at=now - 120),
            "other tags": signed(**{"x-nigh-shadow": self.tags(TWO).encode()}),
            "another operation": signed(**{"x-nigh-op": "own"}),
            "one header more": signed(**{"x-nigh-expect": "absent"}),
            "no date": {key: value for key, value in signed().items() if key != "x-nigh-date"},
            "an empty signature": signed(**{"x-nigh-signature": ""}),
        }.items():
            with self.subTest(why):
                self.assertEqual(put(sent).status, 403)
        self.assertEqual(put(signed(), "?something=more").status, 403)
        self.assertEqual(self.ask("GET", "o").status, 404)
        good = signed()
        self.assertEqual(put(good).status, 201)
        self.assertEqual(put(good).status, 403, "a nonce holds once")
        again = self.world.other.send("PUT", path, good)
        self.assertEqual(again.status, 403, "at no other proxy either")

    def test_a_signature_gives_no_rights_that_the_account_does_not_have(self) -> None:
        stranger = self.world.client(self.world.swift.port, "")
        self.assertIn(stranger.placeholder(self.container, "o", self.tags(ONE)).status, (401, 403))
        self.assertEqual(self.world.reader.placeholder(self.container, "o", self.tags(ONE)).status, 403)
        self.assertEqual(self.world.reader.push(self.container, "o", self.version(), ONE, {}).status, 412)
        self.assertEqual(self.world.reader.delete(self.container, "o", self.version()).status, 403)
        self.assertEqual(self.world.reader.cache(self.container, "").status, 403)
        self.assertEqual(self.ask("GET", "o").status, 404)

    def test_no_outsider_sets_tags_by_header_content_type_or_copy(self) -> None:
        forged = self.tags(ONE).standing("1000000000.00000", "empty")
        listed = forged.listed_type("text/plain")
        headers = {
            EMPTY_HEADER: forged.encode(),
            KEPT_HEADER: forged.encode(),
            "content-type": listed,
            "x-container-sysmeta-nigh-cached": "dead",
            **self.placeholder_headers(),
        }
        self.assertEqual(self.ask("PUT", "o", headers, OLD).status, 201)
        self.assertEqual(self.ask("POST", "o", headers).status, 202)
        self.assertEqual(self.ask("POST", "", headers).status, 204)
        self.assertEqual(self.ask("GET", "o").body, OLD)
        self.assertNotIn("x-nigh-shadow", self.own.own("HEAD", self.container, "o").headers)
        entry = json.loads(self.ask("GET", query="?format=json").body)[0]
        self.assertEqual((entry["bytes"], entry["content_type"]), (len(OLD), "text/plain"))
        version = self.version()
        self.assertEqual(self.own.put(self.container, "pushed", version, ONE, {}).status, 201)
        self.assertEqual(self.ask("COPY", "pushed", {"destination": f"{self.container}/copied"}).status, 201)
        self.assertEqual(self.own.own("HEAD", self.container, "pushed").headers.get("x-nigh-version"), str(version))
        self.assertNotIn("x-nigh-version", self.own.own("HEAD", self.container, "copied").headers)

    def test_no_outsider_sees_tags(self) -> None:
        self.ask("PUT", "o", {}, OLD)
        self.node.write(self.container, "o", self.version(), ONE)
        for answer in (self.ask("HEAD", "o"), self.ask("GET", "o"), self.ask("HEAD", "o"), self.ask("HEAD")):
            self.assertFalse([key for key in answer.headers if "nigh" in key or "sysmeta" in key], answer.headers)
            self.assertNotIn("nigh", answer.headers.get("content-type", ""))

    def test_tags_that_are_damaged_or_too_long_are_refused(self) -> None:
        long = {f"x-object-meta-{number}": "v" * 250 for number in range(30)}
        for text in (
            "",
            "no base64!",
            "e30",
            "bnVsbA",
            Shadow(self.version(), -1, "e", "t", "n1").encode(),
            Shadow(self.version(), 1, "e", "t", "n1", {"x-delete-at": "1"}).encode(),
            Shadow(self.version(), 1, "e", "t\r\nx: y", "n1").encode(),
        ):
            with self.subTest(text):
                answer = self.own.ask("PUT", self.container, "o", "placeholder", {"x-nigh-shadow": text})
                self.assertEqual((answer.status, answer.state), (400, "bad"))
        with self.assertRaisesRegex(ValueError, "write this version through"):
            self.tags(ONE, headers=long).encode()
        self.assertEqual(self.own.ask("PUT", self.container, "o", "conjure", {}).status, 400)

    def test_a_node_hears_the_middleware_alone_and_each_message_once(self) -> None:
        body = json.dumps(
            {
                "account": "AUTH_test",
                "container": self.container,
                "object": "o",
                "phase": "begin",
                "token": "t",
                "method": "PUT",
                "lease": 1,
            }
        ).encode()

        def post(headers: dict[str, str]) -> int:
            sent = urllib.request.Request(self.node.url + INVALIDATE, body, headers)
            try:
                with urllib.request.urlopen(sent, timeout=10) as answer:
                    return int(answer.status)
            except urllib.error.HTTPError as error:
                with error:
                    return error.code

        good = sign(SECRET, TO_NIGH, "POST", INVALIDATE, now=time.time(), body=body)
        self.assertEqual(post({}), 403)
        self.assertEqual(post(sign(b"x" * 40, TO_NIGH, "POST", INVALIDATE, now=time.time(), body=body)), 403)
        self.assertEqual(post(sign(SECRET, TO_NIGH, "POST", INVALIDATE, now=time.time(), body=body + b" ")), 403)
        self.assertEqual(self.node.told, [])
        self.assertEqual((post(good), post(good)), (200, 403))

    def test_swift_says_that_the_middleware_is_there(self) -> None:
        info = json.loads(self.own.send("GET", "/info", {}).body)
        self.assertEqual(info["nigh"], {"protocol": PROTOCOL})

    def test_a_swift_without_the_middleware_refuses_nighs_writes(self) -> None:
        # What is not signed goes on to Swift as it is.
        self.ask("PUT", "o", {}, OLD)
        self.assertEqual(self.ask("PUT", "o", {**GUARDS["PUT"], **self.placeholder_headers()}).status, 400)
        self.assertEqual(self.ask("DELETE", "o", {**GUARDS["DELETE"], "x-nigh-op": "drop"}).status, 412)
        self.assertEqual(self.ask("GET", "o").body, OLD)
        self.assertEqual(self.own.own("HEAD", self.container, "o").headers["x-nigh-protocol"], str(PROTOCOL))

    def test_nigh_reads_containers_as_they_are_and_listings_as_they_will_be(self) -> None:
        self.assertEqual(self.own.own("HEAD", "not-there", "").status, 404)
        self.assertEqual(self.own.own("HEAD", self.container, "").status, 204)
        self.node.write(self.container, "o", self.version(), ONE)
        path = f"{self.world.path}/{self.container}"
        signed = sign(SECRET, TO_SWIFT, "GET", path, now=time.time(), headers={"x-nigh-op": "own"})
        listed = json.loads(self.own.send("GET", f"{path}?format=json&limit=5", signed).body)
        self.assertEqual([(entry["name"], entry["hash"]) for entry in listed], [("o", md5(ONE))])

    def test_names_of_any_letters_go_through(self) -> None:
        letters = random.Random(7)
        names = ["a b", "ü/é", "100%25", "a?b#c", "//x/", "'\"<>&"] + [
            "".join(letters.choices("aß %?#/+&=;", k=9)) + "z" for _ in range(6)
        ]
        for name in names:
            with self.subTest(name):
                self.node.write(self.container, name, self.version(), ONE)
                self.assertEqual(self.ask("GET", name).body, ONE)
        listed = [entry["name"] for entry in json.loads(self.ask("GET", query="?format=json").body)]
        self.assertEqual(sorted(listed), sorted(names))


if __name__ == "__main__":
    unittest.main()
