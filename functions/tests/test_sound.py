"""effect, audio_compress and speech: what comes out sounds and reads as it should."""

import json
import subprocess
import wave
from io import BytesIO

import imageio_ffmpeg
import numpy as np

from .support import HandlerTest


def recorded(samples: np.ndarray, rate: int, width: int = 2) -> bytes:
    wav = BytesIO()
    with wave.open(wav, "wb") as recording:
        recording.setnchannels(samples.shape[1])
        recording.setsampwidth(width)
        recording.setframerate(rate)
        recording.writeframes(samples.tobytes())
    return wav.getvalue()


def heard(data: bytes) -> tuple[np.ndarray, int]:
    with wave.open(BytesIO(data)) as recording:
        frames = recording.readframes(recording.getnframes())
        return np.frombuffer(frames, "<i2").reshape(-1, recording.getnchannels()), recording.getframerate()


class EffectTest(HandlerTest):
    function = "effect"

    def test_a_click_comes_back_after_the_delay_at_the_given_loudness(self):
        click = np.zeros((8000, 2), "<i2")
        click[100] = 10_000
        _, output, content_type = self.run_on(recorded(click, 8000), delay_s=0.5, decay=0.4)
        samples, rate = heard(output)
        self.assertEqual((samples.shape, rate, content_type), ((8000, 2), 8000, "audio/wav"))
        self.assertEqual(samples[100].tolist(), [10_000, 10_000])
        self.assertEqual(samples[100 + 4000].tolist(), [4_000, 4_000])

    def test_music_keeps_its_length_rate_and_channels(self):
        original = self.read_input("audio/music-0.25s.wav")
        answer, output, _ = self.run_on(original, delay_s=0.05)
        before, rate = heard(original)
        after, rate_after = heard(output)
        self.assertEqual((after.shape, rate_after), (before.shape, rate))
        self.assertFalse(np.array_equal(before, after))
        self.assertEqual(answer, {"seconds": 0.25, "channels": 2, "rate": 44_100, "bytes": len(output)})

    def test_a_sum_too_loud_is_scaled_and_does_not_wrap_around(self):
        loud = np.full((4000, 1), 30_000, "<i2")
        _, output, _ = self.run_on(recorded(loud, 8000), delay_s=0.1, decay=0.9)
        samples, _ = heard(output)
        self.assertGreater(samples.min(), 0)
        self.assertIn(samples.max(), (32_766, 32_767))

    def test_an_empty_recording_stays_empty(self):
        _, output, _ = self.run_on(recorded(np.zeros((0, 1), "<i2"), 8000))
        self.assertEqual(heard(output)[0].shape, (0, 1))

    def test_a_depth_that_is_not_understood_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "8-bit"):
            self.run_on(recorded(np.zeros((10, 1), "u1"), 8000, width=1))


def decoded(data: bytes, rate: int) -> np.ndarray:
    """What a player would make of it, as one channel."""
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-loglevel", "error", "-i", "-", "-f", "s16le", "-ac", "1"]
    done = subprocess.run([*command, "-ar", str(rate), "-"], input=data, capture_output=True, check=True)
    return np.frombuffer(done.stdout, "<i2")


class AudioCompressTest(HandlerTest):
    function = "audio_compress"

    def test_music_is_far_smaller_and_as_long_as_before(self):
        original = self.read_input("audio/music-2s.wav")
        for codec, content_type in (("mp3", "audio/mpeg"), ("opus", "audio/ogg"), ("aac", "audio/aac")):
            with self.subTest(codec):
                answer, output, found_type = self.run_on(original, codec=codec, bitrate_kbps=64)
                self.assertEqual(found_type, content_type)
                self.assertLess(len(output), len(original) / 10)
                self.assertAlmostEqual(len(decoded(output, 8000)) / 8000, 2, delta=0.1)
                self.assertEqual(answer, {"codec": codec, "bytes": len(output), "input_bytes": len(original)})

    def test_a_tone_is_still_that_tone(self):
        tone = (10_000 * np.sin(2 * np.pi * 440 * np.arange(22_050) / 22_050)).astype("<i2")[:, None]
        _, output, _ = self.run_on(recorded(tone, 22_050))
        spectrum = np.abs(np.fft.rfft(decoded(output, 8000)[:8000]))
        self.assertAlmostEqual(int(spectrum.argmax()), 440, delta=2)

    def test_flac_loses_nothing(self):
        original = self.read_input("audio/music-0.25s.wav")
        _, output, _ = self.run_on(original, codec="flac")
        command = [imageio_ffmpeg.get_ffmpeg_exe(), "-loglevel", "error", "-i", "-", "-f", "s16le", "-"]
        samples = subprocess.run(command, input=output, capture_output=True, check=True).stdout
        self.assertEqual(samples, heard(original)[0].tobytes())

    def test_what_is_no_recording_and_arguments_out_of_bounds_are_errors(self):
        with self.assertRaisesRegex(RuntimeError, "ffmpeg"):
            self.run_on(b"not a recording")
        for arguments in ({"codec": "wma"}, {"codec": None}, {"bitrate_kbps": 31}, {"bitrate_kbps": 321}):
            with self.subTest(arguments), self.assertRaises(ValueError):
                self.run_on(b"", **arguments)


class SpeechTest(HandlerTest):
    function = "speech"

    def test_a_read_sentence_is_written_down(self):
        answer, output, content_type = self.run_on(self.read_input("speech/austen-0870.wav"))
        transcript = json.loads(output)
        words = set(transcript["text"].split())
        self.assertEqual(content_type, "application/json")
        # Read: "and mister john dashwood had then leisure to consider how much there might be prudently in his power".
        for word in ("john", "leisure", "consider", "power"):
            self.assertIn(word, words)
        self.assertEqual(answer["words"], len(transcript["text"].split()))
        self.assertEqual(answer["stretches"], len(transcript["stretches"]))
        self.assertLess(transcript["stretches"][-1]["end_s"], 7.2)

    def test_another_rate_and_channel_count_is_understood(self):
        samples, rate = heard(self.read_input("speech/austen-0880.wav"))
        _, output, _ = self.run_on(recorded(np.repeat(samples, 3, axis=0).repeat(2, axis=1), 3 * rate))
        self.assertIn("young man", json.loads(output)["text"])

    def test_silence_has_no_words(self):
        answer, output, _ = self.run_on(recorded(np.zeros((16_000, 1), "<i2"), 16_000))
        self.assertEqual(answer, {"words": 0, "stretches": 0, "text": ""})
        self.assertEqual(json.loads(output), {"text": "", "stretches": []})

    def test_what_is_no_recording_is_an_error(self):
        with self.assertRaisesRegex(RuntimeError, "ffmpeg"):
            self.run_on(b"not a recording")
