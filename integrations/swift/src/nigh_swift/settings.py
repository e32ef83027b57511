"""The filter's settings: what the proxy's configuration file says, checked when the proxy starts."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from nigh_swift.signing import read_secrets

#: Nodes a proxy knows.
NODES_MAX = 1024
#: The longest that any wait may be set to, in seconds.
WAIT_S_MAX = 3600.0
_KNOWN = {
    "secret_file",
    "nodes",
    "push_timeout",
    "invalidate_timeout",
    "write_lease",
    "clock_skew",
    "retry_after",
    "on_unreachable",
}


class BadSetting(ValueError):
    """A setting that cannot be used; the proxy does not start."""


@dataclass(frozen=True)
class Settings:
    """All times are seconds."""

    secrets: list[bytes]
    nodes: dict[str, str]
    push_timeout: float = 30.0
    invalidate_timeout: float = 10.0
    write_lease: float = 300.0
    clock_skew: float = 60.0
    retry_after: int = 5
    refuse_unreachable: bool = True
    swift_dir: str = "/etc/swift"

    @classmethod
    def of(cls, shared: Mapping[str, str], local: Mapping[str, str]) -> Settings:
        """From the file's defaults and the filter's own section. Raises BadSetting."""
        for name in local:
            # Paste adds names with underscores around; those of logging are Swift's.
            if name not in _KNOWN and not name.startswith(("__", "log_", "access_log_")):
                raise BadSetting(f"[filter:nigh] does not know {name!r}; it knows {', '.join(sorted(_KNOWN))}")
        return cls(
            secrets=_secrets(local.get("secret_file", "")),
            nodes=_nodes(local.get("nodes", "")),
            push_timeout=_wait(local, "push_timeout", 30.0),
            invalidate_timeout=_wait(local, "invalidate_timeout", 10.0),
            write_lease=_wait(local, "write_lease", 300.0),
            clock_skew=_wait(local, "clock_skew", 60.0),
            retry_after=int(_wait(local, "retry_after", 5.0)),
            refuse_unreachable=_choice(local, "on_unreachable", {"refuse": True, "proceed": False}),
            swift_dir=shared.get("swift_dir", "/etc/swift"),
        )


def _secrets(path: str) -> list[bytes]:
    if not path:
        raise BadSetting("[filter:nigh] needs secret_file, the file with the secret shared with Nigh")
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(64 * 1024)
    except OSError as error:
        raise BadSetting(f"secret_file {path}: {error.strerror}") from error
    if mode & (stat.S_IRWXO | stat.S_IWGRP):
        raise BadSetting(f"secret_file {path} is open to others; set its mode to 0640 or 0600")
    try:
        return read_secrets(text)
    except ValueError as error:
        raise BadSetting(f"secret_file {path}: {error}") from error


def _nodes(text: str) -> dict[str, str]:
    nodes: dict[str, str] = {}
    for word in text.split():
        name, _, url = word.partition("=")
        parts = urlsplit(url)
        if not name or parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise BadSetting(f"nodes: {word!r} is not <id>=http(s)://<host>:<port>")
        nodes[name] = url.rstrip("/")
    if not 1 <= len(nodes) <= NODES_MAX:
        raise BadSetting(f"[filter:nigh] needs nodes, 1 to {NODES_MAX} of <id>=http(s)://<host>:<port>")
    return nodes


def _wait(local: Mapping[str, str], name: str, default: float) -> float:
    text = local.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError as error:
        raise BadSetting(f"{name} = {text!r} is no number of seconds") from error
    if not 0 < value <= WAIT_S_MAX:
        raise BadSetting(f"{name} = {text} is not above 0 and at most {WAIT_S_MAX:g} seconds")
    return value


def _choice(local: Mapping[str, str], name: str, choices: Mapping[str, bool]) -> bool:
    text = local.get(name, next(iter(choices))).strip().lower()
    if text not in choices:
        raise BadSetting(f"{name} = {text!r} is none of {', '.join(choices)}")
    return choices[text]
