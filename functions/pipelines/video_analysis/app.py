"""Finds the shots of a video (after Thousand Island Scanner, which OFC's evaluation has): four stages.

`split` cuts it at key frames, `decode` makes small pictures of the frames of one segment, `histogram` says which
colours each has, `merge` puts the segments in their order and finds where the colours change at once.
"""

import io
import json
import subprocess
import tempfile
from pathlib import Path

import boto3
import imageio_ffmpeg
import numpy as np

FFMPEG = imageio_ffmpeg.get_ffmpeg_exe()
# Of each colour.
BINS = 16
# The share of pixels that have another colour, from which on it is another shot.
CHANGE = 0.35

s3 = boto3.client("s3")


def read(event, key):
    return s3.get_object(Bucket=event["bucket"], Key=key)["Body"].read()


def read_array(event, key):
    return np.lib.format.read_array(io.BytesIO(read(event, key)), allow_pickle=False)


def write(event, key, body, content_type):
    s3.put_object(Bucket=event["bucket"], Key=key, Body=body, ContentType=content_type)


def write_array(event, key, array):
    npy = io.BytesIO()
    np.lib.format.write_array(npy, array, allow_pickle=False)
    write(event, key, npy.getvalue(), "application/x-npy")


def ffmpeg(*arguments, given=None):
    command = [FFMPEG, "-hide_banner", "-loglevel", "error", "-y", *map(str, arguments)]
    done = subprocess.run(command, input=given, stdin=None if given else subprocess.DEVNULL, capture_output=True)
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip()[-1000:]
        raise RuntimeError(f"ffmpeg ended with {done.returncode}: {said}")
    return done.stdout


def split(event, context):
    """Segments of `segment_s` and more: none begins but at a key frame. Matroska, which can be read as a stream."""
    segments = []
    with tempfile.TemporaryDirectory() as folder:
        clip = Path(folder, "clip")
        clip.write_bytes(read(event, event["clip"]))
        ffmpeg(
            "-i", clip, "-map", "0:v:0", "-c", "copy", "-f", "segment", "-segment_format", "matroska",
            "-segment_time", float(event["segment_s"]), Path(folder, "segment-%05d"),
        )  # fmt: skip
        for path in sorted(Path(folder).glob("segment-*")):
            key = f"{event['scratch']}{path.name}"
            write(event, key, path.read_bytes(), "video/x-matroska")
            segments.append(key)
    return {"segments": segments}


def decode(event, context):
    """All frames of a segment, `width` to `height` pixels of red, green and blue each."""
    width, height = int(event["width"]), int(event["height"])
    pixels = ffmpeg(
        "-threads", 1, "-i", "pipe:0", "-an", "-vf", f"scale={width}:{height}", "-fps_mode", "passthrough",
        "-f", "rawvideo", "-pix_fmt", "rgb24", "pipe:1", given=read(event, event["segment"]),
    )  # fmt: skip
    write_array(event, event["frames"], np.frombuffer(pixels, np.uint8).reshape(-1, height, width, 3))
    return {"frames": event["frames"]}


def histogram(event, context):
    """Of each frame, the share of its pixels in each of the bins of red, green and blue."""
    frames = read_array(event, event["frames"])
    binned = frames // (256 // BINS) + np.arange(3, dtype=np.uint8) * BINS
    rows = [np.bincount(frame.ravel(), minlength=3 * BINS) / (frame.size / 3) for frame in binned]
    write_array(event, event["histograms"], np.stack(rows))
    return {"histograms": event["histograms"]}


def merge(event, context):
    parts = [read_array(event, key) for key in event["histograms"]]
    rows = np.concatenate(parts)
    # What is in another bin now, of each colour: halved, for what leaves one comes to another.
    changes = np.abs(np.diff(rows, axis=0)).sum(axis=1) / 6
    shots = [0, *(int(at) + 1 for at in np.flatnonzero(changes > CHANGE))]
    report = {
        "frames": len(rows),
        "segments": len(parts),
        "shots": shots,
        "colours": np.round(rows.mean(axis=0).reshape(3, BINS), 5).tolist(),
    }
    write(event, event["output"], json.dumps(report).encode(), "application/json")
    return {"frames": len(rows), "shots": len(shots)}
