"""pipelines: each workflow, stage by stage against a real S3, gives what it is for."""

import contextlib
import importlib.util
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest
import uuid
from pathlib import Path

import boto3
import imageio_ffmpeg
import numpy as np

from .support import ENDPOINT, FUNCTIONS, INPUTS, NO_ENDPOINT, NO_INPUTS, skip_unless
from .test_video import played

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10: pip carries the same reader.
    from pip._vendor import tomli as tomllib

PIPELINES = FUNCTIONS / "pipelines"
NAMES = ("finra", "image_prediction", "phi", "sentiment", "sparse_gemm", "video")
APPLICATIONS = ("image_classification", "thumbnails", "video_analysis", "word_count")


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

    def test_the_four_applications_name_inputs_that_are_made_and_know_nothing_of_this_platform(self):
        found = {path.parent.name: tomllib.loads(path.read_text()) for path in PIPELINES.glob("*/application.toml")}
        self.assertEqual(tuple(sorted(found)), APPLICATIONS)
        maker = load(PIPELINES / "inputs.py", "pipeline_inputs")
        for name, application in found.items():
            self.assertEqual(application["name"], name)
            self.assertNotIn("nigh", (PIPELINES / name / "app.py").read_text().lower())
            for given in application["size"] + application.get("shared", []):
                self.assertIn(given["file"], maker.MADE | maker.BY_SIZE)


@skip_unless(ENDPOINT, "PipelineTest", NO_ENDPOINT)
@skip_unless((INPUTS / "MANIFEST.json").exists(), "PipelineTest", NO_INPUTS)
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
            text = self.maker.BY_SIZE["word_count/400k.txt"]
            self.assertEqual(text(), text())
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

    def application(self, name: str, body: bytes):
        """The code of an application whose input is there, and the keys that its machine would name."""
        app = load(PIPELINES / name / "app.py", f"{name}_app")
        self.s3.put_object(Bucket=self.bucket, Key=f"{name}/input", Body=body)
        return app, lambda key: f"{name}/scratch/{key}"

    def run_stage(self, stage, **event) -> dict:
        """What a stage answers to an event that has been JSON, as its answer has."""
        event = json.loads(json.dumps({"bucket": self.bucket, **event}))
        return json.loads(json.dumps(stage(event, None)))

    def sized(self, name: str) -> bytes:
        return self.maker.BY_SIZE[name]()

    def array(self, key: str):
        return np.load(io.BytesIO(self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read()))

    def test_words_are_counted_alike_however_the_text_is_cut(self):
        text = self.sized("word_count/400k.txt") + "Caf\u00e9 don't caf\u00e9\n\n42 no end".encode()
        app, scratch = self.application("word_count", text)
        expected = None
        for most in (30_000, len(text)):
            with self.subTest(most=most):
                asked = {"text": "word_count/input", "scratch": scratch(""), "part_bytes": most}
                parts = self.run_stage(app.split, **asked)["parts"]
                self.assertEqual(len(parts) > 1, most < len(text))
                counts = [
                    self.run_stage(app.count, part=part, counts=scratch(f"counts-{at}"))["counts"]
                    for at, part in enumerate(parts)
                ]
                answer = self.run_stage(app.merge, counts=counts, output="word_count/output")
                ranked = json.loads(self.object("word_count", "output"))
                expected = expected or ranked
                self.assertEqual(ranked, expected)
                self.assertEqual(answer, {"words": sum(count for _, count in ranked), "distinct": len(ranked)})
        counted = dict(expected)
        self.assertEqual((counted["caf\u00e9"], counted["don't"]), (2, 1))
        self.assertNotIn("42", counted)
        self.assertEqual(expected[0][0], "the")

    def test_a_line_that_is_longer_than_a_part_stays_whole(self):
        app, scratch = self.application("word_count", b"one two three four\nfive\nsix")
        asked = {"text": "word_count/input", "scratch": scratch("")}
        parts = self.run_stage(app.split, part_bytes=10, **asked)["parts"]
        bodies = [self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read() for key in parts]
        self.assertEqual(bodies, [b"one two three four\n", b"five\nsix"])
        with self.assertRaises(ValueError):
            self.run_stage(app.split, part_bytes=0, **asked)

    def test_a_video_s_frames_are_all_looked_at_and_a_new_shot_is_found(self):
        def clip(seconds, colour):
            return self.ffmpeg("-f", "lavfi", "-i", f"color={colour}:s=320x180:r=10:d={seconds}")

        with tempfile.TemporaryDirectory() as folder:
            names = Path(folder, "parts.txt")
            for part, (seconds, colour) in enumerate(((1.2, "red"), (0.8, "blue"))):
                Path(folder, f"{part}.mp4").write_bytes(clip(seconds, colour))
            names.write_text(f"file '{folder}/0.mp4'\nfile '{folder}/1.mp4'\n")
            whole = self.ffmpeg("-f", "concat", "-safe", 0, "-i", names)
        app, scratch = self.application("video_analysis", whole)
        cut = self.run_stage(app.split, clip="video_analysis/input", scratch=scratch(""), segment_s=0.4)
        segments = cut["segments"]
        self.assertGreater(len(segments), 2)
        found = []
        for at, segment in enumerate(segments):
            given = {"frames": scratch(f"frames-{at}"), "histograms": scratch(f"histograms-{at}")}
            self.run_stage(app.decode, segment=segment, width=64, height=36, **given)
            self.assertEqual(self.array(given["frames"]).shape[1:], (36, 64, 3))
            found.append(self.run_stage(app.histogram, **given)["histograms"])
        answer = self.run_stage(app.merge, histograms=found, output="video_analysis/output")
        report = json.loads(self.object("video_analysis", "output"))
        self.assertEqual(answer, {"frames": 20, "shots": 2})
        self.assertEqual((report["shots"], report["segments"]), ([0, 12], len(segments)))
        red, green, blue = (np.array(one) for one in report["colours"])
        self.assertAlmostEqual(red[8:].sum(), 0.6, delta=0.01)
        self.assertAlmostEqual(blue[8:].sum(), 0.4, delta=0.01)
        self.assertAlmostEqual(green[8:].sum(), 0, delta=0.01)

    def ffmpeg(self, *given) -> bytes:
        """A video with a key frame every fourth frame."""
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder, "made.mp4")
            command = [imageio_ffmpeg.get_ffmpeg_exe(), "-loglevel", "error", "-nostdin", *given]
            command += ["-c:v", "libx264", "-g", 4, "-sc_threshold", 0, "-pix_fmt", "yuv420p", made]
            subprocess.run([str(word) for word in command], check=True)
            return made.read_bytes()

    def test_an_archive_s_pictures_are_told_apart_and_what_is_none_is_left(self):
        app, scratch = self.application("image_classification", self.sized("image_classification/16.zip"))
        model = (self.inputs / "image_prediction/model.npz").read_bytes()
        self.s3.put_object(Bucket=self.bucket, Key="image_classification/model", Body=model)
        unpacked = self.run_stage(app.unpack, archive="image_classification/input", scratch=scratch(""), batch=6)
        batches = unpacked["batches"]
        self.assertEqual([len(batch) for batch in batches], [6, 6, 4])
        scores = []
        for at, batch in enumerate(batches):
            found = self.run_stage(app.features, pictures=batch, features=scratch(f"features-{at}"))
            given = {"model": "image_classification/model", "scores": scratch(f"scores-{at}"), **found}
            scores.append(self.run_stage(app.classify, **given)["scores"])
        self.run_stage(app.report, scores=scores, output="image_classification/output")
        report = json.loads(self.object("image_classification", "output"))
        self.assertEqual(report["pictures"], [self.maker.PATTERNS[at % 6] for at in range(16)])
        self.assertEqual(sum(report["summary"].values()), 16)

    def test_a_thumbnail_is_made_and_what_is_known_of_its_picture_is_kept(self):
        from PIL import Image

        exif = Image.Exif()
        exif[0x010F], exif[0x0132] = "Camera maker", "2019:10:15 14:03:39"
        exif[0x8825] = {1: "N", 2: (31.0, 1.0, 30.0), 3: "W", 4: (121.0, 30.0, 0.0)}
        jpeg = io.BytesIO()
        Image.new("RGB", (1000, 500), (200, 30, 30)).save(jpeg, "JPEG", exif=exif)
        app, scratch = self.application("thumbnails", jpeg.getvalue())
        given = {
            "image": "thumbnails/input",
            **{name: scratch(name) for name in ("metadata", "summary", "entry")},
            "thumbnail": "thumbnails/output.jpg",
            "output": "thumbnails/output.json",
        }
        for stage in (app.extract_metadata, app.transform_metadata, app.register):
            self.run_stage(stage, **given)
        made = self.run_stage(app.thumbnail, **given)["thumbnail"]
        self.run_stage(app.store_metadata, **{**given, "thumbnail": made})
        record = json.loads(self.object("thumbnails", "output.json"))
        with Image.open(io.BytesIO(self.object("thumbnails", "output.jpg"))) as small:
            self.assertEqual((small.format, small.size), ("JPEG", (250, 125)))
            self.assertTrue(all(abs(a - b) < 8 for a, b in zip(small.getpixel((9, 9)), (200, 30, 30))))
        self.assertEqual((record["make"], record["created"]), ("Camera maker", "2019:10:15 14:03:39"))
        self.assertAlmostEqual(record["place"]["latitude"], 31 + 1 / 60 + 30 / 3600)
        self.assertAlmostEqual(record["place"]["longitude"], -121.5)
        self.assertEqual(record["dimensions"], {"width": 1000, "height": 500})
        self.assertEqual(record["bytes"], len(jpeg.getvalue()))
        self.assertEqual((record["log"]["image"], record["thumbnail"]), ("thumbnails/input", made))

    def test_what_is_no_input_of_an_application_is_an_error(self):
        first = {
            "image_classification": ("unpack", {"archive": "image_classification/input", "batch": 8}),
            "thumbnails": ("extract_metadata", {"image": "thumbnails/input", "metadata": "x"}),
            "video_analysis": ("split", {"clip": "video_analysis/input", "segment_s": 1}),
        }
        for name, (stage, event) in first.items():
            with self.subTest(name), self.assertRaises(Exception):
                app, scratch = self.application(name, b"nothing of the kind")
                self.run_stage(getattr(app, stage), scratch=scratch(""), **event)

    def test_what_is_no_input_is_an_error(self):
        for name, given in (("video", "clip"), ("image_prediction", "photo"), ("sparse_gemm", "left")):
            with self.subTest(name), contextlib.redirect_stderr(io.StringIO()), self.assertRaises(Exception):
                self.run_pipeline(name, **{given: b"nothing of the kind"})


if __name__ == "__main__":
    unittest.main()
