#!/usr/bin/env python3
"""Runs the test programs that cargo builds: run_tests.py CARGO_ARGUMENT...

`cargo test` runs one program after another, and most of them wait more than they compute. Here they run two at a time;
those that use all processors, or measure, run alone. What a program prints is shown in one piece when it has ended, with
its seconds. Exits with 1 if a program failed.
"""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

AT_ONCE = 2
ALONE = {"cluster_faults", "end_to_end", "experiments", "kernel_vm", "openwhisk_vm", "resctrl_vm"}


def programs(arguments):
    """The test programs, as (folder of the crate, name, file)."""
    command = ["cargo", "test", *arguments, "--no-run", "--message-format=json-render-diagnostics"]
    built = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    found = []
    for line in built.splitlines():
        message = json.loads(line)
        if message["reason"] == "compiler-artifact" and message["profile"]["test"] and message["executable"]:
            crate = Path(message["manifest_path"]).parent
            found.append((crate, message["target"]["name"], message["executable"]))
    return found


def run(crate, file):
    """What a program printed, how it ended, and its seconds."""
    began = time.monotonic()
    # Cargo tells programs where their crate is, and runs them there.
    environment = os.environ | {"CARGO_MANIFEST_DIR": str(crate)}
    ended = subprocess.run([file, "--show-output"], cwd=crate, env=environment, stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    return ended.stdout, ended.returncode, time.monotonic() - began


def main():
    """Runs all, and says which programs failed."""
    all_programs, failed = programs(sys.argv[1:]), []
    for at_once in (AT_ONCE, 1):
        with ThreadPoolExecutor(at_once) as pool:
            mine = [program for program in all_programs if (program[1] in ALONE) == (at_once == 1)]
            running = {pool.submit(run, crate, file): f"{crate.name}: {name}" for crate, name, file in mine}
            for end in as_completed(running):
                output, code, seconds = end.result()
                print(f"     Running {running[end]} ({seconds:.0f} s)\n{output}", flush=True)
                if code != 0:
                    failed.append(f"{running[end]} ended with {code}")
    for program in failed:
        print(f"error: {program}")
    sys.exit(bool(failed))


main()
