#!/usr/bin/env python3
"""Counts the mutants of the Python client and hook that the tests catch, and writes experiments/mutants/python.json.

A mutant is the program with one small change (cosmic-ray makes them). It is caught if a test fails. The tests are the
modules that exercise the files; each mutant runs in a copy of the sources, so the clone is never changed.

What has been tried is kept in target/mutants: a run that was stopped goes on. A file that changed is tried anew; mutants
that no test caught are tried anew when the tests changed. A mutant in accepted-python.toml needs no test, for the reason
that stands there. Fails if a mutant is missed and not accepted, if an accepted one was caught, or below the target.
"""

import argparse
import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections import Counter
from contextlib import closing
from pathlib import Path

import machine

PROJECT = machine.PROJECT
COSMIC_RAY = "8.7.0"
TOOL = PROJECT / ".deps" / "cosmic-ray"
PYTHON = PROJECT / ".deps" / "python" / "bin" / "python"
SOURCES = Path("runtimes/python")
KEPT = PROJECT / "target" / "mutants" / "python"
ACCEPTED = Path(__file__).with_name("accepted-python.toml")
RESULT = PROJECT / "experiments" / "mutants" / "python.json"
# The files, and the modules that test them: the fast ones first, for most mutants end there.
TESTS = {
    "wire.py": ("test_wire",),
    "errors.py": ("test_errors",),
    "connection.py": ("test_handshake", "test_connection", "test_pool"),
    "segment.py": ("test_segment", "test_connection", "test_pool"),
    "hook_request.py": ("test_hook", "test_hook_parts"),
    "hook_result.py": ("test_hook", "test_hook_parts"),
}
# Of these files one mutant in so many is tried, of all others each.
DRAWN = {"connection.py": 5, "segment.py": 5, "hook_result.py": 5}
# On an idle machine the longest of the tests take a twentieth of it.
TIMEOUT_S = 120
CAUGHT_SHARE_MIN = 0.9


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help=f"only these files, by commas, and write no result ({', '.join(TESTS)})")
    only = parser.parse_args().only
    files = only.split(",") if only else TESTS
    # The mutants are of the client in Python.
    os.environ["NIGH_NATIVE"] = "off"
    install()
    of_machine = machine.read()
    accepted = tomllib.loads(ACCEPTED.read_text(encoding="utf-8"))["mutant"]
    rows = [row_of(name, tried(name), accepted) for name in files]
    for row in rows:
        print(f"{row['file']}: {row['caught']} of {row['viable']} caught ({row['caught_share']:.1%})")
    low = [row["file"] for row in rows if row["caught_share"] < CAUGHT_SHARE_MIN]
    missed = [one for row in rows for one in row["missed"]]
    keys = {key(one) for one in missed}
    needless = [one for one in accepted if one["file"] in files and key(one) not in keys]
    faults = [f"{name} is below {CAUGHT_SHARE_MIN:.0%}" for name in low]
    faults += [f"not caught: {told(one)}" for one in missed if "reason" not in one]
    faults += [f"accepted, but caught or not drawn: {told(one)}" for one in needless]
    if not only:
        RESULT.parent.mkdir(exist_ok=True)
        tool = f"cosmic-ray {COSMIC_RAY}"
        result = {"machine": of_machine, "tool": tool, "tests": TESTS, "timeout_s": TIMEOUT_S, "rows": rows}
        RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print("\n".join(faults), file=sys.stderr, end="\n" if faults else "")
    return 1 if faults else 0


def install():
    if not TOOL.exists():
        venv.create(TOOL, with_pip=True)
        pip = [TOOL / "bin/python", "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, f"cosmic-ray=={COSMIC_RAY}"], check=True)


def tried(name):
    """All mutants of a file with their results, as cosmic-ray prints them."""
    source = PROJECT / SOURCES / "nigh" / name
    one_in = DRAWN.get(name, 1)
    session = KEPT / f"{source.stem}-{digest([source])}-{one_in}.sqlite"
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / SOURCES
        shutil.copytree(PROJECT / SOURCES, copy, ignore=shutil.ignore_patterns("__pycache__"))
        (Path(folder) / "tests").mkdir()
        shutil.copy(PROJECT / "tests" / "skipped.py", Path(folder) / "tests")
        config = Path(folder) / "config.toml"
        command = " ".join([str(PYTHON), "-m", "unittest", "-f", *(f"tests.{module}" for module in TESTS[name])])
        config.write_text(
            f'[cosmic-ray]\nmodule-path = "nigh/{name}"\ntimeout = {TIMEOUT_S}.0\nexcluded-modules = []\n'
            f'test-command = "{command}"\ndistributor.name = "local"\n'
        )

        def cosmic_ray(*arguments):
            done = subprocess.run([TOOL / "bin/cosmic-ray", *arguments], cwd=copy, stdout=subprocess.PIPE, check=True)
            return done.stdout.decode()

        if not session.exists():
            KEPT.mkdir(parents=True, exist_ok=True)
            fresh = Path(folder) / "fresh.sqlite"
            cosmic_ray("init", config, fresh)
            draw(fresh, one_in)
            shutil.move(fresh, session)
        retry_missed(session)
        # Else every mutant would count as caught.
        whole = subprocess.run(command.split(), cwd=copy, capture_output=True, text=True)
        if whole.returncode != 0:
            sys.exit(f"{whole.stderr}\nThe tests of {name} fail without a mutant.")
        cosmic_ray("exec", config, session)
        lines = cosmic_ray("dump", session).splitlines()
    return [json.loads(line) for line in lines]


def draw(session, one_in):
    """Leaves one mutant in so many, spread over the whole file."""
    with closing(sqlite3.connect(session)) as database, database:
        order = "start_pos_row, start_pos_col, operator_name, occurrence"
        jobs = database.execute(f"SELECT job_id FROM mutation_specs ORDER BY {order}").fetchall()
        for table in ("mutation_specs", "work_items"):
            left_out = [job for place, job in enumerate(jobs) if place % one_in]
            database.executemany(f"DELETE FROM {table} WHERE job_id = ?", left_out)


def retry_missed(session):
    """Forgets which mutants no test caught, or only the time-out, if tests changed since."""
    now = digest(sorted((PROJECT / SOURCES).rglob("*.py")))
    with closing(sqlite3.connect(session)) as database, database:
        database.execute("CREATE TABLE IF NOT EXISTS missed_by (tests TEXT)")
        if database.execute("SELECT tests FROM missed_by").fetchall() != [(now,)]:
            database.execute("DELETE FROM work_results WHERE test_outcome = 'SURVIVED' OR output = 'timeout'")
            database.execute("DELETE FROM missed_by")
            database.execute("INSERT INTO missed_by VALUES (?)", (now,))


def digest(paths):
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:16]


def row_of(name, results, accepted):
    """The counts of a file. `caught` counts time-outs too."""
    reasons = {key(one): one["reason"] for one in accepted}
    outcomes = Counter(result["test_outcome"] for _, result in results)
    unviable = outcomes["incompetent"]
    viable, caught = len(results) - unviable, outcomes["killed"]
    missed = []
    for item, result in results:
        if result["test_outcome"] != "survived":
            continue
        mutation = item["mutations"][0]
        changed = [line for line in result["diff"].splitlines() if line[0] in "+-" and line[:3] not in ("+++", "---")]
        was, becomes = (" ".join(line[1:].strip() for line in changed if line[0] == sign) for sign in "-+")
        one = {"file": name, "in": mutation["definition_name"] or "", "was": was, "becomes": becomes}
        missed.append({**one, "reason": reasons[key(one)]} if key(one) in reasons else one)
    missed.sort(key=key)
    timeout = sum(result["output"] == "timeout" for _, result in results)
    row = {"file": name, "one_in": DRAWN.get(name, 1), "tried": len(results), "unviable": unviable, "viable": viable}
    return {**row, "caught": caught, "timeout": timeout, "caught_share": round(caught / viable, 4), "missed": missed}


def key(one):
    return one["file"], one["in"], one["was"], one["becomes"]


def told(one):
    return f"{one['file']} {one['in']}: {one['was']} -> {one['becomes']}"


if __name__ == "__main__":
    sys.exit(main())
