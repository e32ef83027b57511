#!/usr/bin/env python3
"""What a child with many threads gets of the processors beside one busy thread of somebody else.

The work of the `resize` function (ffmpeg) runs again and again beside a loop that never waits, in turns: both in one
group of the scheduler, as bare processes of one session are, and each in a group of its own, as sandboxes are. In one
group the processors are shared thread by thread, so ffmpeg's threads together take most; between groups each group has
its share. Neither changes what the work costs, so the processor time must come out the same.

Needs root, a cgroup v1 tree of the `cpu` controller, and what `make deps` installs:

    .deps/python/bin/python experiments/processor-share/measure.py --rounds 30 > experiments/processor-share/result.json
"""

import argparse
import contextlib
import datetime
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import imageio_ffmpeg

PROJECT = Path(__file__).resolve().parents[2]
TREE = Path("/sys/fs/cgroup/cpu")
BUSY = "while True: pass"
# The loop is under way when ffmpeg starts.
SETTLE_S = 0.1
# Of both together: one processor each of two, whatever else runs on the machine.
PARENT_SHARES = 2 * 1024


@contextlib.contextmanager
def groups():
    """Two groups with the same weight below one of ours."""
    if not (TREE / "cpu.shares").exists():
        sys.exit(f"there is no cgroup v1 tree of the cpu controller at {TREE}")
    parent = TREE / f"nigh-processor-share-{os.getpid()}"
    made = [parent, parent / "first", parent / "second"]
    try:
        for group in made:
            group.mkdir()
        (parent / "cpu.shares").write_text(str(PARENT_SHARES))
        yield made[1:]
    finally:
        for group in reversed(made):
            with contextlib.suppress(FileNotFoundError):
                group.rmdir()


def joining(group: Path):
    return lambda: (group / "cgroup.procs").write_text("0")


def processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(video: Path, target: str, work_group: Path, neighbour_group: Path) -> dict:
    command = [
        imageio_ffmpeg.get_ffmpeg_exe(), "-hide_banner", "-loglevel", "error", "-nostdin", "-y", "-i", video,
        "-vf", "scale=-2:320", "-c:v", "libx264", "-preset", "veryfast", "-pix_fmt", "yuv420p",
        "-c:a", "aac", "-ac", "2", "-movflags", "+faststart", target,
    ]  # fmt: skip
    neighbour = subprocess.Popen([sys.executable, "-c", BUSY], preexec_fn=joining(neighbour_group))
    try:
        time.sleep(SETTLE_S)
        had, began = processor_s(neighbour.pid), time.perf_counter()
        work = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=joining(work_group))
        _, status, used = os.wait4(work.pid, 0)
        work.returncode = os.waitstatus_to_exitcode(status)
        took, others = time.perf_counter() - began, processor_s(neighbour.pid) - had
    finally:
        neighbour.kill()
        neighbour.wait()
    if work.returncode != 0:
        sys.exit(f"ffmpeg ended with {work.returncode}")
    own = used.ru_utime + used.ru_stime
    return {"took_ms": took * 1e3, "processor_ms": own * 1e3, "share": own / (own + others)}


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=30)
    arguments.add_argument("--input", default="video/bunny-720p.mp4", help="a file of .deps/inputs")
    chosen = arguments.parse_args()
    video = PROJECT / ".deps/inputs" / chosen.input
    runs = {"one_group": [], "own_groups": []}
    load = os.getloadavg()[0]
    with groups() as (first, second), tempfile.TemporaryDirectory() as folder:
        for _ in range(chosen.rounds):
            for name in random.sample(sorted(runs), k=len(runs)):
                other = first if name == "one_group" else second
                runs[name].append(run(video, f"{folder}/scaled.mp4", first, other))
    rows = [
        {"what": name, "rounds": len(all), **{f"p50_{field}": round(median(one[field] for one in all), 3) for field in all[0]}}
        for name, all in runs.items()
    ]  # fmt: skip
    machine = {
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "load": round(load, 2),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": " ".join(["measure.py", *sys.argv[1:]]),
        "commit": subprocess.check_output(["git", "-C", PROJECT, "describe", "--always", "--dirty"], text=True).strip(),
    }
    ratio = rows[1]["p50_took_ms"] / rows[0]["p50_took_ms"]
    print(json.dumps({"machine": machine, "rows": rows, "took_own_over_one": round(ratio, 3)}, indent=2))


if __name__ == "__main__":
    main()
