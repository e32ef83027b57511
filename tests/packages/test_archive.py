"""The archive on a fresh machine, and on the oldest that is supported."""

import unittest

import machine
import package_test
import tutorial

# Speaks Lambda's Runtime API by what bash has: Debian 11's Python is older than AWS's runtime client.
BOOTSTRAP = r"""#!/bin/bash
host=${AWS_LAMBDA_RUNTIME_API%:*} port=${AWS_LAMBDA_RUNTIME_API#*:} path=/2018-06-01/runtime/invocation
while :; do
    exec 3<>"/dev/tcp/$host/$port"
    printf 'GET %s/next HTTP/1.1\r\nHost: nigh\r\nConnection: close\r\n\r\n' "$path" >&3
    id='' length=0
    while IFS= read -r line <&3 && line=${line%$'\r'} && [ -n "$line" ]; do
        name=${line%%:*} value=${line#*: }
        case "${name,,}" in
            lambda-runtime-aws-request-id) id=$value ;;
            content-length) length=$value ;;
        esac
    done
    IFS= read -r -N "$length" event <&3
    exec 3<>"/dev/tcp/$host/$port"
    answer="{\"glibc\":\"$(getconf GNU_LIBC_VERSION 2>/dev/null)\",\"event\":$event}"
    printf 'POST %s/%s/response HTTP/1.1\r\nHost: nigh\r\nConnection: close\r\nContent-Length: %s\r\n\r\n%s' \
        "$path" "$id" "${#answer}" "$answer" >&3
    cat <&3 >/dev/null
done
"""
FOLDER = "/opt/nigh"


class ArchiveTest(package_test.PackageTest):
    """Unpacked into a folder, with nothing else installed."""

    def unpack(self, at):
        """Unpacks it as a user would."""
        at.bring(package_test.archive(), "/root/nigh.tar.xz")
        at.run(["mkdir", FOLDER])
        at.run(["tar", "-x", "-f", "nigh.tar.xz", "--strip-components=1", "-C", FOLDER])
        at.run(["ln", "-s", f"{FOLDER}/bin/nigh", "/usr/local/bin/nigh"])

    def test_the_archive_runs_with_the_oldest_glibc_that_its_readme_names(self):
        """A node, an object and a function on Debian 11."""
        at = self.machine(machine.roots.OLDEST, ["xz-utils"])
        self.unpack(at)
        named = (at.root / FOLDER[1:] / "README.txt").read_text()
        there = at.run(["getconf", "GNU_LIBC_VERSION"]).split()[1]
        self.assertIn(f"glibc {there} or newer", named)
        self.node(at, ["nigh", "up"])
        tutorial.wait_for("node", lambda: at.run(["nigh", "status"]))
        at.write("/root/in.txt", "hello\n")
        at.run(["nigh", "objects", "mb", "nigh://texts"])
        at.run(["nigh", "objects", "cp", "in.txt", "nigh://texts/in.txt"])
        at.run(["nigh", "objects", "cp", "nigh://texts/in.txt", "out.txt"])
        self.assertEqual((at.root / "root/out.txt").read_text(), "hello\n")
        at.write("/root/shell/bootstrap", BOOTSTRAP, 0o755)
        at.run(["nigh", "deploy", "shell", "--folder", "shell", "--handler", "any", "--runtime", "provided.al2023"])
        self.assertIn(there, at.run(["nigh", "invoke", "shell", '{"a": 1}']))
        at.run(["nigh", "down"])

    def test_the_tutorial_works_from_the_archive_with_the_python_that_its_readme_makes(self):
        """The two commands of README.txt, then the tutorial."""
        at = self.machine(machine.roots.CURRENT, ["xz-utils", "python3-venv"], network=True)
        self.assertFalse((at.root / "usr/bin/gcc").exists())
        self.unpack(at)
        lines = (at.root / FOLDER[1:] / "README.txt").read_text().splitlines()
        commands = [line.strip() for line in lines if "lib/nigh/python" in line and line.startswith("    ")]
        self.assertEqual(len(commands), 2)
        for command in commands:
            at.run(command.split(), folder=FOLDER)
        at.enter(network=False)
        self.node(at, ["nigh", "up"])
        tutorial.follow(at.run_below)


if __name__ == "__main__":
    unittest.main()
