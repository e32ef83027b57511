"""What a botocore call asks of the fast path, or why it must go over HTTP. Pure: the request as botocore would send it.

Only what is listed here is taken. A header or a query parameter that is not known is a reason for HTTP, so that a newer
botocore, or a handler that adds something, loses nothing but speed.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Tuple, Union
from urllib.parse import unquote

# Headers of a read, as botocore names them, and the fields of the protocol.
_READ_FIELDS = {
    "range": "range",
    "if-match": "if_match",
    "if-none-match": "if_none_match",
    "if-modified-since": "if_modified_since",
    "if-unmodified-since": "if_unmodified_since",
    "x-amz-checksum-mode": "checksum_mode",
}
# Headers of a put that the fast path takes as they are.
_PUT_HEADERS = frozenset(
    (
        *("content-type", "cache-control", "content-disposition", "content-encoding", "content-language", "expires"),
        *("content-md5", "if-match", "if-none-match", "x-amz-tagging", "x-amz-sdk-checksum-algorithm"),
    )
)
_PUT_PREFIXES = ("x-amz-meta-", "x-amz-checksum-")
# What belongs to the way and not to the request. The node knows the trace by the invocation.
_OF_HTTP = frozenset(
    ("user-agent", "expect", "content-length", "x-amzn-trace-id", "traceparent", "tracestate", "baggage")
)

# Reasons, in the words that `nigh.hook.counters` counts.
OTHER_ENDPOINT = "endpoint"
PARAMETER = "parameter"


class Http(Exception):
    """The call goes over HTTP; `reason` is one word."""

    def __init__(self, reason: str):
        super().__init__(reason)
        self.reason = reason


def place(url: str, endpoint: str, query: Mapping[str, Any]) -> Tuple[str, str]:
    """Bucket and key of a request to `url`, which must be in path style at `endpoint` (with its last slash)."""
    if not url.startswith(endpoint):
        raise Http(OTHER_ENDPOINT)
    path = url[len(endpoint) :]
    if query:
        path = path.partition("?")[0]
    bucket, _, key = path.partition("/")
    if not bucket or not key:
        raise Http(OTHER_ENDPOINT)
    return (unquote(bucket), unquote(key)) if "%" in path else (bucket, key)


def read_fields(bucket: str, key: str, request: Mapping[str, Any]) -> Dict[str, Any]:
    """The fields of a GET or HEAD."""
    fields: Dict[str, Any] = {"bucket": bucket, "key": key}
    for name, value in request["headers"].items():
        name = name.lower()
        field = _READ_FIELDS.get(name)
        if field is not None:
            fields[field] = _text(value)
        elif name not in _OF_HTTP:
            raise Http(PARAMETER)
    for name, value in request["query_string"].items():
        if name != "partNumber":
            raise Http(PARAMETER)
        fields["part"] = int(value)
    return fields


def put_headers(request: Mapping[str, Any]) -> Dict[str, str]:
    """The headers of a PUT. The checksum that botocore would compute is asked of the node by its name."""
    if request["query_string"]:
        raise Http(PARAMETER)
    headers: Dict[str, str] = {}
    for name, value in request["headers"].items():
        name = name.lower()
        if name in _PUT_HEADERS or name.startswith(_PUT_PREFIXES):
            headers[name] = _text(value)
        elif name not in _OF_HTTP:
            raise Http(PARAMETER)
    algorithm = request["context"].get("checksum", {}).get("request_algorithm")
    if algorithm is not None:
        if type(algorithm) is not dict:
            raise Http(PARAMETER)
        headers["x-amz-sdk-checksum-algorithm"] = algorithm["algorithm"].upper()
    return headers


def _text(value: Union[str, bytes]) -> str:
    return value if isinstance(value, str) else value.decode("utf-8")
