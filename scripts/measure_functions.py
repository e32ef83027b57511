#!/usr/bin/env python3
"""Measures each sample function alone: import, first run, second run, and peak memory, per input.

Run it with .deps/python/bin/python. Each row is its own process. The S3 client is replaced by a dictionary, so what is
measured is the function's own work (its transformation) and not a store. Times are of the processor, of the process and
of those it started (ffmpeg), so that other programs on the machine hardly change them. `peak MB` is the peak resident
size of the process or of the largest one it started, whichever is larger; both at once need up to the sum.
"""

import argparse
import importlib.util
import json
import os
import platform
import resource
import subprocess
import sys
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FUNCTIONS = ROOT / "functions"
INPUTS = ROOT / ".deps" / "inputs"
# The sizes of the manifest that the table shows, and how long one function may take on one of them.
SIZES = ("tiny", "small", "medium", "large", "huge")
ROW_TIMEOUT_S = 600


class DictionaryStore:
    """The two calls the functions make, answered at once."""

    def __init__(self, objects: dict[str, bytes]):
        self.objects = objects

    def get_object(self, Bucket: str, Key: str) -> dict:
        from botocore.response import StreamingBody

        data = self.objects[Key]
        return {"Body": StreamingBody(BytesIO(data), len(data))}

    def put_object(self, Bucket: str, Key: str, Body, ContentType: str) -> dict:
        self.objects[Key] = Body if isinstance(Body, bytes) else Body.read()
        return {}


def usage() -> tuple[float, float]:
    """Processor time in ms of this process and of those it started and saw end; the larger one's peak in KB."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(used.ru_utime + used.ru_stime for used in both) * 1000, max(used.ru_maxrss for used in both)


def measure(function: str, name: str, arguments: dict) -> dict:
    """One row, in this process."""
    os.environ.update(AWS_DEFAULT_REGION="us-east-1", AWS_ACCESS_KEY_ID="none", AWS_SECRET_ACCESS_KEY="none")
    event = {"input": {"bucket": "b", "key": name}, "output": {"bucket": "b", "key": "out"}, **arguments}

    began_ms, _ = usage()
    times_ms = []
    spec = importlib.util.spec_from_file_location("app", FUNCTIONS / function / "app.py")
    app = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(app)
    times_ms.append(usage()[0] - began_ms)

    objects = {name: (INPUTS / name).read_bytes()}
    app.s3 = DictionaryStore(objects)
    for _ in range(2):
        began_ms, _ = usage()
        app.handler(event, None)
        times_ms.append(usage()[0] - began_ms)
    _, peak_kb = usage()
    init_ms, first_ms, second_ms = times_ms
    return {
        "function": function,
        "input": name,
        "input_bytes": len(objects[name]),
        "output_bytes": len(objects["out"]),
        "init_processor_ms": init_ms,
        "first_processor_ms": first_ms,
        "second_processor_ms": second_ms,
        "peak_mb": peak_kb / 1024,
    }


def read_toml(path: Path) -> dict:
    try:
        import tomllib
    except ModuleNotFoundError:  # Python 3.10: pip carries the same reader.
        from pip._vendor import tomli as tomllib
    return tomllib.loads(path.read_text(encoding="utf-8"))


def plan(sizes: set[str], only: str | None) -> list[tuple[str, str, dict]]:
    """Each function with its first input of each size, small ones first."""
    manifest = json.loads((INPUTS / "MANIFEST.json").read_text(encoding="utf-8"))
    rows = []
    for description in sorted(FUNCTIONS.glob("*/function.toml")):
        function = read_toml(description)
        if only not in (None, function["name"]):
            continue
        takes = [
            entry
            for entry in manifest["inputs"]
            if entry["kind"] == function["input"]["kind"]
            and Path(entry["path"]).suffix == function["input"]["suffixes"][0]
            and entry["size"] in sizes
        ]
        first_of_size = {entry["size"]: entry["path"] for entry in reversed(takes)}
        for size in SIZES:
            if size in first_of_size:
                rows.append((function["name"], first_of_size[size], function.get("arguments", {})))
    return rows


def machine() -> str:
    processors = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(":")[1].strip() for line in processors if line.startswith("model name")]
    model = models[0] if models else platform.machine()
    return f"{os.cpu_count()} x {model}, Linux {platform.release()}, Python {platform.python_version()}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--sizes", default=",".join(SIZES), help="which sizes of the manifest (default: %(default)s)")
    parser.add_argument("--function", help="only this one")
    parser.add_argument("--row", nargs=3, metavar=("FUNCTION", "INPUT", "ARGUMENTS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        function, name, arguments = options.row
        print(json.dumps(measure(function, name, json.loads(arguments))))
        return 0

    sizes = set(options.sizes.split(","))
    if not sizes <= set(SIZES):
        parser.error(f"sizes are {', '.join(SIZES)}")
    try:
        planned = plan(sizes, options.function)
    except FileNotFoundError as error:
        print(f"measure-functions: {error}. Run scripts/fetch_inputs.py first.", file=sys.stderr)
        return 1
    rows = []
    if not options.json:
        print(f"{machine()}; one thread for numpy\n")
        print("| function | input | bytes in | bytes out | init ms | first ms | second ms | peak MB |")
        print("|---|---|--:|--:|--:|--:|--:|--:|")
    for function, name, arguments in planned:
        command = [sys.executable, __file__, "--row", function, name, json.dumps(arguments)]
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            text=True,
            timeout=ROW_TIMEOUT_S,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        if done.returncode != 0:
            print(f"measure-functions: {function} failed on {name}", file=sys.stderr)
            return 1
        row = json.loads(done.stdout)
        rows.append(row)
        if not options.json:
            print(
                f"| {row['function']} | {row['input']} | {row['input_bytes']:,} | {row['output_bytes']:,} "
                f"| {row['init_processor_ms']:.0f} | {row['first_processor_ms']:.0f} "
                f"| {row['second_processor_ms']:.0f} | {row['peak_mb']:.0f} |",
                flush=True,
            )
    if options.json:
        print(json.dumps({"machine": machine(), "rows": rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
