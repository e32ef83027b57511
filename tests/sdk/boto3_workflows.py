#!/usr/bin/env python3
"""Drives state machines with boto3's stepfunctions client, and prints a line a check.

Environment: as boto3_lambda.py, and AWS_ENDPOINT_URL_SFN, which is the Lambda door's.
boto3 puts `sync-` before the host for StartSyncExecution; an address of one machine has no such name, so that the client
is told to leave it out (`inject_host_prefix`), as for every server that is not AWS.
Exit code: 0 if every check holds, 1 if one fails.
"""

import concurrent.futures
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
REGION = os.environ["AWS_DEFAULT_REGION"]
FUNCTION = f"arn:aws:lambda:{REGION}:000000000000:function:"
ROLE = "arn:aws:iam::000000000000:role/any"
PATIENCE = 60
HANDLER = """
import time
tries = {}
def handler(event, context):
    time.sleep(event.get("sleep", 0) if isinstance(event, dict) else 0)
    if isinstance(event, dict) and event.get("raise"):
        raise ValueError(event["raise"])
    if isinstance(event, dict) and event.get("flaky"):
        tries[event["flaky"]] = tries.get(event["flaky"], 0) + 1
        if tries[event["flaky"]] < 3:
            raise ConnectionError("busy")
    return {"echo": event}
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


def wait_for(what, found):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        value = found()
        if value:
            return value
        time.sleep(0.05)
    check(what, False, "it never came")
    return None


config = Config(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=60, inject_host_prefix=False)
door = boto3.client("lambda", config=config)
sfn = boto3.client("stepfunctions", config=config)

buffer = io.BytesIO()
with zipfile.ZipFile(buffer, "w") as bundle:
    bundle.writestr("app.py", HANDLER)
for name in ("work", "gone"):
    door.create_function(FunctionName=name, Runtime=RUNTIME, Handler="app.handler", Role=ROLE, Timeout=30,
                         MemorySize=128, Code={"ZipFile": buffer.getvalue()})


def work(**fields):
    return {"Type": "Task", "Resource": FUNCTION + "work", **fields}


def create(name, states, start, kind="STANDARD", **fields):
    return sfn.create_state_machine(name=name, roleArn=ROLE, type=kind,
                                    definition=json.dumps({"StartAt": start, "States": states}), **fields)


def run(arn, given, name=None):
    """Runs an execution to its end."""
    started = sfn.start_execution(stateMachineArn=arn, input=json.dumps(given), name=name or uuid.uuid4().hex)
    return wait_for("an execution to end", lambda: (
        lambda found: found if found["status"] != "RUNNING" else None
    )(sfn.describe_execution(executionArn=started["executionArn"])))


# Machines.
line = {"A": work(Next="B", ResultPath="$.a"), "B": {"Type": "Pass", "End": True, "Parameters": {"got.$": "$.a.echo"}}}
made = create("line", line, "A", tags=[{"key": "team", "value": "x"}])
arn = made["stateMachineArn"]
check("a machine is made", arn.endswith(":stateMachine:line") and isinstance(made["creationDate"], datetime.datetime), made)
check("made again as it is, it is the same", create("line", line, "A", tags=[{"key": "team", "value": "x"}])["stateMachineArn"] == arn)
refused("another of its name is refused", "StateMachineAlreadyExists", lambda: create("line", {"A": {"Type": "Succeed"}}, "A"))
refused("an invalid definition is refused by the place of its error", "InvalidDefinition",
        lambda: create("bad", {"Fetch": work(Next="Nowhere")}, "Fetch"), "States.Fetch.Next: ")
refused("a name that is none is refused", "InvalidName", lambda: create("a b", line, "A"))
refused("what is not there is said", "StateMachineDoesNotExist",
        lambda: sfn.describe_state_machine(stateMachineArn=arn.replace("line", "none")))
refused("an ARN that is none is refused", "InvalidArn", lambda: sfn.describe_state_machine(stateMachineArn=FUNCTION + "work"))
shown = sfn.describe_state_machine(stateMachineArn=arn)
check("a machine is described", json.loads(shown["definition"])["States"] == line and shown["status"] == "ACTIVE"
      and shown["type"] == "STANDARD" and shown["roleArn"] == ROLE, shown)
check("its tags are kept", sfn.list_tags_for_resource(resourceArn=arn)["tags"] == [{"key": "team", "value": "x"}])
sfn.tag_resource(resourceArn=arn, tags=[{"key": "stage", "value": "y"}])
sfn.untag_resource(resourceArn=arn, tagKeys=["team"])
check("its tags are changed", sfn.list_tags_for_resource(resourceArn=arn)["tags"] == [{"key": "stage", "value": "y"}])
valid = sfn.validate_state_machine_definition(definition=json.dumps({"StartAt": "A", "States": {"A": {"Type": "Sleep", "End": True}}}))
check("a definition is checked", valid["result"] == "FAIL" and valid["diagnostics"][0]["location"] == "/States/A/Type", valid)
check("one that is well, too", sfn.validate_state_machine_definition(definition=shown["definition"])["result"] == "OK")
for n in range(3):
    create(f"page-{n}", {"A": {"Type": "Succeed"}}, "A")
pages = list(sfn.get_paginator("list_state_machines").paginate(PaginationConfig={"PageSize": 2}))
check("machines are listed by pages", [m["name"] for p in pages for m in p["stateMachines"]]
      == ["line", "page-0", "page-1", "page-2"] and len(pages) == 2, pages)

# Executions.
end = run(arn, {"n": 1}, "first")
check("an execution ends with its output", end["status"] == "SUCCEEDED" and json.loads(end["output"]) == {"got": {"n": 1}}, end)
check("it has its dates and its input", end["stopDate"] >= end["startDate"] and json.loads(end["input"]) == {"n": 1}, end)
refused("its name is taken", "ExecutionAlreadyExists",
        lambda: sfn.start_execution(stateMachineArn=arn, name="first", input='{"n": 2}'))
events = sfn.get_execution_history(executionArn=end["executionArn"])["events"]
kinds = [event["type"] for event in events]
check("its history is AWS's", kinds == ["ExecutionStarted", "TaskStateEntered", "LambdaFunctionScheduled",
      "LambdaFunctionStarted", "LambdaFunctionSucceeded", "TaskStateExited", "PassStateEntered", "PassStateExited",
      "ExecutionSucceeded"], kinds)
check("each event follows another", [event["previousEventId"] for event in events] == list(range(9))
      and events[1]["stateEnteredEventDetails"]["name"] == "A", events[:2])
back = [event["id"] for page in sfn.get_paginator("get_execution_history").paginate(
    executionArn=end["executionArn"], reverseOrder=True, PaginationConfig={"PageSize": 4}) for event in page["events"]]
check("and is read backwards by pages", back == list(range(9, 0, -1)), back)

slow = create("slow", {"A": work(End=True, TimeoutSeconds=20)}, "A")["stateMachineArn"]
first = sfn.start_execution(stateMachineArn=slow, name="same", input='{"sleep": 3}')
again = sfn.start_execution(stateMachineArn=slow, name="same", input='{ "sleep":3}')
check("started again by its name it is the same execution", first["executionArn"] == again["executionArn"]
      and first["startDate"] == again["startDate"], (first, again))
refused("with another input it is another", "ExecutionAlreadyExists",
        lambda: sfn.start_execution(stateMachineArn=slow, name="same", input='{"sleep": 4}'))
stopped = sfn.stop_execution(executionArn=first["executionArn"], error="Mine", cause="enough")
shown = sfn.describe_execution(executionArn=first["executionArn"])
check("a stopped execution says why", (shown["status"], shown["error"], shown["cause"]) == ("ABORTED", "Mine", "enough")
      and shown["stopDate"] == stopped["stopDate"], shown)
refused("an execution that is not there is said", "ExecutionDoesNotExist",
        lambda: sfn.describe_execution(executionArn=first["executionArn"] + "x"))
refused("an input that is no JSON is refused", "InvalidExecutionInput",
        lambda: sfn.start_execution(stateMachineArn=slow, input="{"))

# Errors.
failing = create("failing", {"A": work(End=True)}, "A")["stateMachineArn"]
end = run(failing, {"raise": "asked to"})
check("a function's error is the execution's", (end["status"], end["error"]) == ("FAILED", "ValueError")
      and json.loads(end["cause"])["errorMessage"] == "asked to", end)
catching = create("catching", {
    "A": work(Next="B", Catch=[{"ErrorEquals": ["ValueError"], "ResultPath": "$.why", "Next": "C"}]),
    "B": {"Type": "Fail", "Error": "NotReached"},
    "C": {"Type": "Pass", "OutputPath": "$.why.Error", "End": True}}, "A")["stateMachineArn"]
check("what is caught leads on", json.loads(run(catching, {"raise": "x"})["output"]) == "ValueError")
retrying = create("retrying", {"A": work(End=True, Retry=[
    {"ErrorEquals": ["ConnectionError"], "IntervalSeconds": 1, "BackoffRate": 1.0, "MaxAttempts": 5}])}, "A")["stateMachineArn"]
check("what is retried ends well", run(retrying, {"flaky": "one"})["status"] == "SUCCEEDED")
late = create("late", {"A": work(End=True, TimeoutSeconds=1)}, "A")["stateMachineArn"]
end = run(late, {"sleep": 5})
check("a task that is late times out", (end["status"], end["error"]) == ("FAILED", "States.Timeout"), end)
deleted = create("deleted", {"A": {"Type": "Task", "Resource": FUNCTION + "gone", "End": True}}, "A")["stateMachineArn"]
door.delete_function(FunctionName="gone")
end = run(deleted, {})
check("a function that was deleted is said", end["error"] == "Lambda.ResourceNotFoundException", end)

# Branches, items, integrations.
parallel = create("parallel", {"P": {"Type": "Parallel", "End": True, "Branches": [
    {"StartAt": "X", "States": {"X": work(End=True)}},
    {"StartAt": "Y", "States": {"Y": {"Type": "Pass", "Result": 7, "End": True}}}]}}, "P")["stateMachineArn"]
check("branches run beside each other", json.loads(run(parallel, {"n": 1})["output"]) == [{"echo": {"n": 1}}, 7])
mapping = create("mapping", {"M": {"Type": "Map", "ItemsPath": "$.items", "End": True, "MaxConcurrency": 4,
    "ItemSelector": {"v.$": "$$.Map.Item.Value"}, "ResultSelector": {"all.$": "$[*].echo.v"},
    "ItemProcessor": {"StartAt": "E", "States": {"E": work(End=True)}}}}, "M")["stateMachineArn"]
check("a map keeps the order of its items", json.loads(run(mapping, {"items": list(range(20))})["output"])
      == {"all": list(range(20))})
integration = create("integration", {"A": {"Type": "Task", "Resource": "arn:aws:states:::lambda:invoke", "End": True,
    "Parameters": {"FunctionName": "work", "Payload.$": "$"}, "OutputPath": "$.Payload"}}, "A")["stateMachineArn"]
check("lambda:invoke is an integration", json.loads(run(integration, {"n": 2})["output"]) == {"echo": {"n": 2}})

# Express.
express = create("express", {"A": work(End=True)}, "A", "EXPRESS")["stateMachineArn"]
end = sfn.start_sync_execution(stateMachineArn=express, input='{"n": 3}')
check("a synchronous execution answers", end["status"] == "SUCCEEDED" and json.loads(end["output"]) == {"echo": {"n": 3}}, end)
end = sfn.start_sync_execution(stateMachineArn=express, input='{"raise": "x"}')
check("or says how it failed", (end["status"], end["error"]) == ("FAILED", "ValueError"), end)
refused("a standard machine is not run so", "StateMachineTypeNotSupported",
        lambda: sfn.start_sync_execution(stateMachineArn=arn))
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    ends = list(pool.map(lambda n: sfn.start_sync_execution(stateMachineArn=express, input=json.dumps({"n": n})), range(12)))
check("many run at a time", [json.loads(end["output"])["echo"]["n"] for end in ends] == list(range(12)))

# Changes.
updated = sfn.update_state_machine(stateMachineArn=arn, definition=json.dumps(
    {"StartAt": "A", "States": {"A": {"Type": "Pass", "Result": "new", "End": True}}}))
check("a machine is changed", isinstance(updated["updateDate"], datetime.datetime) and json.loads(run(arn, {})["output"]) == "new")
refused("nothing to change is refused", "MissingRequiredParameter", lambda: sfn.update_state_machine(stateMachineArn=arn))
listed = [e["name"] for e in sfn.list_executions(stateMachineArn=arn)["executions"]]
check("executions are listed, newest first", len(listed) == 2 and listed[1] == "first", listed)
check("by their status, too", sfn.list_executions(stateMachineArn=slow, statusFilter="RUNNING")["executions"] == [])
sfn.delete_state_machine(stateMachineArn=arn)
refused("a deleted machine starts nothing", "StateMachineDoesNotExist", lambda: sfn.start_execution(stateMachineArn=arn))
check("and its executions are still shown",
      sfn.describe_execution(executionArn=f"arn:aws:states:{REGION}:000000000000:execution:line:first")["status"] == "SUCCEEDED")

print(f"{failures} checks failed" if failures else "all checks hold")
sys.exit(1 if failures else 0)
