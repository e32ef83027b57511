"""Builds the programs of a release: from a commit's files, at fixed paths, with the oldest supported glibc.

The compiler runs in a root of Debian's oldest supported release, so that the programs need no newer glibc, and so that
no path, tool or file of this machine reaches them. Rust is this machine's, as rust-toolchain.toml pins it.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import elf
import project
import roots

# Where the compiler sees things; programs quote these paths in messages.
SOURCE, TARGET, RUST, CARGO = "/nigh", "/build", "/rust", "/cargo"
# The C compiler and what the C libraries among the crates are built with.
PACKAGES = ["gcc", "libc6-dev", "make"]


class BuildError(RuntimeError):
    """The programs cannot be built."""


def environment(architecture, epoch, paths):
    """The compiler's whole environment. `paths` are those of the source, the target folder, Rust, and Cargo's home."""
    source, target, rust, cargo = paths
    name = architecture.target.replace("-", "_")
    gcc = "gcc" if is_native(architecture) else architecture.gcc
    canonical = [(source, SOURCE), (target, TARGET), (rust, RUST), (cargo, CARGO)]
    moved = [(here, there) for here, there in canonical if here != there]
    flags = " ".join(f"--remap-path-prefix={here}={there}" for here, there in moved)
    c_flags = " ".join(f"-ffile-prefix-map={here}={there}" for here, there in moved)
    return {
        "PATH": f"{rust}/bin:/usr/local/bin:/usr/bin:/bin",
        "HOME": "/tmp",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "SOURCE_DATE_EPOCH": str(epoch),
        "CARGO_HOME": cargo,
        "CARGO_TARGET_DIR": target,
        "CARGO_INCREMENTAL": "0",
        # Smaller programs, for a longer build than one's own needs.
        "CARGO_PROFILE_RELEASE_LTO": "fat",
        "CARGO_TERM_COLOR": "never",
        f"CARGO_TARGET_{name.upper()}_LINKER": gcc,
        f"CC_{name}": gcc,
        **({"RUSTFLAGS": flags, "CFLAGS": c_flags} if moved else {}),
    }


def command(architecture, rust):
    """Cargo's words."""
    packages = [word for package in project.PROGRAMS for word in ("-p", package)]
    return [f"{rust}/bin/cargo", "build", "--release", "--locked", "--offline", "--bins", "--lib", "--target",
            architecture.target, *packages, "--features", project.FEATURES]


def is_native(architecture):
    """Whether this machine is of the architecture."""
    return architecture.rust == os.uname().machine


def run(words, why, **options):
    """Runs a command; what it printed is the error if it fails."""
    try:
        return subprocess.run(words, check=True, text=True, **options)
    except (OSError, subprocess.CalledProcessError) as error:
        said = (getattr(error, "stderr", None) or "").strip()[-1500:]
        raise BuildError(f"{why}: {error} {said}".strip()) from error


def sysroot():
    """The folder of the pinned Rust."""
    said = run(["rustc", "--print", "sysroot"], "there is no Rust here; install it by rustup", cwd=project.ROOT,
               stdout=subprocess.PIPE)
    return Path(said.stdout.strip())


def export(commit, source):
    """Puts the commit's files into `source`. Those of another commit get new times, so that Cargo looks at them."""
    stamp = source.with_suffix(".commit")
    if stamp.exists() and stamp.read_text() == commit:
        return
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    packed = subprocess.run(["git", "archive", "--format=tar", commit], cwd=project.ROOT, check=True,
                            stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x", "-m", "-C", str(source)], input=packed.stdout, check=True)
    stamp.write_text(commit)


def build(architecture, folder, in_root=True):
    """Builds in `folder` and gives the programs' bytes by their names.

    Without `in_root` the compiler and glibc are this machine's."""
    commit, epoch = project.commit()
    source, target = folder / "source", folder / "target"
    export(commit, source)
    target.mkdir(parents=True, exist_ok=True)
    rust, cargo = sysroot(), Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    if not (rust / "lib/rustlib" / architecture.target).is_dir():
        raise BuildError(f"Rust's library for {architecture.target} is missing: rustup target add {architecture.target}")
    run(["cargo", "fetch", "--locked"], "the crates could not be fetched", cwd=source, stderr=subprocess.PIPE)
    if in_root:
        cross = [] if is_native(architecture) else list(architecture.cross_packages)
        fixed = environment(architecture, epoch, (SOURCE, TARGET, RUST, CARGO))
        words = ["env", "-i", f"--chdir={SOURCE}", *(f"{name}={value}" for name, value in fixed.items()),
                 *command(architecture, RUST)]
        with tempfile.TemporaryDirectory() as scratch:
            root = Path(scratch) / "root"
            roots.unpack(roots.kept(roots.OLDEST, PACKAGES + cross), root)
            # Not all of Cargo's home: its settings are this machine's.
            crates = (cargo / "registry", f"{CARGO}/registry")
            binds = [(source, SOURCE), (target, TARGET), (rust, RUST), crates]
            run(roots.command(root, words, binds, network=False), "the build failed")
    else:
        paths = (str(source), str(target), str(rust), str(cargo))
        run(command(architecture, rust), "the build failed", cwd=source, env=environment(architecture, epoch, paths))
    made = target / architecture.target / "release"
    return check({name: (made / name).read_bytes() for name in project.PROGRAMS.values()}, architecture)


def check(programs, architecture):
    """The programs, if they are for the architecture and need no library but glibc and gcc's."""
    allowed = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "libdl.so.2", "libpthread.so.0", "librt.so.1",
               "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
    for name, text in programs.items():
        if elf.machine(text) != architecture.rust:
            raise BuildError(f"{name} is for {elf.machine(text)}, not for {architecture.rust}")
        if more := set(elf.libraries(text)) - allowed:
            raise BuildError(f"{name} needs {', '.join(sorted(more))}, which not every machine has")
    return programs
