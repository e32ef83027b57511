"""Scales a video down: CASY's "Resize". Reads anything ffmpeg reads, writes H.264 in MP4 of a given height."""

import shutil
import subprocess
import tempfile
from pathlib import Path

import boto3
import imageio_ffmpeg

FFMPEG = imageio_ffmpeg.get_ffmpeg_exe()

s3 = boto3.client("s3")


def scale(source: Path, target: Path, height: int) -> None:
    command = [
        FFMPEG, "-hide_banner", "-loglevel", "error", "-nostdin", "-y", "-i", source,
        # -2: the width that keeps the shape, rounded to the even number H.264 needs.
        "-vf", f"scale=-2:{height}", "-c:v", "libx264", "-preset", "veryfast", "-pix_fmt", "yuv420p",
        "-c:a", "aac", "-ac", "2", "-movflags", "+faststart", target,
    ]  # fmt: skip
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        raise RuntimeError(f"ffmpeg ended with {done.returncode}: {done.stderr.strip()[-1000:]}")


def handler(event, context):
    source, target = event["input"], event["output"]
    height = int(event.get("height", 320))
    if not (2 <= height <= 4320 and height % 2 == 0):
        raise ValueError(f"height must be an even number of lines up to 4320, not {height}")

    with tempfile.TemporaryDirectory() as folder:
        original, scaled = Path(folder, "original"), Path(folder, "scaled.mp4")
        body = s3.get_object(Bucket=source["bucket"], Key=source["key"])["Body"]
        with original.open("wb") as file:
            shutil.copyfileobj(body, file, 1 << 20)
        scale(original, scaled, height)
        with scaled.open("rb") as file:
            s3.put_object(Bucket=target["bucket"], Key=target["key"], Body=file, ContentType="video/mp4")
        return {"height": height, "bytes": scaled.stat().st_size, "input_bytes": original.stat().st_size}
