"""The launchers of actions against a Runtime API of a few lines, each in a process of its own as in a sandbox."""

import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

_HERE = os.path.dirname(os.path.abspath(__file__))
# The runtimes of Node.js.
NODE = os.path.join(os.path.dirname(_HERE), "node")
sys.path.append(os.path.join(_HERE, "../../tests"))
from skipped import skip

_ID = "01900000-0000-7000-8000-00000000000a"


class _Api(http.server.ThreadingHTTPServer):
    """Hands out inputs, keeps answers, and ends its client when there is no input any more."""

    def __init__(self, inputs):
        super().__init__(("127.0.0.1", 0), _Requests)
        self.inputs, self.answers = list(inputs), []
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Requests(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def _answer(self, status, body=b"", headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if not self.server.inputs:
            return self._answer(500)
        headers = [
            ("Lambda-Runtime-Aws-Request-Id", _ID),
            ("Lambda-Runtime-Deadline-Ms", "9999999999999"),
            ("Lambda-Runtime-Invoked-Function-Arn", "arn"),
            ("Content-Type", "application/json"),
        ]
        self._answer(200, json.dumps(self.server.inputs.pop(0)).encode(), headers)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.answers.append((self.path.rsplit("/", 1)[1], body))
        self._answer(202)


class RuntimeCase(unittest.TestCase):
    def run_runtime(self, command, files, inputs):
        """The answers to `inputs`, and what was printed."""
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        for name, text in files.items():
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        api = _Api(inputs)
        self.addCleanup(api.server_close)
        self.addCleanup(api.shutdown)
        environment = {
            # A sandbox knows of no proxy.
            **{name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")},
            "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{api.server_port}",
            "LAMBDA_TASK_ROOT": folder,
            "PYTHONPATH": os.pathsep.join([_HERE, folder]),
        }
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
        return api.answers, ended.stdout + ended.stderr


class Python(RuntimeCase):
    def setUp(self):
        try:
            __import__("awslambdaric")
        except ImportError:
            skip(self, "awslambdaric is not installed")

    def call(self, files, inputs, main="main"):
        return self.run_runtime([sys.executable, "-m", "awslambdaric", f"nigh_action.{main}"], files, inputs)

    def test_an_action_is_called_with_its_input_and_knows_its_activation(self):
        code = "import os, other\ndef main(args):\n    return {**args, 'id': os.environ['__OW_ACTIVATION_ID'], 'o': other.X, 'n': __name__}\n"
        answers, _ = self.call({"__main__.py": code, "other.py": "X = 1\n"}, [{"a": 1}, {"a": 2}])
        expected = {"id": _ID.replace("-", ""), "o": 1, "n": "__main__"}
        self.assertEqual(answers, [("response", {"a": 1, **expected}), ("response", {"a": 2, **expected})])

    def test_what_it_raises_is_printed_and_is_its_answer(self):
        code = "def run(args):\n    raise ValueError('asked to')\n"
        answers, printed = self.call({"__main__.py": code}, [{}], "run")
        self.assertEqual(answers, [("response", {"error": "asked to"})])
        self.assertIn("ValueError: asked to", printed)

    def test_code_that_does_not_load_says_why_before_the_first_input(self):
        for files, said in [
            ({}, "no __main__.py"),
            ({"__main__.py": "def main(:"}, "SyntaxError"),
            ({"__main__.py": "raise SystemExit(3)"}, "SystemExit: 3"),
            ({"__main__.py": "main = 1"}, "no function main"),
        ]:
            [(kind, error)], _ = self.call(files, [{}])
            self.assertEqual(kind, "error")
            self.assertIn(said, error["errorMessage"])


class JavaScript(RuntimeCase):
    def setUp(self):
        if shutil.which("node") is None:
            skip(self, "there is no node")

    def call(self, files, inputs, main="main"):
        return self.run_runtime(["node", os.path.join(NODE, "launcher.js"), main], files, inputs)

    def test_scripts_modules_and_packages_are_called(self):
        script = "let n = 0;\nfunction main(args) { n += 1; return { n, id: process.env.__OW_ACTIVATION_ID }; }\n"
        activation = _ID.replace("-", "")
        answers, _ = self.call({"index.js": script}, [{}, {}])
        self.assertEqual([body for _, body in answers], [{"n": 1, "id": activation}, {"n": 2, "id": activation}])
        module = {"index.js": "exports.run = async args => args;"}
        self.assertEqual(self.call(module, [{"a": "ü"}], "run")[0], [("response", {"a": "ü"})])
        package = {"package.json": '{"main": "lib.js"}', "lib.js": "exports.main = () => undefined;"}
        self.assertEqual(self.call(package, [{}])[0], [("response", {})])

    def test_what_it_throws_or_rejects_with_is_its_answer(self):
        code = "function main(a) { if (a.t) throw new Error('no'); return Promise.reject({ code: 3 }); }"
        answers, printed = self.call({"index.js": code}, [{"t": 1}, {}])
        self.assertEqual([body for _, body in answers], [{"error": "no"}, {"error": {"code": 3}}])
        self.assertIn("Error: no", printed)

    def test_code_that_does_not_load_says_why_before_the_first_input(self):
        for files, said in [
            ({}, "package.json or index.js"),
            ({"index.js": "function main( {"}, "failed during initialization"),
            ({"index.js": "exports.other = 1;"}, "'main' is not a function"),
        ]:
            [(kind, error)], _ = self.call(files, [{}])
            self.assertEqual((kind, error["errorType"]), ("error", "Action.Init"))
            self.assertIn(said, error["errorMessage"])


if __name__ == "__main__":
    unittest.main()
