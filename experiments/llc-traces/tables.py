#!/usr/bin/env python3
"""Prints data/llc-traces/curves.csv for readers: what was recorded, and misses and time by ways.

    experiments/llc-traces/tables.py > data/llc-traces/TABLES.md

Times are of the plainest model there is: so many cycles an instruction, a request to the last-level cache, and a miss
of it. They say which shapes to expect, not how fast anything runs.
"""

import csv
from pathlib import Path

CURVES = Path(__file__).resolve().parents[2] / "data" / "llc-traces" / "curves.csv"
WAYS = range(1, 12)
CYCLES_PER_INSTRUCTION = 0.6
CYCLES_PER_REQUEST = 50
CYCLES_PER_MISS = 200


def times(row: dict) -> list[float]:
    """Cycles with 1 to 11 ways, the cache warm."""
    base = CYCLES_PER_INSTRUCTION * int(row["instructions"]) + CYCLES_PER_REQUEST * int(row["l2_misses"])
    return [base + CYCLES_PER_MISS * int(row[f"warm_{ways}"]) for ways in WAYS]


def fewest(cycles: list[float], slower: float) -> int:
    """The fewest ways with which it is not slower than with all by more than this."""
    return next(ways for ways in WAYS if cycles[ways - 1] <= (1 + slower) * cycles[-1])


def thousands(misses: str) -> str:
    number = int(misses) / 1000
    return f"{number:.0f}" if number >= 100 else f"{number:.1f}"


def features(row: dict) -> str:
    media = dict(word.split("=") for word in row["features"].split())
    pixels = [f"{media['width']} x {media['height']}"] if "width" in media else []
    seconds = [f"{float(media['seconds']):.1f} s"] if "seconds" in media else []
    return ", ".join(pixels + seconds)


def table(header: list[str], rows: list[list[str]]) -> None:
    print("| " + " | ".join(header) + " |")
    print("|---" + "|--:" * (len(header) - 1) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |")


def main() -> None:
    with CURVES.open(newline="") as file:
        rows = list(csv.DictReader(file))
    print("Printed by `experiments/llc-traces/tables.py`; do not edit.\n")
    print("## Traces\n")
    share = lambda row: f"{100 * int(row['instructions']) / int(row['whole_instructions']):.3g} %"
    kept = [row for row in rows if row["trace"]]
    names = ["trace", "input bytes", "the whole input", "recorded", "M instructions", "records", "lines kept", "file bytes"]
    table(
        names,
        [
            [row["name"], row["input_bytes"], features(row), share(row), f"{int(row['instructions']) / 1e6:.0f}",
             row["records"], f"1/{row['sampling']}", row["trace_bytes"]]
            for row in kept
        ],
    )  # fmt: skip
    total = sum(int(row["trace_bytes"]) for row in kept)
    print(f"\n`records` counts all lines, before any is dropped. Together {total} bytes.\n")
    for state, meaning in (("warm", "the trace right after itself"), ("cold", "from an empty cache")):
        print(f"## Misses in thousands by ways, {state}: {meaning}\n")
        header = ["input", *(str(ways) for ways in WAYS)]
        extra = ["T1", "K1", "K5"] if state == "warm" else []
        lines = []
        for row in rows:
            cycles = times(row)
            line = [row["name"], *(thousands(row[f"{state}_{ways}"]) for ways in WAYS)]
            if extra:
                line += [f"{cycles[0] / cycles[-1]:.2f}", str(fewest(cycles, 0.01)), str(fewest(cycles, 0.05))]
            lines.append(line)
        table(header + extra, lines)
        print()
    print(
        f"T1: time with one way over time with all; K1, K5: the fewest ways within 1 % and 5 % of the time with all. "
        f"Cycles are {CYCLES_PER_INSTRUCTION} an instruction, {CYCLES_PER_REQUEST} a request, {CYCLES_PER_MISS} a miss."
    )


if __name__ == "__main__":
    main()
