"""What a shadow's tags say, as text in a header and in a content type. Pure.

A shadow is an object that Nigh acknowledged and whose payload is not in Swift yet. Decides nothing about requests.
Tags that do not parse are an error, never a default.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

#: The tags of a placeholder without payload: in the metadata of the data file, where only a PUT replaces them.
EMPTY_HEADER = "X-Object-Sysmeta-Nigh-Shadow"
#: The tags beside a payload that is kept: what a POST can write.
KEPT_HEADER = "X-Object-Transient-Sysmeta-Nigh-Shadow"
#: The version of a payload that Nigh pushed.
VERSION_HEADER = "X-Object-Sysmeta-Nigh-Version"
#: Whatever begins so is ours alone.
OURS = ("x-object-sysmeta-nigh-", "x-object-transient-sysmeta-nigh-")
#: The container's: the id of the node that caches it.
CACHED = "nigh-cached"
#: A parameter of the content type, the one text of an object that container listings repeat.
PARAMETER = ";nigh-shadow="
#: Tags in a header, in bytes: Swift's limit of a header line is 8 KiB.
TAGS_BYTES_MAX = 6000
#: Headers of an object that a version may have beside its user metadata: Swift's own list, but what makes manifests.
ATTRIBUTES = (
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "expires",
    "x-robots-tag",
)
USER_META = "x-object-meta-"
_VERSION = re.compile(r"([0-9]{1,20})\.([0-9]{1,20})\Z")
_NODE = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
_PLAIN = re.compile(r"[\x20-\x7e]*\Z")
_NAME = re.compile(r"[a-z0-9._-]+\Z")
EMPTY, KEPT = "empty", "kept"


class BadTags(ValueError):
    """Tags that are not what the protocol says."""


class Version(NamedTuple):
    """A version: the home's epoch, and the ledger's sequence in it. Ordered."""

    epoch: int
    sequence: int

    @classmethod
    def parse(cls, text: str) -> Version:
        """`epoch.sequence`. Raises BadTags."""
        parts = _VERSION.match(text)
        if not parts:
            raise BadTags(f"{text[:40]!r} is no version; it is written epoch.sequence")
        return cls(int(parts[1]), int(parts[2]))

    def __str__(self) -> str:
        return f"{self.epoch}.{self.sequence}"


@dataclass(frozen=True)
class Shadow:
    """A version that is not in Swift yet. `timestamp` (Swift's, internal form) and `kind` are the middleware's."""

    version: Version
    size: int
    etag: str
    content_type: str
    node: str
    headers: dict[str, str] = field(default_factory=dict)
    timestamp: str = ""
    kind: str = EMPTY

    def standing(self, timestamp: str, kind: str) -> Shadow:
        """The same where it was put."""
        return replace(self, timestamp=timestamp, kind=kind)

    def encode(self) -> str:
        """As text of a header. Raises BadTags if it is too long: such a version is written through."""
        members = asdict(self)
        members["version"] = str(self.version)
        text = _to_text(members)
        if len(text) > TAGS_BYTES_MAX:
            raise BadTags(f"the tags have {len(text)} bytes, more than {TAGS_BYTES_MAX}; write this version through")
        return text

    @classmethod
    def decode(cls, text: str) -> Shadow:
        """From the text of a header. Raises BadTags."""
        members = _from_text(text)
        try:
            headers = {str(name).lower(): str(value) for name, value in dict(members.get("headers") or {}).items()}
            found = cls(
                version=Version.parse(str(members["version"])),
                size=int(members["size"]),
                etag=str(members["etag"]),
                content_type=str(members["content_type"]),
                node=str(members["node"]),
                headers=headers,
                timestamp=str(members.get("timestamp", "")),
                kind=str(members.get("kind", EMPTY)),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise BadTags(f"the tags lack or misuse {error}") from error
        except ValueError as error:
            raise BadTags(str(error)) from error
        found._check()
        return found

    def _check(self) -> None:
        if self.size < 0:
            raise BadTags("the size is negative")
        if not _NODE.match(self.node):
            raise BadTags("the node's id is not 1 to 64 letters, digits, dots, dashes")
        if self.kind not in (EMPTY, KEPT):
            raise BadTags(f"{self.kind[:20]!r} is no kind of shadow")
        for name, value in self.headers.items():
            allowed = name in ATTRIBUTES or (name.startswith(USER_META) and name != USER_META and _NAME.match(name))
            if not allowed:
                raise BadTags(f"{name[:60]!r} is no header of a version")
            if not _PLAIN.match(value):
                raise BadTags(f"{name[:60]} is not printable ASCII")
        if not _PLAIN.match(self.content_type) or not _PLAIN.match(self.etag) or PARAMETER in self.content_type:
            raise BadTags("the content type or the entity tag is not what a header can hold")

    def listed_type(self, content_type: str) -> str:
        """`content_type` with what a listing must show of this version."""
        members = {"size": self.size, "etag": self.etag, "timestamp": self.timestamp, "type": self.content_type}
        return f"{bare_type(content_type)}{PARAMETER}{_to_text(members)}"


@dataclass(frozen=True)
class ListedShadow:
    """What a listing shows of a shadow."""

    size: int
    etag: str
    timestamp: str
    content_type: str


def bare_type(content_type: str) -> str:
    """A content type without our parameter, wherever in it the parameter stands."""
    before, found, rest = content_type.partition(PARAMETER)
    if not found:
        return content_type
    _, semicolon, after = rest.partition(";")
    return bare_type(before + semicolon + after)


def listed_shadow(content_type: str) -> ListedShadow | None:
    """What our parameter in a listing's content type says. Raises BadTags if it does not parse."""
    _, found, rest = content_type.partition(PARAMETER)
    if not found:
        return None
    members = _from_text(rest.partition(";")[0])
    try:
        return ListedShadow(int(members["size"]), str(members["etag"]), str(members["timestamp"]), str(members["type"]))
    except (KeyError, TypeError, ValueError) as error:
        raise BadTags(f"a listed shadow lacks or misuses {error}") from error


def shadow_of(headers: Mapping[str, str]) -> Shadow | None:
    """The shadow among an object's headers (names compared as Swift writes them). Raises BadTags.

    Tags beside a payload are younger than those of the data file: a POST came after the PUT.
    """
    text = headers.get(KEPT_HEADER) or headers.get(EMPTY_HEADER)
    return Shadow.decode(text) if text else None


def _to_text(members: Mapping[str, Any]) -> str:
    packed = json.dumps(members, sort_keys=True, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(packed).rstrip(b"=").decode()


def _from_text(text: str) -> dict[str, Any]:
    try:
        members = json.loads(base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4)))
    except (UnicodeError, binascii.Error, ValueError, RecursionError) as error:
        raise BadTags("the tags are no JSON in base64url") from error
    if not isinstance(members, dict):
        raise BadTags("the tags are no JSON object")
    return members
