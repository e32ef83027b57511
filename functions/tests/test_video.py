"""resize and video_grayscale: what comes out plays as asked for, as long as before."""

import tempfile
import warnings
from pathlib import Path

import imageio_ffmpeg
import numpy as np

from .support import HandlerTest


def played(video: bytes) -> tuple[dict, list[np.ndarray]]:
    """What ffmpeg says of it, and each frame as (height, width, red green blue)."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "out.mp4")
        path.write_bytes(video)
        with warnings.catch_warnings():
            # imageio_ffmpeg leaves its pipes to the garbage collector.
            warnings.simplefilter("ignore", ResourceWarning)
            decoded = imageio_ffmpeg.read_frames(str(path))
            meta = next(decoded)
            width, height = meta["source_size"]
            frames = [np.frombuffer(frame, np.uint8).reshape(height, width, 3) for frame in decoded]
            del decoded
    return meta, frames


class ResizeTest(HandlerTest):
    function = "resize"

    def test_a_video_comes_out_at_320_lines_with_all_its_frames(self):
        answer, output, content_type = self.run_on(self.read_input("video/bunny-1s-360p.mp4"))
        self.assertEqual(content_type, "video/mp4")
        meta, frames = played(output)
        self.assertEqual(meta["source_size"], (568, 320))
        self.assertEqual(meta["codec"], "h264")
        self.assertEqual(len(frames), 25)
        self.assertEqual(answer["bytes"], len(output))

    def test_what_is_no_video_is_an_error_that_says_why(self):
        with self.assertRaisesRegex(RuntimeError, "Invalid data"):
            self.run_on(b"not a video")

    def test_a_height_that_h264_cannot_have_is_an_error(self):
        for height in (0, 321, 10_000):
            with self.subTest(height=height), self.assertRaises(ValueError):
                self.run_on(b"", height=height)


class VideoGrayscaleTest(HandlerTest):
    function = "video_grayscale"

    def test_a_video_keeps_its_shape_and_frames_and_loses_its_colours(self):
        original = self.read_input("video/bunny-1s-360p.mp4")
        answer, output, content_type = self.run_on(original)
        meta, frames = played(output)
        self.assertEqual((meta["codec"], meta["source_size"], len(frames)), ("h264", (640, 360), 25))
        self.assertEqual((answer, content_type), ({"bytes": len(output), "input_bytes": len(original)}, "video/mp4"))
        coloured, grey = played(original)[1][12].astype(int), frames[12].astype(int)
        # How bright the eye sees red, green and blue, as television has it.
        brightness = coloured @ (0.299, 0.587, 0.114)
        self.assertGreater(np.ptp(coloured, axis=2).mean(), 10)
        self.assertLess(np.ptp(grey, axis=2).max(), 4)
        self.assertLess(np.abs(brightness - grey.mean(axis=2)).mean(), 4)

    def test_a_lower_quality_is_smaller(self):
        original = self.read_input("video/bunny-1s-360p.mp4")
        self.assertLess(len(self.run_on(original, quality=40)[1]), len(self.run_on(original, quality=20)[1]))

    def test_what_is_no_video_is_an_error_that_says_why(self):
        with self.assertRaisesRegex(RuntimeError, "Invalid data"):
            self.run_on(b"not a video")

    def test_a_quality_that_x264_does_not_know_is_an_error(self):
        for quality in (-1, 52):
            with self.subTest(quality=quality), self.assertRaises(ValueError):
                self.run_on(b"", quality=quality)
