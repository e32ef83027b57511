"""What is read of ELF files, licences and Cargo."""

import json
import struct
import unittest

import components
import debian_files
import elf
import project
import python_packages
from components import Component, is_permitted


def program(libraries, versions, machine=62):
    """An ELF file with sections for the libraries and the symbol versions that it needs, and nothing else."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name in [*libraries, *versions])
    at = {name: names.index(name.encode() + b"\0") for name in [*libraries, *versions]}
    dynamic = b"".join(struct.pack("<QQ", 1, at[name]) for name in libraries) + struct.pack("<QQ", 0, 0)
    needs = struct.pack("<HHIII", 1, len(versions), 0, 16, 0)
    for index, name in enumerate(versions):
        step = 16 if index + 1 < len(versions) else 0
        needs += struct.pack("<IHHII", 0, 0, 0, at[name], step)
    parts = [(3, 0, 0, names), (6, 0, 0, dynamic), (0x6FFFFFFE, 0, 1, needs)]
    body, heads = b"", b""
    for kind, link, info, text in parts:
        heads += struct.pack("<IIQQQQIIQQ", 0, kind, 0, 0, 64 + len(body), len(text), link, info, 0, 0)
        body += text
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, len(parts), 0)
    return head + body + heads


class ElfTest(unittest.TestCase):
    """Of made-up programs."""

    def test_the_oldest_glibc_is_the_newest_version_that_a_symbol_needs(self):
        one, other = program(["libc.so.6"], ["GLIBC_2.2.5", "GLIBC_2.31"]), program([], ["GLIBC_2.4", "GCC_3.0"])
        self.assertEqual(elf.versions(other), ["GCC_3.0", "GLIBC_2.4"])
        self.assertEqual(elf.oldest_glibc([one, other]), (2, 31))
        self.assertEqual((elf.libraries(one), elf.machine(one)), (["libc.so.6"], "x86_64"))
        self.assertEqual(elf.machine(program([], [], 183)), "aarch64")

    def test_what_is_no_program_is_refused(self):
        for text in (b"#!/bin/sh\n", b"\x7fELF\x01\x01"):
            with self.assertRaises(elf.NotElf):
                elf.libraries(text)


class ComponentsTest(unittest.TestCase):
    """Of licences and lists."""

    def test_an_expression_is_permitted_if_a_permitted_choice_is_left(self):
        for licence in ("MIT", "MIT OR GPL-3.0", "(MIT OR GPL-2.0) AND ISC", "Apache-2.0 WITH LLVM-exception"):
            self.assertTrue(is_permitted(licence), licence)
        for licence in ("", "GPL-3.0", "MIT AND GPL-3.0", "GPL-2.0 WITH LLVM-exception", "True"):
            self.assertFalse(is_permitted(licence), licence)

    def test_development_dependencies_are_in_no_program(self):
        def package(name):
            return {"id": name, "name": name}

        def needs(name, kind):
            return {"pkg": name, "dep_kinds": [{"kind": kind}]}

        meta = {
            "packages": [package(name) for name in ("nigh", "lab", "a", "b", "c")],
            "workspace_members": ["nigh", "lab"],
            "resolve": {"nodes": [
                {"id": "nigh", "deps": [needs("a", None), needs("c", "dev")]}, {"id": "a", "deps": [needs("b", "build")]},
                {"id": "b", "deps": []}, {"id": "c", "deps": []}, {"id": "lab", "deps": [needs("c", None)]},
            ]},
        }
        self.assertEqual({one["name"] for one in components.used(meta, {"nigh"})}, {"nigh", "a", "b"})

    def test_the_list_has_each_part_with_its_hash_and_is_the_same_each_time(self):
        lock = '[[package]]\nname = "a"\nversion = "1.0"\nchecksum = "ff"\n'
        self.assertEqual(components.checksums(lock), {("a", "1.0"): "ff"})
        parts = [Component("cargo", "a", "1.0+x", "MIT", "ff", (("LICENSE", "text"),)), Component("cargo", "b", "2", "MIT")]
        document = components.sbom(parts, "commit", 0)
        self.assertEqual(document, components.sbom(parts[::-1], "commit", 0))
        listed = json.loads(document)
        self.assertEqual(listed["components"][0]["purl"], "pkg:cargo/a@1.0%2Bx")
        self.assertEqual(listed["components"][0]["hashes"], [{"alg": "SHA-256", "content": "ff"}])
        text = components.licences(parts)
        self.assertIn("a 1.0+x (LICENSE)", text)
        self.assertIn("b 2: MIT", text)


class PinsTest(unittest.TestCase):
    """The Python packages of Debian packages and images."""

    def test_they_are_those_of_the_functions(self):
        functions = (project.ROOT / "functions/requirements.txt").read_text()
        pins = [line.split()[0] for line in python_packages.requirements().splitlines() if "==" in line]
        self.assertGreater(len(pins), 8)
        for pin in pins:
            self.assertIn(f"\n{pin}\n", functions, pin)
        self.assertTrue(python_packages.requirements({"six"}).startswith("six=="))

    def test_debians_folders_lie_below_usr(self):
        for path, place in (("lib/x/libc.so.6", "usr/lib/x/libc.so.6"), ("bin", "usr/bin"), ("lib64/ld", "usr/lib64/ld"),
                            ("libexec/x", "libexec/x"), ("usr/lib/x", "usr/lib/x")):
            self.assertEqual(debian_files.merged(path), place)


if __name__ == "__main__":
    unittest.main()
