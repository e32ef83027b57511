"""The filter: tells Nigh's signed requests from all others, and sends each its way.

Place: right of everything that makes requests of its own (s3api, bulk, copy, slo, dlo, versioned_writes, symlink), so
that all of those pass here; left of encryption. Needs `cache`: the nonces of a cluster's proxies are kept there.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Callable

from swift.common.constraints import valid_api_version
from swift.common.memcached import MemcacheConnectionError
from swift.common.registry import register_swift_info
from swift.common.swob import HTTPForbidden, HTTPServiceUnavailable, Request, Response, wsgi_quote
from swift.common.utils import cache_from_env, get_logger

from nigh_swift import PROTOCOL
from nigh_swift.nodes import Nodes
from nigh_swift.outside import Outside
from nigh_swift.own import Own, Refusal
from nigh_swift.settings import Settings
from nigh_swift.signing import SIGNATURE, TO_SWIFT, Refused, verify
from nigh_swift.state import App, Unsure

_READS = ("GET", "HEAD")
_WRITES = ("PUT", "POST", "DELETE")


class NighMiddleware:
    """A WSGI filter of Swift's proxy."""

    def __init__(self, app: App, settings: Settings, logger: Any) -> None:
        self._app, self._settings, self._logger = app, settings, logger
        self._own = Own(app, settings)
        self._outside = Outside(app, settings, Nodes(settings), logger)

    def __call__(self, env: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """One request."""
        req = Request(env)
        try:
            version, _, container, name = req.split_path(2, 4, True)
        except ValueError:
            return self._pass(env, start_response)
        if not container or not valid_api_version(version):
            return self._pass(env, start_response)
        if SIGNATURE in req.headers:
            answer = self._signed(req, name is not None)
            # Nigh knows by it that a Swift has the middleware.
            answer.headers["X-Nigh-Protocol"] = str(PROTOCOL)
        elif name and req.method in _READS:
            answer = self._outside.read(req)
        elif name and req.method in _WRITES:
            answer = self._outside.write(req)
        elif not name and req.method == "GET":
            answer = self._outside.listing(req)
        else:
            return self._pass(env, start_response)
        answered: Iterable[bytes] = answer(env, start_response)
        return answered

    def _pass(self, env: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        passed: Iterable[bytes] = self._app(env, start_response)
        return passed

    def _signed(self, req: Request, has_object: bool) -> Response:
        try:
            nonce = verify(
                self._settings.secrets,
                TO_SWIFT,
                req.method,
                wsgi_quote(req.path_info),
                # `listing_formats` changes the query of a listing.
                query=(req.query_string or "") if has_object else "",
                headers=req.headers,
                now=time.time(),
                skew_s=self._settings.clock_skew,
            )
            self._use_once(req, nonce)
        except Refused as refused:
            self._logger.warning("nigh: a signed %s of %s is refused: %s", req.method, req.path, refused)
            return HTTPForbidden(request=req, content_type="text/plain", body=f"{refused}\n".encode())
        except MemcacheConnectionError:
            return HTTPServiceUnavailable(
                request=req,
                headers={"Retry-After": str(self._settings.retry_after)},
                content_type="text/plain",
                body=b"The store of nonces (memcached) cannot be reached.\n",
            )
        try:
            if not has_object and req.method == "GET":
                return self._outside.listing(req)
            return self._own.handle(req, has_object)
        except Unsure as error:
            return Refusal(503, "unsure", str(error)).answer(req)

    def _use_once(self, req: Request, nonce: str) -> None:
        """Raises Refused for a nonce that was seen while its date could still hold."""
        nonces = cache_from_env(req.environ)
        if nonces is None:
            raise Refused("the proxy's pipeline has no `cache` left of `nigh`")
        if nonces.incr(f"nigh-nonce/{nonce}", time=int(2 * self._settings.clock_skew) + 1) != 1:
            raise Refused("the nonce was used before")


def filter_factory(global_conf: dict[str, str], **local_conf: str) -> Callable[[App], NighMiddleware]:
    """What paste asks for. Raises BadSetting: the proxy does not start with settings that cannot be used."""
    settings = Settings.of(global_conf, local_conf)
    logger = get_logger({**global_conf, **local_conf}, log_route="nigh")
    register_swift_info("nigh", protocol=PROTOCOL)
    return lambda app: NighMiddleware(app, settings, logger)
