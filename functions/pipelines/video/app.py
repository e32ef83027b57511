"""Transcodes a video in two halves and looks whether all of it is there (after Apta's video workflow): five stages.

`locate` finds where it can be cut, `split` cuts it, `process` transcodes a half and says how bright it is, `validate`
compares what came out, `concat` joins the halves.
"""

import json
import re
import subprocess
import tempfile
from pathlib import Path

import boto3
import imageio_ffmpeg

FFMPEG = imageio_ffmpeg.get_ffmpeg_exe()
# By one thread: the same bytes wherever it runs.
ENCODE = ("-c:v", "libx264", "-preset", "ultrafast", "-threads", 1)
DURATION = re.compile(r"Duration: (\d+):(\d+):([\d.]+)")
BRIGHTNESS = re.compile(r"lavfi\.signalstats\.YAVG=([\d.]+)")

s3 = boto3.client("s3")


def read(event, name, path):
    path.write_bytes(s3.get_object(Bucket=event["bucket"], Key=event["read"][name])["Body"].read())
    return path


def write(event, name, body, content_type="video/mp4"):
    s3.put_object(Bucket=event["bucket"], Key=event["write"][name], Body=body, ContentType=content_type)
    return len(body)


def ffmpeg(*arguments, loglevel="error"):
    command = [FFMPEG, "-hide_banner", "-loglevel", loglevel, "-nostdin", "-y", *map(str, arguments)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        raise RuntimeError(f"ffmpeg ended with {done.returncode}: {done.stderr.strip()[-1000:]}")
    return done


def seconds_of(path):
    said = ffmpeg("-i", path, "-c", "copy", "-f", "null", "-", loglevel="info").stderr
    hours, minutes, seconds = DURATION.search(said).groups()
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds)


def locate(event, context):
    with tempfile.TemporaryDirectory() as folder:
        seconds = seconds_of(read(event, "clip", Path(folder, "clip.mp4")))
    write(event, "cut", json.dumps({"cut": round(seconds / 2, 3)}).encode(), "application/json")
    return {"seconds": seconds}


def split(event, context):
    """Without transcoding, so at the key frame nearest to the middle."""
    with tempfile.TemporaryDirectory() as folder:
        clip = read(event, "clip", Path(folder, "clip.mp4"))
        cut = json.loads(read(event, "cut", Path(folder, "cut.json")).read_bytes())["cut"]
        ffmpeg(
            "-i", clip, "-map", "0:v:0", "-c", "copy", "-f", "segment", "-segment_times", cut,
            "-reset_timestamps", 1, Path(folder, "half-%d.mp4"),
        )  # fmt: skip
        halves = sorted(Path(folder).glob("half-*.mp4"))
        if len(halves) == 1:
            # One key frame only: the second half is transcoded from the middle on.
            ffmpeg("-ss", cut, "-i", clip, "-an", *ENCODE, Path(folder, "half-1.mp4"))
            ffmpeg("-i", clip, "-t", cut, "-an", "-c", "copy", Path(folder, "half-0.mp4"))
            halves = [Path(folder, f"half-{half}.mp4") for half in (0, 1)]
        sizes = [write(event, f"half-{at}", half.read_bytes()) for at, half in enumerate(halves[:2])]
    return {"bytes": sizes}


def process(event, context):
    half, part = next(iter(event["read"])), next(iter(event["write"]))
    with tempfile.TemporaryDirectory() as folder:
        source, target = read(event, half, Path(folder, "half.mp4")), Path(folder, "part.mp4")
        log = Path(folder, "brightness")
        ffmpeg(
            "-i", source, "-vf", f"scale=-2:240,signalstats,metadata=print:file={log}", "-an", *ENCODE,
            "-movflags", "+faststart", target,
        )  # fmt: skip
        bright = [float(value) for value in BRIGHTNESS.findall(log.read_text())]
        size = write(event, part, target.read_bytes())
    return {"part": part, "frames": len(bright), "brightness": round(sum(bright) / len(bright), 2), "bytes": size}


def validate(event, context):
    parts = [answer for answer in event["previous"] if answer["frames"] > 0 and answer["bytes"] > 0]
    if len(parts) != len(event["previous"]):
        raise ValueError(f"a part has no frames: {event['previous']}")
    report = {"frames": sum(part["frames"] for part in parts), "parts": len(parts)}
    write(event, "report", json.dumps(report).encode(), "application/json")
    return report


def concat(event, context):
    with tempfile.TemporaryDirectory() as folder:
        parts = [read(event, name, Path(folder, f"{name}.mp4")) for name in event["read"]]
        names = Path(folder, "parts.txt")
        names.write_text("".join(f"file '{part}'\n" for part in parts))
        whole = Path(folder, "whole.mp4")
        ffmpeg("-f", "concat", "-safe", 0, "-i", names, "-c", "copy", "-movflags", "+faststart", whole)
        return {"bytes": write(event, "whole", whole.read_bytes())}
