"""A Python process with the common imports behind it, waiting to become one function's process.

Nigh starts it ahead of any function, inside a sandbox whose /var/task is empty:

    python3 -c SOURCE module... descriptor

It imports the vendor's runtime client and the modules named, says on the descriptor that it is ready, and waits there
for one message: the command and the whole environment of a function's process. Then it becomes what that command would
be, `python3 -m awslambdaric HANDLER`, without the imports. Where that could differ in anything the function can rely
on, it starts the command afresh in its place (`execve`, the same process id): right always, only slower. `why_fresh`
holds the rules:

- a variable differs that the interpreter, the dynamic linker, the C library or a module read when it began;
- the function brings a module or a library under a name that is loaded here already, or was looked for in vain.

Between two invocations it gives memory back (`giving_back`), so that what one needed does not stay with the next.

What stays different: `/proc/self/cmdline` and `/proc/self/environ` are those of the start, processor time and the
garbage collector count the imports, and modules that the function would import itself may be in `sys.modules` before.

Messages: it says `R`, a length (u32, little endian) and a text, which names the modules it has not and is mostly empty.
It is told a length, then that many bytes: the number of words in the command (u32), then the words and the lines
`NAME=VALUE`, each ended by a zero byte. It says `B` when it begins to be that, and closes the descriptor.
"""

import functools
import gc
import importlib
import importlib.machinery
import os
import runpy
import signal
import sys
import time
import types

try:
    import ctypes
except ImportError:
    # A Python without it: what is free stays with the process.
    ctypes = None

# What each function's process runs.
_CLIENT = "awslambdaric"
# An invocation that took less and kept less leaves nothing that would be worth a look.
_GIVES_BACK_AFTER_S = 0.020
_GIVES_BACK_BYTES = 8 << 20
# It takes one part in so many of the time at most: the next invocation may be waiting.
_GIVES_BACK_ONE_IN = 50
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TASK_ROOT = "/var/task"
# The command and environment of a process; the kernel takes 2 MiB.
_MESSAGE_BYTES_MAX = 4 << 20

# Read once, when a process or a library begins, by code that os.environ does not see.
_READ_AT_START = frozenset(
    "AWS_LAMBDA_RUNTIME_API GCONV_PATH GETCONF_DIR HOME HOSTALIASES LANG LANGUAGE LOCALDOMAIN LOCPATH NLSPATH"
    " RES_OPTIONS RESOLV_HOST_CONF TZDIR".split()
)
_READ_AT_START_PREFIXES = (
    *("PYTHON", "LD_", "LC_", "MALLOC_", "GLIBC_", "OPENSSL_"),
    # Numerical libraries, where a setting adds them to the imports.
    *("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "GOTO_", "BLIS_", "NPY_"),
)
# What botocore reads of a service to make a client: what it can do, and where it is.
_LISTED = ("service-2", "endpoint-rule-set-1")
# Looked for by each interpreter at its start.
_LOOKED_FOR = ("sitecustomize", "usercustomize")


class EnvironmentReads:
    """Notes which variables are read through os.environ while it is entered."""

    def __init__(self):
        self.names: set[str] = set()
        # Somebody looked at all of them.
        self.all = False

    def __enter__(self):
        reads, plain = self, type(os.environ)

        class Noting(plain):
            def __getitem__(self, name):
                reads.names.add(os.fsdecode(name))
                return super().__getitem__(name)

            def __iter__(self):
                reads.all = True
                return super().__iter__()

            def __len__(self):
                reads.all = True
                return super().__len__()

        self._plain = plain
        os.environ.__class__ = os.environb.__class__ = Noting
        return self

    def __exit__(self, *_):
        os.environ.__class__ = os.environb.__class__ = self._plain


class _InVain:
    """The last of the finders: notes what none of the others found."""

    def __init__(self):
        self.names: set[str] = set()

    def find_spec(self, name, path=None, target=None):
        if path is None:
            self.names.add(name)
        return None


class Start:
    """What this process was when its interpreter stood, before any import of ours."""

    def __init__(self, given: dict[str, str]):
        self.environment = given
        # `.pth` files may set variables, and read some.
        self.set_by_site = {name: value for name, value in os.environ.items() if given.get(name) != value}
        self.unset_by_site = [name for name in given if name not in os.environ]
        self.site_words = _site_words(sys.path)
        own = [entry for entry in given.get("PYTHONPATH", "").split(os.pathsep) if entry]
        self.path = [entry for entry in sys.path if entry and entry not in own]


def _site_words(path: list[str]) -> set[str]:
    """The words of the programs in `.pth` files: the names of what they read are among them."""
    words = set()
    for folder in path:
        if not folder or not os.path.isdir(folder):
            continue
        for name in os.listdir(folder):
            if name.endswith(".pth"):
                with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as lines:
                    for line in lines:
                        if line.startswith(("import ", "import\t")):
                            words.update("".join(c if c.isalnum() or c == "_" else " " for c in line).split())
    return words


class Stem:
    """A warmed process: what it has read and loaded so far."""

    def __init__(self, start: Start, modules: list[str]):
        self.start = start
        self.missing: list[str] = []
        in_vain = _InVain()
        sys.meta_path.append(in_vain)
        self.reads = EnvironmentReads()
        with self.reads:
            importlib.import_module(_CLIENT + ".bootstrap")
            importlib.import_module(_CLIENT + ".lambda_config")
            for module in modules:
                try:
                    importlib.import_module(module)
                except Exception as error:
                    self.missing.append(f"{module}: {type(error).__name__}: {error}")
        if "boto3" in sys.modules:
            rehearse_boto3()
            # What comes next takes the room of what was forgotten.
            gc.collect()
            with self.reads:
                prepare_botocore()
        sys.meta_path.remove(in_vain)
        loaded = {name.partition(".")[0] for name in sys.modules} | in_vain.names | set(_LOOKED_FOR)
        self.names = loaded.difference(sys.builtin_module_names, ["__main__"])
        self.libraries = _loaded_libraries()
        gc.collect()
        gc.freeze()

    def why_fresh(self, command: list[str], environment: dict[str, str]) -> str | None:
        """Why `command` must be started afresh; None if this process can become it."""
        if command[:3] != [sys.executable, "-m", _CLIENT]:
            return "another program"
        known = self.start.environment
        changed = {name for name in known.keys() | environment.keys() if known.get(name) != environment.get(name)}
        for name in sorted(changed):
            if name != "PYTHONPATH" and (name in _READ_AT_START or name.startswith(_READ_AT_START_PREFIXES)):
                return f"{name} is read at the start"
            if name in self.reads.names or self.reads.all:
                return f"{name} was read by an import"
            if name in self.start.set_by_site or name in self.start.unset_by_site or name in self.start.site_words:
                return f"{name} is a .pth file's"
        own = own_path(environment)
        if not all(entry.startswith("/") for entry in own):
            return "PYTHONPATH has a relative entry"
        # Folders that this process had in its own path, but for the code's, are as they were when it looked into them.
        seen = set(own_path(known)[1:]) - {_TASK_ROOT}
        for folder in dict.fromkeys(own):
            if folder in seen:
                continue
            if shadow := self._shadow(folder):
                return shadow
        for folder in environment.get("LD_LIBRARY_PATH", "").split(os.pathsep):
            if library := self._library(folder or _TASK_ROOT):
                return library
        return None

    def _shadow(self, folder: str) -> str | None:
        """What in `folder` a fresh interpreter would import under a name that is taken here."""
        try:
            entries = list(os.scandir(folder))
        except FileNotFoundError:
            return None
        except OSError:
            return f"{folder} is no folder"
        for entry in entries:
            name = entry.name.partition(".")[0]
            if name not in self.names:
                continue
            if entry.is_dir():
                # A folder without an `__init__` counts only beside others of its kind.
                spec = getattr(sys.modules.get(name), "__spec__", None)
                is_package = any(inside.startswith("__init__.") for inside in os.listdir(entry.path))
                if is_package or spec is None or spec.origin is None:
                    return f"{entry.path} is loaded already"
            elif entry.name.removeprefix(name) in importlib.machinery.all_suffixes():
                return f"{entry.path} is loaded already"
        return None

    def _library(self, folder: str) -> str | None:
        """What in `folder` the linker would prefer to a library that is loaded here."""
        try:
            names = os.listdir(folder)
        except OSError:
            return None
        for name in names:
            library, dot_so, _ = name.partition(".so")
            if name == "glibc-hwcaps" or (dot_so and library in self.libraries):
                return f"{folder}/{name} is loaded already"
        return None

    def become(self, command: list[str], environment: dict[str, str]):
        """Is that command's process from here on. Returns when it would have ended well."""
        os.environ.clear()
        os.environ.update(environment)
        os.environ.update(self.start.set_by_site)
        for name in self.start.unset_by_site:
            os.environ.pop(name, None)
        time.tzset()
        os.chdir(_TASK_ROOT)
        # `-m` puts the current folder first, whatever else stands in the path; `site` drops what comes twice.
        own = map(os.path.abspath, own_path(environment)[1:])
        sys.path[:] = [os.getcwd(), *dict.fromkeys([*own, *self.start.path])]
        sys.orig_argv[:] = command
        sys.argv[:] = command[1:2] + command[3:]
        importlib.invalidate_caches()
        sys.modules["__main__"] = types.ModuleType("__main__")
        sys.modules["__main__"].__dict__.update(__builtins__=__builtins__, __annotations__={})
        giving_back()
        runpy._run_module_as_main(_CLIENT)


class GivingBack:
    """Gives memory back to the kernel between an answer and the next invocation, where there may be something.

    The answer is with the client then: it waits for nothing of this. Who has the garbage collector off, or watches it, is
    left alone. What finalizers raise is shown as ever, and ends nothing.
    """

    def __init__(self, trim=None, clock=time.monotonic, resident=None):
        self._trim = trim or _malloc_trim()
        self._clock = clock
        self._resident = resident or _resident_bytes
        self._began = None
        self._rests_until = None

    def begins(self):
        """An invocation begins."""
        self._began = self._clock(), self._resident()

    def ends(self):
        """It was answered; memory is given back if that may be worth it."""
        began, self._began = self._began, None
        if began is None:
            return
        since, resident = began
        now = self._clock()
        if now - since <= _GIVES_BACK_AFTER_S and self._resident() - resident <= _GIVES_BACK_BYTES:
            return
        if self._rests_until is not None and now < self._rests_until:
            return
        if gc.isenabled() and not gc.callbacks and not gc.get_debug():
            gc.collect()
        self._trim(0)
        done = self._clock()
        self._rests_until = done + (done - now) * _GIVES_BACK_ONE_IN

    def around(self, wait):
        """The same `wait` for the next invocation, which begins when it returns."""

        @functools.wraps(wait)
        def wait_next_invocation(*arguments, **named):
            self.ends()
            invocation = wait(*arguments, **named)
            self.begins()
            return invocation

        return wait_next_invocation


def giving_back():
    """Has the vendor's client give memory back whenever it comes to wait; nothing where that cannot be done."""
    try:
        client = sys.modules[_CLIENT + ".lambda_runtime_client"].LambdaRuntimeClient
        client.wait_next_invocation = GivingBack().around(client.wait_next_invocation)
    except (AttributeError, KeyError, OSError):
        # Another client, or another C library: what is free stays with the process.
        return


def _malloc_trim():
    trim = ctypes.CDLL(None).malloc_trim
    trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int
    return trim


def _resident_bytes() -> int:
    with open("/proc/self/statm", "rb") as statm:
        return int(statm.read().split()[1]) * _PAGE


def own_path(environment: dict[str, str]) -> list[str]:
    """The folders that an interpreter with this environment looks into before its own."""
    return [_TASK_ROOT, *(entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry)]


def _loaded_libraries() -> set[str]:
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        paths = (line.split(maxsplit=5)[5:] for line in maps)
        return {os.path.basename(path[0]).partition(".so")[0] for path in paths if path and ".so" in path[0]}


def rehearse_boto3():
    """Makes an S3 client and forgets it: what it imports late is there then, and what it runs has been run.

    What it reads of the environment goes into the client and its session alone. It asks nothing of anybody.
    """
    import boto3

    try:
        keys = {"aws_access_key_id": "none", "aws_secret_access_key": "none"}
        boto3.session.Session().client("s3", region_name="us-east-1", endpoint_url="http://127.0.0.1:9", **keys)
        importlib.import_module("encodings.idna")
    except Exception:
        # What stands in its way stands in the function's way too, and is told there.
        return


def prepare_botocore():
    """Does ahead what the first S3 client takes longest for: it parses three large files, lists a thousand folders,
    and makes a session with its hundred and fifty handlers.

    Each parsed file, and the session, is given out once, to the first who asks: nobody shares what would not be shared
    otherwise. The list of services is kept for the packages' own folders alone, which are read-only in a sandbox.
    """
    from botocore import handlers, invoke_initializers, loaders, session

    try:
        plain_load, plain_list = loaders.JSONFileLoader.load_file, loaders.Loader.list_available_services
        finder = loaders.Loader()
        version = finder.determine_latest_version("s3", _LISTED[0])
        names = ["endpoints", "partitions", *(f"s3/{version}/{model}" for model in _LISTED)]
        ahead = {path: parsed for parsed, path in map(finder.load_data_with_path, names)}
        # boto3 adds a folder of its own to its sessions' loaders.
        own = [loaders.Loader.BUILTIN_DATA_PATH, os.path.join(os.path.dirname(sys.modules["boto3"].__file__), "data")]
        services = {}
        for folders in (own[:1], own):
            finder = loaders.Loader(include_default_search_paths=False, extra_search_paths=folders)
            for model in _LISTED:
                services[tuple(folders), model] = finder.list_available_services(model)
        plain_session, made = session.get_session, [session.Session()]
        kind, known = session.Session, _registered(session.Session, handlers)
    except Exception:
        # A botocore that this does not know: its first client takes its own time.
        return

    def load_file(self, file_path):
        parsed = ahead.pop(file_path, None)
        return plain_load(self, file_path) if parsed is None else parsed

    def list_available_services(self, type_name):
        listed = None
        if type(self.file_loader) is loaders.JSONFileLoader:
            listed = services.get((tuple(filter(os.path.isdir, self.search_paths)), type_name))
        return plain_list(self, type_name) if listed is None else list(listed)

    def get_session(env_vars=None):
        # Who has changed what sessions are made of gets a new one.
        if made and env_vars is None and session.Session is kind and _registered(kind, handlers) == known:
            ready = made.pop()
            invoke_initializers(ready)
            return ready
        return plain_session(env_vars)

    loaders.JSONFileLoader.load_file = load_file
    loaders.Loader.list_available_services = list_available_services
    session.get_session = get_session


def _registered(session, handlers) -> tuple:
    return list(handlers.BUILTIN_HANDLERS), dict(session.SESSION_VARIABLES)


def _read_exactly(descriptor: int, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = os.read(descriptor, count - len(parts))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)


def receive(descriptor: int) -> tuple[list[str], dict[str, str]]:
    """The command and the environment to become."""
    length = int.from_bytes(_read_exactly(descriptor, 4), "little")
    if not 4 <= length <= _MESSAGE_BYTES_MAX:
        raise ValueError(f"a message of {length} bytes")
    message = _read_exactly(descriptor, length)
    words = int.from_bytes(message[:4], "little")
    texts = [os.fsdecode(text) for text in message[4:].split(b"\0")[:-1]]
    environment = {}
    for line in texts[words:]:
        name, _, value = line.partition("=")
        environment[name] = value
    return texts[:words], environment


def _say_ready(descriptor: int, text: str):
    said = text.encode("utf-8", "replace")
    message = b"R" + len(said).to_bytes(4, "little") + said
    while message:
        message = message[os.write(descriptor, message) :]


def main(arguments: list[str]):
    """Warms up, waits, and becomes what it is told to."""
    with open("/proc/self/environ", "rb") as environ:
        given = dict(os.fsdecode(line).split("=", 1) for line in environ.read().split(b"\0")[:-1])
    stem = Stem(Start(given), arguments[:-1])
    descriptor = int(arguments[-1])
    _say_ready(descriptor, "; ".join(stem.missing))
    try:
        command, environment = receive(descriptor)
    except (EOFError, ConnectionError):
        # It is not wanted any more.
        return
    why = stem.why_fresh(command, environment)
    os.write(descriptor, b"B")
    os.close(descriptor)
    if why is not None:
        os.chdir(_TASK_ROOT)
        # Python ignores this one, and what is ignored stays so in the next program.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.execve(command[0], command, environment)
    stem.become(command, environment)


if __name__ == "__main__":
    main(sys.argv[1:])
