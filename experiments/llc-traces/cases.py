"""Which inputs are recorded, and how each is made from the real media of scripts/fetch_inputs.py.

CASY's four functions: at the sizes of its tables III and IV, and at ten other sizes a function for its figure 5. CASY
publishes bytes alone; what the media hold is ours. An input is made so that its file has the bytes asked for, within
one part in a hundred:

- blur: photographs rescaled until the PNG has the size; above 2 MB a sheet of several photographs;
- effect: one piece of music, cut or repeated;
- resize, speech: minutes of media, of which a `Stretch` is run through the function and recorded. The rest is more of
  the same, so its work is taken to grow with the seconds.
"""

import subprocess
import wave
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MEDIA = ROOT / ".deps" / "inputs"
FFMPEG_TIMEOUT_S = 300
KB, MB = 1_000, 1_000_000
PHOTOS = ("china.jpg", "flower.jpg", "coffee.png", "hubble.jpg", "astronaut.png", "retina.jpg")


@dataclass(frozen=True)
class Stretch:
    """The seconds of a medium that are recorded, in place of the whole."""

    begins_s: float
    lasts_s: float


@dataclass(frozen=True)
class Case:
    """One input of one function. `parts`: names of the media it is made of. `height`, `crf`: a video's, if re-encoded."""

    function: str
    role: str
    bytes: int
    parts: tuple[str, ...]
    stretch: Stretch | None = None
    height: int | None = None
    crf: int | None = None

    @property
    def name(self) -> str:
        size = f"{self.bytes // KB}k" if self.bytes < MB else f"{self.bytes / MB:g}m"
        return f"{self.function}-{size}"


@dataclass(frozen=True)
class Made:
    """What a case's file is: the whole's bytes and features, and how much of it `path` holds."""

    path: Path
    bytes: int
    features: dict[str, float | int]
    share: float
    recipe: str


def run_ffmpeg(*arguments) -> None:
    import imageio_ffmpeg

    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-hide_banner", "-loglevel", "error", "-nostdin", "-y", *arguments]
    subprocess.run([str(part) for part in command], check=True, timeout=FFMPEG_TIMEOUT_S)


def png(parts: tuple[str, ...], width: int) -> tuple[bytes, tuple[int, int]]:
    """One photograph `width` wide, or a sheet of several, two a row, each cropped to 3:2."""
    from PIL import Image

    pictures = []
    for part in parts:
        with Image.open(MEDIA / "images" / part) as picture:
            colours = picture.convert("RGB")
        if len(parts) > 1:
            colours = colours.crop((0, 0, colours.width, min(colours.height, colours.width * 2 // 3)))
            size = (width, round(width * 2 / 3))
        else:
            size = (width, round(width * colours.height / colours.width))
        pictures.append(colours.resize(size, Image.Resampling.LANCZOS))
    columns = min(2, len(pictures))
    rows = -(-len(pictures) // columns)
    sheet = Image.new("RGB", (columns * size[0], rows * size[1]))
    for index, picture in enumerate(pictures):
        sheet.paste(picture, (index % columns * size[0], index // columns * size[1]))
    file = BytesIO()
    sheet.save(file, "PNG", compress_level=6)
    return file.getvalue(), sheet.size


def make_image(case: Case, folder: Path) -> Made:
    narrow, wide = 16, 8192
    while True:
        width = (narrow + wide) // 2
        data, (columns, rows) = png(case.parts, width)
        if abs(len(data) - case.bytes) <= case.bytes // 200 or wide - narrow <= 1:
            break
        narrow, wide = (width, wide) if len(data) < case.bytes else (narrow, width)
    path = folder / f"{case.name}.png"
    path.write_bytes(data)
    recipe = f"{' + '.join(case.parts)} rescaled to {columns} x {rows}"
    return Made(path, len(data), {"width": columns, "height": rows}, 1.0, recipe)


def make_recording(case: Case, folder: Path) -> Made:
    path = folder / f"{case.name}.wav"
    with wave.open(str(MEDIA / "audio" / case.parts[0])) as source:
        shape, data = source.getparams(), source.readframes(source.getnframes())
    wanted = (case.bytes - 44) // 4 * 4
    with wave.open(str(path), "wb") as out:
        out.setparams(shape)
        out.writeframes((data * (wanted // len(data) + 1))[:wanted])
    seconds = wanted / 4 / shape.framerate
    recipe = f"{case.parts[0]} cut or repeated to {seconds:.1f} s"
    features = {"seconds": round(seconds, 3), "rate": shape.framerate, "channels": shape.nchannels}
    return Made(path, path.stat().st_size, features, 1.0, recipe)


def make_speech(case: Case, folder: Path) -> Made:
    path = folder / f"{case.name}.wav"
    with wave.open(str(MEDIA / "speech" / case.parts[0])) as source, wave.open(str(path), "wb") as out:
        rate = source.getframerate()
        source.setpos(round(case.stretch.begins_s * rate))
        out.setparams(source.getparams())
        out.writeframes(source.readframes(round(case.stretch.lasts_s * rate)))
    seconds = (case.bytes - 44) / 2 / rate
    share = case.stretch.lasts_s / seconds
    recorded = f"recorded: {case.stretch.lasts_s:g} s from {case.stretch.begins_s:g} s"
    recipe = f"{case.parts[0]} repeated to {seconds:.1f} s; {recorded}"
    return Made(path, case.bytes, {"seconds": round(seconds, 3), "rate": rate, "channels": 1}, share, recipe)


def make_video(case: Case, folder: Path) -> Made:
    """Its picture alone is re-encoded where a height is given, else the packets are cut as they are."""
    source, path = MEDIA / "video" / case.parts[0], folder / f"{case.name}.mp4"
    cut = ["-ss", case.stretch.begins_s, "-t", case.stretch.lasts_s]
    height, crf = case.height, case.crf
    encode = ["-vf", f"scale=-2:{height}", "-c:v", "libx264", "-preset", "superfast", "-crf", crf, "-c:a", "copy"]
    run_ffmpeg(*cut, "-i", source, *encode, "-threads", "1", path)
    video = measure_video(path)
    bytes_per_second = path.stat().st_size / video["seconds"]
    seconds = case.bytes / bytes_per_second
    recipe = (
        f"{case.parts[0]} scaled to {height} lines as H.264 of crf {crf} and repeated to {seconds:.1f} s; "
        f"recorded: {video['seconds']:g} s from {case.stretch.begins_s:g} s"
    )
    features = {**video, "seconds": round(seconds, 3)}
    return Made(path, case.bytes, features, video["seconds"] / seconds, recipe)


def measure_video(path: Path) -> dict[str, float | int]:
    import imageio_ffmpeg

    reader = imageio_ffmpeg.read_frames(str(path))
    metadata = next(reader)
    frames = sum(1 for _ in reader)
    width, height = metadata["source_size"]
    return {"width": width, "height": height, "fps": metadata["fps"], "seconds": round(frames / metadata["fps"], 3)}


MAKERS = {"blur": make_image, "effect": make_recording, "resize": make_video, "speech": make_speech}


def blur(role: str, size: int, *parts: str) -> Case:
    return Case("blur", role, size, parts)


def effect(role: str, size: int) -> Case:
    return Case("effect", role, size, ("music.wav",))


def resize(role: str, size: int, part: str, begins_s: float, height: int, crf: int) -> Case:
    return Case("resize", role, size, (part,), Stretch(begins_s, 0.6), height, crf)


def speech(role: str, size: int, begins_s: float) -> Case:
    return Case("speech", role, size, ("austen.wav",), Stretch(begins_s, 2.0))


# "table" are CASY's own sizes (III and IV), whose traces are kept; of "held-out" ones the curves alone.
CASES = (
    blur("table", 124 * KB, "china.jpg"),
    blur("table", 361 * KB, "china.jpg"),
    blur("table", 699 * KB, "china.jpg"),
    blur("table", 1400 * KB, "china.jpg"),
    blur("table", 4600 * KB, *PHOTOS[:4]),
    blur("table", 6400 * KB, *PHOTOS[:4]),
    blur("table", 9500 * KB, *PHOTOS),
    effect("table", 26 * MB),
    effect("table", 51 * MB),
    effect("table", 76 * MB),
    effect("table", 100 * MB),
    speech("table", 40 * MB, 0.2),
    speech("table", 79 * MB, 6.0),
    speech("table", 118 * MB, 12.0),
    speech("table", 157 * MB, 18.0),
    resize("table", 31 * MB, "bunny-1080p.mp4", 0.2, 1080, 6),
    resize("table", 61 * MB, "bunny-1080p.mp4", 1.4, 1080, 6),
    resize("table", 92 * MB, "bunny-1080p.mp4", 2.6, 1080, 6),
    resize("table", 127 * MB, "bunny-1080p.mp4", 3.8, 1080, 6),
    blur("held-out", 80 * KB, "flower.jpg"),
    blur("held-out", 180 * KB, "coffee.png"),
    blur("held-out", 240 * KB, "retina.jpg"),
    blur("held-out", 300 * KB, "hubble.jpg"),
    blur("held-out", 450 * KB, "astronaut.png"),
    blur("held-out", 560 * KB, "flower.jpg"),
    blur("held-out", 850 * KB, "coffee.png"),
    blur("held-out", 1050 * KB, "hubble.jpg"),
    blur("held-out", 1200 * KB, "astronaut.png"),
    blur("held-out", 2000 * KB, "hubble.jpg"),
    effect("held-out", 12 * MB),
    effect("held-out", 20 * MB),
    effect("held-out", 33 * MB),
    effect("held-out", 40 * MB),
    effect("held-out", 45 * MB),
    effect("held-out", 58 * MB),
    effect("held-out", 66 * MB),
    effect("held-out", 84 * MB),
    effect("held-out", 92 * MB),
    effect("held-out", 115 * MB),
    speech("held-out", 25 * MB, 3.0),
    speech("held-out", 50 * MB, 8.8),
    speech("held-out", 60 * MB, 14.8),
    speech("held-out", 70 * MB, 20.8),
    speech("held-out", 90 * MB, 23.6),
    speech("held-out", 100 * MB, 1.6),
    speech("held-out", 110 * MB, 7.4),
    speech("held-out", 130 * MB, 10.4),
    speech("held-out", 145 * MB, 16.4),
    speech("held-out", 175 * MB, 22.2),
    resize("held-out", 20 * MB, "bikes.mp4", 2.0, 272, 10),
    resize("held-out", 40 * MB, "bunny-1080p.mp4", 0.8, 540, 14),
    resize("held-out", 45 * MB, "earth.mp4", 5.0, 270, 8),
    resize("held-out", 50 * MB, "bunny-720p.mp4", 2.0, 720, 10),
    resize("held-out", 70 * MB, "bunny-1080p.mp4", 3.2, 900, 12),
    resize("held-out", 80 * MB, "bunny-1080p.mp4", 2.0, 1080, 18),
    resize("held-out", 100 * MB, "bikes.mp4", 6.0, 480, 10),
    resize("held-out", 110 * MB, "earth.mp4", 15.0, 540, 12),
    resize("held-out", 140 * MB, "bunny-1080p.mp4", 4.4, 1440, 10),
    resize("held-out", 160 * MB, "bunny-1080p.mp4", 1.0, 1080, 6),
)
