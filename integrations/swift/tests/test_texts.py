"""The pure parts: signatures, tags, listings, settings. Needs no Swift."""

from __future__ import annotations

import json
import os
import random
import tempfile
import unittest

from nigh_swift.listing import true_listing
from nigh_swift.settings import BadSetting, Settings
from nigh_swift.shadow import BadTags, Shadow, Version, bare_type, listed_shadow, shadow_of
from nigh_swift.signing import TO_NIGH, TO_SWIFT, Refused, read_secrets, sign, verify

SECRET, OTHER = b"s" * 32, b"o" * 32
TAGS = Shadow(
    Version(3, 14), 159, "etag", "text/plain; charset=utf-8", "n1", {"x-object-meta-a": "b"}, "1.00000", "kept"
)


class Signatures(unittest.TestCase):
    """A signature holds for what was signed, at its time, with a secret in force."""

    def verify(self, headers: dict[str, str], **changed: object) -> str:
        """Verifies what `sign` made of the default request."""
        given = {
            "word": TO_SWIFT,
            "method": "PUT",
            "path": "/a",
            "query": "q=1",
            "now": 1000.0,
            "body": b"x",
            "secrets": [SECRET],
            **changed,
        }
        return verify(
            given["secrets"],
            given["word"],
            given["method"],
            given["path"],
            now=given["now"],
            skew_s=60,
            headers=headers,
            query=given["query"],
            body=given["body"],
        )

    def test_what_was_signed_holds_and_nothing_else(self) -> None:
        headers = sign(SECRET, TO_SWIFT, "PUT", "/a", query="q=1", headers={"X-Nigh-Op": "push"}, body=b"x", now=1000)
        nonce = self.verify(headers)
        self.assertGreaterEqual(len(nonce), 16)
        self.assertEqual(self.verify({key.title(): value for key, value in headers.items()}), nonce)
        self.verify({**headers, "accept": "anything"}, now=1060.0)
        self.verify(headers, secrets=[OTHER, SECRET])
        for changed in (
            {"word": TO_NIGH},
            {"method": "POST"},
            {"path": "/b"},
            {"query": ""},
            {"body": b"y"},
            {"body": None},
            {"secrets": [OTHER]},
            {"now": 1061.0},
            {"now": 939.0},
        ):
            with self.subTest(changed), self.assertRaises(Refused):
                self.verify(headers, **changed)
        for name in ("x-nigh-op", "x-nigh-date", "x-nigh-nonce", "x-nigh-signature"):
            with self.subTest(name), self.assertRaises(Refused):
                self.verify({**headers, name: headers[name] + "0"})
        with self.assertRaises(Refused):
            self.verify({**headers, "x-nigh-more": "1"})
        self.assertNotEqual(
            sign(SECRET, TO_SWIFT, "PUT", "/a", now=1)["x-nigh-nonce"],
            sign(SECRET, TO_SWIFT, "PUT", "/a", now=1)["x-nigh-nonce"],
        )

    def test_a_known_signature_stays_what_it_is(self) -> None:
        # Of the README's example: a second implementation is held to it.
        headers = {
            "x-nigh-op": "push",
            "x-nigh-version": "1.7",
            "x-nigh-date": "1700000000",
            "x-nigh-nonce": "abcdefghijklmnopqrstuvwx",
        }
        headers["x-nigh-signature"] = "68ab4b433c3a2abc2ec1df2b39bd40fe592a090b7e19eff613e319dd1e44851f"
        verify(
            [b"0123456789abcdef0123456789abcdef"],
            TO_SWIFT,
            "PUT",
            "/v1/AUTH_test/c/a%20b",
            now=1700000000,
            skew_s=1,
            headers=headers,
        )

    def test_secrets_are_lines_long_enough_and_few(self) -> None:
        self.assertEqual(read_secrets(SECRET + b"\n\n " + OTHER + b" \n"), [SECRET, OTHER])
        for text in (b"", b"short", b"\n".join([SECRET] * 5)):
            with self.assertRaises(ValueError):
                read_secrets(text)


class Tags(unittest.TestCase):
    """Tags go in and out as they are, or not at all."""

    def test_tags_go_through_a_header_and_a_content_type(self) -> None:
        self.assertEqual(Shadow.decode(TAGS.encode()), TAGS)
        listed = TAGS.listed_type("image/png;nigh-shadow=old;swift_bytes=4")
        self.assertTrue(listed.startswith("image/png;swift_bytes=4;nigh-shadow="))
        self.assertEqual(bare_type(listed), "image/png;swift_bytes=4")
        shown = listed_shadow(listed)
        assert shown is not None
        self.assertEqual((shown.size, shown.etag, shown.content_type), (159, "etag", TAGS.content_type))
        self.assertIsNone(listed_shadow("image/png"))

    def test_no_damage_of_tags_is_taken_for_tags_or_raises_anything_else(self) -> None:
        rng, text = random.Random(5), TAGS.encode()
        for _ in range(2000):
            at = rng.randrange(len(text))
            damaged = text[:at] + rng.choice(["", "é", "=", "A", "_" * 9]) + text[at + rng.randrange(3) :]
            try:
                Shadow.decode(damaged).encode()
            except BadTags:
                continue

    def test_versions_are_ordered_by_epoch_then_sequence(self) -> None:
        self.assertLess(Version.parse("1.10"), Version.parse("2.9"))
        self.assertLess(Version.parse("1.9"), Version.parse("1.10"))
        for text in ("", "1", "1.2.3", "-1.2", "1.x", "1." + "9" * 21):
            with self.assertRaises(BadTags):
                Version.parse(text)

    def test_tags_beside_a_payload_are_younger_than_those_of_the_data_file(self) -> None:
        newer = Shadow(Version(3, 15), 1, "e", "t", "n1")
        both = {"X-Object-Sysmeta-Nigh-Shadow": TAGS.encode(), "X-Object-Transient-Sysmeta-Nigh-Shadow": newer.encode()}
        self.assertEqual(shadow_of(both), newer)
        self.assertIsNone(shadow_of({}))


class Listings(unittest.TestCase):
    """What a container lists is what readers will get."""

    def test_shadows_are_shown_as_they_will_be_and_all_else_is_left(self) -> None:
        plain = {"name": "b", "bytes": 1, "hash": "h", "content_type": "a/b", "last_modified": "then"}
        shadow = {**plain, "name": "s", "content_type": TAGS.listed_type("a/b")}
        shown = json.loads(
            true_listing(json.dumps([{"subdir": "d/"}, plain, shadow]).encode(), lambda stamp: f"at {stamp}")
        )
        self.assertEqual(shown[:2], [{"subdir": "d/"}, plain])
        self.assertEqual(
            shown[2],
            {
                "name": "s",
                "bytes": 159,
                "hash": "etag",
                "content_type": TAGS.content_type,
                "last_modified": "at 1.00000",
            },
        )
        untouched = b'[ {"name":  "x"} ]'
        self.assertIs(true_listing(untouched, str), untouched)


class Starting(unittest.TestCase):
    """A proxy with settings that cannot be used does not start, and says which."""

    def test_settings_are_read_or_refused_by_name(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "secret")
            with open(path, "wb") as file:
                file.write(SECRET)
            os.chmod(path, 0o640)
            good = {"secret_file": path, "nodes": "a=http://h:1/ b=https://i", "__file__": "x", "log_name": "y"}
            read = Settings.of({"swift_dir": "/s"}, good)
            self.assertEqual(
                (read.nodes, read.swift_dir, read.push_timeout, read.refuse_unreachable),
                ({"a": "http://h:1", "b": "https://i"}, "/s", 30.0, True),
            )
            self.assertFalse(Settings.of({}, {**good, "on_unreachable": "proceed"}).refuse_unreachable)
            for wrong, word in (
                ({"nodes": ""}, "nodes"),
                ({"nodes": "a=ftp://h"}, "nodes"),
                ({"nodes": "http://h"}, "nodes"),
                ({"push_timeout": "soon"}, "push_timeout"),
                ({"clock_skew": "0"}, "clock_skew"),
                ({"on_unreachable": "hope"}, "on_unreachable"),
                ({"push_timeot": "1"}, "push_timeot"),
                ({"secret_file": ""}, "secret_file"),
                ({"secret_file": folder + "/no"}, "secret_file"),
            ):
                with self.subTest(wrong), self.assertRaisesRegex(BadSetting, word):
                    Settings.of({}, {**good, **wrong})
            os.chmod(path, 0o644)
            with self.assertRaisesRegex(BadSetting, "mode"):
                Settings.of({}, good)


if __name__ == "__main__":
    unittest.main()
