"""The OCI image: Nigh, Python with AWS's runtime client and boto3, and the libraries that these need. No shell.

Made without a container engine: an image layout (image-spec 1.1) in a tar, which Docker, Podman, containerd and skopeo
read. The files of the system come from Debian's packages; of each only what a program in the image needs, found by the
libraries that ELF files name.
"""

import hashlib
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

import archive
import build
import debian_files
import elf
import project
import roots
from archive import Tree
from components import Component
from kinds import layout

PACKAGES = ["ca-certificates", "libc6", "libgcc-s1", "libstdc++6", "python3", "tzdata"]
USER = 65532
STATE = "var/lib/nigh"
# What nothing in the image needs from the packages that it is made of.
LEFT_OUT = ("/test/", "/idlelib/", "/ensurepip/", "/lib2to3/", "/pydoc_data/", "/tkinter/", "/turtledemo/", "/config-3.")
PORTS = (9400, 9401, 9402)
ENVIRONMENT = {
    "PATH": "/usr/bin",
    "NIGH_STATE": f"/{STATE}",
    # The container's network is its own: what its ports are mapped to decides who reaches them.
    "NIGH_ALLOW_REMOTE": "true",
    "NIGH_S3__LISTEN": f"0.0.0.0:{PORTS[0]}",
    "NIGH_LAMBDA__LISTEN": f"0.0.0.0:{PORTS[1]}",
    "NIGH_HEALTH__LISTEN": f"0.0.0.0:{PORTS[2]}",
}
SECOND_NS = 1_000_000_000


def is_wanted(path):
    """Whether a file of a Debian package is in the image whatever needs it."""
    if any(part in f"/{path}" for part in LEFT_OUT):
        return False
    if path.startswith("usr/share/doc/"):
        return path.endswith("/copyright")
    return path.startswith(("usr/bin/python3", "usr/lib/python3", "usr/share/zoneinfo/", "usr/lib64/ld-linux"))


def system(packages, programs):
    """The files that the programs need of the packages, and the packages that they are of."""
    everything, origin = Tree(), {}
    for package in packages:
        for path, entry in package.files().sorted():
            if not entry.is_folder and path not in everything.entries:
                everything.add(path, entry)
                origin[path] = package
    taken = {path for path, entry in everything.entries.items() if not entry.is_folder and is_wanted(path)}
    by_name = {}
    for path in everything.entries:
        by_name.setdefault(path.rpartition("/")[2], path)
    open_texts = [*programs, *(everything.entries[path].data for path in taken)]
    while open_texts:
        text = open_texts.pop()
        if text is None or text[:4] != b"\x7fELF":
            continue
        for library in elf.libraries(text):
            for path in chain(everything, by_name.get(library)):
                if path not in taken:
                    taken.add(path)
                    open_texts.append(everything.entries[path].data)
    tree = Tree()
    for path in sorted(taken):
        tree.add(path, everything.entries[path])
    users = {origin[path] for path in taken if "/doc/" not in path}
    for path in [path for path in tree.entries if path.startswith("usr/share/doc/")]:
        if not tree.entries[path].is_folder and origin[path] not in users:
            del tree.entries[path]
    tree.file("etc/ssl/certs/ca-certificates.crt", certificates(everything))
    return tree, sorted(users, key=lambda package: package.name)


def chain(tree, path):
    """The path and, where it is a link, what it leads to, as far as that is in the tree."""
    while path is not None and path in tree.entries:
        yield path
        target = tree.entries[path].target
        if target is None:
            return
        path = debian_files.merged(target[1:]) if target.startswith("/") else f"{path.rpartition('/')[0]}/{target}"


def certificates(tree):
    """The bundle that ca-certificates makes when it is installed."""
    texts = [entry.data for path, entry in tree.sorted()
             if path.startswith("usr/share/ca-certificates/mozilla/") and path.endswith(".crt")]
    return b"".join(texts)


def settings():
    """The few files of /etc, and the folders that a container's engine mounts over."""
    tree = Tree()
    tree.file("etc/passwd", f"root:x:0:0:root:/root:/sbin/nologin\nnigh:x:{USER}:{USER}:nigh:/{STATE}:/sbin/nologin\n")
    tree.file("etc/group", f"root:x:0:\nnigh:x:{USER}:\n")
    tree.file("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n")
    for name in ("bin", "sbin", "lib", "lib64"):
        tree.folder(f"usr/{name}")
        tree.link(name, f"usr/{name}")
    for name in ("dev", "proc", "sys", "run", "root"):
        tree.folder(name)
    tree.folder("tmp", 0o1777)
    tree.folder(STATE, 0o700, (USER, USER))
    return tree


def compiled(tree, architecture):
    """The bytecode of the Python files, which no sandbox could keep. Only a machine of the architecture makes it."""
    made = Tree()
    if not build.is_native(architecture):
        return made
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.tar_bytes(tree, 0), check=True)
        version = next(path.name for path in (folder / "usr/lib").glob("python3.*"))
        # Python never compares times with this mode; the fixed seed keeps the order of sets.
        words = ["chroot", str(folder), "/usr/bin/python3", "-m", "compileall", "-q", "--invalidation-mode",
                 "unchecked-hash", f"/usr/lib/{version}", "/usr/lib/nigh/python/packages"]
        # It fails for files of other versions of Python, which are never imported.
        subprocess.run(words, env={"PATH": os.environ["PATH"], "PYTHONHASHSEED": "0"}, check=False,
                       stdout=subprocess.DEVNULL)
        for path in sorted(folder.glob("usr/lib/**/__pycache__/*.pyc")):
            made.file(str(path.relative_to(folder)), path)
    return made


def configuration(release, layers):
    """The image's configuration; `layers` are their tars' digests."""
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(release.epoch))
    return {
        "architecture": release.architecture.oci,
        "os": "linux",
        "created": when,
        "config": {
            "User": f"{USER}:{USER}",
            "Entrypoint": ["/usr/bin/nigh"],
            "Cmd": ["up"],
            "Env": [f"{name}={value}" for name, value in ENVIRONMENT.items()],
            "ExposedPorts": {f"{port}/tcp": {} for port in PORTS},
            "Volumes": {f"/{STATE}": {}},
            "WorkingDir": f"/{STATE}",
            "StopSignal": "SIGTERM",
            # Docker's and Podman's own field; Kubernetes has probes.
            "Healthcheck": {
                "Test": ["CMD", "/usr/bin/nigh", "status"], "Interval": 10 * SECOND_NS, "Timeout": 5 * SECOND_NS,
                "StartPeriod": 30 * SECOND_NS, "Retries": 3,
            },
            "Labels": {
                "org.opencontainers.image.title": "nigh",
                "org.opencontainers.image.description": project.SUMMARY,
                "org.opencontainers.image.version": release.version,
                "org.opencontainers.image.revision": release.commit,
                "org.opencontainers.image.licenses": "Apache-2.0",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": layers},
        "history": [{"created": when, "created_by": "packaging/release.py"} for _ in layers],
    }


def digest(data):
    """As OCI writes it."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def image_layout(release, trees):
    """The tar of an image whose layers hold `trees`."""
    out = Tree()

    def blob(data, kind):
        name = digest(data)
        out.file(f"blobs/{name.replace(':', '/')}", data)
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": name, "size": len(data)}

    def text(document):
        return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()

    tars = [archive.tar_bytes(tree, release.epoch) for tree in trees]
    layers = [blob(archive.gzip_bytes(tar), "layer.v1.tar+gzip") for tar in tars]
    config = blob(text(configuration(release, [digest(tar) for tar in tars])), "config.v1+json")
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config,
                "layers": layers}
    listed = blob(text(manifest), "manifest.v1+json")
    tag = f"nigh:{release.version}"
    listed["platform"] = {"architecture": release.architecture.oci, "os": "linux"}
    listed["annotations"] = {"io.containerd.image.name": f"docker.io/library/{tag}",
                             "org.opencontainers.image.ref.name": release.version}
    out.file("index.json", text({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
                                 "manifests": [listed]}))
    out.file("oci-layout", text({"imageLayoutVersion": "1.0.0"}))

    def path(part):
        return f"blobs/{part['digest'].replace(':', '/')}"

    # What `docker load` reads before Docker 25.
    out.file("manifest.json", text([{"Config": path(config), "RepoTags": [tag], "Layers": [path(layer) for layer in layers]}]))
    return archive.tar_bytes(out, release.epoch)


def make(release, python):
    """The file's name and bytes, and the Debian packages in it. `python` is the folder `lib/nigh/python`."""
    with tempfile.TemporaryDirectory() as folder:
        packages = debian_files.fetch(roots.CURRENT, PACKAGES, release.architecture.debian, Path(folder))
        modules = [entry.data for entry in python.entries.values() if entry.data is not None]
        base, users = system(packages, [*release.programs.values(), *modules])
    base.graft("", settings())
    own = Tree()
    own.graft("usr", layout.prefix(release))
    own.graft("usr/lib/nigh/python", python)
    own.file("usr/share/doc/nigh/LICENSE", project.ROOT / "LICENSE")
    whole = Tree(dict(base.entries))
    whole.graft("", own)
    for path, entry in compiled(whole, release.architecture).sorted():
        (own if path.startswith("usr/lib/nigh/") else base).graft("", Tree({path: entry}))
    parts = [Component("deb/debian", package.name, package.version, "") for package in users]
    return f"nigh-{release.version}-{release.architecture.rust}-oci.tar", image_layout(release, [base, own]), parts
