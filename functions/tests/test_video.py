"""resize: what comes out plays at the height asked for, as long as before."""

import tempfile
import warnings
from pathlib import Path

import imageio_ffmpeg

from .support import HandlerTest


class ResizeTest(HandlerTest):
    function = "resize"

    def test_a_video_comes_out_at_320_lines_with_all_its_frames(self):
        answer, output, content_type = self.run_on(self.read_input("video/bunny-1s-360p.mp4"))
        self.assertEqual(content_type, "video/mp4")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "out.mp4")
            path.write_bytes(output)
            with warnings.catch_warnings():
                # imageio_ffmpeg leaves its pipes to the garbage collector.
                warnings.simplefilter("ignore", ResourceWarning)
                decoded = imageio_ffmpeg.read_frames(str(path))
                meta = next(decoded)
                frames = sum(1 for _ in decoded)
                del decoded
        self.assertEqual(meta["source_size"], (568, 320))
        self.assertEqual(meta["codec"], "h264")
        self.assertEqual(frames, 25)
        self.assertEqual(answer["bytes"], len(output))

    def test_what_is_no_video_is_an_error_that_says_why(self):
        with self.assertRaisesRegex(RuntimeError, "Invalid data"):
            self.run_on(b"not a video")

    def test_a_height_that_h264_cannot_have_is_an_error(self):
        for height in (0, 321, 10_000):
            with self.subTest(height=height), self.assertRaises(ValueError):
                self.run_on(b"", height=height)
