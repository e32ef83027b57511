"""Calls OpenWhisk actions written in Python.

The vendor's runtime interface client imports this module as it would a Lambda handler's and asks it for `nigh_action.MAIN`:
each attribute is a handler that calls the function MAIN of the action's `__main__.py`. So an action runs in the sandboxes
of Lambda functions, prewarmed ones too, with the same way to its data.

What the action raises is printed and becomes its answer `{"error": ...}`, as in OpenWhisk's own runtime.
"""

import importlib.util
import os
import sys
import time
import traceback

_ROOT = os.environ.get("LAMBDA_TASK_ROOT", "/var/task")
_SOURCE = "__main__.py"
_ENVIRONMENT = "virtualenv"


class ActionError(Exception):
    """The action cannot be called; the message is for its owner."""


def __getattr__(name: str):
    if name.startswith("__"):
        raise AttributeError(name)
    return _handler(_load(), name)


def _load():
    """The action's module, called `__main__` as if it were run."""
    path = os.path.join(_ROOT, _SOURCE)
    if not os.path.isfile(path):
        raise ActionError(f"The action failed during initialization: its archive has no {_SOURCE} at its root.")
    os.chdir(_ROOT)
    if _ROOT not in sys.path:
        sys.path.insert(0, _ROOT)
    packages = os.path.join(_ROOT, _ENVIRONMENT, "lib", f"python3.{sys.version_info.minor}", "site-packages")
    if os.path.isdir(packages):
        sys.path.insert(1, packages)
    spec = importlib.util.spec_from_file_location("__main__", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["__main__"] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        # Ending the process here would tell its owner less.
        traceback.print_exc()
        what = f"{type(error).__name__}: {error}"
        raise ActionError(f"The action failed during initialization: {what}") from None
    return module


def _handler(module, name: str):
    main = getattr(module, name, None)
    if not callable(main):
        raise ActionError(f"The action failed during initialization: it has no function {name}.")

    def handler(arguments, context):
        _describe(context)
        try:
            return main(arguments)
        except Exception as error:
            traceback.print_exc()
            return {"error": str(error)}

    return handler


def _describe(context):
    """Sets what differs from one activation to the next."""
    activation = context.aws_request_id.replace("-", "")
    deadline = int(time.time() * 1000) + context.get_remaining_time_in_millis()
    os.environ["__OW_ACTIVATION_ID"] = activation
    os.environ["__OW_TRANSACTION_ID"] = activation
    os.environ["__OW_DEADLINE"] = str(deadline)
