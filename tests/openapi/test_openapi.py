"""The description of the admin API, and whether a running node answers as it says.

`scripts/test-python.sh` starts the node: NIGH_TEST_STATE is its state folder, NIGH_TEST_ADMIN_KEY what `nigh keys create`
printed of a key that operates. Its events are retried at once.
"""

from __future__ import annotations

import io
import json
import os
import time
import unittest
import zipfile
from pathlib import Path
from typing import Any

import boto3
from openapi_spec_validator import OpenAPIV31SpecValidator

from described import Answer, Client, faults, filled, operations

CODE = """
def handler(event, context):
    if "raise" in event:
        raise ValueError(event["raise"])
    print("a line")
    return event
"""
# What ends the node; crates/nigh/tests/end_to_end/admin_api.rs asks for it.
LEFT_OUT = {("POST", "/shutdown")}


def zipped(name: str, text: str) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr(name, text)
    return data.getvalue()


def keys(state: Path) -> tuple[str, str]:
    lines = (state / "credentials").read_text(encoding="utf-8").splitlines()
    pairs = dict(line.split(" = ", 1) for line in lines if " = " in line)
    return pairs["aws_access_key_id"], pairs["aws_secret_access_key"]


class AsDescribed(unittest.TestCase):
    """One node with a function, a layer, an object, an invocation and two dead letters."""

    client: Client
    document: Any
    values: dict[str, str]
    dead: list[str]

    @classmethod
    def setUpClass(cls) -> None:
        state = Path(os.environ["NIGH_TEST_STATE"])
        endpoints = json.loads((state / "endpoints.json").read_text(encoding="utf-8"))
        operator = json.loads(os.environ["NIGH_TEST_ADMIN_KEY"])
        cls.client = Client(endpoints["admin"], (operator["key"]["id"], operator["secret"]))
        cls.document = json.loads(cls.client.ask("GET", "/v1/openapi.json").body)
        access, secret = keys(state)
        account = {
            "aws_access_key_id": access, "aws_secret_access_key": secret, "region_name": endpoints["region"],
        }
        functions = boto3.client("lambda", endpoint_url=endpoints["lambda"], **account)
        objects = boto3.client("s3", endpoint_url=endpoints["s3"], **account)
        runtimes = json.loads(cls.client.ask("GET", "/v1/status").body)["runtimes"]
        runtime = next(name for name in runtimes if name.startswith("python3"))
        functions.create_function(
            FunctionName="described", Runtime=runtime, Handler="app.handler", Role="none",
            Code={"ZipFile": zipped("app.py", CODE)},
        )
        layer = functions.publish_layer_version(LayerName="described", Content={"ZipFile": zipped("a.txt", "a")})
        functions.invoke(FunctionName="described", Payload=b'{"a": 1}')
        for number in range(2):
            event = json.dumps({"raise": str(number)}).encode()
            functions.invoke(FunctionName="described", InvocationType="Event", Payload=event)
        objects.create_bucket(Bucket="described")
        objects.put_object(Bucket="described", Key="key", Body=b"bytes")
        namespace = endpoints["namespace"]
        cls.values = {
            "namespace": namespace, "function": "described", "layer": "described", "version": str(layer["Version"]),
            "bucket": "described", "key": "key", "keys": "false", "objects": "false", "view": "hierarchy",
        }
        cls.dead = cls._until_dead(f"/v1/events?namespace={namespace}")
        activations = json.loads(cls.client.ask("GET", "/v1/activations?function=described").body)
        cls.values["id"] = activations[0]["id"]

    @classmethod
    def _until_dead(cls, path: str) -> list[str]:
        for _ in range(600):
            events = json.loads(cls.client.ask("GET", path).body)["events"]
            if len(events) == 2:
                return [event["id"] for event in events]
            time.sleep(0.1)
        raise AssertionError("the events do not fail")

    def holds(self, method: str, path: str, answer: Answer, *statuses: int) -> None:
        operation = self.document["paths"][path][method.lower()]
        self.assertEqual(faults(self.document, operation, answer), [], f"{method} {path}")
        self.assertIn(answer.status, statuses, f"{method} {path}: {answer.text()[:300]}")

    def test_the_description_is_valid_openapi(self) -> None:
        errors = OpenAPIV31SpecValidator(self.document).iter_errors()
        self.assertEqual([f"{error.json_path}: {error.message}" for error in errors], [])

    def test_every_route_that_reads_answers_as_described(self) -> None:
        seen = 0
        for method, path, operation in operations(self.document):
            if method != "GET":
                continue
            values = self.values
            if path.startswith("/events/"):
                values = self.values | {"id": self.dead[0]}
            if path.startswith("/keys/") and self.client.key:
                values = self.values | {"key": self.client.key[0]}
            asked = filled(path, operation, values)
            if "text/event-stream" in operation["responses"]["200"].get("content", {}):
                answer, events = self.client.first_events(f"{asked}?view=hierarchy", 1)
                self.assertEqual((answer.content_type, len(events)), ("text/event-stream", 1), path)
            else:
                # Memory models take a few invocations, and this node belongs to no cluster.
                statuses = (200, 404) if path.startswith("/learn/") else (409,) if path == "/cluster" else (200,)
                self.holds(method, path, self.client.ask(method, asked), *statuses)
            seen += 1
        self.assertGreaterEqual(seen, 20)

    def test_every_route_that_changes_answers_as_described(self) -> None:
        row = {"input": {"size": 1, "features": []}, "ways": 1, "class": "light"}
        of = {"namespace": self.values["namespace"], "function": "described"}
        write = {"bucket": "described", "key": "none", "version": {"epoch": 1, "sequence": 1}}
        calls: list[tuple[str, str, Any, dict[str, str], tuple[int, ...]]] = [
            ("POST", "/buckets/{namespace}/{bucket}/policy", {"mode": "through"}, {}, (204,)),
            ("POST", "/buckets/{namespace}/unpushed/drop", write, {}, (409,)),
            ("POST", "/events/{namespace}/{id}/retry", None, {"id": self.dead[0]}, (204,)),
            ("POST", "/events/{namespace}/{id}/drop", None, {"id": self.dead[1]}, (204,)),
            ("POST", "/learn/{namespace}/{function}/rows", {"csv": "no rows"}, {}, (204, 400)),
            ("POST", "/learn/{namespace}/{function}/forget", None, {}, (204, 404)),
            ("POST", "/llc/model", of | {"rows": [row]}, {}, (204, 400)),
            ("POST", "/llc/profile", of | {"events": [{"a": 1}], "form": "bisection", "force": False}, {}, (200,)),
            ("POST", "/functions/{namespace}/{function}/invoke", {"a": 1}, {}, (200,)),
            ("PUT", "/objects/{namespace}/{bucket}", "text", {"key": "put"}, (200,)),
            ("POST", "/keys", {"name": "second", "role": "view"}, {}, (200,)),
            ("POST", "/keys/{key}/disable", None, {"key": "second"}, (204,)),
            ("POST", "/keys/{key}/enable", None, {"key": "second"}, (204,)),
            ("POST", "/keys/{key}/rotate", None, {"key": "second"}, (200,)),
            ("POST", "/keys/{key}/rm", None, {"key": "second"}, (204, 404, 409)),
            ("POST", "/namespaces", {"name": "described"}, {}, (200,)),
            ("POST", "/namespaces/{namespace}/quota", {"functions": 1}, {"namespace": "described"}, (204,)),
            ("POST", "/namespaces/{namespace}/rm", None, {"namespace": "described"}, (204, 409)),
            ("POST", "/cluster/nodes/{node}/cordon", None, {"node": "none"}, (409,)),
            ("POST", "/cluster/nodes/{node}/drain", None, {"node": "none"}, (409,)),
            ("POST", "/cluster/nodes/{node}/uncordon", None, {"node": "none"}, (409,)),
            ("POST", "/cluster/finalize", None, {}, (409,)),
            ("POST", "/reload", None, {}, (200,)),
            ("POST", "/session", None, {}, (200,)),
            ("POST", "/sign-in-links", None, {}, (200,)),
            ("DELETE", "/session", None, {}, (204,)),
        ]
        for method, path, body, values, statuses in calls:
            operation = self.document["paths"][path][method.lower()]
            asked = filled(path, operation, self.values | values)
            self.holds(method, path, self.client.ask(method, asked, body), *statuses)
        described = {(method, path) for method, path, _ in operations(self.document) if method != "GET"}
        self.assertEqual(described - LEFT_OUT, {(method, path) for method, path, *_ in calls})

    def test_a_wrong_request_is_refused_in_words_as_described(self) -> None:
        for path, asked in [
            ("/events/{namespace}/{id}", "/v1/events/default/none"),
            ("/activations/{id}", "/v1/activations/none"),
            ("/activations", "/v1/activations?limit=many"),
            ("/activations", "/v1/activations?lmit=1"),
            ("/events", f"/v1/events?namespace={self.values['namespace']}&cursor=none"),
        ]:
            answer = self.client.ask("GET", asked)
            self.holds("GET", path, answer, 400)
            self.assertTrue(answer.text().strip(), asked)

    def test_pages_of_a_list_follow_each_other(self) -> None:
        for _ in range(100):
            before, found, after = self._whole(), self._by_pages(), self._whole()
            # Retried events may end in between.
            if before == after:
                break
        self.assertEqual(found, after)
        self.assertGreater(len(found), 2)

    def _whole(self) -> list[tuple[str, int]]:
        return self._named(self.client.ask("GET", "/v1/activations?limit=1000"))

    def _by_pages(self) -> list[tuple[str, int]]:
        found, cursor = [], ""
        while True:
            answer = self.client.ask("GET", f"/v1/activations?limit=1{cursor}")
            found += self._named(answer)
            if "x-nigh-cursor" not in answer.headers:
                return found
            cursor = f"&cursor={answer.headers['x-nigh-cursor']}"

    @staticmethod
    def _named(answer: Answer) -> list[tuple[str, int]]:
        return [(one["id"], one["attempt"]) for one in json.loads(answer.body)]

    def test_nobody_is_told_to_sign_in_and_a_browser_is_not_asked_by_a_window(self) -> None:
        nobody = Client(self.client.address)
        answer = nobody.ask("GET", "/v1/status")
        self.holds("GET", "/status", answer, 401)
        self.assertIn("Basic", answer.headers["www-authenticate"])
        browser = nobody.ask("GET", "/v1/status", headers={"sec-fetch-site": "same-origin"})
        self.assertEqual((browser.status, browser.headers.get("www-authenticate")), (401, None))

    def test_an_old_path_is_told_where_it_is_now(self) -> None:
        answer = self.client.ask("GET", "/status")
        self.assertEqual((answer.status, answer.text().strip()), (404, "/status is /v1/status now"))


if __name__ == "__main__":
    unittest.main()
