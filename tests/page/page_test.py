"""The page of a running node in Debian's Chromium, while functions run: `scripts/test-page.sh`."""

from __future__ import annotations

import http.client
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from skipped import skip_class  # noqa: E402

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NIGH = os.environ.get("NIGH_TEST_NIGH", str(ROOT / "target/debug/nigh"))
CHROMIUM = os.environ.get("NIGH_TEST_CHROMIUM", "/usr/bin/chromium")
MINUTES = os.environ.get("NIGH_TEST_PAGE_MINUTES", "0.5")
SHOTS = os.environ.get("NIGH_TEST_PAGE_SHOTS")
START_S = 60
BROWSER_S = 600

# What a careless page would run.
MARKUP = '"><img src=x onerror=alert(1)><script>alert(2)</script>'

HANDLER = """
import boto3
s3 = boto3.client("s3")

def handle(event, context):
    print(event.get("say", ""))
    if event.get("fail"):
        raise ValueError(event["fail"])
    body = s3.get_object(Bucket="inbox", Key=event["key"])["Body"].read()
    s3.put_object(Bucket="results", Key=event["key"], Body=str(len(body)))
    return len(body)
"""


class UnixConnection(http.client.HTTPConnection):
    """HTTP over the admin socket."""

    def __init__(self, path: str) -> None:
        super().__init__("node")
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


class Node:
    """A node with a state folder of its own."""

    def __init__(self, state: str) -> None:
        self.state = state
        self.log = open(Path(state) / "up.log", "w", encoding="utf-8")
        self.process: subprocess.Popen[bytes] | None = None
        self.endpoints: dict[str, str] = {}

    def start(self, admin: str = "127.0.0.1:0") -> None:
        """Starts it with its page at `admin`, and waits until its doors are open."""
        doors = {"s3": "127.0.0.1:0", "lambda": "127.0.0.1:0", "admin": admin}
        listen = [f"--set={door}.listen={address}" for door, address in doors.items()]
        words = [NIGH, "up", "--state", self.state, "--python", sys.executable, *listen]
        self.process = subprocess.Popen(words, stdout=self.log, stderr=self.log)
        until = time.monotonic() + START_S
        endpoints = Path(self.state) / "endpoints.json"
        while not endpoints.exists():
            if self.process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"the node did not start: {(Path(self.state) / 'up.log').read_text()}")
            time.sleep(0.1)
        self.endpoints = json.loads(endpoints.read_text())

    def admin(self, method: str, path: str, document: object = None) -> tuple[int, bytes]:
        """A request to the admin API by the Unix socket."""
        connection = UnixConnection(self.endpoints["admin_socket"])
        body = None if document is None else json.dumps(document)
        connection.request(method, f"/v1{path}", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()

    def link(self) -> str:
        """A link that signs in one browser."""
        status, body = self.admin("POST", "/sign-in-links")
        assert status == 200, f"{status}: {body!r}"
        return json.loads(body)["url"]

    def stop(self) -> None:
        """Ends it, and waits for that."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def clients(node: Node) -> dict[str, object]:
    """Clients of the node's doors."""
    import boto3

    keys = dict(
        line.split(" = ", 1) for line in (Path(node.state) / "credentials").read_text().splitlines() if " = " in line
    )
    made = {}
    for service, door in (("s3", "s3"), ("lambda", "lambda"), ("stepfunctions", "lambda")):
        made[service] = boto3.client(
            service,
            endpoint_url=node.endpoints[door],
            region_name=node.endpoints["region"],
            aws_access_key_id=keys["aws_access_key_id"],
            aws_secret_access_key=keys["aws_secret_access_key"],
        )
    return made


def archive() -> bytes:
    """The function's code."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as code:
        code.writestr("app.py", HANDLER)
    return file.getvalue()


class PageTest(unittest.TestCase):
    """One node with functions, objects, a workflow and a failed event, under load."""

    node: Node
    names: dict[str, str]

    @classmethod
    def setUpClass(cls) -> None:
        if not os.path.exists(CHROMIUM):
            skip_class("PageTest", f"there is no {CHROMIUM}")
        if not shutil.which("npm"):
            skip_class("PageTest", "there is no npm")
        if not (HERE / "node_modules/playwright-core").is_dir():
            subprocess.run(["npm", "ci", "--no-audit", "--no-fund"], cwd=HERE, check=True, stdout=subprocess.DEVNULL)
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.node = Node(folder.name)
        cls.addClassCleanup(cls.node.stop)
        cls.node.start()
        cls.names = cls.fill(clients(cls.node))
        cls.over = threading.Event()
        load = threading.Thread(target=cls.load, args=(clients(cls.node)["lambda"],))
        load.start()
        cls.addClassCleanup(load.join)
        cls.addClassCleanup(cls.over.set)

    @classmethod
    def fill(cls, made: dict) -> dict[str, str]:
        """What the views show. Wherever a name or a text may have markup, it has."""
        s3, functions, workflows = made["s3"], made["lambda"], made["stepfunctions"]
        for bucket in ("inbox", "results"):
            s3.create_bucket(Bucket=bucket)
        s3.put_object(Bucket="inbox", Key="words.txt", Body=b"one two three\n" * 1000, Metadata={"note": "<b>bold</b>"})
        s3.put_object(Bucket="inbox", Key=f"{MARKUP}.txt", Body=MARKUP.encode(), ContentType="text/html")
        runtime = f"python3.{sys.version_info.minor}"
        for name in ("reader", "failing"):
            functions.create_function(
                FunctionName=name,
                Runtime=runtime,
                Handler="app.handle",
                Role="arn:aws:iam::000000000000:role/any",
                Code={"ZipFile": archive()},
                Description=MARKUP,
                Environment={"Variables": {"GREETING": MARKUP}},
            )
        arn = functions.get_function(FunctionName="reader")["Configuration"]["FunctionArn"]
        answer = functions.invoke(FunctionName="reader", Payload=json.dumps({"key": "words.txt", "say": MARKUP}))
        invocation = answer["ResponseMetadata"]["RequestId"]
        functions.put_function_event_invoke_config(FunctionName="failing", MaximumRetryAttempts=0)
        functions.invoke(FunctionName="failing", InvocationType="Event", Payload=json.dumps({"fail": MARKUP}))
        task = {"Type": "Task", "Resource": arn, "Next": "Done", "Parameters": {"key": "words.txt"}}
        definition = {"StartAt": "Read", "States": {"Read": task, "Done": {"Type": "Succeed"}}}
        machine = workflows.create_state_machine(
            name="nightly", definition=json.dumps(definition), roleArn="arn:aws:iam::000000000000:role/any"
        )["stateMachineArn"]
        workflows.start_execution(stateMachineArn=machine, name="first", input=json.dumps({"say": MARKUP}))
        # A node may refuse such a name; then there is nothing to show.
        cls.node.admin("POST", "/keys", {"name": MARKUP, "description": MARKUP})
        return {
            "namespace": "default",
            "function": "reader",
            "invocation": invocation,
            "bucket": "inbox",
            "key": f"{MARKUP}.txt",
            "workflow": "nightly",
            "execution": "first",
        }

    @classmethod
    def load(cls, functions) -> None:
        """Runs functions until the tests are over; some runs fail."""
        number = 0
        while not cls.over.is_set():
            number += 1
            event = {"fail": MARKUP} if number % 10 == 0 else {"key": "words.txt", "say": MARKUP}
            try:
                functions.invoke(FunctionName="reader", Payload=json.dumps(event))
            except Exception:  # pylint: disable=broad-exception-caught
                # The node ends and comes back in one of the tests.
                time.sleep(0.5)
            time.sleep(0.05)

    def test_1_each_view_is_shown_without_a_fault_a_foreign_request_or_markup_that_runs(self) -> None:
        """On each screen, judged by axe; then left open, and measured."""
        with tempfile.NamedTemporaryFile("w", suffix=".json") as names:
            json.dump(self.names, names)
            names.flush()
            words = ["node", "run.mjs", "--url", self.node.endpoints["admin"], "--enter", self.node.link()]
            words += ["--names", names.name, "--minutes", MINUTES]
            if SHOTS:
                words += ["--shots", str(Path(SHOTS).resolve())]
            done = subprocess.run(
                words,
                cwd=HERE,
                capture_output=True,
                text=True,
                timeout=BROWSER_S + 60 * float(MINUTES),
                check=False,
            )
        print(done.stdout)
        self.assertEqual(done.returncode, 0, f"{done.stdout}\n{done.stderr}")
        report = json.loads(done.stdout)
        self.assertGreaterEqual(report["views"], 14 * 3)

    def test_2_a_page_whose_clock_is_not_the_nodes_or_is_moved_is_not_cut_off_and_its_ages_are_right(self) -> None:
        """It shows an execution that waits, then a busy node."""
        workflows = clients(self.node)["stepfunctions"]
        definition = {"StartAt": "Wait", "States": {"Wait": {"Type": "Wait", "Seconds": BROWSER_S, "End": True}}}
        machine = workflows.create_state_machine(
            name="waiting", definition=json.dumps(definition), roleArn="arn:aws:iam::000000000000:role/any"
        )["stateMachineArn"]
        started = round(time.time() * 1000)
        workflows.start_execution(stateMachineArn=machine, name="long")
        words = ["node", "clock.mjs", self.node.endpoints["admin"], self.node.link()]
        words += ["#/workflows/waiting/long", str(started)]
        done = subprocess.run(words, cwd=HERE, capture_output=True, text=True, timeout=BROWSER_S, check=False)
        self.assertEqual(done.stdout, "held\n", done.stderr)

    def test_3_a_page_says_that_it_is_cut_off_and_asks_who_it_is_after_a_restart(self) -> None:
        """The node ends under the open page, and comes back at the same address."""
        address = self.node.endpoints["admin"].removeprefix("http://")
        words = ["node", "restart.mjs", self.node.endpoints["admin"], self.node.link()]
        browser = subprocess.Popen(words, cwd=HERE, stdout=subprocess.PIPE, text=True)
        try:
            assert browser.stdout
            self.assertEqual(browser.stdout.readline().strip(), "open")
            self.node.stop()
            self.assertEqual(browser.stdout.readline().strip(), "cut")
            self.node.start(address)
            self.assertEqual(browser.stdout.readline().strip(), "back")
        finally:
            browser.kill()
            browser.wait()
            browser.stdout.close()


if __name__ == "__main__":
    unittest.main()
