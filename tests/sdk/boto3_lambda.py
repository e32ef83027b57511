#!/usr/bin/env python3
"""Drives a Lambda door with boto3, unmodified, and prints a line a check.

Environment:
  AWS_ENDPOINT_URL_LAMBDA                    the door
  AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY   a key of one of its namespaces
  NIGH_SDK_RUNTIME                           a Python runtime that it has (default python3.11)
  NIGH_SDK_REAL                              1: handlers really run, so look also at what only they can know
Exit code: 0 if every check holds, 1 if one fails.
"""

import base64
import io
import json
import os
import sys
import time
import uuid
import zipfile

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

RUNTIME = os.environ.get("NIGH_SDK_RUNTIME", "python3.11")
REAL = os.environ.get("NIGH_SDK_REAL") == "1"
NAME = "sdk-" + uuid.uuid4().hex[:12]
HANDLER = """
import os, time
def handler(event, context):
    print("a line of the log")
    if event.get("raise"):
        raise ValueError("asked to fail")
    if event.get("sleep"):
        time.sleep(event["sleep"])
    if event.get("about"):
        return {"greeting": os.environ.get("GREETING"), "name": context.function_name,
                "memory": str(context.memory_limit_in_mb), "arn": context.invoked_function_arn,
                "client": context.client_context.custom if context.client_context else None}
    return {"echo": event}
"""
failures = 0


def check(what, holds, seen=None):
    global failures
    failures += not holds
    print(("ok      " if holds else "FAILED  ") + what + ("" if holds else f": {seen!r}"), flush=True)


def refused(what, code, status, call):
    try:
        check(what, False, call())
    except ClientError as error:
        said = (error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"])
        check(what, said == (code, status) and error.response["Error"]["Message"], (said, error.response["Error"]))


def archive(files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, content in files.items():
            bundle.writestr(name, content)
    return buffer.getvalue()


def client(**changes):
    config = Config(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=60)
    return boto3.client("lambda", **{"region_name": "us-east-1", "config": config, **changes})


def main():
    door = client()
    code = archive({"app.py": HANDLER})
    made = door.create_function(
        FunctionName=NAME, Runtime=RUNTIME, Handler="app.handler", Code={"ZipFile": code},
        Role="arn:aws:iam::000000000000:role/any", Description="drives the door", Timeout=20, MemorySize=256,
        Environment={"Variables": {"GREETING": "hello"}}, Tags={"team": "near"}, Publish=True,
        TracingConfig={"Mode": "PassThrough"})
    check("create answers 201", made["ResponseMetadata"]["HTTPStatusCode"] == 201, made)
    check("create keeps what was asked",
          (made["Runtime"], made["Handler"], made["Timeout"], made["MemorySize"], made["CodeSize"], made["Version"])
          == (RUNTIME, "app.handler", 20, 256, len(code), "$LATEST"), made)
    door.get_waiter("function_active_v2").wait(FunctionName=NAME)
    check("the waiter sees the function active", True)
    refused("create again is a conflict", "ResourceConflictException", 409, lambda: door.create_function(
        FunctionName=NAME, Runtime=RUNTIME, Handler="app.handler", Code={"ZipFile": code}, Role="r"))

    got = door.get_function(FunctionName=NAME)
    check("get has configuration, code and tags",
          got["Configuration"]["FunctionArn"] == made["FunctionArn"] and "Code" in got and got["Tags"] == {"team": "near"},
          got)
    for reference in (made["FunctionArn"], made["FunctionArn"] + ":$LATEST", f"000000000000:function:{NAME}"):
        found = door.get_function_configuration(FunctionName=reference)
        check(f"get by {reference.replace(NAME, 'NAME')}", found["CodeSha256"] == made["CodeSha256"], found)
    check("tags by ARN", door.list_tags(Resource=made["FunctionArn"])["Tags"] == {"team": "near"})
    check("one version", [v["Version"] for v in door.list_versions_by_function(FunctionName=NAME)["Versions"]]
          == ["$LATEST"])
    refused("no policy", "ResourceNotFoundException", 404, lambda: door.get_policy(FunctionName=NAME))
    check("account settings count it", door.get_account_settings()["AccountUsage"]["FunctionCount"] >= 1)
    key = boto3.Session().get_credentials()
    signed = client(aws_access_key_id=key.access_key, aws_secret_access_key=key.secret_key, aws_session_token="a/b+c=")
    check("a signed session token is taken, as functions send one",
          signed.get_function_configuration(FunctionName=NAME)["CodeSha256"] == made["CodeSha256"])
    second = NAME + "-b"
    door.create_function(FunctionName=second, Runtime="provided.al2023", Handler="x", Role="r",
                         Code={"ZipFile": archive({"bootstrap": "#!/bin/sh\n"})})
    pages = list(door.get_paginator("list_functions").paginate(PaginationConfig={"PageSize": 1}))
    listed = [f["FunctionName"] for page in pages for f in page["Functions"]]
    check("list shows each once, page by page", len(pages) >= 2 and {NAME, second} <= set(listed)
          and len(listed) == len(set(listed)), listed)

    answer = door.invoke(FunctionName=NAME, Payload=json.dumps({"n": 1, "text": "grün"}))
    check("invoke answers the handler's answer", (answer["StatusCode"], json.load(answer["Payload"]))
          == (200, {"echo": {"n": 1, "text": "grün"}}), answer)
    check("invoke names the version, no error and no log",
          answer["ExecutedVersion"] == "$LATEST" and "FunctionError" not in answer and "LogResult" not in answer, answer)
    check("invoke without payload gives the handler {}",
          json.load(door.invoke(FunctionName=NAME)["Payload"]) == {"echo": {}})
    tail = door.invoke(FunctionName=NAME, LogType="Tail", Payload=b"{}")
    log = base64.b64decode(tail["LogResult"]).decode()
    check("log tail has the handler's line", "a line of the log" in log, log)
    failed = door.invoke(FunctionName=NAME, Payload=b'{"raise": true}')
    said = json.load(failed["Payload"])
    check("a handler's error is Unhandled, with type and message",
          (failed["StatusCode"], failed.get("FunctionError"), said["errorType"], said["errorMessage"])
          == (200, "Unhandled", "ValueError", "asked to fail"), (failed, said))
    dry = door.invoke(FunctionName=NAME, InvocationType="DryRun")
    check("dry run answers 204", dry["StatusCode"] == 204, dry)
    later = door.invoke(FunctionName=NAME, InvocationType="Event", Payload=b'{"later": true}')
    check("an event answers 202 and nothing", (later["StatusCode"], later["Payload"].read()) == (202, b""), later)
    refused("another type is refused in words", "InvalidParameterValueException", 400,
            lambda: door.invoke(FunctionName=NAME, InvocationType="Never"))
    big = json.dumps({"x": "y" * (6 << 20)})
    refused("a payload above 6 MB is too large", "RequestTooLargeException", 413,
            lambda: door.invoke(FunctionName=NAME, Payload=big))
    refused("a payload that is no JSON is refused", "InvalidRequestContentException", 400,
            lambda: door.invoke(FunctionName=NAME, Payload=b"{no json"))
    refused("an unknown function is not found", "ResourceNotFoundException", 404,
            lambda: door.invoke(FunctionName=NAME + "-none"))
    refused("an unknown qualifier is not found", "ResourceNotFoundException", 404,
            lambda: door.invoke(FunctionName=NAME, Qualifier="7"))
    if REAL:
        context = base64.b64encode(json.dumps({"custom": {"k": "v"}}).encode()).decode()
        about = json.load(door.invoke(FunctionName=NAME, Payload=b'{"about": 1}', ClientContext=context)["Payload"])
        check("the handler sees its environment and context", about == {
            "greeting": "hello", "name": NAME, "memory": "256", "arn": made["FunctionArn"], "client": {"k": "v"}}, about)

    changed = door.update_function_configuration(FunctionName=NAME, Timeout=2, MemorySize=512, Description="")
    check("update of the configuration", (changed["Timeout"], changed["MemorySize"], changed["Description"])
          == (2, 512, "") and changed["Environment"] == {"Variables": {"GREETING": "hello"}}, changed)
    refused("an update for an old revision is refused", "PreconditionFailedException", 412,
            lambda: door.update_function_configuration(FunctionName=NAME, Timeout=5, RevisionId=made["RevisionId"]))
    if REAL:
        late = door.invoke(FunctionName=NAME, Payload=b'{"sleep": 10}')
        said = json.load(late["Payload"])
        check("a time-out ends the call", late.get("FunctionError") == "Unhandled" and "timed out" in said["errorMessage"],
              said)
    other = archive({"app.py": HANDLER.replace('"echo"', '"echo"'), "data.txt": "x" * 100_000})
    dry = door.update_function_code(FunctionName=NAME, ZipFile=other, DryRun=True)
    check("dry run of a code update changes nothing", dry["CodeSha256"] == made["CodeSha256"], dry)
    updated = door.update_function_code(FunctionName=NAME, ZipFile=other, RevisionId=changed["RevisionId"])
    check("update of the code", updated["CodeSize"] == len(other) and updated["CodeSha256"] != made["CodeSha256"], updated)
    door.get_waiter("function_updated_v2").wait(FunctionName=NAME)
    check("the new code answers", json.load(door.invoke(FunctionName=NAME, Payload=b'{"n": 2}')["Payload"])
          == {"echo": {"n": 2}})

    def create(**changes):
        return door.create_function(**{"FunctionName": NAME + "-bad", "Runtime": RUNTIME, "Handler": "app.handler",
                                       "Role": "r", "Code": {"ZipFile": code}, **changes})
    invalid = "InvalidParameterValueException"
    refused("a runtime that is not here", invalid, 400, lambda: create(Runtime="nodejs22.x"))
    refused("an archive that is no zip", invalid, 400, lambda: create(Code={"ZipFile": b"no zip"}))
    refused("an archive that leads outside", invalid, 400, lambda: create(Code={"ZipFile": archive({"../x": "x"})}))
    refused("an archive in no bucket", invalid, 400, lambda: create(Code={"S3Bucket": "no-such-bucket", "S3Key": "k"}))
    refused("an image", invalid, 400, lambda: create(Code={"ImageUri": "image"}))
    refused("a reserved variable", invalid, 400, lambda: create(Environment={"Variables": {"AWS_REGION": "x"}}))
    refused("too large an environment", invalid, 400, lambda: create(Environment={"Variables": {"BIG": "x" * 5000}}))
    refused("a layer that is not there", invalid, 400, lambda: create(Layers=["arn:aws:lambda:us-east-1:1:layer:x:1"]))
    refused("too much memory", "ValidationException", 400, lambda: create(MemorySize=20_000))
    refused("too long a time", "ValidationException", 400, lambda: create(Timeout=901))
    refused("nothing of it was made", "ResourceNotFoundException", 404, lambda: door.get_function(FunctionName=NAME + "-bad"))
    refused("a wrong secret", "InvalidSignatureException", 403,
            lambda: client(aws_secret_access_key="wrong", aws_access_key_id=os.environ["AWS_ACCESS_KEY_ID"])
            .list_functions())
    refused("an unknown key", "UnrecognizedClientException", 403,
            lambda: client(aws_secret_access_key="wrong", aws_access_key_id="AKIANOBODY").list_functions())
    refused("an operation that is not here", "NotImplementedException", 501,
            lambda: door.publish_version(FunctionName=NAME))

    took_ms = []
    for _ in range(20):
        began = time.monotonic()
        door.invoke(FunctionName=NAME, Payload=b"{}")
        took_ms.append((time.monotonic() - began) * 1000)
    # An acknowledgement that is delayed takes 40 ms in every call, a busy machine in some.
    check(f"of twenty calls on one connection some do not wait for a delayed acknowledgement ({min(took_ms):.1f} ms)",
          min(took_ms) < 35 or REAL, took_ms)

    for name in (NAME, second):
        check(f"delete answers 204", door.delete_function(FunctionName=name)["ResponseMetadata"]["HTTPStatusCode"] == 204)
    refused("delete again is not found", "ResourceNotFoundException", 404, lambda: door.delete_function(FunctionName=NAME))
    print("all checks hold" if not failures else f"{failures} checks failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
