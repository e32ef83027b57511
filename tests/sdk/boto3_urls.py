#!/usr/bin/env python3
"""Function URLs, CloudEvents, HTTP servers as functions, and layers, by boto3 and plain HTTP; prints a line a check.

Environment: as boto3_lambda.py.
Exit code: 0 if every check holds, 1 if one fails.
"""

import base64
import http.client
import io
import json
import os
import sys
import time
import zipfile
from urllib.parse import urlsplit

import boto3
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.exceptions import ClientError

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from skipped import say

RUNTIME = os.environ.get("NIGH_SDK_RUNTIME", "python3.11")
REGION = os.environ["AWS_DEFAULT_REGION"]
DOOR = urlsplit(os.environ["AWS_ENDPOINT_URL_LAMBDA"]).netloc
WEB = """
import base64
def handler(event, context):
    if "specversion" in event:
        if event["type"] == "quiet":
            return None
        return {"specversion": "1.0", "id": event["id"] + "-answer", "source": "/web", "type": "answered",
                "datacontenttype": "application/json", "data": {"got": event.get("data"), "subject": event.get("subject")}}
    path = event["rawPath"]
    if path == "/raise":
        raise ValueError("asked to")
    if path == "/plain":
        return {"plain": True}
    if path == "/broken":
        return {"statusCode": "many"}
    body = event.get("body") or ""
    if event["isBase64Encoded"]:
        body = base64.b64decode(body).hex()
    return {"statusCode": 207, "headers": {"X-Seen": event["requestContext"]["http"]["method"] + " " + path},
            "cookies": ["a=1", "b=2"], "body": base64.b64encode(body.encode()).decode(), "isBase64Encoded": True}
"""
# A server as Knative's functions are: it knows nothing of Lambda.
SERVER = """#!/usr/bin/python3
import http.server, json, os
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self, status, body, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if "ce-id" in self.headers:
            return self.answer(200, json.dumps({"was": json.loads(body), "kind": self.headers["ce-type"]}).encode(),
                               ce_specversion="1.0", ce_id="server", ce_source="/server", ce_type="seen",
                               content_type="application/json")
        if body == b'{"fail": true}':
            return self.answer(500, b"asked to fail", content_type="text/plain")
        self.answer(200, b'{"posted": ' + body + b"}", content_type="application/json")
    def do_GET(self):
        self.answer(404, self.path.encode(), content_type="text/plain", set_cookie="seen=1")
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"""
failures = 0


def check(what, holds, seen=None):
    global failures
    failures += not holds
    print(("ok      " if holds else "FAILED  ") + what + ("" if holds else f": {seen!r}"), flush=True)


def refused(what, code, status, call, words=""):
    try:
        check(what, False, call())
    except ClientError as error:
        said = (error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"])
        check(what, said == (code, status) and words in (error.response["Error"]["Message"] or ""), (said, error.response))


def archive(files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as bundle:
        for name, content in files.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = 0o755 << 16
            bundle.writestr(info, content, compress_type=zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


door = boto3.client("lambda", config=Config(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=60))


def create(name, **changes):
    door.create_function(**{"FunctionName": name, "Runtime": RUNTIME, "Handler": "app.handler", "Role": "r",
                            "Timeout": 30, "MemorySize": 128, "Code": {"ZipFile": archive({"app.py": WEB})}, **changes})


def ask(method, path, body=None, headers=None, host=None):
    connection = http.client.HTTPConnection(DOOR, timeout=60)
    connection.request(method, path, body, {**({"Host": host} if host else {}), **(headers or {})})
    answer = connection.getresponse()
    return answer.status, answer.headers, answer.read()


def signed(method, path, body, headers=None):
    request = AWSRequest(method=method, url=f"http://{DOOR}{path}", data=body, headers={"Host": DOOR, **(headers or {})})
    SigV4Auth(boto3.Session().get_credentials(), "lambda", REGION).add_auth(request)
    return ask(method, path, body, dict(request.headers))


def urls():
    refused("no URL at first", "ResourceNotFoundException", 404, lambda: door.get_function_url_config(FunctionName="web"))
    made = door.create_function_url_config(FunctionName="web", AuthType="NONE")
    host = urlsplit(made["FunctionUrl"]).netloc
    identity = host.split(".")[0]
    check("a URL names the door", host.endswith(".lambda-url.localhost:" + DOOR.rsplit(":")[-1])
          and len(identity) == 32, made)
    refused("a second URL", "ResourceConflictException", 409,
            lambda: door.create_function_url_config(FunctionName="web", AuthType="NONE"))
    refused("a stream", "InvalidParameterValueException", 400, lambda: door.update_function_url_config(
        FunctionName="web", InvokeMode="RESPONSE_STREAM"), "BUFFERED")
    check("it is listed", [u["FunctionUrl"] for u in door.list_function_url_configs(FunctionName="web")
                           ["FunctionUrlConfigs"]] == [made["FunctionUrl"]])
    for way, where, prefix in (("by name", host, ""), ("by path", None, "/lambda-url/" + identity)):
        status, headers, body = ask("PUT", prefix + "/a/b?q=1", b"\x01\x02", {"content-type": "image/png"}, where)
        check(f"a request {way}", (status, headers["x-seen"], headers.get_all("set-cookie"), body)
              == (207, "PUT /a/b", ["a=1", "b=2"], b"0102"), (status, dict(headers), body))
    status, headers, body = ask("GET", "/plain", host=host)
    check("an answer without a status is JSON", (status, headers["content-type"], json.loads(body))
          == (200, "application/json", {"plain": True}), (status, body))
    for path in ("/raise", "/broken"):
        status, _, body = ask("GET", path, host=host)
        check(f"{path} is a bad gateway", (status, json.loads(body)) == (502, {"Message": "Internal Server Error"}),
              (status, body))
    check("an unknown URL", ask("GET", "/lambda-url/" + "x" * 32)[0] == 404)

    changed = door.update_function_url_config(FunctionName="web", AuthType="AWS_IAM")
    check("it asks for a signature now", changed["AuthType"] == "AWS_IAM"
          and ask("GET", "/plain", host=host)[0] == 403, changed)
    status, _, body = signed("POST", f"/lambda-url/{identity}/plain", b"x")
    check("who signs gets in", (status, json.loads(body)) == (200, {"plain": True}), (status, body))
    door.delete_function_url_config(FunctionName="web")
    check("a deleted URL", ask("GET", "/plain", host=host)[0] == 404)


EVENT = {"ce-specversion": "1.0", "ce-id": "7", "ce-source": "/test", "ce-type": "asked", "ce-subject": "gr%C3%BCn"}


def cloud_events():
    json_type = {"content-type": "application/json"}
    status, headers, body = signed("POST", "/cloudevents/web", b'{"n": 1}', {**EVENT, **json_type})
    check("an event in headers is answered so", (status, headers["ce-id"], headers["ce-type"], headers["content-type"],
          json.loads(body)) == (200, "7-answer", "answered", "application/json",
                                {"got": {"n": 1}, "subject": "gr\u00fcn"}), (status, dict(headers), body))
    whole = {"specversion": "1.0", "id": "8", "source": "/test", "type": "asked", "data": [1]}
    structured = {"content-type": "application/cloudevents+json"}
    status, headers, body = signed("POST", "/cloudevents/web", json.dumps(whole).encode(), structured)
    check("an event in a body is answered so", (status, headers["content-type"], json.loads(body)["data"])
          == (200, "application/cloudevents+json", {"got": [1], "subject": None}), (status, body))
    status, _, body = signed("POST", "/cloudevents/web", json.dumps({**whole, "type": "quiet"}).encode(), structured)
    check("no answer is 204", (status, body) == (204, b""), (status, body))
    for what, expected, headers, body in (
            ("what is no event", 415, json_type, b"{}"),
            ("a batch", 415, {"content-type": "application/cloudevents-batch+json"}, b"[]"),
            ("an event without a type", 400, {k: v for k, v in EVENT.items() if k != "ce-type"}, b""),
            ("an event of another version", 400, {**EVENT, "ce-specversion": "0.3"}, b"")):
        status = signed("POST", "/cloudevents/web", body, headers)[0]
        check(f"{what} is {expected}", status == expected, status)
    check("an unsigned event", ask("POST", "/cloudevents/web", b"", EVENT)[0] == 403)
    url = door.create_function_url_config(FunctionName="web", AuthType="NONE")["FunctionUrl"]
    identity = urlsplit(url).netloc.split(".")[0]
    check("an unsigned event for a public URL", ask("POST", f"/cloudevents/{identity}", b"", EVENT)[0] == 200)


def http_servers():
    if not os.path.exists("/usr/bin/python3"):
        say("boto3_drives_urls_layers_cloud_events_and_http_servers", "there is no /usr/bin/python3 to run one")
        return
    create("server", Runtime="provided.http", Handler="bootstrap", Code={"ZipFile": archive({"bootstrap": SERVER})})
    answer = door.invoke(FunctionName="server", Payload=b'{"n": 1}')
    body = json.load(answer["Payload"])
    check("a server gets a payload posted", (answer.get("FunctionError"), body) == (None, {"posted": {"n": 1}}),
          (answer, body))
    failed = door.invoke(FunctionName="server", Payload=b'{"fail": true}')
    said = json.load(failed["Payload"])
    check("its error is the function's", (failed.get("FunctionError"), said["errorMessage"])
          == ("Unhandled", "the server answered 500: asked to fail"), said)
    status, headers, body = signed("POST", "/cloudevents/server", b'{"n": 2}', {**EVENT, "content-type": "application/json"})
    check("it answers a CloudEvent", (status, headers["ce-type"], json.loads(body))
          == (200, "seen", {"was": {"n": 2}, "kind": "asked"}), (status, dict(headers), body))
    url = urlsplit(door.create_function_url_config(FunctionName="server", AuthType="NONE")["FunctionUrl"])
    status, headers, body = ask("GET", "/page?q=1", host=url.netloc)
    check("its pages are its own", (status, headers["set-cookie"], body) == (404, "seen=1", b"/page?q=1"),
          (status, dict(headers), body))


USES = """
import os, shared, own
def handler(event, context):
    return {"shared": shared.WHO, "own": own.WHO, "tool": open("/opt/tool").read(),
            "path": os.environ["PYTHONPATH"], "files": sorted(os.listdir("/opt"))}
"""


def layers():
    def publish(name, files):
        return door.publish_layer_version(LayerName=name, Content={"ZipFile": archive(files)}, Description=name,
                                          CompatibleRuntimes=[RUNTIME])
    first = publish("first", {"python/shared.py": "WHO = 'first'", "python/own.py": "WHO = 'first'", "tool": "1"})
    second = publish("second", {f"python/lib/{RUNTIME}/site-packages/own.py": "WHO = 'never'",
                                "python/shared.py": "WHO = 'second'", "tool": "2"})
    check("a layer has version 1", first["Version"] == 1 and first["LayerVersionArn"] == first["LayerArn"] + ":1", first)
    got = door.get_layer_version(LayerName="first", VersionNumber=1)
    check("it is found by number and by ARN", got["Content"]["CodeSha256"] == first["Content"]["CodeSha256"]
          == door.get_layer_version_by_arn(Arn=first["LayerVersionArn"])["Content"]["CodeSha256"], got)
    check("layers are listed", [l["LayerName"] for l in door.list_layers()["Layers"]] == ["first", "second"])
    arns = [first["LayerVersionArn"], second["LayerVersionArn"]]
    code = {"ZipFile": archive({"app.py": USES})}
    create("layered", Code=code, Layers=arns)
    configuration = door.get_function_configuration(FunctionName="layered")
    check("the function names its layers", [l["Arn"] for l in configuration["Layers"]] == arns, configuration)

    def run():
        return json.load(door.invoke(FunctionName="layered")["Payload"])
    seen = run()
    check("the later layer lies on top", (seen.get("shared"), seen.get("own"), seen.get("tool"), seen.get("files"))
          == ("second", "first", "2", ["python", "tool"]), seen)
    door.update_function_configuration(FunctionName="layered", Layers=arns[:1])
    seen = run()
    check("with one layer less", (seen.get("shared"), seen.get("tool")) == ("first", "1"), seen)
    door.delete_layer_version(LayerName="first", VersionNumber=1)
    refused("a deleted version", "ResourceNotFoundException", 404,
            lambda: door.get_layer_version(LayerName="first", VersionNumber=1))
    check("who has it keeps it", run().get("shared") == "first")
    refused("nobody gets it any more", "InvalidParameterValueException", 400,
            lambda: create("late", Layers=arns[:1]), "does not exist")
    check("numbers are not used again", publish("first", {"x": "y"})["Version"] == 2)
    big = publish("big", {"zeros": b"\0" * (150 << 20)})
    huge = publish("huge", {"zeros": b"\0" * (101 << 20)})
    refused("250 MB are the limit of all together", "InvalidParameterValueException", 400, lambda: create(
        "late", Layers=[big["LayerVersionArn"], huge["LayerVersionArn"]]), "exceeds the maximum allowed size")
    refused("six layers", "InvalidParameterValueException", 400, lambda: create("late", Layers=arns[:1] * 6), "more than 5")


def main():
    create("web")
    urls()
    cloud_events()
    http_servers()
    layers()
    print("all checks hold" if not failures else f"{failures} checks failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
