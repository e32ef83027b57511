"""Packets: what is one, and what is not."""

import json
import unittest

from nigh import wire
from nigh.errors import ProtocolError
from tests.responder import HEADER, packet


class Packets(unittest.TestCase):
    def refused(self, data):
        with self.assertRaises(ProtocolError) as caught:
            wire.unpack(memoryview(data))
        return str(caught.exception)

    def test_a_request_is_a_header_its_json_and_its_body(self):
        packed = wire.pack(wire.PUT, 7, {"key": "grün", "bucket": "b"}, b"body")
        version, operation, flags, request_id, text_bytes, body_bytes = HEADER.unpack_from(packed)
        self.assertEqual((version, operation, flags, request_id, body_bytes), (1, 4, 0, 7, 4))
        self.assertEqual(packed[16:], b'{"key":"gr\\u00fcn","bucket":"b"}body')
        self.assertEqual(16 + text_bytes + body_bytes, len(packed))

    def test_a_reply_comes_out_as_it_went_in(self):
        reply = wire.unpack(memoryview(packet(wire.ANSWER, 9, {"status": 200, "ö": "x"}, b"bytes", flags=1)))
        self.assertEqual((reply.kind, reply.flags, reply.request_id, reply.body), (wire.ANSWER, 1, 9, b"bytes"))
        self.assertEqual(wire.decode(reply.text), {"status": 200, "ö": "x"})

    def test_a_plain_read_says_the_same_however_often_and_names_what_was_released(self):
        fields = {"bucket": "b", "key": 'grün "1"'}
        for operation in (wire.GET, wire.HEAD, wire.GET):
            packed = wire.pack(operation, 1, fields)
            self.assertEqual(json.loads(packed[16:]), fields)
            packed = wire.pack(operation, 1, fields, released=[3, 4])
            self.assertEqual(json.loads(packed[16:]), {**fields, "released": [3, 4]})
            self.assertEqual(HEADER.unpack_from(packed)[4], len(packed) - 16)
        with_range = wire.pack(wire.GET, 1, {**fields, "range": "bytes=0-1"}, released=[5])
        self.assertEqual(json.loads(with_range[16:]), {**fields, "range": "bytes=0-1", "released": [5]})

    def test_two_fields_of_another_request_are_not_taken_for_a_plain_read(self):
        for operation, fields in ((wire.HELLO, {"access_key": "K", "mac": "m"}), (wire.PUT, {"handle": 1, "key": "k"})):
            self.assertEqual(json.loads(wire.pack(operation, 1, fields)[16:]), fields)

    def test_a_plain_read_that_is_repeated_is_encoded_once(self):
        for operation in (wire.GET, wire.HEAD):
            fields = {"bucket": "b", "key": f"repeated {operation}"}
            before = wire._named.cache_info()
            for request_id in range(3):
                wire.pack(operation, request_id, fields)
            after = wire._named.cache_info()
            self.assertEqual((after.misses - before.misses, after.hits - before.hits), (1, 2))

    def test_a_packet_cut_anywhere_is_refused(self):
        whole = packet(wire.ANSWER, 1, {"status": 200}, b"12345")
        for length in range(len(whole)):
            self.refused(whole[:length])
        self.refused(whole + b"\0")

    def test_other_versions_and_kinds_are_refused_by_name(self):
        for version in (0, 2, 255):
            self.assertIn(f"version {version}", self.refused(packet(wire.ANSWER, 1, {}, version=version)))
        self.assertIn("kind 3", self.refused(packet(3, 1, {})))
        for kind in (wire.GREETING, wire.ANSWER, wire.FATAL):
            self.assertEqual(wire.unpack(memoryview(packet(kind, 1, {}))).kind, kind)

    def test_lengths_that_claim_a_gibibyte_are_refused(self):
        self.refused(HEADER.pack(1, 1, 0, 1, 2, 1 << 30) + b"{}")
        self.refused(HEADER.pack(1, 1, 0, 1, 0xFFFFFFFF, 0xFFFFFFFF) + b"{}")

    def test_json_that_is_none_or_no_object_is_refused(self):
        for text in (b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"a":1}x', b"[" * 100_000):
            reply = wire.unpack(memoryview(HEADER.pack(1, wire.ANSWER, 0, 1, len(text), 0) + text))
            with self.assertRaises(ProtocolError):
                wire.decode(reply.text)

    def test_values_of_their_type_are_given_as_they_are(self):
        for value in (0, 1, 1 << 40, (1 << 64) - 1):
            self.assertEqual(wire.number({"n": value}, "n"), value)
        for value in ("", "text"):
            self.assertEqual(wire.text({"t": value}, "t"), value)
        self.assertEqual(wire.headers({"headers": {"etag": "e"}}), {"etag": "e"})

    def test_values_of_another_type_are_refused(self):
        for value in (None, 1, [], b"text"):
            with self.assertRaises(ProtocolError):
                wire.text({"t": value}, "t")
        for value in (None, "1", 1.5, -1, 1 << 64, 1 << 65, True, []):
            with self.assertRaises(ProtocolError):
                wire.number({"n": value}, "n")
        for value in ([], {"a": 1}, {"a": None}, "text"):
            with self.assertRaises(ProtocolError):
                wire.headers({"headers": value})
        self.assertEqual(wire.headers({}), {})

    def test_a_reply_that_ends_the_connection_is_an_error_that_says_why(self):
        error = wire.fatal(b'{"status":400,"code":"BadRequest","message":"no such field"}')
        self.assertIs(type(error), ProtocolError)
        self.assertEqual(str(error), "the server ends the connection: BadRequest: no such field")
        with self.assertRaises(ProtocolError):
            wire.fatal(b"{")

    def test_the_numbers_of_the_protocol_are_the_documented_ones(self):
        operations = (wire.HELLO, wire.GET, wire.HEAD, wire.PUT, wire.CREATE, wire.COMMIT, wire.RELEASE, wire.ABANDON)
        self.assertEqual(operations, (1, 2, 3, 4, 5, 6, 7, 8))
        self.assertEqual((wire.GREETING, wire.ANSWER, wire.FATAL, wire.IN_PACKET), (0, 1, 2, 2))
        self.assertEqual((wire.VERSION, wire.PACKET_BYTES_MAX), (1, 262_144))

    def test_a_request_that_just_fits_a_packet_is_sent_and_a_larger_one_is_the_callers_mistake(self):
        largest_body = bytes(65_535)
        self.assertTrue(wire.pack(wire.PUT, 1, {}, largest_body).endswith(largest_body))
        with self.assertRaises(ValueError):
            wire.pack(wire.PUT, 1, {}, largest_body + b"x")
        largest_key = "x" * (98_304 - len('{"key":""}'))
        packed = wire.pack(wire.PUT, 1, {"key": largest_key})
        self.assertEqual(json.loads(packed[16:]), {"key": largest_key})
        with self.assertRaises(ValueError):
            wire.pack(wire.PUT, 1, {"key": largest_key + "x"})

    def test_the_proof_is_the_documented_one(self):
        # HMAC-SHA256 with key "secret" of "nigh fast path 1\n" and 32 zeros, by openssl.
        expected = "b420057ad65400cc54a9d0c768a5c3587e86fb8bb3e28d1f27d2f4950b1c3287"
        self.assertEqual(wire.proof("secret", "0" * 32), expected)


if __name__ == "__main__":
    unittest.main()
