"""The Debian package: install, use, upgrade, remove, purge, by apt and dpkg, and its systemd unit."""

import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import machine
import package_test
import tutorial
from skipped import skip

PACKAGES = ["adduser", "init-system-helpers", "libstdc++6", "python3", "xz-utils"]
OLDER = "0.0.9"
# As the unit restricts the node: a read-only system, no homes, no capability, one writable folder.
AS_THE_UNIT = """
mount --bind /var/lib/nigh /var/lib/nigh
for hidden in /home /root /usr/lib/modules; do
    [ ! -d "$hidden" ] || mount -t tmpfs -o mode=0000,ro tmpfs "$hidden"
done
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -o remount,bind,ro /
exec setpriv --reuid=nigh --regid=nigh --clear-groups --bounding-set=-all --no-new-privs /usr/bin/nigh up
"""
STATE, SETTINGS, OWN = "/var/lib/nigh", "/etc/nigh/nigh.toml", "[functions]\nmemory = \"1 GiB\"\n"


class DebianTest(package_test.PackageTest):
    """On Debian 12, without compilers and without systemd running."""

    def setUp(self):
        """A machine with what the package depends on: the tests need no index."""
        self.at = self.machine(machine.roots.CURRENT, PACKAGES)
        self.assertFalse((self.at.root / "usr/bin/gcc").exists())
        self.at.bring(package_test.debian(), "/root/nigh.deb")

    def apt(self, *words):
        """Runs apt-get as an operator's script would."""
        return self.at.run(["apt-get", "--yes", "--quiet", "--no-install-recommends", *words],
                           environment={"DEBIAN_FRONTEND": "noninteractive"})

    def installed(self):
        """The version that dpkg has, or the state in which it has the package."""
        return self.at.run(["dpkg-query", "--show", "--showformat=${Version} ${db:Status-Status}", "nigh"])

    def older(self):
        """Makes the same package of an older version, as older.deb."""
        self.at.run(["dpkg-deb", "--raw-extract", "nigh.deb", "older"])
        control = self.at.root / "root/older/DEBIAN/control"
        control.write_text(re.sub(r"(?m)^Version: .*", f"Version: {OLDER}", control.read_text()))
        self.at.run(["dpkg-deb", "--build", "-Zgzip", "-z1", "older", "older.deb"])

    def test_the_tutorial_works_as_the_packages_user_with_the_packages_python(self):
        """What the unit starts, as its user and with its restrictions."""
        self.apt("install", "./nigh.deb")
        node = {"NIGH_STATE": STATE}
        self.at.run(["install", "-d", "-o", "nigh", "-g", "nigh", "-m", "0700", STATE])
        restricted = ["unshare", "--mount", "--propagation", "private", "sh", "-e", "-c", AS_THE_UNIT]
        self.node(self.at, restricted, environment=node, folder="/")
        # Root's commands find the state folder by themselves.
        tutorial.follow(self.at.run_below)
        compiled = list((self.at.root / "usr/lib/nigh/python/packages/boto3").rglob("*.pyc"))
        self.assertTrue(compiled, "a sandbox would compile the packages at each cold start")

    def test_an_upgrade_keeps_settings_and_state_removal_too_and_a_purge_takes_them(self):
        """From an older version to this one, and to nothing."""
        self.older()
        self.apt("install", "./older.deb")
        self.assertEqual(self.installed(), f"{OLDER} installed")
        user = self.at.run(["id", "-u", "nigh"])
        self.at.write(SETTINGS, OWN, 0o600)
        self.at.write(f"{STATE}/state.redb", "kept")
        self.apt("install", "./nigh.deb")
        self.assertNotEqual(self.installed().split()[0], OLDER)
        settings = self.at.root / SETTINGS[1:]
        self.assertEqual((settings.read_text(), (self.at.root / f"{STATE[1:]}/state.redb").read_text()), (OWN, "kept"))
        self.assertEqual(self.at.run(["stat", "--format=%U %a", SETTINGS]).strip(), "nigh 600")
        # Once more over itself: its scripts may be run again.
        self.apt("install", "--reinstall", "./nigh.deb")
        self.apt("remove", "nigh")
        self.assertEqual(self.installed().split()[1], "config-files")
        self.assertTrue(settings.exists() and (self.at.root / STATE[1:]).exists())
        self.assertFalse((self.at.root / "usr/lib/nigh").exists(), "compiled files are left")
        self.apt("purge", "nigh")
        self.assertFalse(settings.parent.exists() or (self.at.root / STATE[1:]).exists())
        self.assertEqual(self.at.run(["id", "-u", "nigh"]), user)
        self.assertEqual(self.at.run(["dpkg", "--audit"]), "")

    def test_dpkg_finds_each_file_as_it_was_packed(self):
        """Sums, and the dependency on the glibc that the programs need."""
        self.apt("install", "./nigh.deb")
        self.assertEqual(self.at.run(["dpkg", "--verify", "nigh"]), "")
        depends = self.at.run(["dpkg-query", "--show", "--showformat=${Depends}", "nigh"])
        self.assertRegex(depends, r"libc6 \(>= 2\.\d+\)")

    def test_systemd_reads_the_unit_without_a_complaint(self):
        """By systemd's own tool, with a program and a user that this machine has."""
        if not shutil.which("systemd-analyze"):
            skip(self, "systemd-analyze is not here")
        self.apt("install", "./nigh.deb")
        unit = "usr/lib/systemd/system/nigh.service"
        with tempfile.TemporaryDirectory() as folder:
            text = (self.at.root / unit).read_text().replace("/usr/bin/nigh", "/bin/true")
            text = re.sub(r"(User|Group)=nigh", r"\1=root", text)
            path = Path(folder) / "nigh.service"
            path.write_text(text)
            words = ["systemd-analyze", "verify", "--man=no", str(path)]
            verified = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            complaints = [line for line in verified.stdout.splitlines() if "nigh.service" in line]
            self.assertEqual(complaints, [])


if __name__ == "__main__":
    unittest.main()
