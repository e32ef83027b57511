"""The Debian package: the command, a systemd unit with a user of its own, settings in /etc/nigh, and a Python.

Written without dpkg-deb, as deb(5) describes; its tools test it.
"""

import hashlib
import textwrap
import time

import archive
import project
from kinds import layout

FOLDER = project.ROOT / "packaging/debian"
SCRIPTS = ("postinst", "prerm", "postrm")
SETTINGS = "etc/nigh/nigh.toml"
COPYRIGHT = """Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/

Files: *
Copyright: The Nigh authors
License: Apache-2.0
 On Debian systems, the text is in /usr/share/common-licenses/Apache-2.0. The licences of the libraries in Nigh's
 programs are in /usr/share/doc/nigh/THIRD-PARTY.txt, those of the Python packages beside them in
 /usr/lib/nigh/python/packages.
"""


def contents(release, python):
    """The files to be installed. `python` is the folder `lib/nigh/python`."""
    tree = archive.Tree()
    tree.graft("usr", layout.prefix(release))
    tree.graft("usr/lib/nigh/python", python)
    # Debian's zsh looks in a folder of its own.
    if zsh := tree.entries.pop("usr/share/zsh/site-functions/_nigh", None):
        del tree.entries["usr/share/zsh/site-functions"]
        tree.add("usr/share/zsh/vendor-completions/_nigh", zsh)
    tree.file("usr/lib/systemd/system/nigh.service", FOLDER / "nigh.service")
    tree.file(SETTINGS, FOLDER / "nigh.toml")
    tree.file("usr/share/doc/nigh/copyright", COPYRIGHT)
    day = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(release.epoch))
    changes = f"nigh ({release.version}) stable; urgency=medium\n\n  * Commit {release.commit}.\n\n"
    changes += f" -- The Nigh authors <nigh@packages.invalid>  {day}\n"
    tree.file("usr/share/doc/nigh/changelog.gz", archive.gzip_bytes(changes.encode()))
    return tree


def control(release, files):
    """What dpkg is told of the package."""
    sizes = sum(len(entry.data) // 1024 + 1 for entry in files.entries.values() if entry.data is not None)
    text = (FOLDER / "control").read_text()
    values = {
        "VERSION": release.version, "ARCHITECTURE": release.architecture.debian, "SIZE": str(sizes),
        "GLIBC": release.glibc, "SUMMARY": project.SUMMARY,
        "DESCRIPTION": "\n ".join(textwrap.wrap(project.DESCRIPTION, 79)),
    }
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    tree = archive.Tree()
    tree.file("control", text)
    tree.file("conffiles", f"/{SETTINGS}\n")
    tree.file("triggers", FOLDER / "triggers")
    sums = [f"{hashlib.md5(entry.data).hexdigest()}  {path}\n" for path, entry in files.sorted()  # noqa: S324
            if entry.data is not None and path != SETTINGS]
    tree.file("md5sums", "".join(sums))
    for name in SCRIPTS:
        tree.file(name, FOLDER / name, 0o755)
    return tree


def build(release, python):
    """The file's name and bytes."""
    files = contents(release, python)
    parts = [("debian-binary", b"2.0\n")]
    for name, tree in (("control.tar.xz", control(release, files)), ("data.tar.xz", files)):
        parts.append((name, archive.xz_bytes(archive.tar_bytes(tree, release.epoch, dot=True))))
    return f"nigh_{release.version}_{release.architecture.debian}.deb", archive.ar_bytes(parts, release.epoch)
