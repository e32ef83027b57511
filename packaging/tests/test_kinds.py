"""What each kind of package has in it, of programs that are made up."""

import csv
import dataclasses
import io
import json
import shutil
import subprocess
import tarfile
import tempfile
import unittest
import zipfile
from pathlib import Path
from unittest import mock

import archive
import build
import project
from kinds import debian, image, layout, portable, wheel
from kinds.layout import Release
from tests.test_parts import program


def release():
    """A release of programs without code; nobody can run them for their completions."""
    programs = {name: program(["libc.so.6"], ["GLIBC_2.31"]) for name in project.PROGRAMS.values()}
    return Release("1.2.3", "0" * 40, 1_700_000_000, project.ARCHITECTURES["x86_64"], programs, "licences", "{}")


class KindsTest(unittest.TestCase):
    """Without compilers, roots and network."""

    def setUp(self):
        """No program is run."""
        patched = mock.patch.object(layout, "completions", lambda program, architecture: {"zsh": b"#compdef nigh\n"})
        patched.start()
        self.addCleanup(patched.stop)

    def test_the_archive_names_its_glibc_and_has_everything_below_one_folder(self):
        name, data = portable.build(release())
        self.assertEqual(name, "nigh-1.2.3-x86_64-linux.tar.xz")
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            names = tar.getnames()
            text = tar.extractfile("nigh-1.2.3-x86_64-linux/README.txt").read().decode()
        self.assertTrue(all(path.startswith("nigh-1.2.3-x86_64-linux") for path in names))
        for helper in ("nigh-sandbox", "libnigh_native.so"):
            self.assertIn(f"nigh-1.2.3-x86_64-linux/lib/nigh/{helper}", names)
        self.assertIn("glibc 2.31 or newer", text)
        self.assertNotIn("@", text)
        self.assertEqual(portable.build(release()), (name, data))

    def test_no_glibc_is_named_that_is_older_than_the_tested_one_or_too_old_for_a_program(self):
        for needed, named in (("GLIBC_2.17", "2.31"), ("GLIBC_2.34", "2.34")):
            made = dataclasses.replace(release(), programs={"nigh": program([], [needed])})
            self.assertEqual(made.glibc, named)

    def test_the_wheel_is_as_pep_427_wants_it(self):
        name, data = wheel.build(release())
        self.assertEqual(name, "nigh-1.2.3-py3-none-manylinux_2_31_x86_64.whl")
        with zipfile.ZipFile(io.BytesIO(data)) as read:
            files = {info.filename: read.read(info) for info in read.infolist()}
            modes = {info.filename: info.external_attr >> 16 for info in read.infolist()}
        record = list(csv.reader(io.StringIO(files["nigh-1.2.3.dist-info/RECORD"].decode())))
        self.assertEqual([row[0] for row in record], list(files))
        for path, hashed, size in record[:-1]:
            self.assertEqual((hashed, size), (f"sha256={wheel.digest(files[path])}", str(len(files[path]))))
        for path in ("nigh-1.2.3.data/scripts/nigh", "nigh-1.2.3.data/data/lib/nigh/nigh-sandbox"):
            self.assertEqual(modes[path], 0o100755, path)
        self.assertIn("nigh/hook.py", files)
        self.assertEqual(files["nigh/nigh_native.abi3.so"], release().programs["libnigh_native.so"])
        self.assertIn(b"\nRequires-Dist: awslambdaric", files["nigh-1.2.3.dist-info/METADATA"])
        self.assertEqual(wheel.build(release()), (name, data))

    def test_the_debian_package_is_read_by_dpkg(self):
        python = archive.Tree()
        python.link("bin/python3", "/usr/bin/python3")
        name, data = debian.build(release(), python)
        self.assertEqual(name, "nigh_1.2.3_amd64.deb")
        self.assertEqual(debian.build(release(), python), (name, data))
        if not shutil.which("dpkg-deb"):
            return
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            path.write_bytes(data)
            fields = subprocess.run(["dpkg-deb", "--field", path, "Package", "Depends"], check=True, text=True,
                                    stdout=subprocess.PIPE).stdout
            self.assertIn("libc6 (>= 2.31)", fields)
            subprocess.run(["dpkg-deb", "--raw-extract", path, Path(folder) / "out"], check=True)
            out = Path(folder) / "out"
            self.assertTrue((out / "usr/share/zsh/vendor-completions/_nigh").exists())
            self.assertEqual((out / "usr/lib/nigh/python/bin/python3").readlink(), Path("/usr/bin/python3"))
            subprocess.run(["md5sum", "--quiet", "--check", "DEBIAN/md5sums"], cwd=out, check=True)

    def test_the_maintainers_scripts_are_shell(self):
        for name in debian.SCRIPTS:
            subprocess.run(["sh", "-n", debian.FOLDER / name], check=True)

    def test_an_image_has_hashes_of_all_its_parts_and_a_user_that_is_not_root(self):
        tree = archive.Tree()
        tree.file("usr/bin/nigh", "x", 0o755)
        data = image.image_layout(release(), [image.settings(), tree])
        self.assertEqual(data, image.image_layout(release(), [image.settings(), tree]))
        found = archive.Tree.from_tar(data, lambda path: True).entries
        for path, entry in found.items():
            if path.startswith("blobs/sha256/") and not entry.is_folder:
                self.assertEqual(image.digest(entry.data), f"sha256:{path.rpartition('/')[2]}")
        docker = json.loads(found["manifest.json"].data)[0]
        config = json.loads(found[docker["Config"]].data)
        self.assertEqual(config["config"]["User"], "65532:65532")
        self.assertEqual(len(config["rootfs"]["diff_ids"]), len(docker["Layers"]))

    def test_an_image_takes_the_libraries_that_its_programs_name_and_no_other(self):
        files = archive.Tree()
        files.file("usr/lib/x86_64-linux-gnu/libc.so.6", program(["libmore.so.1"], []))
        files.link("usr/lib/x86_64-linux-gnu/libmore.so.1", "libmore.so.1.2")
        files.file("usr/lib/x86_64-linux-gnu/libmore.so.1.2", program([], []))
        files.file("usr/lib/x86_64-linux-gnu/libother.so.1", program([], []))
        files.file("usr/bin/perl", program([], []))
        files.file("usr/lib/python3.11/os.py", "")
        files.file("usr/lib/python3.11/test/test_os.py", "")
        files.file("usr/share/ca-certificates/mozilla/one.crt", "certificate\n")
        package = mock.Mock(files=lambda: files)
        package.name = "all"
        tree, users = image.system([package], [program(["libc.so.6"], [])])
        found = {path.rpartition("/")[2] for path, entry in tree.entries.items() if not entry.is_folder}
        self.assertEqual(found, {"libc.so.6", "libmore.so.1", "libmore.so.1.2", "os.py", "ca-certificates.crt"})
        self.assertEqual(tree.entries["etc/ssl/certs/ca-certificates.crt"].data, b"certificate\n")
        self.assertEqual(users, [package])

    def test_a_program_that_needs_another_library_is_refused(self):
        architecture = project.ARCHITECTURES["x86_64"]
        self.assertEqual(build.check(release().programs, architecture), release().programs)
        with self.assertRaisesRegex(build.BuildError, "libssl.so.3"):
            build.check({"nigh": program(["libssl.so.3"], [])}, architecture)
        with self.assertRaisesRegex(build.BuildError, "aarch64"):
            build.check({"nigh": program([], [], 183)}, architecture)

    def test_a_build_outside_the_root_quotes_the_same_paths(self):
        architecture = project.ARCHITECTURES["x86_64"]
        fixed = (build.SOURCE, build.TARGET, build.RUST, build.CARGO)
        self.assertNotIn("RUSTFLAGS", build.environment(architecture, 5, fixed))
        moved = build.environment(architecture, 5, ("/home/me/nigh", *fixed[1:]))
        self.assertEqual(moved["RUSTFLAGS"], "--remap-path-prefix=/home/me/nigh=/nigh")
        self.assertEqual(moved["CFLAGS"], "-ffile-prefix-map=/home/me/nigh=/nigh")
        self.assertEqual((moved["SOURCE_DATE_EPOCH"], moved["CARGO_INCREMENTAL"]), ("5", "0"))


if __name__ == "__main__":
    unittest.main()
