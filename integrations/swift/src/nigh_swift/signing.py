"""Who may say what: HMAC-SHA256 over requests between Nigh and the middleware, both ways. Pure.

Decides whether a signature, its date and the form of its nonce are good; whether a nonce was seen before is the
caller's to ask. Never logs or returns a secret. The canonical text is drawn in the README, "Signatures".
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping, Sequence

#: What Nigh signs its requests to Swift with, and what the middleware signs its own to Nigh with: two words, so that
#: a message of one direction is none of the other.
TO_SWIFT = "nigh-swift-request-1"
TO_NIGH = "nigh-outside-1"
DATE = "x-nigh-date"
NONCE = "x-nigh-nonce"
SIGNATURE = "x-nigh-signature"
#: The headers that are signed begin so.
PREFIX = "x-nigh-"
#: A shorter secret could be guessed.
SECRET_BYTES_MIN = 32
#: Secrets that are in force at a time: the one in use and those of a rotation.
SECRETS_MAX = 4
_NONCE = re.compile(r"[A-Za-z0-9_-]{16,64}\Z")
_DATE = re.compile(r"[0-9]{1,12}\Z")


class Refused(Exception):
    """A signature that does not hold, with the reason as it is told to the sender."""


def read_secrets(text: bytes) -> list[bytes]:
    """The secrets of a file: one a line, the first signs, all verify.

    Raises ValueError if there is none, one is too short, or there are too many.
    """
    found = [line.strip() for line in text.splitlines() if line.strip()]
    if not 1 <= len(found) <= SECRETS_MAX:
        raise ValueError(f"the file has {len(found)} secrets; it takes 1 to {SECRETS_MAX}, one a line")
    if any(len(secret) < SECRET_BYTES_MIN for secret in found):
        raise ValueError(f"a secret has fewer than {SECRET_BYTES_MIN} bytes; make one with `openssl rand -hex 32`")
    return found


def _canonical(word: str, method: str, path: str, query: str, headers: Mapping[str, str], digest: str) -> bytes:
    signed = {name.lower(): value for name, value in headers.items() if name.lower().startswith(PREFIX)}
    signed.pop(SIGNATURE, None)
    lines = [word, method, path, query, digest]
    lines += [f"{name}:{signed[name].strip()}" for name in sorted(signed)]
    return "\n".join(lines).encode("utf-8", "surrogateescape")


def _mac(secret: bytes, text: bytes) -> str:
    return hmac.new(secret, text, hashlib.sha256).hexdigest()


def sign(
    secret: bytes,
    word: str,
    method: str,
    path: str,
    *,
    now: float,
    query: str = "",
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> dict[str, str]:
    """The headers to send: those given, with date, nonce and signature.

    `path` is percent-encoded. `body` is signed if given: a payload is not, its entity tag is.
    """
    out = {name.lower(): value for name, value in (headers or {}).items()}
    out[DATE] = str(int(now))
    out[NONCE] = secrets.token_urlsafe(18)
    out[SIGNATURE] = _mac(secret, _canonical(word, method, path, query, out, digest_of(body)))
    return out


def digest_of(body: bytes | None) -> str:
    """What stands for a body in the signed text."""
    return "-" if body is None else hashlib.sha256(body).hexdigest()


def verify(
    secrets_in_force: Sequence[bytes],
    word: str,
    method: str,
    path: str,
    *,
    now: float,
    skew_s: float,
    headers: Mapping[str, str],
    query: str = "",
    body: bytes | None = None,
) -> str:
    """Returns the nonce of a request whose signature and date hold.

    Raises Refused. Every secret is tried, and compared in constant time.
    """
    given = {name.lower(): value for name, value in headers.items()}
    text = _canonical(word, method, path, query, given, digest_of(body))
    signature = given.get(SIGNATURE, "").encode("utf-8", "surrogateescape")
    good = [hmac.compare_digest(_mac(secret, text).encode(), signature) for secret in secrets_in_force]
    if not any(good):
        raise Refused("the signature does not match; is the secret the same on both sides?")
    date, nonce = given.get(DATE, ""), given.get(NONCE, "")
    if not _DATE.match(date) or abs(now - int(date)) > skew_s:
        raise Refused(f"the date is more than {skew_s:g} s from here; are both clocks set?")
    if not _NONCE.match(nonce):
        raise Refused("the nonce is not 16 to 64 letters and digits")
    return nonce
