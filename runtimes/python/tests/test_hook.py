"""The hook against a responder: what it makes of answers, and when it stands aside.

That the results are those of HTTP is tested against a real node (`parity.py`).
"""

import gc
import io
import os
import sys
import threading
import unittest
import weakref
from pathlib import Path
from unittest import mock

try:
    import boto3
    import botocore.session
    from botocore import UNSIGNED, parsers
    from botocore.config import Config
    from botocore.exceptions import EndpointConnectionError, FlexibleChecksumError
    from botocore.response import StreamingBody
    from botocore.stub import Stubber

    from nigh import hook, hook_result
except ImportError:
    boto3 = None

from nigh import wire
from tests.both import PYTHON, ByClient, by_both
from tests.responder import KEY, SECRET, Responder, packet

sys.path.append(str(Path(__file__).parents[3] / "tests"))
from skipped import skip_unless

ENDPOINT = "http://127.0.0.1:9"
LARGE = bytes(range(256)) * 1024
# Nothing listens at the endpoint: who goes there fails, once.
HTTP_FAILS = {"retries": {"total_max_attempts": 1}, "connect_timeout": 1}


@skip_unless(boto3, "test_hook", "this Python has no boto3")
class WithHook(ByClient):
    def setUp(self):
        super().setUp()
        self.responder = Responder()
        self.addCleanup(self.responder.close)
        self.environment(NIGH_FAST_PATH=self.responder.address)
        for counter in (hook._fast, hook._http):
            counter.clear()

    def environment(self, **more):
        given = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": "us-east-1"}
        given.update(AWS_ENDPOINT_URL_S3=ENDPOINT, AWS_EC2_METADATA_DISABLED="true", **more)
        patched = mock.patch.dict(os.environ, given)
        patched.start()
        self.addCleanup(patched.stop)
        self.forget()
        self.addCleanup(self.forget)

    @staticmethod
    def forget():
        hook._sandbox, hook._looked = None, False

    @classmethod
    def setUpClass(cls):
        # One: what it has loaded serves all clients.
        cls.session = boto3.session.Session(KEY, SECRET, region_name="us-east-1")

    def client(self, session=None, **config):
        client = (session or self.session).client("s3", config=Config(**{**HTTP_FAILS, **config}))
        hook.install(client)
        return client

    def goes_over_http(self, reason, call):
        with self.assertRaises(EndpointConnectionError):
            call()
        self.assertEqual(hook.counters(), {"fast": {}, "http": {reason: 1}})
        hook._http.clear()

    def put(self, key, data, **headers):
        self.responder.answer(wire.PUT, 0, {"bucket": "b", "key": key, "headers": headers}, data)


class UserAgents(WithHook):
    def test_the_user_agent_is_botocores_own_with_its_parts_remembered(self):
        client = self.client()
        remembered = hook.useragent.sanitize_user_agent_string_component
        clean = remembered.__wrapped__
        for text in ("", "Botocore", "a b/c(d)#e", "grün", "x" * 300):
            for allow_hash in (False, True):
                self.assertEqual(remembered(text, allow_hash=allow_hash), clean(text, allow_hash=allow_hash))
        first = client._user_agent_creator.to_string()
        before = remembered.cache_info()
        self.assertEqual(client._user_agent_creator.to_string(), first)
        after = remembered.cache_info()
        self.assertGreater(after.hits, before.hits)
        self.assertEqual(after.misses, before.misses)
        with mock.patch.object(hook.useragent, "sanitize_user_agent_string_component", clean):
            self.assertEqual(client._user_agent_creator.to_string(), first)
            hook._remember_clean_parts()
            hook._remember_clean_parts()
            self.assertIs(hook.useragent.sanitize_user_agent_string_component.__wrapped__, clean)


@by_both
class Bodies(WithHook):
    def body(self, data=b"one\ntwo\r\nthree", **options):
        self.put("k", data)
        if not hasattr(self, "reading"):
            self.reading = self.client()
        return self.reading.get_object(Bucket="b", Key="k", **options)["Body"]

    def test_a_body_is_a_streaming_body_that_is_read_in_every_way(self):
        ways = {
            "read": lambda body: body.read(),
            "pieces": lambda body: b"".join(iter(lambda: body.read(1000), b"")),
            "chunks": lambda body: b"".join(body.iter_chunks(700)),
            "iterated": lambda body: b"".join(body),
            "into": lambda body: self.into(body),
            "with": lambda body: self.in_a_with(body),
            "view": lambda body: bytes(body.view()),
            "views": lambda body: bytes(body.view(1000)) + bytes(body.view()),
            "read and view": lambda body: body.read(10) + bytes(body.view()),
            "lines": lambda body: b"".join(line for line in body.readlines()),
        }
        for data in (b"", b"x", b"one\ntwo\r\nthree", LARGE):
            for name, way in ways.items():
                with self.subTest(name, length=len(data)):
                    body = self.body(data)
                    self.assertIsInstance(body, StreamingBody)
                    self.assertEqual(way(body), data)
                    self.assertEqual((body.read(), body.read(1), body.tell()), (b"", b"", len(data)))

    def into(self, body):
        buffer, data = bytearray(700), b""
        while count := body.readinto(buffer):
            data += buffer[:count]
        return data

    def in_a_with(self, body):
        with body as opened:
            return opened.read(5) + opened.read()

    def test_lines_are_those_of_the_text(self):
        self.assertEqual(list(self.body().iter_lines()), [b"one", b"two", b"three"])

    def test_a_view_is_not_a_copy_and_outlives_its_body(self):
        body = self.body(LARGE)
        view = body.view()
        del body
        gc.collect()
        self.assertTrue(view.readonly)
        owner = "mmap" if self.by == PYTHON else "Mapping"
        self.assertEqual((type(view.obj).__name__, bytes(view)), (owner, LARGE))

    def test_a_body_that_came_over_http_has_a_view_too(self):
        hook.install()
        self.assertEqual(StreamingBody(io.BytesIO(b"far away"), 8).view(), b"far away")

    def test_a_checksum_that_the_caller_asks_for_is_compared(self):
        for claimed, data in (("NSRBwg==", b"123456789"), ("y/Q5Jg==", b"123456789")):
            self.put("k", data)
            self.responder.objects["b", "k"][1]["x-amz-checksum-crc32"] = claimed
            answer = self.client().get_object(Bucket="b", Key="k", ChecksumMode="ENABLED")
            self.assertEqual(answer["ResponseMetadata"]["ChecksumAlgorithm"], "crc32")
            if claimed == "y/Q5Jg==":
                self.assertEqual(answer["Body"].read(), data)
                continue
            for read in (lambda body: body.read(), lambda body: body.view(), lambda body: self.into(body)):
                body = self.client().get_object(Bucket="b", Key="k", ChecksumMode="ENABLED")["Body"]
                with self.assertRaises(FlexibleChecksumError):
                    read(body)
            # botocore's own default is not computed here: the bytes have not travelled.
            answer = self.client().get_object(Bucket="b", Key="k")
            self.assertEqual((answer["ChecksumCRC32"], answer["Body"].read()), (claimed, data))


@by_both
class Results(WithHook):
    HEADERS = {
        **{"content-length": "5", "etag": '"e"', "last-modified": "Sat, 21 Nov 2026 20:19:00 GMT"},
        **{"accept-ranges": "bytes", "content-type": "text/plain", "x-amz-meta-a": "1", "x-amz-meta-b-c": "ö"},
        **{
            "x-amz-request-id": "R",
            "x-amz-id-2": "H",
            "x-amz-checksum-crc32": "AAAAAA==",
            "x-amz-checksum-type": "FULL_OBJECT",
        },
        **{
            "x-amz-mp-parts-count": "3",
            "x-amz-delete-marker": "true",
            "content-range": "bytes 0-4/9",
            "x-unknown": "y",
        },
        "x-amz-object-lock-retain-until-date": "2027-01-02T03:04:05.678Z",
    }

    def test_the_table_s_results_are_those_of_botocore_s_parser(self):
        model = botocore.session.get_session().get_service_model("s3")
        for operation in ("GetObject", "HeadObject", "PutObject"):
            parser = hook_result.ResultParser(model.operation_model(operation))
            self.assertTrue(parser._is_plain)
            for dropped in [None, *self.HEADERS]:
                headers = {name: value for name, value in self.HEADERS.items() if name != dropped}
                with self.subTest(operation, dropped=dropped):
                    response = hook_result.Response("url", 200, headers)
                    by_table = parser._parse(200, headers, None)
                    by_botocore = parser.parse_by_botocore(response, None)
                    by_botocore.pop("Body", None)
                    self.assertEqual(by_table, by_botocore)
                    self.assertEqual(list(by_table), list(by_botocore))

    def test_times_are_read_as_botocore_reads_them(self):
        parse = parsers.DEFAULT_TIMESTAMP_PARSER
        texts = ["Sat, 21 Nov 2026 20:19:00 GMT", "Thu, 01 Jan 1970 00:00:00 GMT", "Sun, 29 Feb 2032 23:59:59 GMT"]
        for text in [*texts, "2027-01-02T03:04:05.678Z", "1700000000", "Saturday, 21-Nov-26 20:19:00 GMT"]:
            ours, theirs = hook_result.time_of(text), parse(text)
            self.assertEqual((ours, ours.tzinfo), (theirs, theirs.tzinfo), text)
        for text in ("Sat, 31 Feb 2026 20:19:00 GMT", "Sat, 21 Xxx 2026 20:19:00 GMT", "x" * 25 + " GMT"):
            with self.assertRaises(ValueError):
                hook_result.time_of(text)

    def test_an_expiry_that_is_no_time_is_kept_as_text(self):
        for text, is_time in (("Sat, 21 Nov 2026 20:19:00 GMT", True), ("soon", False)):
            self.put("k", b"1")
            self.responder.objects["b", "k"][1]["expires"] = text
            answer = self.client().get_object(Bucket="b", Key="k")
            self.assertEqual((answer["ExpiresString"], "Expires" in answer), (text, is_time))

    def test_errors_are_botocore_s_exceptions(self):
        client = self.client()
        with self.assertRaises(client.exceptions.NoSuchKey) as caught:
            client.get_object(Bucket="b", Key="none")
        self.assertEqual(caught.exception.response["Error"], {"Code": "NoSuchKey", "Message": "no: NoSuchKey"})
        with self.assertRaises(client.exceptions.ClientError) as caught:
            client.head_object(Bucket="b", Key="none")
        self.assertEqual(caught.exception.response["Error"], {"Code": "404", "Message": "Not Found"})
        self.assertEqual(caught.exception.response["ResponseMetadata"]["HTTPStatusCode"], 404)
        self.assertEqual(hook.counters()["fast"], {"GetObject": 1, "HeadObject": 1})


@by_both
class Puts(WithHook):
    def stored(self, body, **options):
        if not hasattr(self, "writing"):
            self.writing = self.client()
        self.writing.put_object(Bucket="b", Key="k", Body=body, **options)
        return self.responder.objects["b", "k"][0]

    def test_every_kind_of_body_is_stored(self):
        for data in (b"", b"small", LARGE):
            behind = io.BytesIO(b"skipped" + data)
            behind.seek(7)
            for body in (data, bytearray(data), io.BytesIO(data), behind, io.BufferedReader(io.BytesIO(data))):
                with self.subTest(type(body).__name__, length=len(data)):
                    self.assertEqual(self.stored(body), data)
                    if hasattr(body, "read"):
                        self.assertEqual(body.read(), b"")
        self.assertEqual(hook.counters()["http"], {})

    def test_a_stream_of_known_length_is_stored(self):
        class Stream:
            def __init__(self, data):
                self.left = data

            def read(self, amount=-1):
                part, self.left = self.left[:amount], self.left[amount:]
                return part

        self.assertEqual(self.stored(Stream(LARGE), ContentLength=len(LARGE)), LARGE)
        self.assertEqual(self.stored(Stream(b"small"), ContentLength=5), b"small")

    def test_text_and_nothing_are_stored_as_botocore_does(self):
        self.assertEqual(self.stored("grün"), "grün".encode())
        self.client().put_object(Bucket="b", Key="nothing")
        self.assertEqual(self.responder.objects["b", "nothing"][0], b"")

    def test_headers_go_along_and_the_checksum_is_the_node_s_to_compute(self):
        self.stored(
            b"1", Metadata={"Who": "me"}, ContentType="text/x", Tagging="a=b", IfNoneMatch="*", CacheControl="no-store"
        )
        headers = self.responder.seen[-1][1]["headers"]
        self.assertTrue(headers.pop("amz-sdk-invocation-id"))
        self.assertEqual(
            headers,
            {
                **{"x-amz-meta-who": "me", "content-type": "text/x", "x-amz-tagging": "a=b", "if-none-match": "*"},
                **{"cache-control": "no-store", "x-amz-sdk-checksum-algorithm": "CRC32"},
            },
        )
        self.client(request_checksum_calculation="when_required").put_object(Bucket="b", Key="k", Body=b"1")
        self.assertNotIn("x-amz-sdk-checksum-algorithm", self.responder.seen[-1][1]["headers"])

    def test_no_checksum_is_computed_here(self):
        with mock.patch("botocore.httpchecksum._apply_request_header_checksum") as computed:
            self.stored(LARGE)
        computed.assert_not_called()

    def test_progress_is_told_once(self):
        seen = []
        client = self.client()
        client.upload_fileobj(io.BytesIO(LARGE), "b", "k", Callback=seen.append)
        self.assertEqual((sum(seen), self.responder.objects["b", "k"][0]), (len(LARGE), LARGE))

    def test_a_body_whose_put_broke_is_put_back_for_http_and_one_that_cannot_be_fails(self):
        self.responder.spoil = lambda operation, *_: operation == wire.COMMIT and "hang up"
        file = io.BufferedReader(io.BytesIO(b"skipped" + LARGE))
        file.seek(7)
        sent = []
        with mock.patch(
            "botocore.endpoint.Endpoint.make_request",
            side_effect=lambda _, request: sent.append(request["body"].read()),
        ):
            with self.assertRaises(TypeError):
                self.client().put_object(Bucket="b", Key="k", Body=file)
        self.assertEqual(sent, [LARGE])
        self.assertEqual(hook.counters()["http"], {"no-server": 1})
        pipe, write = os.pipe()
        with open(pipe, "rb") as read, open(write, "wb") as write:
            thread = threading.Thread(target=lambda: (write.write(LARGE), write.close()))
            thread.start()
            with self.assertRaises(botocore.exceptions.ConnectionClosedError):
                self.client().put_object(Bucket="b", Key="k", Body=read, ContentLength=len(LARGE))
            thread.join()
        self.assertEqual(hook.counters()["http"], {"no-server": 1, "spent": 1})


@by_both
class Aside(WithHook):
    """When it lets a call go its normal way."""

    def get(self, client, **options):
        return lambda: client.get_object(Bucket="b", Key="k", **options)

    def test_other_endpoints_keys_and_signatures_go_over_http(self):
        self.put("k", b"1")
        other = self.session.client("s3", endpoint_url="http://127.0.0.1:10", config=Config(**HTTP_FAILS))
        hook.install(other)
        self.goes_over_http("endpoint", self.get(other))
        for keys in (("OTHER", SECRET, None), (KEY, "other", None), (KEY, SECRET, "token")):
            client = boto3.session.Session(*keys).client("s3", config=Config(**HTTP_FAILS))
            hook.install(client)
            self.goes_over_http("key", self.get(client))
        for version in (UNSIGNED, "s3"):
            self.goes_over_http("signature", self.get(self.client(signature_version=version)))

    def test_a_sandbox_s_own_token_goes_the_fast_way_and_no_other(self):
        self.put("k", b"1")
        self.environment(NIGH_FAST_PATH=self.responder.address, AWS_SESSION_TOKEN="own")
        for number, token in enumerate(("own", None)):
            client = boto3.session.Session(KEY, SECRET, token).client("s3", config=Config(**HTTP_FAILS))
            hook.install(client)
            self.assertEqual(self.get(client)()["Body"].read(), b"1")
            self.assertEqual(hook.counters(), {"fast": {"GetObject": number + 1}, "http": {}})
        hook._fast.clear()
        client = boto3.session.Session(KEY, SECRET, "another").client("s3", config=Config(**HTTP_FAILS))
        hook.install(client)
        self.goes_over_http("key", self.get(client))

    def test_parameters_that_it_does_not_know_go_over_http(self):
        client = self.client()
        for options in (
            {"ResponseContentType": "text/plain"},
            {"VersionId": "null"},
            {"ExpectedBucketOwner": "1"},
            {"RequestPayer": "requester"},
            {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": "k" * 32},
        ):
            self.goes_over_http("parameter", self.get(client, **options))
        for options in ({"ACL": "private"}, {"StorageClass": "STANDARD"}, {"ServerSideEncryption": "AES256"}):
            self.goes_over_http(
                "parameter", lambda options=options: client.put_object(Bucket="b", Key="k", Body=b"1", **options)
            )

    def test_a_traced_call_goes_the_fast_way(self):
        client = self.client()

        def trace(params, **_):
            params["headers"].update(traceparent="00-1", tracestate="a=b", baggage="c=d")

        client.meta.events.register("before-call.s3", trace)
        self.put("k", b"one")
        self.assertEqual(client.get_object(Bucket="b", Key="k")["Body"].read(), b"one")
        client.put_object(Bucket="b", Key="new", Body=b"two")
        self.assertEqual(hook.counters()["http"], {})

    def test_errors_that_botocore_would_meet_with_another_try_go_over_http(self):
        client = self.client()
        for status, code in ((500, "InternalError"), (503, "SlowDown"), (400, "RequestTimeout"), (403, "AccessDenied")):
            no = Responder.no(status, code)
            self.responder.spoil = lambda _, request_id, __, no=no: (packet(wire.ANSWER, request_id, no),)
            self.goes_over_http(f"status-{status}", self.get(client))
        self.responder.spoil = lambda _, request_id, __: (packet(wire.ANSWER, request_id, {"status": 307}),)
        self.goes_over_http("use-http", self.get(client))
        self.goes_over_http("use-http", lambda: client.put_object(Bucket="b", Key="k", Body=LARGE))

    def test_a_server_that_is_gone_or_speaks_otherwise_leaves_http(self):
        self.responder.spoil = lambda *_: (b"nonsense",)
        self.goes_over_http("protocol", self.get(self.client()))
        self.responder.close()
        self.forget()
        self.goes_over_http("no-server", self.get(self.client()))

    def test_who_listens_to_what_http_does_gets_http(self):
        self.put("k", b"1")
        client = self.client()
        for event in ("before-send", "request-created", "before-sign", "response-received", "needs-retry"):
            client.get_object(Bucket="b", Key="k")["Body"].read()
            hook._fast.clear()

            def listener(**_):
                return None

            client.meta.events.register(f"{event}.s3.GetObject", listener)
            self.goes_over_http("listeners", self.get(client))
            client.meta.events.unregister(f"{event}.s3.GetObject", listener)
            client.get_object(Bucket="b", Key="k")["Body"].read()
            hook._fast.clear()

    def test_handlers_of_before_call_run_first_and_may_answer_themselves(self):
        client = self.client()
        with Stubber(client) as stubber:
            stubber.add_response("get_object", {"ETag": "stubbed"})
            self.assertEqual(client.get_object(Bucket="b", Key="k")["ETag"], "stubbed")
        self.assertEqual((self.responder.seen, hook.counters()["fast"]), ([], {}))

    def test_other_operations_and_services_are_not_looked_at(self):
        with self.assertRaises(EndpointConnectionError):
            self.client().list_objects_v2(Bucket="b")
        self.assertEqual(hook.counters(), {"fast": {}, "http": {}})

    def test_a_mistake_of_its_own_leaves_http(self):
        with mock.patch.object(hook, "read_fields", side_effect=RuntimeError):
            self.goes_over_http("fault-RuntimeError", self.get(self.client()))

    def test_without_its_environment_or_where_it_is_not_wanted_it_does_nothing(self):
        for more in ({"NIGH_FAST_PATH": ""}, {"NIGH_FAST_PATH": self.responder.address, "NIGH_HOOK": "off"}):
            self.environment(**more)
            with self.assertRaises(EndpointConnectionError):
                self.get(self.client())()
            self.assertEqual((hook.counters(), self.responder.seen), ({"fast": {}, "http": {}}, []))

    def test_presigned_urls_are_made_as_ever(self):
        url = self.client().generate_presigned_url("get_object", {"Bucket": "b", "Key": "k"})
        self.assertTrue(url.startswith(ENDPOINT))
        self.assertEqual(self.responder.seen, [])


@by_both
class Installed(WithHook):
    def test_sessions_clients_and_resources_made_before_and_after_are_hooked_once(self):
        self.put("k", b"1")
        config = Config(**HTTP_FAILS)
        earlier = boto3.session.Session().client("s3", config=config)
        session = boto3.session.Session()
        for owner in (earlier, session, earlier):
            hook.install(owner)
        resource = boto3.session.Session().resource("s3", config=config)
        hook.install(resource)
        built_in = list(botocore.handlers.BUILTIN_HANDLERS)
        self.addCleanup(botocore.handlers.BUILTIN_HANDLERS.__setitem__, slice(None), built_in)
        hook.install()
        hook.install()
        later = boto3.session.Session().client("s3", config=config)
        for client in (earlier, session.client("s3", config=config), later):
            self.assertEqual(client.get_object(Bucket="b", Key="k")["Body"].read(), b"1")
        self.assertEqual(resource.Object("b", "k").get()["Body"].read(), b"1")
        self.assertEqual(hook.counters(), {"fast": {"GetObject": 4}, "http": {}})
        self.assertEqual(self.responder.operations(), [wire.GET] * 4)


@by_both
class Lifetimes(WithHook):
    def test_clients_and_bodies_do_not_outlive_their_users(self):
        self.put("k", LARGE)
        # What the first call imports and caches stays.
        self.client().get_object(Bucket="b", Key="k")["Body"].read()
        gc.collect()
        before = len(os.listdir("/proc/self/fd"))
        client = self.client()
        answer = client.get_object(Bucket="b", Key="k")
        answer["Body"].view()[0]
        gone = [weakref.ref(client), weakref.ref(client.meta.service_model), weakref.ref(answer["Body"])]
        del client, answer
        gc.collect()
        self.assertEqual([one() for one in gone], [None] * 3)
        self.assertEqual(len(os.listdir("/proc/self/fd")), before)


if __name__ == "__main__":
    unittest.main()
