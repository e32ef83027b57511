"""A container's listing with the true size, entity tag, time and type of shadows. Pure.

Swift lists what object servers told the container at a PUT; a POST cannot change size or entity tag there. The content
type can, so the truth travels in a parameter of it, and is put in its place here. Works on the JSON form, from which
Swift's `listing_formats` makes all others. Entries without the parameter stay as they are, byte for byte if all do.
"""

from __future__ import annotations

import json
from typing import Any, Callable

from nigh_swift.shadow import PARAMETER, bare_type, listed_shadow

_MARK = PARAMETER[1:].encode()


def true_listing(body: bytes, to_date: Callable[[str], str]) -> bytes:
    """`body` with shadows shown as what they will be. `to_date` makes a listing's date of a timestamp.

    Raises ValueError if it is not what Swift lists with.
    """
    if _MARK not in body:
        return body
    entries: list[dict[str, Any]] = json.loads(body)
    for entry in entries:
        listed_type = entry.get("content_type")
        shadow = listed_shadow(listed_type) if isinstance(listed_type, str) else None
        if shadow is None:
            continue
        entry["bytes"], entry["hash"] = shadow.size, shadow.etag
        entry["last_modified"] = to_date(shadow.timestamp)
        entry["content_type"] = bare_type(shadow.content_type)
    return json.dumps(entries).encode()
