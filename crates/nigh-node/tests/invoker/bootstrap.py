#!/usr/bin/python3
"""A function that speaks the Runtime API itself and does what its input says, well or badly."""
import http.client
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
import threading
import time

PREFIX = "/2018-06-01/runtime/"
API = os.environ["AWS_LAMBDA_RUNTIME_API"]
hoard = []
runs = []


def ask(connection, method, path, body=None, headers={}):
    connection.request(method, PREFIX + path, body, headers)
    answer = connection.getresponse()
    return answer.status, answer.headers, answer.read()


def data(word):
    """One call at the data door: what it says."""
    host, port = os.environ["AWS_ENDPOINT_URL_S3"].removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as stream:
        stream.sendall(word.encode() + b"\n")
        return stream.makefile().readline().strip()


def run_on():
    """Goes on after the answer: asks for data all the time and notes what it hears."""
    with open("/tmp/heard", "a") as heard:
        while True:
            heard.write(data("read") + "\n")
            heard.flush()
            time.sleep(0.01)


def disturb(request_id):
    """Everything that a runtime client must not do; nothing of it may have an effect."""
    host, port = API.split(":")
    statuses = []
    for garbage in (b"\0\xff\r\n\r\n", b"POST / HTTP/9\r\n\r\n", b"x" * 200000):
        with socket.create_connection((host, int(port))) as stream:
            try:
                stream.sendall(garbage)
                stream.shutdown(socket.SHUT_WR)
                stream.recv(100)
            except OSError:
                pass
    other = http.client.HTTPConnection(API)
    for method, path in (
        ("POST", "invocation/00000000-0000-0000-0000-000000000000/response"),
        ("POST", "invocation/garbage/response"),
        ("GET", "invocation/next"),
        ("POST", "init/error"),
        ("GET", "elsewhere"),
    ):
        statuses.append(ask(other, method, path, b"{}" if method == "POST" else None)[0])
    return statuses


def handle(event, request_id, headers):
    what = event.get("do", "echo")
    if what == "echo":
        return event
    if what == "headers":
        return {name: value for name, value in headers.items()}
    if what == "environment":
        return dict(os.environ)
    if what == "raise":
        raise ValueError("as asked")
    if what == "sleep":
        time.sleep(event["s"])
        return "slept"
    if what == "exit":
        print("last words", flush=True)
        os._exit(event["code"])
    if what == "exit later":
        threading.Timer(0.05, os._exit, [0]).start()
        return "soon"
    if what == "kill":
        os.kill(os.getpid(), event["signal"])
    if what == "hoard":
        hoard.append(bytearray(os.urandom(1 << 20) * event["mib"]))
        return len(hoard)
    if what == "use":
        area = bytearray(event["mib"] << 20)
        for at in range(0, len(area), 4096):
            area[at] = 1
        return len(area)
    if what == "read at once":
        # Into fresh memory, by one system call: the kernel touches it first.
        area = bytearray(event["mib"] << 20)
        with open("/dev/zero", "rb", buffering=0) as zeros:
            return zeros.readinto(area) >> 20
    if what == "comes to its limit and fails at first":
        runs.append(request_id)
        file = os.open("/var/task/large", os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        while os.read(file, 1 << 20):
            pass
        os.close(file)
        if len(runs) == 1:
            raise ValueError("as one that got no memory")
        return len(runs)
    if what == "map":
        # A word that says more than any feature keeps.
        mib = event["mib"] + int(event.get("note", "0").split()[-1])
        with mmap.mmap(-1, mib << 20) as memory:
            for at in range(mib):
                memory[at << 20 : at + 1 << 20] = b"x" * (1 << 20)
        return mib
    if what == "child hoards":
        program = f"len(__import__('os').urandom(1 << 20) * {event['mib']})"
        return subprocess.run([sys.executable, "-c", program]).returncode
    if what == "print":
        for number in range(event["lines"]):
            print(f"line {number}")
        sys.stdout.flush()
        return "printed"
    if what == "print unfinished":
        print(event["text"], end="", flush=True)
        return "printed"
    if what == "data":
        return [data(word) for word in event["words"]]
    if what == "run on":
        threading.Thread(target=run_on, daemon=True).start()
        time.sleep(0.1)
        return "going on"
    if what == "write on":
        threading.Thread(target=data, args=["slow write"], daemon=True).start()
        time.sleep(0.2)
        return "going on"
    if what == "heard":
        with open("/tmp/heard") as heard:
            return heard.read().split("\n")
    if what == "disturb":
        return disturb(request_id)
    if what == "large":
        return "x" * event["bytes"]
    if what == "code":
        with open("/var/task/version") as version:
            return version.read()
    return None


def main():
    connection = http.client.HTTPConnection(API)
    mode = os.environ.get("INIT")
    if mode == "error":
        error = {"errorType": "ImportError", "errorMessage": "no module", "stackTrace": ["line 1"]}
        ask(connection, "POST", "init/error", json.dumps(error))
        sys.exit(1)
    if mode == "exit":
        print("cannot begin", flush=True)
        sys.exit(4)
    if mode == "data":
        data("read")
    while True:
        _, headers, payload = ask(connection, "GET", "invocation/next")
        request_id = headers["Lambda-Runtime-Aws-Request-Id"]
        try:
            answer = handle(json.loads(payload), request_id, headers)
            ask(connection, "POST", f"invocation/{request_id}/response", json.dumps(answer))
        except ValueError as error:
            body = {"errorType": type(error).__name__, "errorMessage": str(error), "stackTrace": ["bootstrap.py"]}
            ask(connection, "POST", f"invocation/{request_id}/error", json.dumps(body))


signal.signal(signal.SIGTERM, signal.SIG_DFL)
main()
