"""The hook's parts without a server: what a request asks for, and what a result says, compared with botocore's own."""

import functools
import sys
import unittest
from pathlib import Path
from unittest import mock

try:
    import botocore.session
    from botocore import parsers, utils
    from botocore.awsrequest import HeadersDict, prepare_request_dict
    from botocore.model import ServiceModel
    from botocore.serialize import create_serializer

    from nigh import hook_body, hook_request, hook_result
    from nigh.hook_request import Http
except ImportError:
    botocore = None

from nigh.errors import refused

sys.path.append(str(Path(__file__).parents[3] / "tests"))
from skipped import skip_unless

ENDPOINT = "http://127.0.0.1:9/"
SECOND = 1795292340
TIME = "Sat, 21 Nov 2026 20:19:00 GMT"
IDS = {"x-amz-request-id": "R", "x-amz-id-2": "H"}


@functools.lru_cache(maxsize=None)
def s3():
    return botocore.session.get_session().get_service_model("s3")


def made_by_botocore(operation, **parameters):
    """A request with its URL, as botocore has it when it asks the hook."""
    request = create_serializer("rest-xml").serialize_to_request(parameters, s3().operation_model(operation))
    prepare_request_dict(request, ENDPOINT, context={})
    return request


@skip_unless(botocore, "test_hook_parts", "this Python has no boto3")
class Requests(unittest.TestCase):
    def goes_over_http(self, reason, call, *arguments):
        with self.assertRaises(Http) as caught:
            call(*arguments)
        self.assertEqual(caught.exception.reason, reason)

    def test_bucket_and_key_are_those_that_the_caller_gave(self):
        for key in ("k", "a/b/", "a b", "grün", "100%", "%2F", "what?", "a+b", "a#b", "/first"):
            request = made_by_botocore("HeadObject", Bucket="b", Key=key)
            self.assertEqual(hook_request.place(request["url"], ENDPOINT, request["query_string"]), ("b", key))

    def test_the_query_is_no_part_of_the_key(self):
        for key in ("k", "what?"):
            request = made_by_botocore("GetObject", Bucket="b", Key=key, PartNumber=2)
            self.assertTrue(request["url"].endswith("?partNumber=2"))
            self.assertEqual(hook_request.place(request["url"], ENDPOINT, request["query_string"]), ("b", key))

    def test_a_request_without_a_bucket_or_without_a_key_goes_over_http(self):
        for path in ("", "b", "b/", "/k", "/"):
            with self.subTest(path):
                self.goes_over_http("endpoint", hook_request.place, ENDPOINT + path, ENDPOINT, {})

    def test_a_request_to_another_endpoint_goes_over_http(self):
        self.goes_over_http("endpoint", hook_request.place, "http://127.0.0.1:90/b/k", ENDPOINT, {})

    def test_the_part_s_number_is_the_one_query_parameter_of_a_read(self):
        request = made_by_botocore("GetObject", Bucket="b", Key="k", PartNumber=12)
        self.assertEqual(hook_request.read_fields("b", "k", request), {"bucket": "b", "key": "k", "part": 12})
        for name in ("acl", "partNumbe", "partNumbers", "partnumber", "versionId"):
            request["query_string"] = {name: "1"}
            with self.subTest(name):
                self.goes_over_http("parameter", hook_request.read_fields, "b", "k", request)


@skip_unless(botocore, "test_hook_parts", "this Python has no boto3")
class Times(unittest.TestCase):
    def setUp(self):
        hook_result.time_of.cache_clear()
        self.addCleanup(hook_result.time_of.cache_clear)

    def test_the_form_that_http_writes_needs_no_parser_of_all_forms(self):
        for number, month in enumerate("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), 1):
            with mock.patch.object(utils, "parse_timestamp") as parser:
                time = hook_result.time_of(f"Sat, 2{number % 9} {month} 2026 21:43:56 GMT")
            parser.assert_not_called()
            self.assertEqual(time.isoformat(), f"2026-{number:02}-2{number % 9}T21:43:56+00:00")

    def test_what_is_almost_of_that_form_is_read_as_botocore_reads_it(self):
        for text in (
            "Sat, 21 Nov 2026 20:19:00.5 GMT",
            "Sat, 21 Nov 2026 20:19:00 +01",
            "Sat, 21 Nov 2026 20:19.50 GMT",
            "Sat, 21 Nov 2026 20.19:50 GMT",
            "Sat, 21 Nov 2026 20/19:50 GMT",
            "Sat, 21 Nov 2026 20h19m50 GMT",
            "Sat, 21 Nov 2026 2:19:50 GMT",
        ):
            ours, theirs = hook_result.time_of(text), utils.parse_timestamp(text)
            with self.subTest(text):
                self.assertEqual((ours, ours.utcoffset()), (theirs, theirs.utcoffset()))

    def test_what_botocore_cannot_read_fails_as_it_does_there(self):
        for text in (
            "",
            "Sat, 21 Nov 2026 GMT",
            "Sat, 21 Nov 2026 20:19 xyz GMT",
            "Sat, 21 Nov 2026 20-19-50 GMT",
            "Sat, 21 Nov 2026 20 19 50 GMT",
            "Sat, 21 Nov 2026 20~19~50 GMT",
            "Sat, 21 Nov 2026 20:19/50 GMT",
            "Sat, 21 Nov 2026 20h19:50 GMT",
            "Sat, 21 Nov 2026 20:19:50-GMT",
            "xxxxx21 Nov 2026 20:19:00 GMT",
            "xxx  21 Nov 2026 20:19:00 GMT",
            "Sat, 21 Nov 2026 25:19:00 GMT",
        ):
            with self.subTest(text):
                with self.assertRaises(ValueError) as theirs:
                    utils.parse_timestamp(text)
                with self.assertRaises(ValueError) as ours:
                    hook_result.time_of(text)
                self.assertEqual(str(ours.exception), str(theirs.exception))


class Came:
    """An answer of the fast path, with its bytes in the packet."""

    def __init__(self, headers, body=b""):
        self.status, self.headers, self.body = 200, dict(headers), body

    def segment(self):
        return Bytes(self.body)


class Bytes:
    def __init__(self, data):
        self.data, self.length = data, len(data)

    def read(self, begin, end):
        return self.data[begin:end]

    def close(self):
        pass


@skip_unless(botocore, "test_hook_parts", "this Python has no boto3")
class Results(unittest.TestCase):
    HEADERS = {
        **{"date": TIME, "content-length": "0", "x-text": "a,b", "x-number": "7", "x-time": TIME},
        # Not the same object as the word in the program, as off the wire.
        **{"x-true": "TRUE".lower(), "x-false": "false", "x-yes": "yes"},
        **{"x-json": "eyJhIjogMX0=", "x-float": "0.5", "x-amz-meta-": "bare", "x-amz-meta-a": "1", "x-other-b": "2"},
        **IDS,
    }
    # Each a member of a result: where it comes from, its type, and whether the table knows it.
    MEMBERS = (
        ("header", "x-text", {"type": "string"}, True),
        ("header", "x-number", {"type": "integer"}, True),
        ("header", "x-number", {"type": "long"}, True),
        ("header", "x-true", {"type": "boolean"}, True),
        ("header", "x-false", {"type": "boolean"}, True),
        ("header", "x-yes", {"type": "boolean"}, True),
        ("header", "x-time", {"type": "timestamp"}, True),
        ("header", "x-json", {"type": "string", "jsonvalue": True}, False),
        ("header", "x-float", {"type": "float"}, False),
        ("header", "x-text", {"type": "list", "member": {"shape": "Text"}}, False),
        ("header", "x-amz-meta-", {"type": "list", "member": {"shape": "Text"}}, False),
        ("headers", "x-amz-meta-", {"type": "map", "key": {"shape": "Text"}, "value": {"shape": "Text"}}, True),
        ("headers", "X-Amz-Meta-", {"type": "map", "key": {"shape": "Text"}, "value": {"shape": "Text"}}, True),
        ("headers", "x-other-", {"type": "map", "key": {"shape": "Text"}, "value": {"shape": "Text"}}, False),
        ("headers", "x-", {"type": "map", "key": {"shape": "Text"}, "value": {"shape": "Text"}}, False),
        ("statusCode", "Status", {"type": "integer"}, False),
        ("statusCode", "x-amz-meta-", {"type": "integer"}, False),
        (None, "Text", {"type": "string"}, False),
    )

    def parser(self, operation="GetObject"):
        return hook_result.ResultParser(s3().operation_model(operation))

    @staticmethod
    def operation_with(location, header, shape):
        """The model of an operation whose result has this one member."""
        reference = {"shape": "Member", "locationName": header}
        if location is not None:
            reference["location"] = location
        if "jsonvalue" in shape:
            reference["jsonvalue"] = True
        output = {"type": "structure", "members": {"Member": reference}}
        operation = {"name": "Get", "http": {"method": "GET", "requestUri": "/"}, "output": {"shape": "Output"}}
        description = {
            "metadata": {"protocol": "rest-xml"},
            "operations": {"Get": operation},
            "shapes": {"Output": output, "Member": shape, "Text": {"type": "string"}},
        }
        return ServiceModel(description, "other").operation_model("Get")

    def test_members_of_every_kind_are_those_of_botocore_s_parser(self):
        for location, header, shape, is_plain in self.MEMBERS:
            with self.subTest(location, header=header, type=shape["type"]):
                model = self.operation_with(location, header, shape)
                parser = hook_result.ResultParser(model)
                _, ours = parser.result("url", Came(self.HEADERS), {}, False)
                received = {"headers": HeadersDict(self.HEADERS), "status_code": 200, "body": b"", "context": {}}
                theirs = parsers.create_parser("rest-xml").parse(received, model.output_shape)
                theirs["ResponseMetadata"]["RetryAttempts"] = 0
                self.assertEqual(ours, theirs)
                self.assertEqual(parser._is_plain, is_plain)

    def test_a_result_says_when_it_came_and_that_nothing_was_tried_again(self):
        with mock.patch.object(hook_result.time, "time", return_value=SECOND + 0.75):
            response, parsed = self.parser().result("url", Came(IDS), {}, False)
        self.assertEqual(parsed["ResponseMetadata"]["HTTPHeaders"]["date"], TIME)
        self.assertEqual(response.headers["Date"], TIME)
        self.assertEqual(parsed["ResponseMetadata"]["RetryAttempts"], 0)

    def test_only_the_answer_to_a_put_is_said_to_be_empty(self):
        for operation, length in (("PutObject", "0"), ("HeadObject", None), ("GetObject", None)):
            _, parsed = self.parser(operation).result("url", Came(IDS), {}, False)
            self.assertEqual(parsed["ResponseMetadata"]["HTTPHeaders"].get("content-length"), length, operation)

    def test_the_response_of_a_read_has_its_bytes_and_that_of_a_put_has_none(self):
        response, parsed = self.parser().result("url", Came(IDS, b"bytes"), {}, False)
        self.assertIsInstance(parsed["Body"], hook_body.FastBody)
        self.assertEqual((response.raw.read(), response.status_code, response.url), (b"bytes", 200, "url"))
        response, _ = self.parser("PutObject").result("url", Came(IDS), {}, False)
        self.assertIsNone(response.raw)
        self.assertEqual((response.content, response.text), (b"", ""))

    def test_errors_are_those_of_botocore_s_parser(self):
        document = b"<Error><Code>C</Code><Message>M</Message><RequestId>R</RequestId><HostId>H</HostId></Error>"
        for operation in ("GetObject", "HeadObject", "PutObject"):
            # Numbers as they come from JSON: each its own object.
            for status in map(int, ("304", "404", "412", "416")):
                with self.subTest(operation, status=status):
                    headers = {"date": TIME, **IDS}
                    has_document = operation != "HeadObject" and status != 304
                    body = document if has_document else b""
                    received = {"headers": HeadersDict(headers), "status_code": status, "body": body, "context": {}}
                    shape = s3().operation_model(operation).output_shape
                    theirs = parsers.create_parser("rest-xml").parse(received, shape)
                    theirs["ResponseMetadata"]["RetryAttempts"] = 0
                    response, ours = self.parser(operation).error("url", refused(status, "C", "M", headers))
                    for part in ("Error", "ResponseMetadata"):
                        self.assertEqual(ours[part], theirs[part])
                    self.assertEqual((response.status_code, response.content), (status, b""))


if __name__ == "__main__":
    unittest.main()
