"""pipelines: each workflow, stage by stage against a real S3, gives what it is for."""

import contextlib
import importlib.util
import io
import json
import os
import sys
import tempfile
import unittest
import uuid
from pathlib import Path

import boto3
import numpy as np

from .support import ENDPOINT, FUNCTIONS, INPUTS
from .test_video import played

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10: pip carries the same reader.
    from pip._vendor import tomli as tomllib

PIPELINES = FUNCTIONS / "pipelines"
NAMES = ("finra", "image_prediction", "phi", "sentiment", "sparse_gemm", "video")


def load(path: Path, name: str):
    """A fresh module of `path`, which finds those beside it."""
    for beside in path.parent.glob("*.py"):
        sys.modules.pop(beside.stem, None)
    sys.path.insert(0, str(path.parent))
    try:
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(path.parent))


class DescriptionTest(unittest.TestCase):
    def test_the_six_are_described_under_their_own_names_and_know_nothing_of_this_platform(self):
        found = {path.parent.name: tomllib.loads(path.read_text()) for path in PIPELINES.glob("*/pipeline.toml")}
        self.assertEqual(tuple(sorted(found)), NAMES)
        for name, pipeline in found.items():
            source = (PIPELINES / name / "app.py").read_text()
            self.assertEqual(pipeline["name"], name)
            self.assertNotIn("nigh", source.lower())
            for stage in (stage for step in pipeline["step"] for stage in step["stage"]):
                self.assertIn(f"def {stage['name']}(event, context):", source)


@unittest.skipUnless(ENDPOINT, "NIGH_TEST_S3_ENDPOINT names no S3 to test against")
@unittest.skipUnless((INPUTS / "MANIFEST.json").exists(), "scripts/fetch_inputs.py has not run")
class PipelineTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        os.environ["AWS_ENDPOINT_URL_S3"] = ENDPOINT
        os.environ.setdefault("AWS_ACCESS_KEY_ID", "test")
        os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "test")
        os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")
        cls.s3 = boto3.client("s3")
        cls.bucket = f"pipelines-{uuid.uuid4().hex[:12]}"
        cls.s3.create_bucket(Bucket=cls.bucket)
        cls.addClassCleanup(cls._remove_bucket)
        cls.inputs = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.maker = load(PIPELINES / "inputs.py", "pipeline_inputs")
        cls.maker.make(cls.inputs)

    @classmethod
    def enterClassContext(cls, context):  # Python 3.10 has none of its own.
        entered = context.__enter__()
        cls.addClassCleanup(context.__exit__, None, None, None)
        return entered

    @classmethod
    def _remove_bucket(cls):
        for page in cls.s3.get_paginator("list_objects_v2").paginate(Bucket=cls.bucket):
            for entry in page.get("Contents", []):
                cls.s3.delete_object(Bucket=cls.bucket, Key=entry["Key"])
        cls.s3.delete_bucket(Bucket=cls.bucket)

    def run_pipeline(self, name: str, **replaced: bytes) -> dict:
        """Runs all stages; what each has answered, by its name, the answers of stages that run twice as a list."""
        pipeline = tomllib.loads((PIPELINES / name / "pipeline.toml").read_text())
        app = load(PIPELINES / name / "app.py", f"{name}_app")
        for given in pipeline["input"]:
            body = replaced.get(given["name"], (self.inputs / given["file"]).read_bytes())
            self.s3.put_object(Bucket=self.bucket, Key=f"{name}/{given['name']}", Body=body)
        answers, previous = {}, []
        for step in pipeline["step"]:
            now = []
            for stage in step["stage"]:
                keys = {way: {one: f"{name}/{one}" for one in stage.get(way, [])} for way in ("read", "write")}
                event = json.loads(json.dumps({"bucket": self.bucket, **keys, "previous": previous}))
                now.append(json.loads(json.dumps(getattr(app, stage["name"])(event, None))))
                answers.setdefault(stage["name"], []).append(now[-1])
            previous = now
        return answers

    def object(self, pipeline: str, name: str) -> bytes:
        return self.s3.get_object(Bucket=self.bucket, Key=f"{pipeline}/{name}")["Body"].read()

    def test_inputs_are_the_same_each_time(self):
        with tempfile.TemporaryDirectory() as again:
            self.maker.make(Path(again))
            for made in (path for path in self.inputs.rglob("*") if path.is_file()):
                same = Path(again, made.relative_to(self.inputs))
                self.assertEqual(made.read_bytes(), same.read_bytes(), made)

    def test_nothing_that_identifies_a_patient_is_left_in_the_notes(self):
        answers = self.run_pipeline("phi")
        self.assertGreater(answers["identify"][0]["identifying"], 300)
        for name in ("anonymous", "pseudonyms", "summary"):
            text = self.object("phi", name).decode()
            for secret in ("@example.org", "555-", "MRN", "-year-old", *self.maker.NAMES):
                self.assertNotIn(secret, text, name)
        self.assertIn("[NAME]", self.object("phi", "anonymous").decode())
        self.assertIn("lungs are clear", self.object("phi", "anonymous").decode())

    def test_what_was_meant_kindly_is_told_from_what_was_not(self):
        table = b"id,product,text\na,p,It is very good and I love it\nb,p,Terrible. It was broken\nc,q,It is not good\n"
        answers = self.run_pipeline("sentiment", table=table)
        scores = {row["id"]: row["score"] for row in json.loads(self.object("sentiment", "reviews"))}
        self.assertGreater(scores["a"], 0.5)
        self.assertLess(scores["b"], -0.5)
        self.assertLess(scores["c"], 0)
        self.assertEqual(answers["publish"], [{"urgent": ["b", "c"]}])
        self.assertEqual(answers["write_db"], [{"products": 2, "filed": 3}])

    def test_each_trade_that_breaks_a_rule_is_found_by_its_own_check_and_marked(self):
        answers = self.run_pipeline("finra")
        by = {name: answers[name][0]["wrong"] for name in ("volume", "trade_date", "last_price", "side")}
        self.assertEqual(by["last_price"], [7, 87, 167])
        self.assertEqual(by["volume"], [27, 107])
        self.assertEqual(by["trade_date"], [47, 127])
        self.assertEqual(by["side"], [67, 147])
        marked = [trade["ok"] for trade in json.loads(self.object("finra", "portfolios"))]
        self.assertEqual([at for at, ok in enumerate(marked) if not ok], sorted(sum(by.values(), [])))
        self.assertEqual(answers["margin_balance"][0]["wrong"], 9)

    def test_a_video_comes_out_whole_and_smaller(self):
        answers = self.run_pipeline("video")
        meta, frames = played(self.object("video", "whole"))
        self.assertEqual(meta["source_size"][1], 240)
        self.assertEqual(len(frames), answers["validate"][0]["frames"])
        original = played((self.inputs / "video" / "clip.mp4").read_bytes())[1]
        # Where it is cut a frame may be on both sides.
        self.assertAlmostEqual(len(frames), len(original), delta=2)

    def test_the_network_knows_every_pattern_in_photographs_that_it_has_not_seen(self):
        from PIL import Image

        chance = np.random.default_rng(99)
        for pattern in self.maker.PATTERNS:
            with self.subTest(pattern):
                grey = self.maker.pattern(pattern, 550, 730, chance)
                photo = io.BytesIO()
                Image.fromarray((grey * 255).astype(np.uint8)).convert("RGB").save(photo, "JPEG", quality=90)
                answers = self.run_pipeline("image_prediction", photo=photo.getvalue())
                self.assertEqual(answers["render"], [{"pattern": pattern}])
        self.assertEqual(self.run_pipeline("image_prediction")["predict"][0]["pattern"], "rows")

    def test_a_sparse_product_is_the_product(self):
        self.run_pipeline("sparse_gemm")

        def dense(entries):
            matrix = np.zeros((200, 200))
            matrix[entries["row"], entries["column"]] = entries["value"]
            return matrix

        def entries(name):
            return np.load(io.BytesIO(self.object("sparse_gemm", name)))

        product = dense(entries("sum-upper")) + dense(entries("sum-lower"))
        np.testing.assert_allclose(product, dense(entries("left")) @ dense(entries("right")), atol=1e-9)

    def test_what_is_no_input_is_an_error(self):
        for name, given in (("video", "clip"), ("image_prediction", "photo"), ("sparse_gemm", "left")):
            with self.subTest(name), contextlib.redirect_stderr(io.StringIO()), self.assertRaises(Exception):
                self.run_pipeline(name, **{given: b"nothing of the kind"})


if __name__ == "__main__":
    unittest.main()
