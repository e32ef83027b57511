"""boto3 without HTTP, unchanged: answers GetObject, HeadObject and PutObject by the fast path where it can.

It registers on botocore's `before-call` event, whose handlers may answer a call. It runs after all other handlers of
that event, and takes a call only if the client signs with this sandbox's own key for this node's own endpoint, nobody
else listens to what a call over HTTP would do, and the fast path knows everything that the call asks. Otherwise the
call goes its normal way, as if nothing were here, and is counted by its reason. So does one that fails here: the fast
path may make a call faster, never make it fail.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import threading
from typing import Any, Dict, Optional, Tuple

import botocore.handlers
from botocore.response import StreamingBody
from botocore.signers import RequestSigner

try:
    from botocore import useragent
except ImportError:
    # Older ones make it at another place, once a client.
    useragent = None

from nigh import wire
from nigh.connection import Pool
from nigh.errors import Refused, Unavailable
from nigh.hook_body import view_by_copy
from nigh.hook_put import Spent, put
from nigh.hook_request import Http, place, read_fields
from nigh.hook_result import Response, ResultParser
from nigh.upload import checked

_READS = {"GetObject": wire.GET, "HeadObject": wire.HEAD}
_OPERATIONS = frozenset((*_READS, "PutObject"))
# Where the error is the store's word and botocore sends nothing again; any other is heard over HTTP, with its retries.
_FINAL = frozenset((304, 404, 412, 416))
_SIGNATURES = frozenset(("s3v4", "v4"))
_VERIFY = "nigh_verify"
# What is found out of a client stands at its own objects: tables here would keep clients alive, which are large.
_PARSER, _LISTENERS = "_nigh_parser", "_nigh_listeners"
# Events of a call over HTTP that the fast path does not raise.
_EVENTS_OF_HTTP = (
    *("request-created", "choose-signer", "before-sign", "before-send"),
    *("response-received", "before-parse", "needs-retry"),
)
_KNOWN_LISTENERS = ("botocore", "boto3", "s3transfer", "nigh")

# Parts of user agents that are remembered. A client has some forty; those of features come and go.
_CLEAN_PARTS_MAX = 512

_lock = threading.Lock()
_fast: Dict[str, int] = {}
_http: Dict[str, int] = {}
_reporting = False


def install(to: Any = None) -> None:
    """Registers the hook: for all sessions made from now on, or for one client or session (`to`).

    Sandboxes do it when botocore is imported. A client keeps the handlers that its session had when it was made.
    """
    if not hasattr(StreamingBody, "view"):
        StreamingBody.view = view_by_copy
    _remember_clean_parts()
    if to is not None:
        events = _events_of(to)
        emitter = getattr(events, "_emitter", events)
        if _answer not in emitter._handlers.prefix_search("before-call.s3.GetObject"):
            events.register("provide-client-params.s3.GetObject", _note_asked)
            events.register_last("before-call", _answer)
        return
    registered = botocore.handlers.BUILTIN_HANDLERS
    if any(entry[1] is _answer for entry in registered):
        return
    registered.append(("provide-client-params.s3.GetObject", _note_asked))
    registered.append(("before-call", _answer, botocore.handlers.REGISTER_LAST))


def _remember_clean_parts() -> None:
    """Of the user agent, which every call is given before the hook hears of it: botocore goes through the same forty parts
    letter by letter each time, a fifth of all that it does before `before-call`."""
    clean = getattr(useragent, "sanitize_user_agent_string_component", None)
    if clean is not None and not hasattr(clean, "cache_info"):
        remembered = functools.lru_cache(maxsize=_CLEAN_PARTS_MAX)(clean)
        useragent.sanitize_user_agent_string_component = remembered


def _events_of(owner: Any) -> Any:
    """The emitter of a client, a resource, or a session of botocore's or boto3's."""
    if hasattr(owner, "get_component"):
        return owner.get_component("event_emitter")
    if hasattr(owner, "meta"):
        return getattr(owner.meta, "client", owner).meta.events
    return owner.events


def counters() -> Dict[str, Dict[str, int]]:
    """Calls of this process so far: `fast` by operation, `http` by the reason why they went that way."""
    with _lock:
        return {"fast": dict(_fast), "http": dict(_http)}


def _count(where: Dict[str, int], name: str) -> None:
    with _lock:
        where[name] = where.get(name, 0) + 1


class _Sandbox:
    """What this process's environment says at the first call."""

    def __init__(self, address: str, endpoint: str, access_key: str, secret: str, token: Optional[str]):
        self.endpoint = endpoint.rstrip("/") + "/"
        self.access_key = access_key
        self.secret = secret
        # A client that is given the two parts of the key only has no token.
        self.tokens = (None, "", token)
        self.pool = Pool(address, access_key, secret)


# Nothing before the first call; then the sandbox, or that there is none.
_sandbox: Optional[_Sandbox] = None
_looked = False


def _look_up() -> Optional[_Sandbox]:
    """The sandbox, read from the environment once; none if there is no fast path, or it is not wanted."""
    global _sandbox, _looked, _reporting
    with _lock:
        if not _looked:
            read = os.environ.get
            endpoint = read("AWS_ENDPOINT_URL_S3") or read("AWS_ENDPOINT_URL")
            address, key, secret = read("NIGH_FAST_PATH"), read("AWS_ACCESS_KEY_ID"), read("AWS_SECRET_ACCESS_KEY")
            wanted = read("NIGH_HOOK") != "off"
            if wanted and address and endpoint and key and secret:
                _sandbox = _Sandbox(address, endpoint, key, secret, read("AWS_SESSION_TOKEN"))
                if read("NIGH_HOOK_REPORT") == "1" and not _reporting:
                    _reporting = True
                    atexit.register(_report)
            _looked = True
        return _sandbox


class _Listeners:
    """Whether a client has listeners to events that only a call over HTTP raises. Asked at each call, found out once a
    change."""

    def __init__(self) -> None:
        self._seen: Any = None
        self._foreign = True

    def any(self, emitter: Any) -> bool:
        # The cache is another object after each change of the handlers.
        emitter = getattr(emitter, "_emitter", emitter)
        seen = emitter._lookup_cache
        if seen is not self._seen:
            handlers = emitter._handlers
            self._foreign = any(
                not _is_known(handler)
                for event in _EVENTS_OF_HTTP
                for operation in _OPERATIONS
                for handler in handlers.prefix_search(f"{event}.s3.{operation}")
            )
            self._seen = seen
        return self._foreign


def _is_known(handler: Any) -> bool:
    handler = getattr(handler, "func", handler)
    module = getattr(handler, "__module__", None) or type(handler).__module__
    return module.partition(".")[0] in _KNOWN_LISTENERS


def _note_asked(params: Dict[str, Any], context: Dict[str, Any], **_: Any) -> None:
    """Tells a checksum that the caller wants compared from one that botocore asks for by itself."""
    if params.get("ChecksumMode") == "ENABLED":
        context[_VERIFY] = True


def _answer(
    model: Any = None, params: Any = None, request_signer: Any = None, context: Any = None, **_: Any
) -> Optional[Tuple[Response, Dict[str, Any]]]:
    """The handler of `before-call`: the answer to a call, or None for HTTP."""
    if model is None or model.name not in _OPERATIONS:
        return None
    if model.service_model.service_name != "s3":
        return None
    sandbox = _sandbox if _looked else _look_up()
    if sandbox is None:
        return None
    try:
        result = _call(sandbox, model, params, request_signer, context)
    except (Http, Unavailable) as error:
        _count(_http, error.reason)
        return None
    except Spent:
        # HTTP could not send it either.
        _count(_http, Spent.reason)
        raise
    except Exception as error:
        _count(_http, f"fault-{type(error).__name__}")
        return None
    _count(_fast, model.name)
    return result


def _call(sandbox: _Sandbox, model: Any, params: Any, signer: Any, context: Any) -> Tuple[Response, Dict[str, Any]]:
    _admit(sandbox, signer, context)
    bucket, key = place(params["url"], sandbox.endpoint, params["query_string"])
    parser: Optional[ResultParser] = model.__dict__.get(_PARSER)
    if parser is None:
        parser = model.__dict__[_PARSER] = ResultParser(model)
    url = params["url"]
    try:
        if model.name == "PutObject":
            answer = put(sandbox.pool, bucket, key, params, context)
        else:
            answer = checked(sandbox.pool.request(_READS[model.name], read_fields(bucket, key, params)))
    except Refused as error:
        if error.status not in _FINAL:
            raise Http(f"status-{error.status}") from None
        return parser.error(url, error)
    try:
        return parser.result(url, answer, context, context.get(_VERIFY, False))
    finally:
        answer.close()


def _admit(sandbox: _Sandbox, signer: Any, context: Any) -> None:
    """Refuses clients that are not this sandbox's own, and those whose calls somebody watches."""
    if type(signer) is not RequestSigner:
        # aiobotocore's, whose bodies are awaited.
        raise Http("other-botocore")
    if signer.signature_version not in _SIGNATURES or context.get("auth_type", "v4") not in _SIGNATURES:
        raise Http("signature")
    credentials = signer._credentials
    if credentials is None or credentials.access_key != sandbox.access_key:
        raise Http("key")
    if credentials.secret_key != sandbox.secret or credentials.token not in sandbox.tokens:
        raise Http("key")
    listeners = signer.__dict__.get(_LISTENERS)
    if listeners is None:
        listeners = signer.__dict__[_LISTENERS] = _Listeners()
    if listeners.any(signer._event_emitter):
        raise Http("listeners")


def _report() -> None:
    """One line at the end of the process, where `NIGH_HOOK_REPORT=1` asks for it."""
    try:
        os.write(2, b"nigh-hook " + json.dumps(counters(), sort_keys=True).encode() + b"\n")
    except OSError:
        # Nobody reads it.
        return


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork_in_child)
