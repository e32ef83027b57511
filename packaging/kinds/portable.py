"""The archive that is unpacked anywhere: bin/nigh and lib/nigh."""

import archive
import project
import python_packages
from kinds import layout

TEMPLATE = project.ROOT / "packaging/portable/README.txt"


def name(release):
    """The file's name without its ending, which is also the folder in it."""
    return f"nigh-{release.version}-{release.architecture.rust}-linux"


def build(release):
    """The file's name and bytes."""
    tree = archive.Tree()
    tree.graft("", layout.prefix(release))
    text = TEMPLATE.read_text().replace("@VERSION@", release.version).replace("@GLIBC@", release.glibc)
    tree.file("README.txt", text)
    tree.file("LICENSE", project.ROOT / "LICENSE")
    tree.file("lib/nigh/python-requirements.txt", python_packages.REQUIREMENTS)
    inside = archive.Tree()
    inside.graft(name(release), tree)
    return f"{name(release)}.tar.xz", archive.xz_bytes(archive.tar_bytes(inside, release.epoch))
