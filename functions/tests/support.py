"""Runs a handler as Lambda would: a fresh import of its app.py, an event, a real S3 behind the client."""

import importlib.util
import json
import os
import sys
import unittest
import uuid
from pathlib import Path

import boto3

FUNCTIONS = Path(__file__).resolve().parent.parent
INPUTS = FUNCTIONS.parent / ".deps" / "inputs"
ENDPOINT = os.environ.get("NIGH_TEST_S3_ENDPOINT")

sys.path.append(str(FUNCTIONS.parent / "tests"))
from skipped import skip_class, skip_unless  # noqa: E402, F401


NO_ENDPOINT = "NIGH_TEST_S3_ENDPOINT names no S3 to test against"
NO_INPUTS = "scripts/fetch_inputs.py has not run"


@skip_unless(ENDPOINT, "HandlerTest", NO_ENDPOINT)
class HandlerTest(unittest.TestCase):
    """One test case for each function. `function` is the folder's name."""

    function: str

    @classmethod
    def setUpClass(cls):
        os.environ["AWS_ENDPOINT_URL_S3"] = ENDPOINT
        os.environ.setdefault("AWS_ACCESS_KEY_ID", "test")
        os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "test")
        os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")
        cls.s3 = boto3.client("s3")
        cls.bucket = f"functions-{uuid.uuid4().hex[:12]}"
        cls.s3.create_bucket(Bucket=cls.bucket)
        cls.addClassCleanup(cls._remove_bucket)
        path = FUNCTIONS / cls.function / "app.py"
        spec = importlib.util.spec_from_file_location(f"{cls.function}_app", path)
        cls.app = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(cls.app)

    @classmethod
    def _remove_bucket(cls):
        for page in cls.s3.get_paginator("list_objects_v2").paginate(Bucket=cls.bucket):
            for entry in page.get("Contents", []):
                cls.s3.delete_object(Bucket=cls.bucket, Key=entry["Key"])
        cls.s3.delete_bucket(Bucket=cls.bucket)

    def read_input(self, name: str) -> bytes:
        path = INPUTS / name
        if not path.is_file():
            self.fail(f"{path} is missing: run .deps/python/bin/python scripts/fetch_inputs.py")
        return path.read_bytes()

    def run_on(self, body: bytes, **arguments) -> tuple[dict, bytes, str]:
        """Puts `body`, runs the handler; its answer (checked to be JSON), its output and that one's content type."""
        self.s3.put_object(Bucket=self.bucket, Key="in/ä object", Body=body)
        self.s3.delete_object(Bucket=self.bucket, Key="out/object")
        event = {
            "input": {"bucket": self.bucket, "key": "in/ä object"},
            "output": {"bucket": self.bucket, "key": "out/object"},
            **arguments,
        }
        answer = json.loads(json.dumps(self.app.handler(event, None)))
        output = self.s3.get_object(Bucket=self.bucket, Key="out/object")
        return answer, output["Body"].read(), output["ContentType"]
