#!/usr/bin/env python3
"""Makes a release in `dist/`: the archive, the Python package, the Debian package and the OCI image of the commit.

    packaging/release.py                       all, for this machine's architecture
    packaging/release.py --architecture aarch64
    packaging/release.py --programs FOLDER     packs the programs of a folder instead of building them

The same commit gives the same bytes wherever it is built; in the image, as long as Debian's packages are the same. Beside
the packages are the list of their parts (CycloneDX), the licences, and SHA256SUMS.
"""

import argparse
import hashlib
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import build
import components
import debian_files
import project
import python_packages
import roots
from kinds import debian, image, portable, wheel
from kinds.layout import Release

KINDS = ("portable", "wheel", "debian", "image")
# The most that a package may weigh.
LIMITS_MB = {"portable": 25, "wheel": 30}
ERRORS = (build.BuildError, components.ComponentError, debian_files.AptError, python_packages.PackagesError,
          roots.RootError)


class TooLarge(RuntimeError):
    """A package exceeds its limit."""


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--architecture", choices=sorted(project.ARCHITECTURES), default=os.uname().machine)
    parser.add_argument("--programs", type=Path, metavar="FOLDER", help="the folder of programs that are built already")
    parser.add_argument("--with-tools-here", action="store_true",
                        help="build with this machine's C compiler and glibc; needs no root, and gives other bytes")
    parser.add_argument("--only", choices=KINDS, nargs="+", default=KINDS, metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--out", type=Path, default=project.ROOT / "dist", metavar="FOLDER")
    return parser.parse_args()


def programs(given):
    """The programs' bytes, by their names."""
    architecture = project.ARCHITECTURES[given.architecture]
    if given.programs:
        found = {name: (given.programs / name).read_bytes() for name in project.PROGRAMS.values()}
        return build.check(found, architecture)
    if changed := project.git("status", "--porcelain", "--untracked-files=no"):
        raise build.BuildError(f"a release is made of a commit; commit these changes first:\n{changed}")
    folder = project.ROOT / "target/release-build"
    return build.build(architecture, folder, in_root=not given.with_tools_here)


def packages(release, crates, only):
    """Each kind's file name and bytes, and lists of the parts of those that bring more than the programs."""
    made = {}
    if "portable" in only:
        made["portable"] = portable.build(release)
    if "wheel" in only:
        made["wheel"] = wheel.build(release)
    if not {"debian", "image"} & set(only):
        return made
    python = python_packages.environment(release.architecture)
    parts = [*crates, *(components.Component("pypi", *one) for one in python_packages.components(python))]
    release = replace(release, sbom=components.sbom(parts, release.commit, release.epoch))
    if "debian" in only:
        made["debian"] = debian.build(release, python)
        made["its parts"] = (f"{made['debian'][0]}.cdx.json", release.sbom.encode())
    if "image" in only:
        name, data, system = image.make(release, python)
        made["image"] = (name, data)
        listed = components.sbom([*parts, *system], release.commit, release.epoch)
        made["image's parts"] = (name.replace(".tar", ".cdx.json"), listed.encode())
    return made


def make(given):
    """Makes all, and says what it made."""
    commit, epoch = project.commit()
    architecture = project.ARCHITECTURES[given.architecture]
    crates = components.crates(architecture)
    texts = components.licences(crates), components.sbom(crates, commit, epoch)
    release = Release(project.version(), commit, epoch, architecture, programs(given), *texts)
    made = packages(release, crates, given.only)
    made["licences"] = ("THIRD-PARTY.txt", release.licences.encode())
    made["parts"] = (f"nigh-{release.version}-{architecture.rust}.cdx.json", release.sbom.encode())
    given.out.mkdir(parents=True, exist_ok=True)
    for kind, (name, data) in made.items():
        limit = LIMITS_MB.get(kind)
        if limit and len(data) > limit * 1_000_000:
            raise TooLarge(f"{name} has {len(data) / 1e6:.1f} MB; at most {limit} are allowed")
        (given.out / name).write_bytes(data)
        print(f"{len(data) / 1e6:8.1f} MB  {given.out.name}/{name}")
    names = sorted(path.name for path in given.out.iterdir() if path.is_file() and path.name != "SHA256SUMS")
    sums = [f"{hashlib.sha256((given.out / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    (given.out / "SHA256SUMS").write_text("".join(sums))
    print(f"of commit {commit[:12]}, for Linux with glibc {release.glibc} or newer on {architecture.rust}")


def main():
    """Exits with 1 and the reason if something could not be made."""
    began = time.monotonic()
    try:
        make(arguments())
    except (*ERRORS, TooLarge, OSError, subprocess.SubprocessError) as error:
        sys.exit(f"release: {error}")
    print(f"in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
