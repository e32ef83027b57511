"""Writes tar, zip and ar archives whose bytes depend on nothing but what is in them.

A `Tree` holds the files of a package. Entries are sorted, belong to root unless told otherwise, have one time, and
folders that nobody added have mode 0755.
"""

import gzip
import io
import lzma
import tarfile
import time
import zipfile
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

# The earliest time that a zip can hold.
ZIP_EPOCH = 315532800


@dataclass(frozen=True)
class Entry:
    """A file (`data`), a symbolic link (`target`), or a folder (neither)."""

    mode: int
    data: bytes | None = None
    target: str | None = None
    owner: tuple[int, int] = (0, 0)

    @property
    def is_folder(self):
        """Whether this is a folder."""
        return self.data is None and self.target is None


@dataclass
class Tree:
    """Files by their path, which is relative and has no `..`."""

    entries: dict[str, Entry] = field(default_factory=dict)

    def add(self, path, entry):
        """Adds an entry and the folders above it. A path is added once."""
        pure = PurePosixPath(path)
        if pure.is_absolute() or ".." in pure.parts or not pure.parts:
            raise ValueError(f"{path!r} is no path inside an archive")
        present = self.entries.get(str(pure))
        if present is not None and not (present.is_folder and entry.is_folder):
            raise ValueError(f"{path!r} is in the archive already")
        for parent in list(pure.parents)[:-1]:
            if not self.entries.setdefault(str(parent), Entry(0o755)).is_folder:
                raise ValueError(f"{parent} is a file, so {path!r} cannot be in it")
        self.entries[str(pure)] = entry

    def file(self, path, data, mode=0o644):
        """Adds a file: its bytes, its text, or a file of this machine."""
        if isinstance(data, Path):
            data = data.read_bytes()
        self.add(path, Entry(mode, data=data.encode() if isinstance(data, str) else data))

    def folder(self, path, mode=0o755, owner=(0, 0)):
        """Adds a folder."""
        self.add(path, Entry(mode, owner=owner))

    def link(self, path, target):
        """Adds a symbolic link."""
        self.add(path, Entry(0o777, target=target))

    def graft(self, path, tree):
        """Adds all of another tree below `path`; "" is the top."""
        for name, entry in tree.entries.items():
            below = f"{path}/{name}" if path else name
            if not (entry.is_folder and below in self.entries):
                self.add(below, entry)

    def sorted(self):
        """Path and entry, folders before what is in them."""
        return sorted(self.entries.items(), key=lambda item: PurePosixPath(item[0]).parts)

    @classmethod
    def from_tar(cls, text, keep):
        """The entries of a tar for whose path `keep` is true; devices and the like are left out."""
        tree, hard = cls(), []
        with tarfile.open(fileobj=io.BytesIO(text)) as tar:
            for member in tar:
                name = str(PurePosixPath(member.name))
                if name == "." or not keep(name):
                    continue
                owner = (member.uid, member.gid)
                if member.isdir():
                    tree.add(name, Entry(member.mode, owner=owner))
                elif member.issym():
                    tree.add(name, Entry(0o777, target=member.linkname, owner=owner))
                elif member.islnk():
                    hard.append((name, str(PurePosixPath(member.linkname))))
                elif member.isfile():
                    tree.add(name, Entry(member.mode, data=tar.extractfile(member).read(), owner=owner))
        for name, target in hard:
            tree.add(name, tree.entries[target])
        return tree


def tar_bytes(tree, mtime, dot=False):
    """A tar of the tree. With `dot`, paths begin with `./` and the top is in it, as Debian's tools expect."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        entries = [(f"./{path}", entry) for path, entry in tree.sorted()] if dot else tree.sorted()
        for path, entry in [("./", Entry(0o755)), *entries] if dot else entries:
            info = tarfile.TarInfo(path)
            info.mode, info.mtime, (info.uid, info.gid) = entry.mode, mtime, entry.owner
            if entry.target is not None:
                info.type, info.linkname = tarfile.SYMTYPE, entry.target
            elif entry.data is None:
                info.type = tarfile.DIRTYPE
            else:
                info.size = len(entry.data)
            tar.addfile(info, io.BytesIO(entry.data or b""))
    return out.getvalue()


def xz_bytes(text):
    """As `xz -6`, by one thread."""
    return lzma.compress(text, format=lzma.FORMAT_XZ, check=lzma.CHECK_CRC64, preset=6)


def gzip_bytes(text, level=9):
    """Without a name and a time."""
    return gzip.compress(text, level, mtime=0)


def zip_bytes(entries, mtime):
    """A zip of (path, entry), in their order; files only."""
    out = io.BytesIO()
    moment = time.gmtime(max(mtime, ZIP_EPOCH))[:6]
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path, entry in entries:
            info = zipfile.ZipInfo(path, moment)
            info.create_system = 3  # Unix: modes are in the upper half
            info.external_attr = (0o100000 | entry.mode) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, entry.data)
    return out.getvalue()


def ar_bytes(members, mtime):
    """An ar archive of (name of up to 15 bytes, bytes), as deb(5) wants it."""
    out = [b"!<arch>\n"]
    for name, data in members:
        if len(name) > 15:
            raise ValueError(f"{name!r} is too long for ar")
        out.append(f"{name:<16}{mtime:<12}{0:<6}{0:<6}{0o100644:<8o}{len(data):<10}`\n".encode())
        out.append(data + b"\n" * (len(data) % 2))
    return b"".join(out)
