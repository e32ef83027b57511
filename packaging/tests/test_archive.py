"""Archives say nothing but what is in them."""

import io
import tarfile
import unittest
import zipfile

from archive import Entry, Tree, ar_bytes, gzip_bytes, tar_bytes, xz_bytes, zip_bytes


def tree(order):
    """The same files, added in an order."""
    made = Tree()
    for path in order:
        made.file(path, path)
    return made


class ArchiveTest(unittest.TestCase):
    """Of tar, zip and ar."""

    def test_the_order_in_which_files_were_added_is_not_seen(self):
        one, other = tree(["b/two", "a", "b-c"]), tree(["b-c", "a", "b/two"])
        self.assertEqual(tar_bytes(one, 7), tar_bytes(other, 7))
        self.assertEqual(xz_bytes(tar_bytes(one, 7)), xz_bytes(tar_bytes(other, 7)))
        self.assertEqual(gzip_bytes(b"x"), gzip_bytes(b"x"))

    def test_a_tar_has_one_owner_and_one_time_and_folders_come_first(self):
        made = tree(["b/two"])
        made.link("b/link", "two")
        made.folder("state", 0o700, (5, 6))
        with tarfile.open(fileobj=io.BytesIO(tar_bytes(made, 7))) as tar:
            members = tar.getmembers()
        self.assertEqual([member.name for member in members], ["b", "b/link", "b/two", "state"])
        self.assertEqual({(member.mtime, member.uname) for member in members}, {(7, "")})
        self.assertEqual([(member.uid, member.gid) for member in members], [(0, 0)] * 3 + [(5, 6)])
        self.assertEqual(Tree.from_tar(tar_bytes(made, 7), lambda path: True).entries, dict(made.sorted()))

    def test_debians_tools_get_paths_that_begin_with_a_dot(self):
        with tarfile.open(fileobj=io.BytesIO(tar_bytes(tree(["a/b"]), 7, dot=True))) as tar:
            self.assertEqual(tar.getnames(), [".", "./a", "./a/b"])

    def test_hard_links_become_files(self):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            info = tarfile.TarInfo("./one")
            info.size = 3
            tar.addfile(info, io.BytesIO(b"abc"))
            info = tarfile.TarInfo("./two")
            info.type, info.linkname = tarfile.LNKTYPE, "./one"
            tar.addfile(info)
        found = Tree.from_tar(out.getvalue(), lambda path: True).entries
        self.assertEqual(found["two"].data, b"abc")

    def test_a_zip_keeps_modes_and_begins_no_earlier_than_1980(self):
        text = zip_bytes([("bin/x", Entry(0o755, data=b"1")), ("y", Entry(0o644, data=b"2"))], 0)
        with zipfile.ZipFile(io.BytesIO(text)) as read:
            found = [(info.filename, info.external_attr >> 16, info.date_time[0]) for info in read.infolist()]
        self.assertEqual(found, [("bin/x", 0o100755, 1980), ("y", 0o100644, 1980)])

    def test_an_ar_archive_has_even_members(self):
        text = ar_bytes([("debian-binary", b"2.0\n"), ("odd", b"x")], 7)
        self.assertEqual(text[:8], b"!<arch>\n")
        self.assertEqual(len(text), 8 + 60 + 4 + 60 + 2)
        self.assertIn(b"odd             7           0     0     100644  1         `\nx\n", text)
        with self.assertRaises(ValueError):
            ar_bytes([("a-name-that-is-long", b"")], 7)

    def test_paths_are_relative_and_added_once(self):
        made = tree(["a"])
        for path in ("/etc/passwd", "../x", "", "a", "a/b"):
            with self.subTest(path=path), self.assertRaises(ValueError):
                made.file(path, "x")


if __name__ == "__main__":
    unittest.main()
