"""A real Swift on loopback ports below one folder, three replicas of each object, the middleware in its pipeline.

One for all tests of a run, started by the first that needs it. A second proxy has the same cluster, other settings, and
right of the middleware a meddler.
"""

from __future__ import annotations

import atexit
import http.client
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SECRET = b"a-secret-of-tests-that-is-long-enough-0123456789"
#: What the meddler writes.
MEDDLED = b"written in between"
SOURCE = Path(__file__).resolve().parent.parent / "src"
SWIFT_CONF = Path("/etc/swift/swift.conf")
PROGRAMS = ("memcached", "swift-account-server", "swift-container-server", "swift-object-server", "swift-proxy-server")
START_S = 40.0
RINGS = """
import os, sys
from swift.common.ring import RingBuilder
folder, ports = sys.argv[1], sys.argv[2:]
for name, port, replicas in zip(('account', 'container', 'object'), ports, (1, 1, 3)):
    builder = RingBuilder(4, replicas, 1)
    for zone in range(1, replicas + 1):
        builder.add_dev({'region': 1, 'zone': zone, 'ip': '127.0.0.1', 'port': int(port),
                         'device': 'd%d' % zone, 'weight': 1.0})
    builder.rebalance()
    builder.get_ring().save(os.path.join(folder, name + '.ring.gz'))
"""


def missing() -> str | None:
    """What is not installed that a Swift needs; None if all is there."""
    absent = [program for program in PROGRAMS if shutil.which(program) is None]
    if absent:
        return f"{absent[0]} is not installed; run scripts/install-swift.sh as root"
    if not SWIFT_CONF.exists() and os.geteuid() != 0:
        return f"there is no {SWIFT_CONF}, and only root can make it"
    return None


def _free_ports(number: int) -> list[int]:
    sockets = [socket.socket() for _ in range(number)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class SwiftServer:
    """The cluster. `port` is the proxy's, `other_port` that of the second."""

    def __init__(self, nodes: str, settings: str, other_settings: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="nigh-swift-test-"))
        #: A word in this file makes the second proxy write to the object of its next write, just before that.
        self.meddle = self.folder / "meddle"
        self._processes: list[subprocess.Popen[bytes]] = []
        atexit.register(self.stop)
        account, container, obj, memcached, self.port, self.other_port = _free_ports(6)
        if not SWIFT_CONF.exists():
            SWIFT_CONF.parent.mkdir(parents=True, exist_ok=True)
            SWIFT_CONF.write_text(
                f"[swift-hash]\nswift_hash_path_suffix = {os.urandom(16).hex()}\n\n"
                "[storage-policy:0]\nname = Policy-0\ndefault = yes\n"
            )
        for device in ("d1", "d2", "d3"):
            (self.folder / "devices" / device).mkdir(parents=True)
        secret = self.folder / "secret"
        secret.touch(0o600)
        secret.write_bytes(SECRET + b"\n")
        for kind, port in (("account", account), ("container", container), ("object", obj)):
            self._write(f"{kind}.conf", self._storage(kind, port))
        self._write("proxy.conf", self._proxy(self.port, memcached, nodes, settings, "nigh"))
        self._write("other.conf", self._proxy(self.other_port, memcached, nodes, other_settings, "nigh meddler"))
        subprocess.run(
            [sys.executable, "-c", RINGS, str(self.folder), str(account), str(container), str(obj)], check=True
        )
        self._start("memcached", "-l", "127.0.0.1", "-p", str(memcached), "-m", "16", "-u", "root")
        for kind in ("account", "container", "object"):
            self._start(f"swift-{kind}-server", str(self.folder / f"{kind}.conf"))
        self._start("swift-proxy-server", str(self.folder / "proxy.conf"))
        self._start("swift-proxy-server", str(self.folder / "other.conf"))
        for port in (account, container, obj, self.port, self.other_port):
            self._wait(port)

    def _write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def _default(self, port: int) -> str:
        return (
            f"[DEFAULT]\nbind_ip = 127.0.0.1\nbind_port = {port}\nworkers = 0\nuser = {os.environ.get('USER', 'root')}\n"
            f"swift_dir = {self.folder}\nlog_level = WARNING\n"
        )

    def _storage(self, kind: str, port: int) -> str:
        return self._default(port) + (
            f"devices = {self.folder / 'devices'}\nmount_check = false\nfallocate_reserve = 0\n\n"
            f"[pipeline:main]\npipeline = healthcheck {kind}-server\n\n[app:{kind}-server]\nuse = egg:swift#{kind}\n\n"
            "[filter:healthcheck]\nuse = egg:swift#healthcheck\n"
        )

    def _proxy(self, port: int, memcached: int, nodes: str, settings: str, ours: str) -> str:
        filters = (
            "catch_errors",
            "gatekeeper",
            "healthcheck",
            "cache",
            "listing_formats",
            "bulk",
            "tempurl",
            "s3api",
            "tempauth",
            "copy",
            "slo",
            "dlo",
            "versioned_writes",
            "symlink",
        )
        text = self._default(port) + (
            f"\n[pipeline:main]\npipeline = {' '.join(filters)} {ours} proxy-server\n\n"
            "[app:proxy-server]\nuse = egg:swift#proxy\naccount_autocreate = true\nerror_suppression_interval = 0.5\n\n"
            f"[filter:meddler]\npaste.filter_factory = meddler:filter_factory\nfile = {self.meddle}\n"
            f"body = {MEDDLED.decode()}\n\n"
            "[filter:nigh]\npaste.filter_factory = nigh_swift.middleware:filter_factory\n"
            f"secret_file = {self.folder / 'secret'}\nnodes = {nodes}\n{settings}\n\n"
        )
        own = {
            "cache": f"memcache_servers = 127.0.0.1:{memcached}\n",
            "s3api": "location = us-east-1\n",
            "tempauth": "user_test_tester = testing .admin\nuser_test_reader = reading\n",
            "slo": "max_manifest_segments = 100\nrate_limit_after_segment = 100\n",
            "versioned_writes": "allow_versioned_writes = true\n",
        }
        for name in filters:
            egg = "memcache" if name == "cache" else name
            text += f"[filter:{name}]\nuse = egg:swift#{egg}\n{own.get(name, '')}\n"
        return text

    def _start(self, program: str, *arguments: str) -> None:
        path = shutil.which(program)
        if path is None:
            raise RuntimeError(f"{program} is gone")
        environment = {**os.environ, "PYTHONPATH": f"{SOURCE}:{Path(__file__).resolve().parent}"}
        log = open(self.folder / f"{program}.log", "ab")
        with log:
            self._processes.append(
                subprocess.Popen([path, *arguments], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            )

    def _wait(self, port: int) -> None:
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
                try:
                    connection.request("GET", "/healthcheck")
                    if connection.getresponse().status == 200:
                        return
                finally:
                    connection.close()
            except OSError:
                pass
            ended = [process.args for process in self._processes if process.poll() is not None]
            if ended:
                break
            time.sleep(0.05)
        logs = "\n".join(path.read_text()[-2000:] for path in self.folder.glob("*.log"))
        raise RuntimeError(f"the Swift of the tests does not answer on {port}:\n{logs}")

    def stop(self) -> None:
        """Ends the servers and removes the folder."""
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()
        shutil.rmtree(self.folder, ignore_errors=True)
