"""A filter right of the middleware that lets an outsider write in the worst moment: after the middleware looked at an
object, and before its own write of it arrives. What to do is a word in a file, `PUT`, `POST` or `DELETE`, done once."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Callable

from swift.common.swob import Request, wsgi_quote
from swift.common.utils import drain_and_close
from swift.common.wsgi import make_pre_authed_request


class Meddler:
    """See the head."""

    def __init__(self, app: Any, file: str, body: bytes) -> None:
        self._app, self._file, self._body = app, file, body

    def __call__(self, env: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        req = Request(env)
        if req.method in ("PUT", "POST", "DELETE") and req.path_info.count("/") > 3 and os.path.exists(self._file):
            with open(self._file, encoding="ascii") as file:
                method = file.read()
            os.remove(self._file)
            body = self._body if method == "PUT" else None
            headers = {"x-object-meta-who": "meddler"} if method != "DELETE" else {}
            sent = make_pre_authed_request(env, method, wsgi_quote(req.path_info), body=body, headers=headers)
            answer = sent.get_response(self._app)
            drain_and_close(answer)
            if answer.status_int // 100 != 2:
                raise RuntimeError(f"the meddler's {method} was answered {answer.status}")
        return self._app(env, start_response)


def filter_factory(global_conf: dict[str, str], **local_conf: str) -> Callable[[Any], Meddler]:
    """What paste asks for."""
    return lambda app: Meddler(app, local_conf["file"], local_conf["body"].encode())
