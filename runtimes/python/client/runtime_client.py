"""The module `runtime_client` of awslambdaric, in Python alone.

The vendor's is a C extension, built for one version of Python. This one serves the other versions of a node: Nigh puts it
beside a copy of the vendor's Python files. It does what awslambdaric asks of it, over one connection.
"""

import http.client
import os

_API = "/2018-06-01/runtime/"

_connection = None
_user_agent = ""


def initialize_client(user_agent):
    """Says what `user_agent` calls itself."""
    global _user_agent
    _user_agent = user_agent


def next():
    """Waits for the next input: its bytes and its headers, whose names may be given in any case."""
    return _call("GET", "invocation/next", None, {}, http.HTTPStatus.OK)


def post_invocation_result(invoke_id, content, content_type="application/json", invocation_id=None):
    """Answers an invocation."""
    _call("POST", f"invocation/{invoke_id}/response", content, {"Content-Type": content_type}, http.HTTPStatus.ACCEPTED)


def post_error(invoke_id, error, xray_fault, invocation_id=None):
    """Answers an invocation with an error document, a JSON text."""
    headers = {"Content-Type": "application/json"}
    _call("POST", f"invocation/{invoke_id}/error", error.encode(), headers, http.HTTPStatus.ACCEPTED)


def _call(method, path, body, headers, expected):
    global _connection
    if _connection is None:
        _connection = http.client.HTTPConnection(os.environ["AWS_LAMBDA_RUNTIME_API"])
    try:
        _connection.request(method, _API + path, body, {"User-Agent": _user_agent, **headers})
        response = _connection.getresponse()
        content = response.read()
    except BaseException:
        _connection.close()
        _connection = None
        raise
    if response.status != expected:
        # As the vendor's says it.
        raise RuntimeError(f"Failed to {method.lower()} {path}: {response.status} {content[:200].decode('utf-8', 'replace')}")
    return content, response.headers
