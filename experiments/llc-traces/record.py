#!/usr/bin/env python3
"""Records the memory traces of data/llc-traces: real functions under QEMU, their private caches filtered out.

For each case of cases.py: makes the input, runs the function of functions/ under cache_filter.c, counts misses a way
with way_curve.c, and for a case of CASY's tables packs the records. Writes into data/llc-traces: NAME.trace.zst, and
curves.csv with one row a case. A case that curves.csv has is not recorded again unless it is named.

    scripts/install-trace-tools.sh && .deps/python/bin/python experiments/llc-traces/record.py [--role ROLE] [NAME-PREFIX ...]

One recording at a time. It takes about half an hour of one processor, and up to 3 GB of temporary space (TMPDIR).
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cases import CASES, MAKERS, ROOT, Case, Made

HERE = Path(__file__).resolve().parent
DATA = ROOT / "data" / "llc-traces"
CURVES = DATA / "curves.csv"
WAYS = range(1, 12)
RUN_TIMEOUT_S = 3600
# The lines kept, one in so many, so that all traces together stay below 20 MB.
SAMPLING = {"blur": 1, "effect": 32, "resize": 32, "speech": 32}
SAMPLING_OF_SHEETS = 8
COLUMNS = (
    "name", "function", "role", "input_bytes", "features", "recipe", "trace", "sampling", "instructions",
    "whole_instructions", "accesses", "l2_misses", "records", "trace_bytes",
    *(f"warm_{ways}" for ways in WAYS), *(f"cold_{ways}" for ways in WAYS),
)  # fmt: skip


def build(folder: Path) -> None:
    flags = ["-D_GNU_SOURCE", "-O3", "-march=native", "-Wall", "-Wextra"]
    shared = ["-fPIC", "-shared", "-fvisibility=hidden"]
    subprocess.run(["gcc", *flags, *shared, "-o", folder / "cache_filter.so", HERE / "cache_filter.c"], check=True)
    subprocess.run(["gcc", *flags, "-o", folder / "way_curve", HERE / "way_curve.c"], check=True)
    subprocess.run(["cargo", "build", "--quiet", "--release", "-p", "nigh", "--bin", "nigh"], check=True, cwd=ROOT)


def scaling_command(path: Path, folder: Path) -> list[str]:
    """The very ffmpeg command that the function runs: asked of the function itself."""
    sys.path.insert(0, str(ROOT / "functions" / "resize"))
    import app

    commands = []

    class Done:
        returncode = 0

    def keep(command, **_):
        commands.append([str(part) for part in command])
        return Done

    real, app.subprocess.run = app.subprocess.run, keep
    try:
        app.scale(path, folder / "scaled.mp4", 320)
    finally:
        app.subprocess.run = real
    return commands[0]


def traced(case: Case, made: Made, folder: Path) -> tuple[str, list[str]]:
    """What runs under the plugin, and the plugin's option for it."""
    if case.function == "resize":
        return ",start=now", scaling_command(made.path, folder)
    command = [sys.executable, str(HERE / "run_handler.py"), case.function, str(made.path), "{}"]
    if case.function == "speech":
        command.append(str(ROOT / ".deps" / "inputs" / "speech" / "card.wav"))
    return "", command


def record(case: Case, folder: Path) -> dict:
    made = MAKERS[case.function](case, folder)
    raw, stats_path = folder / "raw", folder / "stats.json"
    option, command = traced(case, made, folder)
    plugin = f"{folder / 'cache_filter.so'},out={raw},stats={stats_path}{option}"
    # ffmpeg starts as many threads as it may use processors; the function is measured on one.
    one_processor = ["taskset", "-c", str(min(os.sched_getaffinity(0)))] if case.function == "resize" else []
    qemu = [*one_processor, "qemu-x86_64", "-cpu", "max", "-plugin", plugin]
    subprocess.run([*qemu, *command], check=True, timeout=RUN_TIMEOUT_S, stdin=subprocess.DEVNULL)
    stats = json.loads(stats_path.read_text())
    curve = json.loads(subprocess.check_output([folder / "way_curve", raw]))
    whole = round(stats["instructions"] / made.share)
    row = {
        "name": case.name,
        "function": case.function,
        "role": case.role,
        "input_bytes": made.bytes,
        "features": words(made.features),
        "recipe": made.recipe,
        "trace": "",
        "sampling": 1,
        "instructions": stats["instructions"],
        "whole_instructions": whole,
        "accesses": stats["accesses"],
        "l2_misses": stats["l2_misses"],
        "records": stats["records"],
        "trace_bytes": 0,
    }
    for ways in WAYS:
        row[f"warm_{ways}"], row[f"cold_{ways}"] = curve["warm"][ways - 1], curve["cold"][ways - 1]
    if case.role == "table":
        is_sheet = case.function == "blur" and len(case.parts) > 1
        row["sampling"] = SAMPLING_OF_SHEETS if is_sheet else SAMPLING[case.function]
        trace = pack(case, made, raw, row, folder)
        row["trace"], row["trace_bytes"] = trace.name, trace.stat().st_size
    raw.unlink()
    made.path.unlink()
    return row


def words(features: dict) -> str:
    return " ".join(f"{name}={value}" for name, value in features.items())


def pack(case: Case, made: Made, raw: Path, row: dict, folder: Path) -> Path:
    trace = DATA / f"{case.name}.trace.zst"
    options = {
        "--stats": folder / "stats.json",
        "--function": case.function,
        "--input": f"{made.recipe}; {words(made.features)}",
        "--input-bytes": made.bytes,
        "--whole-instructions": row["whole_instructions"],
        "--keep-one-in": row["sampling"],
    }
    packer = [ROOT / "target" / "release" / "nigh", "llc", "pack-trace", raw, trace]
    subprocess.run([*packer, *(f"{name}={value}" for name, value in options.items())], check=True)
    return trace


def read_rows() -> dict[str, dict]:
    if not CURVES.exists():
        return {}
    with CURVES.open(newline="") as file:
        return {row["name"]: row for row in csv.DictReader(file)}


def write_rows(rows: dict[str, dict]) -> None:
    with CURVES.open("w", newline="") as file:
        # No field has a comma, so that whoever reads this needs no more than to split at them.
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n", quoting=csv.QUOTE_NONE)
        writer.writeheader()
        writer.writerows(rows[case.name] for case in CASES if case.name in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("prefix", nargs="*", help="record these cases (again); without one, those not recorded yet")
    parser.add_argument("--role", choices=("table", "held-out"), help="of these alone")
    arguments = parser.parse_args()
    prefixes = tuple(arguments.prefix)
    DATA.mkdir(parents=True, exist_ok=True)
    # One thread a library; hashes that do not change the work from run to run.
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", PYTHONHASHSEED="0", PYTHONDONTWRITEBYTECODE="1")
    with tempfile.TemporaryDirectory(prefix="llc-traces-") as name:
        folder = Path(name)
        build(folder)
        for case in (case for case in CASES if arguments.role in (None, case.role)):
            if case.name.startswith(prefixes) if prefixes else case.name not in read_rows():
                began = time.monotonic()
                row = record(case, folder)
                write_rows(read_rows() | {case.name: row})
                seconds = time.monotonic() - began
                print(f"{case.name}: {row['instructions'] / 1e6:.0f} M instructions, {row['records']} records, "
                      f"{row['trace_bytes']} bytes, {seconds:.0f} s", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
