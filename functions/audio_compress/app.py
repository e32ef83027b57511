"""Compresses a recording: a multimedia function as OFC's. Reads anything ffmpeg reads, writes the codec asked for."""

import shutil
import subprocess
import tempfile
from pathlib import Path

import boto3
import imageio_ffmpeg

FFMPEG = imageio_ffmpeg.get_ffmpeg_exe()
# ffmpeg's encoder, the container it goes into, and what the result is called.
CODECS = {
    "mp3": ("libmp3lame", "mp3", "audio/mpeg"),
    "opus": ("libopus", "ogg", "audio/ogg"),
    "aac": ("aac", "adts", "audio/aac"),
    "flac": ("flac", "flac", "audio/flac"),
}

s3 = boto3.client("s3")


def encode(source: Path, target: Path, codec: str, bitrate_kbps: int) -> None:
    encoder, container, _ = CODECS[codec]
    command = [
        FFMPEG, "-hide_banner", "-loglevel", "error", "-nostdin", "-y", "-i", source,
        "-vn", "-c:a", encoder, "-b:a", f"{bitrate_kbps}k", "-f", container, target,
    ]  # fmt: skip
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        raise RuntimeError(f"ffmpeg ended with {done.returncode}: {done.stderr.strip()[-1000:]}")


def handler(event, context):
    source, target = event["input"], event["output"]
    codec, bitrate_kbps = event.get("codec", "mp3"), int(event.get("bitrate_kbps", 128))
    if codec not in CODECS:
        raise ValueError(f"codec must be one of {', '.join(CODECS)}, not {codec!r}")
    if not 32 <= bitrate_kbps <= 320:
        raise ValueError(f"bitrate_kbps must be between 32 and 320, not {bitrate_kbps}")

    with tempfile.TemporaryDirectory() as folder:
        original, small = Path(folder, "original"), Path(folder, "small")
        body = s3.get_object(Bucket=source["bucket"], Key=source["key"])["Body"]
        with original.open("wb") as file:
            shutil.copyfileobj(body, file, 1 << 20)
        encode(original, small, codec, bitrate_kbps)
        with small.open("rb") as file:
            s3.put_object(Bucket=target["bucket"], Key=target["key"], Body=file, ContentType=CODECS[codec][2])
        return {"codec": codec, "bytes": small.stat().st_size, "input_bytes": original.stat().st_size}
