"""The Python package: the command, its programs, and the client with the hook for boto3.

A wheel (PEP 427) without a build back end. pip and uv put the command into the environment's `bin`, so that `uvx nigh` and
`pipx run nigh` start it, and what is under `data` into `lib/nigh` beside that. Python functions run with the
environment's interpreter: AWS's runtime client and boto3 are the package's dependencies.
"""

import base64
import hashlib

import archive
import project
from archive import Entry
from kinds import layout

# The oldest with wheels for Python 3.13, and the oldest that reads AWS_ENDPOINT_URL_S3 and checks new checksums.
DEPENDENCIES = ("awslambdaric>=3.0", "boto3>=1.36")
PYTHON = ">=3.10"
# What the hook and the client are; they are imported in functions and outside.
LIBRARY = project.ROOT / "runtimes/python/nigh"
# What `nigh.native` loads, and Pythons that cannot do without.
NATIVE = "nigh/nigh_native.abi3.so"


def tag(release):
    """The platform (PEP 600): every Python 3, Linux with this glibc."""
    glibc = release.glibc.replace(".", "_")
    return f"py3-none-manylinux_{glibc}_{release.architecture.rust}"


def metadata(release):
    """METADATA (core metadata 2.4)."""
    lines = [
        "Metadata-Version: 2.4", "Name: nigh", f"Version: {release.version}", f"Summary: {project.SUMMARY}",
        "License-Expression: Apache-2.0", "License-File: LICENSE", "License-File: THIRD-PARTY.txt",
        f"Requires-Python: {PYTHON}", *(f"Requires-Dist: {needed}" for needed in DEPENDENCIES),
        "Classifier: Operating System :: POSIX :: Linux", "Classifier: Programming Language :: Rust",
        "Description-Content-Type: text/markdown",
    ]
    text = f"{project.DESCRIPTION}\n\n    nigh up            # starts a node\n    nigh --help        # lists the commands\n"
    return "\n".join(lines) + f"\n\n{text}\nFor Python programs on the node's machine `nigh.Client` reads objects without a copy.\n"


def build(release):
    """The file's name and bytes."""
    name = f"nigh-{release.version}"
    info = f"{name}.dist-info"
    tree = archive.Tree()
    for path in sorted(LIBRARY.iterdir()):
        if path.suffix == ".py" or path.name == "py.typed":
            tree.file(f"nigh/{path.name}", path)
    tree.file(NATIVE, release.programs[project.NATIVE], 0o755)
    tree.file(f"{name}.data/scripts/nigh", release.programs["nigh"], 0o755)
    tree.graft(f"{name}.data/data/lib/nigh", layout.helpers(release))
    tree.file(f"{info}/METADATA", metadata(release))
    tree.file(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: nigh\nRoot-Is-Purelib: false\nTag: {tag(release)}\n")
    tree.file(f"{info}/licenses/LICENSE", project.ROOT / "LICENSE")
    tree.file(f"{info}/licenses/THIRD-PARTY.txt", release.licences)
    tree.file(f"{info}/sboms/nigh.cdx.json", release.sbom)
    files = [(path, entry) for path, entry in tree.sorted() if not entry.is_folder]
    # The files of dist-info come last, so that they can be read without reading all.
    files.sort(key=lambda item: item[0].startswith(info))
    record = "".join(f"{path},sha256={digest(entry.data)},{len(entry.data)}\n" for path, entry in files)
    files.append((f"{info}/RECORD", Entry(0o644, data=f"{record}{info}/RECORD,,\n".encode())))
    return f"{name}-{tag(release)}.whl", archive.zip_bytes(files, release.epoch)


def digest(data):
    """The hash in a RECORD."""
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
