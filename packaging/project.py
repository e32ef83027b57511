"""What all packages say alike: the version, the commit's time, and the names of a processor architecture."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUMMARY = "Serverless functions near their data"
DESCRIPTION = (
    "Runs AWS Lambda functions on your own machines, with S3, Lambda and OpenWhisk APIs, and keeps the objects that "
    "they read and write in memory."
)
# The client's native module: a library that Nigh lends to functions, and the wheel has as a module.
NATIVE = "libnigh_native.so"
# Cargo's package and the program in it, or the library.
PROGRAMS = {
    "nigh": "nigh",
    "nigh-sandbox": "nigh-sandbox",
    "nigh-sizing": "nigh-features",
    "nigh-lambda": "nigh-http-adapter",
    "nigh-python": NATIVE,
}
# With Google Cloud Storage and Azure as stores.
FEATURES = "nigh/cloud-stores"


@dataclass(frozen=True)
class Architecture:
    """One architecture's names in Rust, Debian, OCI and among compilers."""

    rust: str
    debian: str
    oci: str
    gcc: str
    # Debian's packages to build for it on another architecture.
    cross_packages: tuple[str, ...]

    @property
    def target(self):
        """Rust's target."""
        return f"{self.rust}-unknown-linux-gnu"


ARCHITECTURES = {
    "x86_64": Architecture("x86_64", "amd64", "amd64", "x86_64-linux-gnu-gcc",
                           ("gcc-x86-64-linux-gnu", "libc6-dev-amd64-cross")),
    "aarch64": Architecture("aarch64", "arm64", "arm64", "aarch64-linux-gnu-gcc",
                            ("gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross")),
}


def version():
    """The workspace's version."""
    manifest = (ROOT / "Cargo.toml").read_text()
    return re.search(r'^version = "([^"]+)"', manifest.partition("[workspace.package]")[2], re.M)[1]


def git(*arguments):
    """What git says of this repository."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def commit():
    """The commit's id and time in seconds."""
    name, seconds = git("log", "-1", "--format=%H %ct").split()
    return name, int(seconds)
