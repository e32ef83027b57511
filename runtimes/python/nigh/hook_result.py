"""What botocore would have made of the same answer over HTTP: the response, the parsed dict, the error.

The dict is built from a table made once of the operation's model, which is what botocore's parser looks through at each
answer; where a header needs more than that (`Expires`), botocore's own parser and handlers do it.
"""

from __future__ import annotations

import datetime
import email.utils
import functools
import http.client
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from botocore import handlers, parsers, utils
from botocore.awsrequest import AWSResponse, HeadersDict
from botocore.httpchecksum import _CHECKSUM_CLS
from dateutil.tz import tzutc

from nigh.connection import Answer
from nigh.errors import Refused
from nigh.hook_body import CheckedBody, FastBody
from nigh.segment import segment_of

_METADATA_PREFIX = "x-amz-meta-"
_MONTHS = {name: number for number, name in enumerate("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), 1)}
_UTC = tzutc()


class Response(AWSResponse):
    """The HTTP response of an answer without HTTP."""

    def __init__(self, url: str, status: int, headers: Dict[str, str], body: Optional[FastBody] = None):
        # Not the parent's, which would make what mostly nobody looks at.
        self.url = url
        self.status_code = status
        self._plain_headers = headers
        self._body = body
        self._content: Optional[bytes] = None if body is not None else b""

    @functools.cached_property
    def headers(self) -> HeadersDict:
        return HeadersDict(self._plain_headers)

    @property
    def raw(self) -> Any:
        return None if self._body is None else self._body._raw_stream


@functools.lru_cache(maxsize=4096)
def time_of(text: str) -> datetime.datetime:
    """A header's time as botocore reads it."""
    # The one form that HTTP writes, a hundred times faster than a parser of all forms.
    if len(text) == 29 and text.endswith(" GMT") and text[3:5] == ", " and text[19] == text[22] == ":":
        try:
            return datetime.datetime(
                int(text[12:16]),
                _MONTHS[text[8:11]],
                int(text[5:7]),
                int(text[17:19]),
                int(text[20:22]),
                int(text[23:25]),
                tzinfo=_UTC,
            )
        except (KeyError, ValueError):
            pass
    parsed: datetime.datetime = utils.parse_timestamp(text)
    return parsed


def _is_true(text: str) -> bool:
    return text == "true"


_CONVERSIONS: Dict[str, Optional[Callable[[str], Any]]] = {
    "string": None,
    "boolean": _is_true,
    "integer": int,
    "long": int,
    "timestamp": time_of,
}


class ResultParser:
    """Makes the results of one operation."""

    def __init__(self, model: Any):
        self._model = model
        self._members: List[Tuple[str, str, Optional[Callable[[str], Any]]]] = []
        self._metadata: Optional[str] = None
        # Where the table is asked for what it does not know, botocore's parser answers.
        self._is_plain = True
        for name, shape in model.output_shape.members.items():
            location, header = shape.serialization.get("location"), shape.serialization.get("name", name).lower()
            if location == "header" and shape.type_name in _CONVERSIONS and "jsonvalue" not in shape.serialization:
                self._members.append((header, name, _CONVERSIONS[shape.type_name]))
            elif location == "headers" and header == _METADATA_PREFIX:
                self._members.append(("", name, None))
                self._metadata = name
            elif shape.serialization.get("streaming") is not True:
                self._is_plain = False

    def result(
        self, url: str, answer: Answer, context: Dict[str, Any], verify: bool
    ) -> Tuple[Response, Dict[str, Any]]:
        """Response and parsed dict of an answer below 300. `verify`: compare the body with the object's checksum."""
        headers, status = answer.headers, answer.status
        headers.setdefault("date", _date(int(time.time())))
        if not self._model.has_streaming_output and self._model.http.get("method") == "PUT":
            headers.setdefault("content-length", "0")
        algorithm = _checksum_algorithm(headers, context)
        body: Optional[FastBody] = None
        if self._model.has_streaming_output:
            segment = segment_of(answer)
            if algorithm is not None and verify:
                expected = headers[f"x-amz-checksum-{algorithm}"]
                body = CheckedBody(segment, headers, status, _CHECKSUM_CLS[algorithm](), expected)
            else:
                body = FastBody(segment, headers, status)
        if algorithm is not None:
            context["checksum"]["response_algorithm"] = algorithm
        response = Response(url, status, headers, body)
        if self._is_plain and "expires" not in headers:
            parsed = self._parse(status, headers, body)
        else:
            parsed = self.parse_by_botocore(response, body)
        metadata = parsed["ResponseMetadata"]
        if algorithm is not None:
            metadata["ChecksumAlgorithm"] = algorithm
        metadata["RetryAttempts"] = 0
        return response, parsed

    def _parse(self, status: int, headers: Dict[str, str], body: Optional[FastBody]) -> Dict[str, Any]:
        metadata = _request_ids(headers)
        metadata["HTTPStatusCode"] = status
        metadata["HTTPHeaders"] = headers
        parsed: Dict[str, Any] = {"ResponseMetadata": metadata}
        value_of = headers.get
        for header, name, convert in self._members:
            value = value_of(header)
            if value is not None:
                parsed[name] = value if convert is None else convert(value)
            elif name == self._metadata:
                cut = len(_METADATA_PREFIX)
                parsed[name] = {one[cut:]: text for one, text in headers.items() if one.startswith(_METADATA_PREFIX)}
        if body is not None:
            parsed["Body"] = body
        return parsed

    def parse_by_botocore(self, response: Response, body: Optional[FastBody]) -> Dict[str, Any]:
        """The same by botocore's own means."""
        as_received = {
            "headers": HeadersDict(response.headers),
            "status_code": response.status_code,
            "body": b"" if body is None else body,
            "context": {"operation_name": self._model.name},
        }
        customised: Dict[str, Any] = {}
        handlers.handle_expires_header(self._model, as_received, customised)
        parsed: Dict[str, Any] = parsers.create_parser("rest-xml").parse(as_received, self._model.output_shape)
        parsed.update(customised)
        return parsed

    def error(self, url: str, refused: Refused) -> Tuple[Response, Dict[str, Any]]:
        """Response and parsed dict of an error. botocore makes the exception of it."""
        headers, status = refused.headers, refused.status
        headers.setdefault("date", _date(int(time.time())))
        if self._model.name == "HeadObject" or status == 304:
            # There is no document over HTTP: botocore goes by the status.
            ids = {"RequestId": headers.get("x-amz-request-id", ""), "HostId": headers.get("x-amz-id-2", "")}
            error = {"Code": str(status), "Message": http.client.responses.get(status, "")}
        else:
            ids = _request_ids(headers)
            error = {"Code": refused.code, "Message": refused.message}
        metadata: Dict[str, Any] = {**ids, "HTTPStatusCode": status, "HTTPHeaders": headers, "RetryAttempts": 0}
        return Response(url, status, headers), {"Error": error, "ResponseMetadata": metadata}


@functools.lru_cache(maxsize=4)
def _date(second: int) -> str:
    """What every answer over HTTP says of its time."""
    return email.utils.formatdate(second, usegmt=True)


def _request_ids(headers: Dict[str, str]) -> Dict[str, Any]:
    request_id = headers.get("x-amz-request-id")
    return {} if request_id is None else {"RequestId": request_id, "HostId": headers.get("x-amz-id-2", "")}


def _checksum_algorithm(headers: Dict[str, str], context: Dict[str, Any]) -> Optional[str]:
    """The checksum that botocore would compare the body with."""
    algorithm: str
    for algorithm in context.get("checksum", {}).get("response_algorithms", ()):
        value = headers.get(f"x-amz-checksum-{algorithm}")
        # One with a dash is of the parts' checksums and not of the body.
        if value is not None and "-" not in value:
            return algorithm
    return None
