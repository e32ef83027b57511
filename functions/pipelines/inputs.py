#!/usr/bin/env python3
"""Makes the inputs of the pipelines, the same bytes each time: `inputs.py FOLDER`, or `inputs.py FOLDER NAME...`.

Without names those of the six workflows. Videos, pictures of the sky and texts are of .deps/inputs
(functions/INPUTS.md), all else is made up here. What is there already is left as it is. Run it with
.deps/python/bin/python.
"""

import argparse
import csv
import io
import json
import random
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import imageio_ffmpeg
import numpy as np
from PIL import Image

HERE = Path(__file__).resolve().parent
FETCHED = HERE.parent.parent / ".deps" / "inputs"

sys.path.insert(0, str(HERE / "image_prediction"))
from network import HIDDEN, PATTERNS, SIDE, hidden, spectrum  # noqa: E402

FINDINGS = (
    "The lungs are clear and breath sounds are equal on both sides.",
    "There is no swelling of the ankles and the pulse is regular.",
    "Blood pressure was 128 over 82 and has been stable since the last visit.",
    "The wound heals well, the stitches can come out next week.",
    "She reports headaches in the morning which improve after breakfast.",
    "He sleeps badly and takes the tablets less often than agreed.",
)
NAMES = ("Adler", "Baker", "Castro", "Dimitrov", "Eriksen", "Fontaine", "Garcia", "Haddad", "Ivanova", "Jensen")
OPENINGS = ("I bought this in spring.", "It came as a gift.", "My second order.", "For the price I wondered.")
OPINIONS = (
    "It is very good and I love the colour", "Really excellent, easy to use", "Not bad for what it is",
    "Terrible, it was broken when it came", "It is slow and extremely noisy", "I would recommend it, sturdy and nice",
    "Never again, I want a refund", "It is fine", "Delivery was late and I am disappointed", "Perfect, very fast",
)  # fmt: skip


def notes():
    chance, lines, size = random.Random(1), [], 0
    while size < 19_900:
        day = f"20{chance.randrange(15, 25)}-{chance.randrange(1, 13):02}-{chance.randrange(1, 29):02}"
        name = chance.choice(NAMES)
        line = (
            f"{day} Mr. {name}, a {chance.randrange(20, 95)}-year-old patient, MRN{chance.randrange(10**6, 10**7)}, "
            f"was seen by Dr. {chance.choice(NAMES)}. {chance.choice(FINDINGS)} {chance.choice(FINDINGS)} "
            f"Call 555-{chance.randrange(10_000):04} or {name.lower()}@example.org."
        )
        lines.append(line)
        size += len(line) + 1
    return "\n".join(lines).encode()


def table(columns, rows):
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue().encode()


def reviews():
    chance = random.Random(2)
    rows = []
    for number in range(1650):
        text = f"{chance.choice(OPENINGS)} {chance.choice(OPINIONS)}. {chance.choice(OPINIONS)}."
        rows.append((f"r{number:05}", f"product-{chance.randrange(40)}", text))
    return table(("id", "product", "text"), rows)


def symbols():
    return [f"{a}{b}{c}{d}" for a in "ABCDEFGHIJ" for b in "KLMNOPQR" for c in "STUVWXYZ" for d in "ABCDEFGHIJKLMNO"]


def quotes():
    chance = random.Random(3)
    for symbol in symbols():
        close = round(chance.uniform(5, 500), 2)
        low, high = round(close * 0.97, 2), round(close * 1.03, 2)
        yield {"symbol": symbol, "low": low, "high": high, "close": close, "volume": chance.randrange(10**4, 10**7)}


def feed():
    return json.dumps(list(quotes())).encode()


def book():
    """One trade in twenty breaks a rule."""
    chance, market, rows = random.Random(4), list(quotes()), []
    for number in range(175):
        quote = chance.choice(market)
        price, quantity, side = quote["close"], chance.randrange(1, 1000), chance.choice(("buy", "sell"))
        day, settled = "2024-03-05", "2024-03-07"
        match number % 80:
            case 7:
                price = round(quote["high"] * 2, 2)
            case 27:
                quantity = quote["volume"] + 1
            case 47:
                settled = "2024-03-01"
            case 67:
                side = "lend"
        rows.append((f"t{number:04}", quote["symbol"], quantity, price, day, settled, side))
    return table(("id", "symbol", "quantity", "price", "traded", "settled", "side"), rows)


def pattern(kind, height, width, chance):
    """A picture of one pattern in grey, 0 to 1, with the noise of a camera."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    period, shift = chance.uniform(6, 14), chance.uniform(0, 14)

    def wave(along):
        return np.sin((along + shift) * (2 * np.pi / period))

    field = {
        "plain": lambda: np.zeros_like(x),
        "rows": lambda: wave(y),
        "columns": lambda: wave(x),
        "diagonals": lambda: wave((x + y) / np.sqrt(2)),
        "checks": lambda: np.sign(wave(x) * wave(y)),
        "dots": lambda: (np.maximum(wave(x), 0) * np.maximum(wave(y), 0)) * 2 - 1,
    }[kind]()
    picture = 0.5 + 0.25 * field + chance.normal(0, 0.08, (height, width))
    return np.clip(picture, 0, 1).astype(np.float32)


def model():
    """Fitted by ridge regression on made-up tiles."""
    chance = np.random.default_rng(5)
    kinds = np.arange(1200) % len(PATTERNS)
    tiles = np.stack([pattern(PATTERNS[kind], SIDE, SIDE, chance) for kind in kinds])
    inputs = spectrum(tiles).shape[1]
    fitted = {
        "weights": chance.normal(0, 1, (inputs, HIDDEN)).astype(np.float32),
        "bias": chance.normal(0, 0.5, HIDDEN).astype(np.float32),
    }
    found, wanted = hidden(fitted, spectrum(tiles)).astype(np.float64), np.eye(len(PATTERNS))[kinds]
    fitted["readout"] = np.linalg.solve(found.T @ found + np.eye(HIDDEN), found.T @ wanted).astype(np.float32)
    npz = io.BytesIO()
    np.savez(npz, **fitted)
    return npz.getvalue()


def photo():
    """Rows, one in many photographs: enlarged, so that they are as the network knows them when it is shrunk."""
    chance = np.random.default_rng(6)
    small = pattern("rows", 550, 730, chance)
    grey = Image.fromarray((small * 255).astype(np.uint8)).resize((2190, 1650), Image.Resampling.BICUBIC)
    noise = chance.normal(0, 12, (1650, 2190, 3))
    pixels = np.clip(np.asarray(grey, np.float32)[..., None] + noise, 0, 255).astype(np.uint8)
    jpeg = io.BytesIO()
    Image.fromarray(pixels).save(jpeg, "JPEG", quality=88)
    return jpeg.getvalue()


def sparse(seed):
    chance = np.random.default_rng(seed)
    dense = np.where(chance.random((200, 200)) < 0.36, chance.normal(0, 1, (200, 200)), 0.0)
    rows, columns = np.nonzero(dense)
    entries = np.empty(len(rows), [("row", "<u2"), ("column", "<u2"), ("value", "<f8")])
    entries["row"], entries["column"], entries["value"] = rows, columns, dense[rows, columns]
    npy = io.BytesIO()
    np.lib.format.write_array(npy, entries, allow_pickle=False)
    return npy.getvalue()


def fetched(name):
    """What scripts/fetch_inputs.py has brought."""
    path = FETCHED / name
    if not path.is_file():
        sys.exit(f"{path} is missing: run .deps/python/bin/python scripts/fetch_inputs.py")
    return path


def text(size):
    """Lines of a book in an order that is drawn, about `size` bytes."""
    chance, lines, left = random.Random(9), fetched("text/kjv.txt").read_bytes().splitlines(keepends=True), size
    drawn = []
    while left > 0:
        drawn.append(chance.choice(lines))
        left -= len(drawn[-1])
    return b"".join(drawn)


def video(seconds):
    """The clip of 1080 lines, as often as needed, with a key frame twice a second as cameras have them. By one thread:
    the same bytes each time."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "made.mp4")
        command = [
            imageio_ffmpeg.get_ffmpeg_exe(), "-loglevel", "error", "-nostdin", "-stream_loop", "-1",
            "-i", fetched("video/bunny-1080p.mp4"), "-t", seconds, "-an", "-c:v", "libx264", "-preset", "ultrafast",
            "-crf", 10, "-g", 12, "-sc_threshold", 0, "-threads", 1, "-movflags", "+faststart", made,
        ]  # fmt: skip
        subprocess.run([str(word) for word in command], check=True)
        return made.read_bytes()


def pictures(count):
    """An archive as an application has it: pictures, one pattern after the other, and what is none."""
    chance, packed = np.random.default_rng(10), io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(zipfile.ZipInfo("manifest.json"), json.dumps({"pictures": count}))
        for number in range(count):
            jpeg = io.BytesIO()
            grey = pattern(PATTERNS[number % len(PATTERNS)], 384, 512, chance)
            Image.fromarray((grey * 255).astype(np.uint8)).convert("RGB").save(jpeg, "JPEG", quality=90)
            archive.writestr(zipfile.ZipInfo(f"res/{number:05}.jpg"), jpeg.getvalue())
    return packed.getvalue()


# Of the six workflows.
MADE = {
    "phi/notes.txt": notes,
    "sentiment/reviews.csv": reviews,
    "finra/feed.json": feed,
    "finra/book.csv": book,
    "image_prediction/photo.jpg": photo,
    "image_prediction/model.npz": model,
    "sparse_gemm/left.npy": lambda: sparse(7),
    "sparse_gemm/right.npy": lambda: sparse(8),
    "video/clip.mp4": lambda: fetched("video/bunny-720p.mp4").read_bytes(),
}
# Of the four applications, in the sizes that their application.toml names.
BY_SIZE = {
    "word_count/400k.txt": lambda: text(400_000),
    "word_count/5m.txt": lambda: text(5_000_000),
    "word_count/20m.txt": lambda: text(20_000_000),
    "word_count/60m.txt": lambda: text(60_000_000),
    "video_analysis/1s.mp4": lambda: video(1),
    "video_analysis/5s.mp4": lambda: video(5),
    "video_analysis/10s.mp4": lambda: video(10),
    "image_classification/16.zip": lambda: pictures(16),
    "image_classification/64.zip": lambda: pictures(64),
    "image_classification/160.zip": lambda: pictures(160),
    "thumbnails/128k.jpg": lambda: fetched("images/hubble-128k.jpg").read_bytes(),
    "thumbnails/1024k.jpg": lambda: fetched("images/hubble-1024k.jpg").read_bytes(),
    "thumbnails/3072k.jpg": lambda: fetched("images/hubble-3072k.jpg").read_bytes(),
}


def make(folder, names=tuple(MADE)):
    """Those of these names, below `folder`."""
    for name in names:
        path = folder / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes((MADE.get(name) or BY_SIZE[name])())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=list(MADE), metavar="NAME")
    asked = parser.parse_args()
    if unknown := [name for name in asked.names if name not in MADE | BY_SIZE]:
        parser.error(f"there is no {unknown[0]}; there are {', '.join(MADE | BY_SIZE)}")
    make(asked.folder, asked.names)
