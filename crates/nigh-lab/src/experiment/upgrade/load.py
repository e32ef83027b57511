"""The load of `nigh experiment upgrade`: clients of a cluster whose nodes are restarted meanwhile.

    load.py setup|retrying|ready|verify FOLDER

FOLDER/cluster.json names the doors, the keys and the rate. `retrying` clients have boto3's defaults and one of two
addresses, behind which a balancer stands. `ready` clients send each request once, to a node of which FOLDER/ready.json
says that it is ready. Both send at a fixed rate, whether the answers come or not, until standard input ends; each line of
FOLDER/retrying.jsonl or FOLDER/ready.jsonl is a request and what came of it. `verify` reads everything back.
"""

import base64
import concurrent.futures
import hashlib
import io
import json
import random
import select
import sys
import threading
import time
import zipfile
from pathlib import Path

import boto3
import botocore.config
import urllib3

BUCKET = "upgrade"
FUNCTION = "upgrade"
MACHINE = "upgrade"
# How often each kind of request is sent, of all.
KINDS = ["put"] * 4 + ["get"] * 4 + ["invoke"] * 3 + ["event"] * 2 + ["openwhisk"] * 2 + ["workflow"]
# Requests of one program that are under way at most; beyond, they wait, and that counts as their time.
AT_ONCE = 64
# How long an accepted event or execution may take to its end.
DONE_WITHIN_S = 180
OBJECT_BYTES_MAX = 64 << 10
HANDLER = """
import boto3

s3 = boto3.client("s3")

def handler(event, context):
    if event.get("mark"):
        s3.put_object(Bucket="upgrade", Key="marks/" + event["id"], Body=b"")
    return {"id": event["id"]}
"""
ACTION = """
def main(args):
    return {"id": args["id"]}
"""


class Node:
    """The clients of one address of the S3 door and one of the Lambda door."""

    def __init__(self, doors, cluster, retries):
        config = None if retries else botocore.config.Config(retries={"total_max_attempts": 1})
        keys = {
            "aws_access_key_id": cluster["access_key"],
            "aws_secret_access_key": cluster["secret_key"],
            "region_name": cluster["region"],
        }
        self.s3 = boto3.client("s3", endpoint_url=doors["s3"], config=config, **keys)
        self.functions = boto3.client("lambda", endpoint_url=doors["lambda"], config=config, **keys)
        self.states = boto3.client("stepfunctions", endpoint_url=doors["lambda"], config=config, **keys)
        tries = urllib3.Retry(5, backoff_factor=0.5, status_forcelist=[429, 500, 502, 503, 504], allowed_methods=None)
        self.http = urllib3.PoolManager(retries=tries if retries else False, maxsize=AT_ONCE)
        pair = f"{cluster['access_key']}:{cluster['secret_key']}".encode()
        self.basic = {"authorization": "Basic " + base64.b64encode(pair).decode(), "content-type": "application/json"}
        self.whisk = doors["lambda"] + "/api/v1/namespaces/_/actions/"

    def openwhisk(self, method, path, body):
        answer = self.http.request(method, self.whisk + path, body=json.dumps(body).encode(), headers=self.basic)
        if answer.status >= 300:
            raise RuntimeError(f"{answer.status}: {answer.data[:200]!r}")
        return json.loads(answer.data)


class Nodes:
    """Which node a request goes to."""

    def __init__(self, folder, cluster, retries):
        self.folder, self.cluster, self.retries = folder, cluster, retries
        self.doors = cluster["fronts"] if retries else cluster["nodes"]
        self.clients = {}
        self.lock = threading.Lock()
        self.turn = 0

    def ready(self):
        if self.retries:
            return [True] * len(self.doors)
        return json.loads((self.folder / "ready.json").read_text())

    def next(self):
        """The next node in turn that is ready; its clients are new if it was not ready meanwhile."""
        ready = self.ready()
        with self.lock:
            for at in [at for at in self.clients if not ready[at]]:
                del self.clients[at]
            turns = [(self.turn + step) % len(self.doors) for step in range(len(self.doors))]
            at = next((at for at in turns if ready[at]), self.turn % len(self.doors))
            self.turn = at + 1
            if at not in self.clients:
                self.clients[at] = Node(self.doors[at], self.cluster, self.retries)
            return self.clients[at]


def content(key):
    """An object's bytes, which follow from its key."""
    draw = random.Random(key)
    return draw.randbytes(draw.randrange(1, OBJECT_BYTES_MAX))


def digest(body):
    return hashlib.sha256(body).hexdigest()


class Load:
    """Requests at a fixed rate, and what came of each."""

    def __init__(self, folder, kind):
        self.cluster = json.loads((folder / "cluster.json").read_text())
        self.kind = kind
        self.nodes = Nodes(folder, self.cluster, retries=kind == "retrying")
        self.out = (folder / f"{kind}.jsonl").open("a", buffering=1)
        self.lock = threading.Lock()
        self.draw = random.Random(f"{self.cluster['seed']} {kind}")
        self.written = []

    def put(self, node, name):
        body = content(name)
        node.s3.put_object(Bucket=BUCKET, Key=f"objects/{name}", Body=body)
        with self.lock:
            self.written.append(name)

    def get(self, node, _name):
        with self.lock:
            known = random.choice(self.written)
        found = node.s3.get_object(Bucket=BUCKET, Key=f"objects/{known}")["Body"].read()
        if digest(found) != digest(content(known)):
            raise RuntimeError(f"objects/{known} has other bytes than were written")

    def invoke(self, node, name):
        answer = node.functions.invoke(FunctionName=FUNCTION, Payload=json.dumps({"id": name}).encode())
        payload = json.loads(answer["Payload"].read())
        if answer.get("FunctionError") or payload != {"id": name}:
            raise RuntimeError(f"the function failed: {payload}")

    def event(self, node, name):
        payload = json.dumps({"id": name, "mark": True}).encode()
        answer = node.functions.invoke(FunctionName=FUNCTION, InvocationType="Event", Payload=payload)
        if answer["StatusCode"] != 202:
            raise RuntimeError(f"the event was answered {answer['StatusCode']}")

    def openwhisk(self, node, name):
        answer = node.openwhisk("POST", "upgrade-action?blocking=true&result=true", {"id": name})
        if answer != {"id": name}:
            raise RuntimeError(f"the action answered {answer}")

    def workflow(self, node, name):
        node.states.start_execution(
            stateMachineArn=self.cluster["machine"], name=name, input=json.dumps({"id": name, "mark": False})
        )

    def send(self, kind, name, due):
        why = None
        try:
            getattr(self, kind)(self.nodes.next(), name)
        except Exception as error:  # Whatever fails a request is what is counted.
            why = f"{type(error).__name__}: {error}"[:300]
        took = (time.monotonic() - due) * 1000
        line = json.dumps({"kind": kind, "name": name, "why": why, "at": time.time(), "ms": round(took, 1)})
        with self.lock:
            self.out.write(line + "\n")

    def run(self):
        rate, begun, sent = self.cluster["rate"], time.monotonic(), 0
        # Names are told apart over runs by the time.
        life = f"{self.kind}-{time.time_ns()}"
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            while True:
                due = begun + sent / rate
                ended, _, _ = select.select([sys.stdin], [], [], max(0.0, due - time.monotonic()))
                if ended and not sys.stdin.readline():
                    return
                if time.monotonic() < due:
                    continue
                kind = self.draw.choice(KINDS)
                if kind == "get" and not self.written:
                    kind = "put"
                pool.submit(self.send, kind, f"{life}-{sent}", due)
                sent += 1


def archive():
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as code:
        code.writestr("app.py", HANDLER)
    return packed.getvalue()


def setup(folder):
    """The bucket, the function, the action and the state machine; says the machine's name in cluster.json."""
    path = folder / "cluster.json"
    cluster = json.loads(path.read_text())
    node = Node(cluster["nodes"][0], cluster, retries=True)
    node.s3.create_bucket(Bucket=BUCKET)
    made = node.functions.create_function(
        FunctionName=FUNCTION,
        Runtime=cluster["runtime"],
        Role="arn:aws:iam::000000000000:role/any",
        Handler="app.handler",
        Code={"ZipFile": archive()},
        MemorySize=128,
        Timeout=30,
    )
    node.openwhisk("PUT", "upgrade-action", {"exec": {"kind": "python:3", "code": ACTION}})
    task = {"Type": "Task", "Resource": made["FunctionArn"], "End": True}
    made = node.states.create_state_machine(
        name=MACHINE,
        roleArn="arn:aws:iam::000000000000:role/any",
        definition=json.dumps({"StartAt": "Only", "States": {"Only": task}}),
    )
    cluster["machine"] = made["stateMachineArn"]
    path.write_text(json.dumps(cluster))


def accepted(folder, kind):
    """The names of the requests of `kind` that were acknowledged."""
    names = []
    for clients in ["retrying", "ready"]:
        path = folder / f"{clients}.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        requests = map(json.loads, lines)
        names += [one["name"] for one in requests if one["why"] is None and one["kind"] == kind]
    return names


def until_done(names, undone):
    """What of `names` is not done after a while, as `undone` says of a list of them."""
    until = time.monotonic() + DONE_WITHIN_S
    names = undone(names)
    while names and time.monotonic() < until:
        time.sleep(1)
        names = undone(names)
    return names


def verify(folder):
    """Reads everything back, and prints what is missing."""
    cluster = json.loads((folder / "cluster.json").read_text())
    nodes = [Node(doors, cluster, retries=True) for doors in cluster["nodes"]]
    written = accepted(folder, "put")

    def is_lost(place_and_name):
        place, name = place_and_name
        try:
            found = nodes[place % len(nodes)].s3.get_object(Bucket=BUCKET, Key=f"objects/{name}")["Body"].read()
        except nodes[0].s3.exceptions.NoSuchKey:
            return True
        return digest(found) != digest(content(name))

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        lost = [name for name, lost in zip(written, pool.map(is_lost, enumerate(written))) if lost]

    def without_mark(names):
        pages = nodes[0].s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix="marks/")
        marks = {one["Key"].removeprefix("marks/") for page in pages for one in page.get("Contents", [])}
        return [name for name in names if name not in marks]

    def not_succeeded(names):
        arn = cluster["machine"].replace(":stateMachine:", ":execution:")
        states = nodes[0].states
        return [
            name for name in names if states.describe_execution(executionArn=f"{arn}:{name}")["status"] != "SUCCEEDED"
        ]

    events, executions = accepted(folder, "event"), accepted(folder, "workflow")
    print(
        json.dumps(
            {
                "acknowledged": len(written),
                "lost": lost,
                "events": len(events),
                "events_undone": until_done(events, without_mark),
                "executions": len(executions),
                "executions_undone": until_done(executions, not_succeeded),
            }
        )
    )


def main():
    what, folder = sys.argv[1], Path(sys.argv[2])
    if what == "setup":
        setup(folder)
    elif what == "verify":
        verify(folder)
    else:
        Load(folder, what).run()


if __name__ == "__main__":
    main()
