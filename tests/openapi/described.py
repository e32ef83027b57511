"""A node's admin API by its own description: requests, and whether answers are what the description says."""

from __future__ import annotations

import base64
import copy
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Any, Iterator

import jsonschema

Json = Any


@dataclass(frozen=True)
class Answer:
    """An answer of the node."""

    status: int
    content_type: str
    headers: dict[str, str]
    body: bytes

    def text(self) -> str:
        return self.body.decode("utf-8", errors="replace")


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirection is an answer here."""

    def redirect_request(self, *_: Any) -> None:
        return None


OPENER = urllib.request.build_opener(NoRedirect)


class Client:
    """Asks as one key, or as nobody."""

    def __init__(self, address: str, key: tuple[str, str] | None = None) -> None:
        self.address, self.key = address, key

    def ask(self, method: str, path: str, body: Json = None, headers: dict[str, str] | None = None) -> Answer:
        """The answer to `method path`; a body is sent as JSON."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data=data, method=method, headers=headers or {})
        if body is not None:
            request.add_header("content-type", "application/json")
        if self.key is not None:
            request.add_header("authorization", "Basic " + base64.b64encode(":".join(self.key).encode()).decode())
        try:
            with OPENER.open(request, timeout=60) as response:
                return _answer(response.status, response.headers, response.read())
        except urllib.error.HTTPError as error:
            with error:
                return _answer(error.code, error.headers, error.read())

    def first_events(self, path: str, count: int) -> tuple[Answer, list[Json]]:
        """The first values of a stream of server-sent events."""
        request = urllib.request.Request(self.address + path)
        if self.key is not None:
            request.add_header("authorization", "Basic " + base64.b64encode(":".join(self.key).encode()).decode())
        values: list[Json] = []
        with OPENER.open(request, timeout=60) as response:
            for line in response:
                if line.startswith(b"data: "):
                    values.append(json.loads(line[len(b"data: ") :]))
                if len(values) == count:
                    break
            return _answer(response.status, response.headers, b""), values


def _answer(status: int, headers: Any, body: bytes) -> Answer:
    lower = {name.lower(): value for name, value in headers.items()}
    return Answer(status, lower.get("content-type", "").split(";")[0].strip(), lower, body)


def operations(document: Json) -> Iterator[tuple[str, str, Json]]:
    """Each method and path of the description, with what it says of them."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def filled(path: str, operation: Json, values: dict[str, str]) -> str:
    """The path with its parameters, and the query with those that must be there."""
    shown = re.sub(r"{(\w+)}", lambda name: urllib.parse.quote(values[name.group(1)], safe=""), path)
    query = {
        one["name"]: values[one["name"]]
        for one in operation["parameters"]
        if one["in"] == "query" and one["required"]
    }
    return f"/v1{shown}" + (f"?{urllib.parse.urlencode(query)}" if query else "")


def strict(document: Json) -> Json:
    """The components, of which no object may have a field that is not described."""
    components = copy.deepcopy(document["components"])
    for schema in components["schemas"].values():
        _close(schema)
    return components


def _close(schema: Json) -> None:
    if not isinstance(schema, dict):
        return
    if "properties" in schema and "additionalProperties" not in schema:
        schema["unevaluatedProperties"] = False
    for field in schema.get("properties", {}).values():
        _close(field)
    for below in ("items", "additionalProperties"):
        _close(schema.get(below))


def faults(document: Json, operation: Json, answer: Answer) -> list[str]:
    """In what an answer is not what the description says of it; empty if in nothing."""
    described = operation["responses"].get(str(answer.status), operation["responses"]["default"])
    content = described.get("content", {})
    if not content:
        return [] if not answer.body else [f"{answer.status} has a body: {answer.text()[:200]}"]
    if answer.content_type not in {kind.split(";")[0] for kind in content}:
        return [f"{answer.status} is {answer.content_type!r}, described is {sorted(content)}: {answer.text()[:200]}"]
    if answer.content_type == "application/json":
        documents = [json.loads(answer.body)]
    elif answer.content_type == "application/x-ndjson":
        documents = [json.loads(line) for line in answer.text().splitlines()]
    else:
        return []
    schema = next(one["schema"] for kind, one in content.items() if kind.split(";")[0] == answer.content_type)
    root = {"allOf": [schema], "components": strict(document)}
    checker = jsonschema.Draft202012Validator(root)
    return [f"{error.json_path}: {error.message[:300]}" for one in documents for error in checker.iter_errors(one)]
