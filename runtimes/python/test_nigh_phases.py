"""The phase instrument against a real boto3 client and a small HTTP server that answers like S3."""

import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from unittest import mock

import boto3
import botocore.config
import botocore.exceptions
from botocore.response import StreamingBody

sys.path.insert(0, str(Path(__file__).resolve().parent))
import nigh_phases  # noqa: E402

SLOW_S = 0.05
OBJECT = b"first line\nsecond line\n" + b"x" * 5000


class SmallS3(BaseHTTPRequestHandler):
    """`/b/slow` answers its head late and its body later, `/b/none` is missing, `/b/cut` ends early."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        key = self.path.split("?")[0].removeprefix("/b/")
        if key == "none":
            return self._answer(404, b"<Error><Code>NoSuchKey</Code><Message>no</Message></Error>")
        if key == "slow":
            time.sleep(SLOW_S)
        self.send_response(200)
        self.send_header("Content-Length", str(len(OBJECT)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if key == "cut":
            self.wfile.write(OBJECT[:100])
            self.close_connection = True
            return
        if key == "slow":
            self.wfile.write(OBJECT[:100])
            self.wfile.flush()
            time.sleep(SLOW_S)
            self.wfile.write(OBJECT[100:])
        else:
            self.wfile.write(OBJECT)

    do_HEAD = do_GET

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(403, b"<ErrorResponse><Error><Code>AccessDenied</Code></Error></ErrorResponse>")

    def do_PUT(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(200, b"")

    def _answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class PhasesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = ThreadingHTTPServer(("127.0.0.1", 0), SmallS3)
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()
        cls.addClassCleanup(cls.server.server_close)
        cls.addClassCleanup(cls.server.shutdown)

    def client(self, service="s3"):
        environment = {"BOTOCORE_EXPERIMENTAL__PLUGINS": "nigh_phases=nigh_phases"}
        with mock.patch.dict(os.environ, environment):
            return boto3.session.Session().client(
                service,
                endpoint_url=f"http://127.0.0.1:{self.server.server_port}",
                region_name="us-east-1",
                aws_access_key_id="key",
                aws_secret_access_key="secret",
                config=botocore.config.Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}),
            )

    @contextmanager
    def told(self):
        """The lines written to standard error inside the block, parsed."""
        lines = []
        with tempfile.TemporaryFile() as capture:
            sys.stderr.flush()
            kept = os.dup(2)
            os.dup2(capture.fileno(), 2)
            try:
                yield lines
            finally:
                os.dup2(kept, 2)
                os.close(kept)
            capture.seek(0)
            for line in capture.read().decode().splitlines():
                name, _, record = line.partition(" ")
                self.assertEqual(name, "nigh-phase")
                lines.append(json.loads(record))

    def test_a_get_is_timed_from_the_call_to_the_end_of_its_body(self):
        client = self.client()
        before_us = time.time_ns() // 1000
        with self.told() as lines:
            self.assertEqual(client.get_object(Bucket="b", Key="slow")["Body"].read(), OBJECT)
        (line,) = lines
        self.assertEqual((line["op"], line["bytes"]), ("GetObject", len(OBJECT)))
        self.assertGreaterEqual(line["took_us"], 2 * SLOW_S * 1e6)
        self.assertGreaterEqual(line["began_us"], before_us)
        self.assertLessEqual(line["began_us"] + line["took_us"], time.time_ns() // 1000 + 1000)

    def test_the_functions_own_work_between_reads_is_not_counted(self):
        client = self.client()
        began = time.perf_counter_ns()
        with self.told() as lines:
            body = client.get_object(Bucket="b", Key="plain")["Body"]
            for _ in body.iter_chunks(1024):
                time.sleep(SLOW_S)
        elapsed_us = (time.perf_counter_ns() - began) // 1000
        (line,) = lines
        self.assertEqual(line["bytes"], len(OBJECT))
        self.assertLessEqual(line["took_us"], elapsed_us - 5 * SLOW_S * 1e6)

    def test_the_work_between_two_calls_is_told_in_processor_time_that_of_a_child_too(self):
        client = self.client()
        burn = "import time\nwhile time.process_time() < 0.1: pass"
        with self.told() as lines:
            client.head_object(Bucket="b", Key="plain")
            subprocess.run([sys.executable, "-c", burn], check=True)
            client.head_object(Bucket="b", Key="plain")
            time.sleep(1)
            client.head_object(Bucket="b", Key="plain")
        first, second, third = (line["cpu_us"] for line in lines)
        self.assertGreaterEqual(second - first, 100_000)
        self.assertLess(third - second, 500_000)

    def test_every_way_of_reading_gives_the_object_and_one_line(self):
        ways = {
            "read": lambda body: body.read(),
            "read in parts": lambda body: b"".join(iter(lambda: body.read(1000), b"")),
            "chunks": lambda body: b"".join(body.iter_chunks()),
            "iteration": lambda body: b"".join(body),
            "lines": lambda body: b"".join(body.iter_lines(keepends=True)),
            "readlines": lambda body: b"".join(body.readlines()),
            "with": lambda body: self.read_in_a_with(body),
            "readinto": lambda body: self.read_into(body),
        }
        client = self.client()
        for name, way in ways.items():
            with self.subTest(name):
                with self.told() as lines:
                    body = client.get_object(Bucket="b", Key="plain")["Body"]
                    self.assertIsInstance(body, StreamingBody)
                    self.assertEqual(way(body), OBJECT)
                self.assertEqual([(line["op"], line["bytes"]) for line in lines], [("GetObject", len(OBJECT))])

    def read_in_a_with(self, body):
        with body as opened:
            return opened.read()

    def read_into(self, body):
        buffer, data = bytearray(700), b""
        while count := body.readinto(buffer):
            data += buffer[:count]
        return data

    def test_a_body_closed_or_forgotten_before_its_end_is_told_with_what_was_read(self):
        client = self.client()
        with self.told() as lines:
            body = client.get_object(Bucket="b", Key="plain")["Body"]
            body.read(10)
            body.close()
            body = client.get_object(Bucket="b", Key="plain")["Body"]
            body.read(20)
            del body
            gc.collect()
        self.assertEqual([line["bytes"] for line in lines], [10, 20])

    def test_a_put_counts_what_it_sends(self):
        client = self.client()
        behind = BytesIO(b"0123456789")
        behind.seek(4)
        with self.told() as lines, tempfile.TemporaryFile() as file:
            file.write(b"z" * 3000)
            file.seek(0)
            for body in (b"12345", "äöü", bytearray(7), behind, file):
                client.put_object(Bucket="b", Key="k", Body=body)
            client.put_object(Bucket="b", Key="k")
        self.assertEqual([line["op"] for line in lines], ["PutObject"] * 6)
        self.assertEqual([line["bytes"] for line in lines], [5, 6, 7, 6, 3000, 0])

    def test_a_head_is_one_line_without_bytes(self):
        client = self.client()
        with self.told() as lines:
            client.head_object(Bucket="b", Key="plain")
        self.assertEqual([(line["op"], line["bytes"]) for line in lines], [("HeadObject", 0)])

    def test_failures_are_told_with_their_reason_and_still_raised(self):
        client = self.client()
        with self.told() as lines:
            with self.assertRaises(client.exceptions.NoSuchKey):
                client.get_object(Bucket="b", Key="none")
            body = client.get_object(Bucket="b", Key="cut")["Body"]
            with self.assertRaises(botocore.exceptions.BotoCoreError):
                body.read()
        self.assertEqual([line["error"] for line in lines][0], "NoSuchKey")
        self.assertEqual(len(lines), 2)
        self.assertIn("error", lines[1])

    def test_a_store_that_cannot_be_reached_is_told(self):
        client = self.client()
        client.meta.events.register("before-send.s3", self._refuse)
        with self.told() as lines, self.assertRaises(botocore.exceptions.EndpointConnectionError):
            client.put_object(Bucket="b", Key="k", Body=b"123")
        self.assertEqual([line["error"] for line in lines], ["EndpointConnectionError"])

    @staticmethod
    def _refuse(request, **_):
        raise botocore.exceptions.EndpointConnectionError(endpoint_url=request.url)

    def test_an_answer_given_by_another_hook_before_any_request_is_measured_too(self):
        client = self.client()

        class Answer:
            status_code = 200

        def answer(**_):
            return Answer(), {"Body": StreamingBody(BytesIO(b"near"), 4), "ResponseMetadata": {}}

        client.meta.events.register("before-call.s3.GetObject", answer)
        with self.told() as lines:
            self.assertEqual(client.get_object(Bucket="b", Key="k")["Body"].read(), b"near")
        self.assertEqual([(line["op"], line["bytes"]) for line in lines], [("GetObject", 4)])

    def test_clients_of_other_services_are_left_alone(self):
        client = self.client("sts")
        with (
            mock.patch.object(nigh_phases, "_call_began") as began,
            self.told() as lines,
            self.assertRaises(botocore.exceptions.ClientError),
        ):
            client.get_caller_identity()
        began.assert_not_called()
        self.assertEqual(lines, [])

    def test_without_the_environment_variable_nothing_is_measured(self):
        with mock.patch.dict(os.environ), mock.patch.object(nigh_phases, "initialize_client_plugin") as plugin:
            os.environ.pop("BOTOCORE_EXPERIMENTAL__PLUGINS", None)
            boto3.session.Session().client("s3", region_name="us-east-1")
        plugin.assert_not_called()

    def test_a_standard_error_that_nobody_reads_does_not_fail_the_function(self):
        client = self.client()
        reader, writer = os.pipe()
        os.close(reader)
        kept = os.dup(2)
        os.dup2(writer, 2)
        try:
            answer = client.head_object(Bucket="b", Key="plain")
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            os.close(writer)
        self.assertEqual(answer["ContentLength"], len(OBJECT))


if __name__ == "__main__":
    unittest.main()
