#!/usr/bin/env python3
"""Schedules of functions by boto3's `scheduler` client, unmodified; prints a line a check.

Environment: as boto3_lambda.py, and AWS_ENDPOINT_URL_SCHEDULER, which is the Lambda door's;
  NIGH_SDK_REAL: 1 if functions really run: then runs are waited for.
Exit code: 0 if every check holds, 1 if one fails.
"""

import datetime
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
REGION = os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")
REAL = os.environ.get("NIGH_SDK_REAL") == "1"
ROLE = "arn:aws:iam::000000000000:role/any"
FUNCTION = f"arn:aws:lambda:{REGION}:000000000000:function:"
UTC = datetime.timezone.utc
PATIENCE = 60
# Leaves each event as an object of its run's id.
HANDLER = """
import json
import boto3
s3 = boto3.client("s3")

def handler(event, context):
    key = event["to"] if "to" in event else "notification"
    s3.put_object(Bucket="runs", Key=f"{key}/{context.aws_request_id}", Body=json.dumps(event).encode())
"""
failures = 0


def check(what, holds, seen=None):
    global failures
    failures += not holds
    print(("ok      " if holds else "FAILED  ") + what + ("" if holds else f": {seen!r}"), flush=True)


def refused(what, code, call, words=""):
    try:
        check(what, False, call())
    except ClientError as error:
        found, message = error.response["Error"]["Code"], error.response["Error"]["Message"] or ""
        check(what, found == code and words in message, error.response)


config = Config(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=60, inject_host_prefix=False)
door = boto3.client("lambda", config=config)
scheduler = boto3.client("scheduler", config=config)

buffer = io.BytesIO()
with zipfile.ZipFile(buffer, "w") as bundle:
    bundle.writestr("app.py", HANDLER)
for name in ("work", "gone"):
    door.create_function(FunctionName=name, Runtime=RUNTIME, Handler="app.handler", Role=ROLE, Timeout=30,
                         MemorySize=128, Code={"ZipFile": buffer.getvalue()})


def put(call, name, expression, target=None, **fields):
    fields.setdefault("FlexibleTimeWindow", {"Mode": "OFF"})
    return call(Name=name, ScheduleExpression=expression,
                Target={"Arn": FUNCTION + "work", "RoleArn": ROLE, **(target or {})}, **fields)


def create(name, expression, target=None, **fields):
    return put(scheduler.create_schedule, name, expression, target, **fields)


def update(name, expression, target=None, **fields):
    return put(scheduler.update_schedule, name, expression, target, **fields)


# A schedule, as it was said and with EventBridge's defaults.
arn = f"arn:aws:scheduler:{REGION}:000000000000:schedule/default/nightly"
made = create("nightly", "cron(30 2 * * ? *)", {"Input": '{"to": "nightly"}'}, ScheduleExpressionTimezone="Europe/Berlin",
              Description="each night", State="DISABLED")
check("a schedule is made", made["ScheduleArn"] == arn, made)
shown = scheduler.get_schedule(Name="nightly")
check("it is shown as it was said", (shown["Arn"], shown["GroupName"], shown["ScheduleExpression"],
      shown["ScheduleExpressionTimezone"], shown["State"], shown["Description"], shown["Target"]["Input"])
      == (arn, "default", "cron(30 2 * * ? *)", "Europe/Berlin", "DISABLED", "each night", '{"to": "nightly"}'), shown)
check("with what was not said", shown["Target"]["RetryPolicy"] == {"MaximumEventAgeInSeconds": 86400,
      "MaximumRetryAttempts": 185} and shown["ActionAfterCompletion"] == "NONE"
      and shown["FlexibleTimeWindow"] == {"Mode": "OFF"}, shown)
check("with its dates", isinstance(shown["CreationDate"], datetime.datetime)
      and shown["CreationDate"] == shown["LastModificationDate"], shown)
refused("its name is taken", "ConflictException", lambda: create("nightly", "rate(1 hour)"), "already exists")
token = uuid.uuid4().hex
again = [create("once", "at(2099-01-01T00:00:00)", ClientToken=token)["ScheduleArn"] for _ in range(2)]
check("the same request again is the same schedule", again[0] == again[1], again)
start = datetime.datetime(2098, 1, 1, tzinfo=UTC)
changed = update("nightly", "rate(2 hours)", FlexibleTimeWindow={"Mode": "FLEXIBLE", "MaximumWindowInMinutes": 10},
                 StartDate=start, EndDate=start + datetime.timedelta(days=1), ActionAfterCompletion="DELETE")
shown = scheduler.get_schedule(Name="nightly")
check("a change replaces all", changed["ScheduleArn"] == arn and "Description" not in shown and shown["State"] == "ENABLED"
      and shown["ScheduleExpressionTimezone"] == "UTC" and "Input" not in shown["Target"], shown)
check("dates, windows and actions are kept", (shown["StartDate"], shown["EndDate"] - shown["StartDate"],
      shown["FlexibleTimeWindow"]["MaximumWindowInMinutes"], shown["ActionAfterCompletion"])
      == (start, datetime.timedelta(days=1), 10, "DELETE"), shown)

# Refusals, in EventBridge's words.
for expression in ("cron(*/5 * * * *)", "cron(0 10 * * * *)", "rate(0 minutes)", "rate(5)", "at(tomorrow)", "5 minutes"):
    refused(f"{expression} is no expression", "ValidationException", lambda e=expression: create("bad", e),
            "Invalid Schedule Expression")
refused("a time zone that is none", "ValidationException",
        lambda: create("bad", "rate(1 hour)", ScheduleExpressionTimezone="Europe/Bonn"), "Europe/Bonn")
refused("a date that the clocks leave out", "ValidationException",
        lambda: create("bad", "at(2030-03-31T02:30:00)", ScheduleExpressionTimezone="Europe/Berlin"), "put forward")
refused("a function that is not there", "ValidationException",
        lambda: create("bad", "rate(1 hour)", {"Arn": FUNCTION + "nobody"}), "deploy it first")
refused("a queue as a target", "ValidationException",
        lambda: create("bad", "rate(1 hour)", {"Arn": f"arn:aws:sqs:{REGION}:000000000000:q"}), "sqs")
refused("a queue for dead letters", "ValidationException", lambda: create(
    "bad", "rate(1 hour)", {"DeadLetterConfig": {"Arn": f"arn:aws:sqs:{REGION}:000000000000:q"}}), "OnFailure")
refused("an input that is no JSON", "ValidationException", lambda: create("bad", "rate(1 hour)", {"Input": "{"}), "JSON")
refused("a window without its length", "ValidationException",
        lambda: create("bad", "rate(1 hour)", FlexibleTimeWindow={"Mode": "FLEXIBLE"}), "MaximumWindowInMinutes")
refused("a group that is not there", "ResourceNotFoundException", lambda: create("bad", "rate(1 hour)", GroupName="mine"))
for what, call in (("shown", scheduler.get_schedule), ("removed", scheduler.delete_schedule)):
    refused(f"what is not there is not {what}", "ResourceNotFoundException", lambda c=call: c(Name="nobody"), "nobody")
refused("nor changed", "ResourceNotFoundException", lambda: update("nobody", "rate(1 hour)"), "nobody")

# Lists and groups.
for n in range(5):
    create(f"page-{n}", "rate(1 day)", State="DISABLED" if n % 2 else "ENABLED",
           StartDate=datetime.datetime(2098, 1, 1, tzinfo=UTC))
pages = list(scheduler.get_paginator("list_schedules").paginate(NamePrefix="page-", PaginationConfig={"PageSize": 2}))
names = [schedule["Name"] for page in pages for schedule in page["Schedules"]]
check("schedules are listed by pages", names == [f"page-{n}" for n in range(5)] and len(pages) == 3, pages)
check("with their targets", pages[0]["Schedules"][0]["Target"] == {"Arn": FUNCTION + "work"}, pages[0])
paused = scheduler.list_schedules(NamePrefix="page-", State="DISABLED", GroupName="default")["Schedules"]
check("and by their state", [schedule["Name"] for schedule in paused] == ["page-1", "page-3"], paused)
groups = scheduler.list_schedule_groups()["ScheduleGroups"]
check("there is one group", [group["Name"] for group in groups] == ["default"], groups)
check("which is shown", scheduler.get_schedule_group(Name="default")["State"] == "ACTIVE")
refused("others cannot be made", "NotImplementedException", lambda: scheduler.create_schedule_group(Name="mine"), "default")

# Removals.
scheduler.delete_schedule(Name="once", GroupName="default")
refused("a removed schedule is gone", "ResourceNotFoundException", lambda: scheduler.get_schedule(Name="once"))
create("of-gone", "rate(1 day)", {"Arn": FUNCTION + "gone"}, StartDate=start)
door.delete_function(FunctionName="gone")
refused("a function takes its schedules along", "ResourceNotFoundException",
        lambda: scheduler.get_schedule(Name="of-gone"))
check("and no others", scheduler.get_schedule(Name="page-0")["Name"] == "page-0")
stranger = boto3.client("scheduler", config=config, aws_secret_access_key="wrong")
refused("a wrong secret opens nothing", "InvalidSignatureException", lambda: stranger.list_schedules())

if REAL:
    s3 = boto3.client("s3", config=config)
    s3.create_bucket(Bucket="runs")

    def runs(key):
        found = s3.list_objects_v2(Bucket="runs", Prefix=key + "/").get("Contents", [])
        return {one["Key"].split("/")[1]: json.loads(s3.get_object(Bucket="runs", Key=one["Key"])["Body"].read())
                for one in found}

    def wait_for(what, found):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            value = found()
            if value:
                return value
            time.sleep(0.1)
        check(what, False, "it never came")
        return None

    soon = (datetime.datetime.now(UTC) + datetime.timedelta(seconds=3)).replace(microsecond=0)
    at = f"at({soon:%Y-%m-%dT%H:%M:%S})"
    attributes = {name: f"<aws.scheduler.{name}>"
                  for name in ("schedule-arn", "scheduled-time", "execution-id", "attempt-number")}
    create("soon", at, {"Input": json.dumps({"to": "soon", **attributes})}, ActionAfterCompletion="DELETE")
    create("plain", at)
    create("paused", at, {"Input": '{"to": "paused"}'}, State="DISABLED")
    create("removed", at, {"Input": '{"to": "removed"}'})
    scheduler.delete_schedule(Name="removed")
    ran = wait_for("a run at its date", lambda: runs("soon")) or {}
    for run, event in ran.items():
        check("its input has the attributes of its run", event == {
            "to": "soon", "schedule-arn": arn.replace("nightly", "soon"), "execution-id": run, "attempt-number": "1",
            "scheduled-time": f"{soon:%Y-%m-%dT%H:%M:%SZ}"}, event)
    for event in (wait_for("a run without an input", lambda: runs("notification")) or {}).values():
        check("without an input it is EventBridge's notification", event["source"] == "aws.scheduler"
              and event["detail-type"] == "Scheduled Event" and event["detail"] == "{}"
              and event["resources"] == [arn.replace("nightly", "plain")], event)

    def is_gone(name):
        return all(schedule["Name"] != name for schedule in scheduler.list_schedules()["Schedules"])

    check("a schedule goes after its last run if that was said", wait_for("it to go", lambda: is_gone("soon")))
    check("else it stays", scheduler.get_schedule(Name="plain")["Name"] == "plain")
    create("now", "rate(1 day)", {"Input": '{"to": "now"}'})
    check("a rate without a start runs at once", wait_for("a run at once", lambda: runs("now")))
    time.sleep(2)
    check("each ran once", [len(runs(key)) for key in ("soon", "notification", "now")] == [1, 1, 1])
    check("what is paused or removed does not run", not runs("paused") and not runs("removed"))

print(f"{failures} checks failed" if failures else "all checks hold")
sys.exit(1 if failures else 0)
