#!/usr/bin/env python3
"""Mutation testing of the pure crates: one operator or one function's value is changed at a time, and a test must fail.

Each set draws every n-th mutant of its files. The unit tests of the mutant's own crate run first. A mutant that they miss
is tried once more with all tests of that crate and of the crates that use it. `accepted.toml` says why a missed one may
stay: the changed program means the same, or changes what nobody is promised.

Needs Python 3.11 and `cargo install cargo-mutants --version 27.1.0`. It changes source files in place and puts them back,
so run it in a clone of its own:

    git clone . ../nigh-mutants && cd ../nigh-mutants
    scripts/mutants/measure.py --out experiments/mutants/result.json

It may be stopped at any time. Each outcome is kept in `target/mutants`: the next run tries only what has not been tried,
and what was missed and is not accepted. If it was killed, `git checkout crates` puts the last mutant back.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import machine

PROJECT = Path(__file__).resolve().parents[2]
ENGINE = "crates/nigh-engine/src"
# Of a set: its crate, its files (all if none are named), one mutant in how many, the unit tests that run first, and the
# crates whose tests run last.
SETS = {
    "conditions": ("nigh-data", ["crates/nigh-data/src/conditions.rs"], 1, ["conditions"], ["nigh-data", "nigh-objects"]),
    "budget": ("nigh-schedule", ["crates/nigh-schedule/src/memory/**"], 2, ["memory"], ["nigh-schedule", "nigh-dispatch"]),
    "protocol": ("nigh-protocol", [], 6, [], ["nigh-protocol", "nigh-check"]),
    "ledger formats": (
        "nigh-engine",
        [f"{ENGINE}/{name}.rs" for name in ("commit_format", "format_range", "journal/format", "journal/found", "journal/newest",
                                            "journal/tail", "record_log", "record_log/kept", "record_log/waiting")],
        4,
        [],
        ["nigh-engine"],
    ),
    "schedule": ("nigh-schedule", [], 12, ["--", "--skip", "random_run"], ["nigh-schedule", "nigh-dispatch"]),
}  # fmt: skip
KINDS = ("caught", "missed", "timeout", "unviable")
# Of each set, the share of the viable mutants that the tests must notice.
CAUGHT_SHARE_MIN = 0.9
# A test that takes five times what it takes without a mutant, and at least this, does not end.
TIMEOUT_S_MIN = 60
# A mutant that allocates without end fails, and leaves the machine its memory.
DATA_BYTES_MAX = 6 << 30
# A failed property would keep its input for the mutants that follow.
ENVIRONMENT = os.environ | {"PROPTEST_DISABLE_FAILURE_PERSISTENCE": "true", "PROPTEST_MAX_SHRINK_ITERS": "0"}


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (DATA_BYTES_MAX, DATA_BYTES_MAX))


def run(command: list[str]) -> int:
    """The code of a command whose progress goes where the errors go."""
    ended = subprocess.run(command, cwd=PROJECT, env=ENVIRONMENT, stdout=sys.stderr, preexec_fn=limited, check=False)
    return ended.returncode


def listed(name: str) -> list[str]:
    """All mutants of a set, in the order of its files."""
    return subprocess.check_output(["cargo", "mutants", "--list", *of_set(name)], cwd=PROJECT, text=True).splitlines()


def of_set(name: str) -> list[str]:
    crate, files, *_ = SETS[name]
    return ["--package", crate, *(word for file in files for word in ("--file", file))]


class Tests:
    """The tests by which mutants are tried: all of some crates, or only unit tests."""

    def __init__(self, crates: list[str], built: list[str], chosen: list[str]):
        self.crates, self.built, self.chosen = crates, built, chosen
        self.timeout_s = None

    def time_without_mutant(self) -> None:
        """They must pass: else each mutant would count as caught."""
        command = ["cargo", "test", *(word for crate in self.crates for word in ("-p", crate)), *self.built]
        if run([*command, "--no-run"]) != 0:
            sys.exit(f"without a mutant, tests do not build: {' '.join(command)}")
        began = time.monotonic()
        if run([*command, *self.chosen]) != 0:
            sys.exit(f"without a mutant, tests fail: {' '.join([*command, *self.chosen])}")
        self.timeout_s = max(TIMEOUT_S_MIN, round(5 * (time.monotonic() - began)))

    def play(self, name: str, place: int, of: int, folder: Path) -> int:
        """Tries one mutant of a set, by its place among all, and leaves its outcome in `folder`."""
        if self.timeout_s is None:
            self.time_without_mutant()
        command = ["cargo", "mutants", "--in-place", "--baseline", "skip", "--output", folder, *of_set(name)]
        # `--re` does not choose: mutants that delete a field come along, whatever it says.
        command += ["--no-shuffle", "--sharding", "round-robin", "--shard", f"{place}/{of}"]
        command += ["--timeout", str(self.timeout_s), "--test-package", ",".join(self.crates)]
        command += [f"--cargo-arg={word}" for word in self.built]
        return run([*command, "--", *self.chosen])


class Outcomes:
    """What became of a set's mutants, kept in a file."""

    def __init__(self, name: str, work: Path):
        crate, _, _, first, users = SETS[name]
        self.name = name
        self.stages = {"own": Tests([crate], ["--lib"], first), "users": Tests(users, [], [])}
        self.folder = work / name.replace(" ", "-")
        self.file = self.folder / "outcomes.json"
        self.by_stage = json.loads(self.file.read_text()) if self.file.exists() else {stage: {} for stage in self.stages}
        # A run that was stopped has left its last outcomes.
        for stage in self.stages:
            self.collect(stage)

    def collect(self, stage: str) -> None:
        lists = [(kind, self.folder / stage / "mutants.out" / f"{kind}.txt") for kind in KINDS]
        for kind, file in lists:
            if file.exists():
                self.by_stage[stage] |= dict.fromkeys(file.read_text().splitlines(), kind)
        if self.folder.exists():
            self.file.write_text(json.dumps(self.by_stage, indent=1))
        for _, file in lists:
            file.unlink(missing_ok=True)

    def of(self, mutant: str) -> str | None:
        """None if a stage is still to be played."""
        own = self.by_stage["own"].get(mutant)
        return self.by_stage["users"].get(mutant) if own == "missed" else own

    def play(self, mutants: list[str], all_of_set: list[str], end_s: float) -> None:
        last = [mutant for mutant in mutants if self.by_stage["own"].get(mutant) == "missed" and self.of(mutant) is None]
        for stage, tests in self.stages.items():
            folder = self.folder / stage
            folder.mkdir(parents=True, exist_ok=True)
            for mutant in mutants:
                if mutant in last if stage == "own" else self.by_stage["own"].get(mutant) != "missed":
                    continue
                if time.monotonic() >= end_s:
                    return
                code = tests.play(self.name, all_of_set.index(mutant), len(all_of_set), folder)
                self.collect(stage)
                # It may be missed, or its tests may not end.
                if code not in (0, 2, 3) or mutant not in self.by_stage[stage]:
                    sys.exit(f"cargo mutants ended with {code}: {mutant}")


class Accepted:
    """Why missed mutants may stay. One is named by its file, its change and its line's text, which other changes move."""

    def __init__(self, file: Path):
        listed = tomllib.loads(file.read_text()).get("accepted", [])
        self.reasons = {(one["mutant"], one["line"]): one["why"] for one in listed}

    def reason(self, mutant: str) -> str | None:
        file, line, _, what = mutant.split(":", 3)
        text = (PROJECT / file).read_text().splitlines()[int(line) - 1]
        return self.reasons.get((f"{file}:{what}", text.strip()))


def row(name: str, mutants: list[str], outcomes: Outcomes, accepted: Accepted) -> dict:
    by_kind = {kind: [mutant for mutant in mutants if outcomes.of(mutant) == kind] for kind in KINDS}
    tried = sum(map(len, by_kind.values()))
    caught = len(by_kind["caught"]) + len(by_kind["timeout"])
    viable = caught + len(by_kind["missed"])
    missed = [{"mutant": mutant, "accepted": accepted.reason(mutant)} for mutant in by_kind["missed"]]
    return {"set": name, "crate": SETS[name][0], "one_of": SETS[name][2], "drawn": len(mutants), "tried": tried,
            "viable": viable, "caught": caught, "timeout": len(by_kind["timeout"]), "unviable": len(by_kind["unviable"]),
            "caught_share": round(caught / max(viable, 1), 4), "missed": missed}  # fmt: skip


def cargo_mutants() -> str:
    return subprocess.check_output(["cargo", "mutants", "--version"], text=True).split()[-1]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--out", type=Path, required=True, help="the result's file")
    arguments.add_argument("--only", default=",".join(SETS), help="sets, separated by commas")
    arguments.add_argument("--minutes", type=float, default=float("inf"), help="begin no mutant after this time")
    arguments.add_argument("--work", type=Path, default=PROJECT / "target/mutants", help="where outcomes are kept")
    chosen = arguments.parse_args()
    if machine.git("status", "--porcelain", "--", "crates"):
        sys.exit("crates/ has changes: commit them, or undo what a killed run has left by `git checkout crates`")
    end_s = time.monotonic() + 60 * chosen.minutes
    accepted = Accepted(Path(__file__).parent / "accepted.toml")
    rows = []
    for name in chosen.only.split(","):
        all_of_set, outcomes = listed(name), Outcomes(name, chosen.work.absolute())
        mutants = all_of_set[:: SETS[name][2]]
        states = {mutant: outcomes.of(mutant) for mutant in mutants}
        again = [one for one, state in states.items() if state == "missed" and not accepted.reason(one)]
        outcomes.play([one for one, state in states.items() if state is None or one in again], all_of_set, end_s)
        rows.append(row(name, mutants, outcomes, accepted))
    viable, caught = (sum(row[field] for row in rows) for field in ("viable", "caught"))
    report = {"machine": {**machine.read(), "cargo_mutants": cargo_mutants()}, "rows": rows, "viable": viable, "caught": caught}
    report["caught_share"] = round(caught / max(viable, 1), 4)
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(json.dumps(report, indent=2) + "\n")
    wrong = [f"{row['set']}: caught {row['caught_share']:.2f}" for row in rows if row["caught_share"] < CAUGHT_SHARE_MIN]
    wrong += [f"missed: {one['mutant']}" for row in rows for one in row["missed"] if not one["accepted"]]
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
