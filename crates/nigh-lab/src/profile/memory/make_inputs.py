"""Makes inputs up for the sample functions: pictures, sound, speech, films, texts, tables, matrices.

Reads one JSON object a line: `path` (the file to write), `seed`, `kind` and what the kind asks for. Answers each with one:
`size` in bytes and `features`, what the header of the file says, or `error`. The same line makes the same content; nothing
of it is anybody's work.
"""

import csv
import json
import subprocess
import sys
import wave
from pathlib import Path

import imageio_ffmpeg
import numpy as np
from PIL import Image

FFMPEG = imageio_ffmpeg.get_ffmpeg_exe()
MODES = {1: "L", 3: "RGB", 4: "RGBA"}
# Loudness of voiced sound by its harmonics: resonances of the mouth, in Hz.
FORMANTS = ((500, 1500, 2500), (300, 2300, 3000), (700, 1200, 2600), (400, 800, 2400))
CODECS = {"h264": "libx264", "mpeg4": "mpeg4"}
SOUND = {"flac": "flac", "mp3": "mp3", "ogg": "ogg", "wav": "wav"}


def shapes(random, width: int, height: int, channels: int, soft: int) -> np.ndarray:
    """Soft shapes: random colours far apart, with everything between them."""
    few = random.integers(0, 256, (height // soft + 2, width // soft + 2, channels), dtype=np.uint8)
    picture = Image.fromarray(few.squeeze(), MODES[channels]).resize((width, height), Image.Resampling.BICUBIC)
    return np.asarray(picture).reshape(height, width, channels)


def picture(path: Path, random, asked: dict) -> dict:
    width, height, channels, form = asked["width"], asked["height"], asked["channels"], asked["format"]
    if asked["content"] == "flat":
        pixels = np.full((height, width, channels), random.integers(0, 256, channels), dtype=np.uint8)
    else:
        pixels = shapes(random, width, height, channels, 64 if asked["content"] == "smooth" else 12)
    if asked["content"] == "grainy":
        # One block of grain, laid side by side: grain of its own for each pixel takes longer than everything else.
        block = random.integers(0, 24, (256, 256, channels), dtype=np.uint8)
        grain = np.tile(block, (height // 256 + 1, width // 256 + 1, 1))[:height, :width]
        pixels = (pixels >> 1) + grain
    image = Image.fromarray(pixels.squeeze(), MODES[channels])
    options = {"jpeg": {"quality": 85, "progressive": asked["progressive"]}, "webp": {"method": 0}}.get(form, {})
    if form == "gif":
        image = image.convert("P") if channels == 3 else image
    image.save(path, format=form, **options)
    return {"in_width": width, "in_height": height, "in_channels": channels, "in_format": form}


def encode(command: list, raw: bytes):
    done = subprocess.run([FFMPEG, "-hide_banner", "-loglevel", "error", "-y", *command], input=raw, capture_output=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.decode(errors="replace").strip()[-500:])


def music(random, frames: int, rate: int, channels: int) -> np.ndarray:
    """Notes of a quarter of a second with some noise."""
    note = max(rate // 4, 1)
    notes = frames // note + 1
    time = np.arange(note, dtype=np.float32) / rate
    fade = np.exp(-4 * time)
    sound = np.empty((notes * note, channels), dtype=np.float32)
    for channel in range(channels):
        pitches = 110 * 2 ** (random.integers(0, 36, notes) / 12)
        for at, pitch in enumerate(pitches):
            sound[at * note : (at + 1) * note, channel] = np.sin(2 * np.pi * pitch * time) * fade
    sound = sound[:frames] * 0.7 + random.standard_normal((frames, 1), dtype=np.float32) * 0.02
    return (sound * 20_000).astype("<i2")


def babble(random, frames: int, rate: int, channels: int) -> np.ndarray:
    """What sounds like speech to a machine: voiced syllables, four a second, some of them pauses."""
    syllable = max(rate // 4, 1)
    sound = np.zeros((frames // syllable + 1) * syllable, dtype=np.float32)
    time = np.arange(syllable, dtype=np.float32) / rate
    swell = np.sin(np.pi * np.arange(syllable, dtype=np.float32) / syllable)
    for at in range(len(sound) // syllable):
        if random.random() < 0.2:
            continue
        pitch, mouth = random.uniform(90, 180), FORMANTS[random.integers(len(FORMANTS))]
        voiced = np.zeros(syllable, dtype=np.float32)
        for harmonic in np.arange(pitch, min(4000, rate / 2), pitch):
            loud = sum(1 / (1 + ((harmonic - formant) / 120) ** 2) for formant in mouth)
            voiced += loud * np.sin(2 * np.pi * harmonic * time)
        sound[at * syllable : (at + 1) * syllable] = voiced * swell
    sound = sound[:frames] / max(np.abs(sound).max(), 1e-6) + random.standard_normal(frames, dtype=np.float32) * 0.01
    return np.repeat((sound * 18_000).clip(-32_000, 32_000).astype("<i2")[:, None], channels, axis=1)


def sound(path: Path, random, asked: dict) -> dict:
    rate, channels, form = asked["samplerate"], asked["channels"], asked["format"]
    frames = max(1, round(asked["duration"] * rate))
    samples = (babble if asked["spoken"] else music)(random, frames, rate, channels)
    if form == "wav":
        with wave.open(str(path), "wb") as file:
            file.setnchannels(channels)
            file.setsampwidth(2)
            file.setframerate(rate)
            file.writeframes(samples.tobytes())
    else:
        raw = ["-f", "s16le", "-ar", str(rate), "-ac", str(channels), "-i", "pipe:0"]
        encode([*raw, "-f", SOUND[form], str(path)], samples.tobytes())
    return {"in_duration": frames / rate, "in_samplerate": rate, "in_channels": channels, "in_format": form}


def film(path: Path, random, asked: dict) -> dict:
    width, height, frames, rate = asked["width"], asked["height"], asked["frames"], asked["rate"]
    # A window that wanders over a larger picture.
    way = min(frames, 64) * 2
    ground = shapes(random, width + way, height, 3, 24)
    raw = b"".join(ground[:, at % 64 * 2 : at % 64 * 2 + width].tobytes() for at in range(frames))
    size = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", str(rate), "-i", "pipe:0"]
    codec = ["-c:v", CODECS[asked["codec"]], "-pix_fmt", "yuv420p", "-threads", "1"]
    fast = ["-preset", "ultrafast"] if asked["codec"] == "h264" else ["-q:v", "5"]
    encode([*size, *codec, *fast, "-movflags", "+faststart", "-f", "mp4", str(path)], raw)
    return {
        "in_width": width,
        "in_height": height,
        "in_frames": frames,
        "in_duration": frames / rate,
        "in_rate": rate,
        "in_codec": asked["codec"],
    }


def words(random, count: int) -> np.ndarray:
    """Words of two to eleven letters, each once or nearly."""
    letters = random.choice(list("etaoinshrdlucmfwypvbgk"), (count, 11))
    return np.array(["".join(row[: 2 + at % 10]) for at, row in enumerate(letters)])


def chosen(random, count: int, vocabulary: int) -> np.ndarray:
    """Words of a vocabulary, few of them often (Zipf)."""
    known = words(random, vocabulary)
    ranks = (vocabulary ** random.random(count) - 1).astype(np.int64)
    return known[np.minimum(ranks, vocabulary - 1)]


def text(path: Path, random, asked: dict) -> dict:
    # A word and its blank take seven and a half letters, about.
    flow = chosen(random, max(1, asked["bytes"] * 2 // 15), asked["vocabulary"])
    lines, at = [], 0
    while at < len(flow):
        length = int(random.integers(6, 22))
        line = " ".join(flow[at : at + length])
        lines.append(line[:1].upper() + line[1:] + ".")
        at += length
    path.write_text("\n".join(lines) + "\n", encoding="ascii")
    return {"in_lines": len(lines)}


def columns(random, asked: dict) -> tuple[list[str], list[list]]:
    """A table's names and columns: one in three whole numbers, one in three with a fraction, one in three words."""
    rows, fields = asked["rows"], asked["fields"]
    made = []
    for at in range(fields):
        match at % 3:
            case 0:
                made.append(random.integers(0, 100_000, rows).tolist())
            case 1:
                made.append((random.standard_normal(rows) * 100).round(3).tolist())
            case _:
                made.append(chosen(random, rows, asked["distinct"]).tolist())
    return [f"column_{at}" for at in range(fields)], made


def table(path: Path, random, asked: dict) -> dict:
    names, made = columns(random, asked)
    if asked["format"] == "csv":
        with path.open("w", newline="", encoding="ascii") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(names)
            writer.writerows(zip(*made, strict=True))
    else:
        records = [dict(zip(names, row, strict=True)) for row in zip(*made, strict=True)]
        path.write_text(json.dumps(records), encoding="ascii")
    return {"in_rows": asked["rows"], "in_fields": asked["fields"]}


def matrix(path: Path, random, asked: dict) -> dict:
    rows, fields, item = asked["rows"], asked["fields"], np.dtype(asked["item"])
    if item.kind == "f":
        cells = random.random((rows, fields), dtype=item)
    else:
        cells = random.integers(-1000, 1000, (rows, fields), dtype=item)
    with path.open("wb") as file:
        np.lib.format.write_array(file, cells, allow_pickle=False)
    return {"in_rows": rows, "in_fields": fields, "in_itemsize": item.itemsize}


KINDS = {"picture": picture, "sound": sound, "film": film, "text": text, "table": table, "matrix": matrix}


def main():
    for line in sys.stdin:
        asked = json.loads(line)
        path = Path(asked["path"])
        try:
            features = KINDS[asked["kind"]](path, np.random.default_rng(asked["seed"]), asked)
            answer = {"size": path.stat().st_size, "features": features}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
