"""A fresh machine for a package: a root of Debian's packages without compilers, entered by namespaces of its own.

Nothing that runs in it outlives it. Its loopback interface is its own unless it is given the host's network.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(PROJECT / "packaging"), str(PROJECT / "tests")]

import roots  # noqa: E402

# The host's way to package indexes, for pip and uv in a machine.
NETWORK_FILES = ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt")
NETWORK_VARIABLES = ("PIP_", "UV_", "SSL_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
                     "REQUESTS_CA_BUNDLE")
STARTS_WITHIN_S = 60


class Machine:
    """A root with one first process, in which programs are run until the machine is closed."""

    def __init__(self, release, packages=(), network=False):
        self.folder = Path(tempfile.mkdtemp(prefix="nigh-packages-"))
        self.root = self.folder / "root"
        roots.unpack(roots.kept(release, list(packages)), self.root)
        self.first = None
        self.enter(network)

    def enter(self, network):
        """Starts the first process, after ending the one before with all that ran."""
        self.leave()
        for name in NETWORK_FILES if network else ():
            if os.path.exists(name):
                (self.root / name[1:]).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(name, self.root / name[1:])
        self.first = subprocess.Popen(roots.command(self.root, ["sleep", "infinity"], network=network))
        deadline = time.monotonic() + STARTS_WITHIN_S
        while not self.root_is_entered():
            if self.first.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the root {self.root} was not entered")
            time.sleep(0.05)

    def first_inside(self):
        """The host's number of the machine's first process, if it is there."""
        try:
            children = Path(f"/proc/{self.first.pid}/task/{self.first.pid}/children").read_text().split()
        except OSError:
            return None
        return children[0] if children else None

    def root_is_entered(self):
        """Whether the first process has become `sleep`, which is after the mounts."""
        inside = self.first_inside()
        try:
            return inside is not None and os.readlink(f"/proc/{inside}/exe").endswith("/sleep")
        except OSError:
            return False

    def words(self, arguments, environment=None, folder="/root"):
        """The command line that runs `arguments` in it."""
        carried = {name: value for name, value in os.environ.items() if name.startswith(NETWORK_VARIABLES)}
        values = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/root", "LC_ALL": "C.UTF-8"}
        values |= carried | (environment or {})
        return ["nsenter", f"--target={self.first_inside()}", "--mount", "--pid", "--net", "--", "env", "-i",
                f"--chdir={folder}", *(f"{name}={value}" for name, value in values.items()), *arguments]

    def run(self, arguments, errors=subprocess.PIPE, **options):
        """Runs a command and gives what it printed; another exit code than 0 is an error."""
        ran = subprocess.run(self.words(arguments, **options), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=errors, text=True, check=False)
        if ran.returncode != 0:
            raise AssertionError(f"{' '.join(map(str, arguments))} ended with {ran.returncode}\n{ran.stdout}\n{ran.stderr}")
        return ran.stdout

    def run_below(self, arguments, folder, **options):
        """Runs a command in a folder below the home, and gives what it printed, on standard error too."""
        return self.run(arguments, errors=subprocess.STDOUT, folder=f"/root/{folder}", **options)

    def start(self, arguments, log, **options):
        """Starts a command that goes on; what it prints is in the host's file `log`."""
        with open(log, "w", encoding="utf-8") as out:
            return subprocess.Popen(self.words(arguments, **options), stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def write(self, path, text, mode=0o644):
        """Writes a file in it."""
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(mode)

    def bring(self, file, path):
        """Copies a file of the host into it."""
        shutil.copyfile(file, self.root / path.lstrip("/"))

    def leave(self):
        """Ends all that runs in it."""
        if self.first is not None:
            self.first.kill()
            self.first.wait()
            self.first = None

    def close(self):
        """Ends and removes it."""
        self.leave()
        shutil.rmtree(self.folder, ignore_errors=True)
