#!/usr/bin/env python3
"""Asynchronous invocations, their destinations, bucket notifications and reserved concurrency by boto3, and prints a line a check.

Environment: as boto3_lambda.py, and AWS_ENDPOINT_URL_S3. The node waits milliseconds where Lambda waits minutes:
  events.retry_wait = 100 ms, events.back_off = 100 ms
Exit code: 0 if every check holds, 1 if one fails.
"""

import concurrent.futures
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
REGION = os.environ["AWS_DEFAULT_REGION"]
ARN = f"arn:aws:lambda:{REGION}:000000000000:function:"
PATIENCE = 60
# Writes what it was given, and under which request id, as an object of its own.
HANDLER = """
import boto3, json, time, uuid
s3 = boto3.client("s3")
def handler(event, context):
    key = f"{context.function_name}/{context.aws_request_id}/{uuid.uuid4().hex}"
    s3.put_object(Bucket="seen", Key=key, Body=json.dumps(event).encode())
    if isinstance(event, dict) and event.get("sleep"):
        time.sleep(event["sleep"])
    if isinstance(event, dict) and event.get("raise"):
        raise ValueError(event["raise"])
    return {"echo": event}
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
        message = error.response["Error"]["Message"] or ""
        check(what, said == (code, status) and words in message, (said, error.response))


def archive(files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as bundle:
        for name, content in files.items():
            bundle.writestr(name, content)
    return buffer.getvalue()


config = Config(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=60, max_pool_connections=64)
door = boto3.client("lambda", config=config)
# Sends what boto3 itself would refuse.
unchecked = boto3.client("lambda", config=config.merge(Config(parameter_validation=False)))
s3 = boto3.client("s3", config=config)


def seen(function, request=None):
    """What a function was given, by the order of keys."""
    prefix = f"{function}/" + (f"{request}/" if request else "")
    keys = [o["Key"] for p in s3.get_paginator("list_objects_v2").paginate(Bucket="seen", Prefix=prefix)
            for o in p.get("Contents", [])]
    return [json.load(s3.get_object(Bucket="seen", Key=key)["Body"]) for key in keys]


def wait_for(what, found):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        value = found()
        if value:
            return value
        time.sleep(0.05)
    check(what, False, "it never came")
    return None


def create(name, **changes):
    door.create_function(**{"FunctionName": name, "Runtime": RUNTIME, "Handler": "app.handler", "Role": "r",
                            "Timeout": 30, "MemorySize": 128, "Code": {"ZipFile": archive({"app.py": HANDLER})},
                            **changes})


def later(name, event):
    answer = door.invoke(FunctionName=name, InvocationType="Event", Payload=json.dumps(event))
    assert answer["StatusCode"] == 202, answer
    return answer["ResponseMetadata"]["RequestId"]


def configuration():
    invalid = "InvalidParameterValueException"
    refused("no configuration at first", "ResourceNotFoundException", 404,
            lambda: door.get_function_event_invoke_config(FunctionName="worker"))
    refused("an update of none", "ResourceNotFoundException", 404,
            lambda: door.update_function_event_invoke_config(FunctionName="worker", MaximumRetryAttempts=1))
    refused("a configuration of nothing", invalid, 400,
            lambda: door.put_function_event_invoke_config(FunctionName="worker"))
    for destination, words in (("arn:aws:sqs:us-east-1:000000000000:queue", "no sqs"),
                               ("arn:aws:sns:us-east-1:000000000000:topic", "no sns"),
                               (ARN + "absent", "nothing of this name"), ("arn:aws:s3:::absent", "nothing of this name")):
        refused(f"the destination {destination}", invalid, 400, lambda: door.put_function_event_invoke_config(
            FunctionName="worker", DestinationConfig={"OnFailure": {"Destination": destination}}), words)
    made = door.put_function_event_invoke_config(
        FunctionName="worker", MaximumRetryAttempts=1, MaximumEventAgeInSeconds=3600,
        DestinationConfig={"OnSuccess": {"Destination": ARN + "next"},
                           "OnFailure": {"Destination": "arn:aws:s3:::failures"}})
    check("a configuration is kept", (made["MaximumRetryAttempts"], made["MaximumEventAgeInSeconds"]) == (1, 3600)
          and made["FunctionArn"] == ARN + "worker:$LATEST", made)
    changed = door.update_function_event_invoke_config(FunctionName="worker", MaximumRetryAttempts=0)
    check("an update leaves the rest", (changed["MaximumRetryAttempts"], changed["MaximumEventAgeInSeconds"],
          changed["DestinationConfig"]) == (0, 3600, made["DestinationConfig"]), changed)
    listed = door.list_function_event_invoke_configs(FunctionName="worker")["FunctionEventInvokeConfigs"]
    got = door.get_function_event_invoke_config(FunctionName="worker")
    check("it is listed and found", len(listed) == 1 and listed[0]["MaximumRetryAttempts"] == 0
          and abs(time.time() - got["LastModified"].timestamp()) < 60, (listed, got))
    for value in (-1, 3):
        refused(f"{value} retries", "ValidationException", 400, lambda: unchecked.put_function_event_invoke_config(
            FunctionName="worker", MaximumRetryAttempts=value))


def invocations():
    request = later("worker", {"n": 1})
    record = wait_for("the success goes to the next function", lambda: seen("next"))
    if record:
        record = record[0]
        check("the record of a success", (record["requestContext"]["condition"], record["requestContext"]["requestId"],
              record["requestPayload"], record["responsePayload"], record["responseContext"]["statusCode"])
              == ("Success", request, {"n": 1}, {"echo": {"n": 1}}, 200), record)
    request = later("worker", {"raise": "asked to"})
    keys = wait_for("the failure goes to the bucket", lambda: s3.list_objects_v2(Bucket="failures").get("Contents"))
    if keys:
        check("its key is Lambda's", keys[0]["Key"].startswith("aws/lambda/async/worker/20"), keys)
        record = json.load(s3.get_object(Bucket="failures", Key=keys[0]["Key"])["Body"])
        context = record["requestContext"]
        check("the record of a failure", (context["condition"], context["approximateInvokeCount"],
              context["requestId"], record["responseContext"]["functionError"],
              record["responsePayload"]["errorMessage"]) == ("RetriesExhausted", 1, request, "Unhandled", "asked to"),
              record)
    request = later("plain", {"raise": "again and again"})
    wait_for("two retries", lambda: len(seen("plain", request)) == 3)
    check("all attempts have one request id", len(seen("plain", request)) == 3, seen("plain"))
    big = json.dumps({"x": "y" * (1 << 20)})
    refused("an event above 1 MB", "RequestTooLargeException", 413,
            lambda: door.invoke(FunctionName="worker", InvocationType="Event", Payload=big))
    large = later("plain", {"x": "y" * ((1 << 20) - 100)})
    wait_for("an event of 1 MB runs", lambda: seen("plain", large))
    refused("an event that is no JSON", "InvalidRequestContentException", 400,
            lambda: door.invoke(FunctionName="worker", InvocationType="Event", Payload=b"{no"))
    refused("an event for nobody", "ResourceNotFoundException", 404,
            lambda: door.invoke(FunctionName="absent", InvocationType="Event"))


def concurrency():
    check("nothing is reserved", "ReservedConcurrentExecutions" not in door.get_function_concurrency(FunctionName="plain"))
    limit = door.get_account_settings()["AccountLimit"]["ConcurrentExecutions"]
    refused("all for one", "InvalidParameterValueException", 400, lambda: door.put_function_concurrency(
        FunctionName="plain", ReservedConcurrentExecutions=limit), "below its minimum value")
    put = door.put_function_concurrency(FunctionName="plain", ReservedConcurrentExecutions=1)
    check("one is reserved", put["ReservedConcurrentExecutions"] == 1
          and door.get_function(FunctionName="plain")["Concurrency"] == {"ReservedConcurrentExecutions": 1}, put)
    left = door.get_account_settings()["AccountLimit"]["UnreservedConcurrentExecutions"]
    check("the account has one less", left == limit - 1, left)

    def call(_):
        try:
            return door.invoke(FunctionName="plain", Payload=b'{"sleep": 1}')["StatusCode"]
        except ClientError as error:
            return error.response
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(call, range(4)))
    throttled = [a for a in answers if isinstance(a, dict)]
    check("one runs and the others hear 429", answers.count(200) == 1 and len(throttled) == 3, answers)
    if throttled:
        check("a throttle says why and when", throttled[0]["Reason"] == "ReservedFunctionConcurrentInvocationLimitExceeded"
              and throttled[0]["Error"]["Code"] == "TooManyRequestsException"
              and "retry-after" in throttled[0]["ResponseMetadata"]["HTTPHeaders"], throttled[0])
    requests = [later("plain", {"sleep": 0.2, "n": n}) for n in range(4)]
    wait_for("events run one after the other", lambda: all(seen("plain", request) for request in requests))
    door.put_function_concurrency(FunctionName="plain", ReservedConcurrentExecutions=0)
    check("with none it is throttled", isinstance(call(0), dict))
    door.delete_function_concurrency(FunctionName="plain")
    check("without a reserve it runs again", call(0) == 200)


def notify(events, prefix=None, suffix=None, function="told", name="rule"):
    rules = [{"Name": n, "Value": v} for n, v in (("prefix", prefix), ("suffix", suffix)) if v]
    rule = {"Id": name, "LambdaFunctionArn": ARN + function, "Events": events}
    return {**rule, **({"Filter": {"Key": {"FilterRules": rules}}} if rules else {})}


def put_rules(*rules, **more):
    return s3.put_bucket_notification_configuration(
        Bucket="inbox", NotificationConfiguration={**({"LambdaFunctionConfigurations": list(rules)} if rules else {}),
                                                   **more})


def notifications():
    created, removed = "s3:ObjectCreated:*", "s3:ObjectRemoved:*"
    got = s3.get_bucket_notification_configuration(Bucket="inbox")
    check("no notifications at first", "LambdaFunctionConfigurations" not in got, got)
    invalid = "InvalidArgument"
    refused("two rules for the same", invalid, 400,
            lambda: put_rules(notify([created], "in/"), notify(["s3:ObjectCreated:Put"], "in/a", name="2")), "overlap")
    refused("a function that is not there", invalid, 400, lambda: put_rules(notify([created], function="absent")),
            "Unable to validate the following destination configurations")
    refused("an event that is not here", invalid, 400, lambda: put_rules(notify(["s3:ObjectTagging:*"])), "not supported")
    refused("a queue", invalid, 400, lambda: put_rules(QueueConfigurations=[
        {"QueueArn": "arn:aws:sqs:us-east-1:000000000000:q", "Events": [created]}]), "SQS")
    refused("EventBridge", invalid, 400, lambda: put_rules(EventBridgeConfiguration={}), "EventBridge")
    refused("a bucket that is not there", "NoSuchBucket", 404, lambda: s3.put_bucket_notification_configuration(
        Bucket="nowhere", NotificationConfiguration={}))

    rules = [notify([created], "in/", ".txt", name="made"), notify([removed], name="gone")]
    put_rules(*rules)
    got = s3.get_bucket_notification_configuration(Bucket="inbox")["LambdaFunctionConfigurations"]
    check("the rules are kept", sorted(got, key=lambda r: r["Id"]) == sorted(rules, key=lambda r: r["Id"])
          or [{**r, "Filter": None} for r in got] == [{**r, "Filter": None} for r in rules], got)

    key = "in/red & gr\u00fcn+1.txt"
    etag = s3.put_object(Bucket="inbox", Key=key, Body=b"seven b")["ETag"].strip('"')
    s3.put_object(Bucket="inbox", Key="in/a.png", Body=b"not told")
    s3.put_object(Bucket="inbox", Key="out/a.txt", Body=b"not told")
    s3.copy_object(Bucket="inbox", Key="in/copy.txt", CopySource={"Bucket": "inbox", "Key": key})
    upload = s3.create_multipart_upload(Bucket="inbox", Key="in/parts.txt")["UploadId"]
    part = s3.upload_part(Bucket="inbox", Key="in/parts.txt", UploadId=upload, PartNumber=1, Body=b"part")
    s3.complete_multipart_upload(Bucket="inbox", Key="in/parts.txt", UploadId=upload,
                                 MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]})
    s3.delete_object(Bucket="inbox", Key="in/copy.txt")
    s3.delete_object(Bucket="inbox", Key="in/never.txt")
    s3.delete_objects(Bucket="inbox", Delete={"Objects": [{"Key": "out/a.txt"}]})
    told = wait_for("five changes are told of", lambda: len(seen("told")) >= 5 and seen("told")) or []
    records = [record for event in told for record in event["Records"]]
    from urllib.parse import unquote_plus
    names = sorted((r["eventName"], unquote_plus(r["s3"]["object"]["key"])) for r in records)
    check("each change once, and no other", names == sorted([
        ("ObjectCreated:Put", key), ("ObjectCreated:Copy", "in/copy.txt"),
        ("ObjectCreated:CompleteMultipartUpload", "in/parts.txt"), ("ObjectRemoved:Delete", "in/copy.txt"),
        ("ObjectRemoved:Delete", "out/a.txt")]), names)
    put = [r for r in records if r["eventName"] == "ObjectCreated:Put"]
    if put:
        put = put[0]
        check("a record is S3's", (put["eventVersion"], put["eventSource"], put["s3"]["bucket"]["name"],
              put["s3"]["object"]["size"], put["s3"]["object"]["eTag"], put["s3"]["configurationId"])
              == ("2.1", "aws:s3", "inbox", 7, etag, "made"), put)
    of_copy = {r["eventName"]: r["s3"]["object"]["sequencer"] for r in records
               if r["s3"]["object"]["key"] == "in/copy.txt"}
    check("the sequencer orders changes of a key", len(of_copy) == 2
          and of_copy["ObjectCreated:Copy"] < of_copy["ObjectRemoved:Delete"], of_copy)
    put_rules()
    got = s3.get_bucket_notification_configuration(Bucket="inbox")
    check("an empty configuration ends it", "LambdaFunctionConfigurations" not in got, got)


def main():
    for bucket in ("seen", "failures", "inbox"):
        s3.create_bucket(Bucket=bucket)
    for name in ("worker", "next", "plain", "told"):
        create(name)
    configuration()
    invocations()
    notifications()
    concurrency()
    print("all checks hold" if not failures else f"{failures} checks failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
