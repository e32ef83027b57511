"""Takes the colours out of a video: OFC's kind "video grayscale". Reads anything ffmpeg reads, writes H.264 in MP4."""

import shutil
import subprocess
import tempfile
from pathlib import Path

import boto3
import imageio_ffmpeg

FFMPEG = imageio_ffmpeg.get_ffmpeg_exe()

s3 = boto3.client("s3")


def take_colours_out(source: Path, target: Path, quality: int) -> None:
    command = [
        FFMPEG, "-hide_banner", "-loglevel", "error", "-nostdin", "-y", "-i", source,
        # Grey first, then the layout every player knows; the crop makes both sides even, as that layout needs.
        "-vf", "crop=floor(iw/2)*2:floor(ih/2)*2,format=gray,format=yuv420p",
        "-c:v", "libx264", "-preset", "veryfast", "-crf", str(quality),
        "-c:a", "aac", "-ac", "2", "-movflags", "+faststart", "-f", "mp4", target,
    ]  # fmt: skip
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        raise RuntimeError(f"ffmpeg ended with {done.returncode}: {done.stderr.strip()[-1000:]}")


def handler(event, context):
    source, target = event["input"], event["output"]
    quality = int(event.get("quality", 23))
    if not 0 <= quality <= 51:
        raise ValueError(f"quality, x264's constant rate factor, must be between 0 and 51, not {quality}")

    with tempfile.TemporaryDirectory() as folder:
        original, grey = Path(folder, "original"), Path(folder, "grey.mp4")
        body = s3.get_object(Bucket=source["bucket"], Key=source["key"])["Body"]
        with original.open("wb") as file:
            shutil.copyfileobj(body, file, 1 << 20)
        take_colours_out(original, grey, quality)
        with grey.open("rb") as file:
            s3.put_object(Bucket=target["bucket"], Key=target["key"], Body=file, ContentType="video/mp4")
        return {"bytes": grey.stat().st_size, "input_bytes": original.stat().st_size}
