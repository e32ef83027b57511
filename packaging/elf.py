"""Reads from an ELF program which libraries it needs, and from which version of glibc on.

Follows the System V ABI (gABI 4.1, chapter 5) and the LSB's symbol versions. 64 bits, little endian: x86-64 and AArch64.
"""

import re
import struct

SECTION_DYNAMIC, SECTION_VERSION_NEEDS = 6, 0x6FFFFFFE
TAG_NEEDED = 1
# The processor in the head, by the names of Rust's targets.
MACHINES = {62: "x86_64", 183: "aarch64"}


class NotElf(ValueError):
    """The bytes are no ELF program for 64 bits, little endian."""


def _string(table, at):
    return table[at : table.index(b"\0", at)].decode()


def _sections(text):
    """Type, link, info, contents of each section."""
    if text[:4] != b"\x7fELF" or text[4:6] != b"\x02\x01":
        raise NotElf("no ELF program for 64 bits, little endian")
    (at,) = struct.unpack_from("<Q", text, 0x28)
    size, count = struct.unpack_from("<HH", text, 0x3A)
    found = []
    for index in range(count):
        _, kind, _, _, offset, length, link, info = struct.unpack_from("<IIQQQQII", text, at + index * size)
        found.append((kind, link, info, text[offset : offset + length]))
    return found


def machine(text):
    """The processor that the program is for."""
    _sections(text)
    return MACHINES.get(struct.unpack_from("<H", text, 0x12)[0], "another")


def libraries(text):
    """The shared libraries that the program names."""
    sections = _sections(text)
    names = []
    for kind, link, _, dynamic in sections:
        if kind == SECTION_DYNAMIC:
            tags = struct.iter_unpack("<QQ", dynamic)
            names += [_string(sections[link][3], value) for tag, value in tags if tag == TAG_NEEDED]
    return sorted(names)


def versions(text):
    """The symbol versions that the program needs, such as `GLIBC_2.31`."""
    sections = _sections(text)
    names = set()
    for kind, link, count, needs in sections:
        if kind != SECTION_VERSION_NEEDS:
            continue
        at = 0
        for _ in range(count):
            _, parts, _, part, step = struct.unpack_from("<HHIII", needs, at)
            inner = at + part
            for _ in range(parts):
                _, _, _, name, inner_step = struct.unpack_from("<IHHII", needs, inner)
                names.add(_string(sections[link][3], name))
                inner += inner_step
            at += step
    return sorted(names)


def oldest_glibc(programs):
    """The oldest glibc, as (2, 31), with which all of the programs start."""
    found = [(0, 0)]
    for text in programs:
        for name in versions(text):
            if match := re.fullmatch(r"GLIBC_(\d+)\.(\d+)(?:\.\d+)?", name):
                found.append((int(match[1]), int(match[2])))
    return max(found)
