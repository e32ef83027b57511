"""The vendor's client over Nigh's `runtime_client`, in place of its C extension, against a Runtime API of a few lines."""

import importlib.util
import os
import sys
import unittest

_RUNTIMES = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(_RUNTIMES, "openwhisk"))

from test_launchers import RuntimeCase, skip  # noqa: E402

_CLIENT = os.path.join(_RUNTIMES, "python", "client")


class RuntimeClient(RuntimeCase):
    def test_handlers_answer_and_fail_as_with_the_vendors_own(self):
        if importlib.util.find_spec("awslambdaric") is None:
            skip(self, "awslambdaric is not installed")
        code = (
            "import json, runtime_client\n"
            "def handler(event, context):\n"
            "    if event.get('raise'):\n        raise KeyError('ü')\n"
            "    own = runtime_client.__file__.endswith('.py')\n"
            "    return {'e': event, 'id': context.aws_request_id, 'own': own, 'arn': context.invoked_function_arn}\n"
        )
        program = "import sys; sys.path.insert(0, sys.argv.pop(1)); import runpy; runpy.run_module('awslambdaric', run_name='__main__', alter_sys=True)"
        command = [sys.executable, "-c", program, _CLIENT, "app.handler"]
        answers, printed = self.run_runtime(command, {"app.py": code}, [{"a": "ü"}, {"raise": 1}, {"a": 2}])
        (first, (kind, error), last) = answers
        identity = {"id": "01900000-0000-7000-8000-00000000000a", "own": True, "arn": "arn"}
        self.assertEqual(first, ("response", {"e": {"a": "ü"}, **identity}), printed)
        self.assertEqual((kind, error["errorType"], error["errorMessage"]), ("error", "KeyError", "'ü'"))
        self.assertEqual(last, ("response", {"e": {"a": 2}, **identity}))


if __name__ == "__main__":
    unittest.main()
