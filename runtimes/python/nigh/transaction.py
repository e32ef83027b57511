"""Transactions over several objects, for boto3: all of their writes take place, or none.

    from nigh.transaction import Transaction, run

    with Transaction(s3):                     # committed at the end, given up if the block raises
        a = int(s3.get_object(Bucket="b", Key="a")["Body"].read())
        s3.put_object(Bucket="b", Key="a", Body=str(a - 1).encode())
        s3.put_object(Bucket="b", Key="c", Body=b"1")

    run(s3, move)                             # calls move() in a transaction, again while others were first

The client's GetObject, HeadObject, PutObject and DeleteObject are in it, as far as the thread (or task) that entered it
makes them; what else it calls is not. docs/design/transactions.md of Nigh says what is promised.
"""

from __future__ import annotations

import contextvars
import random
import time
import xml.etree.ElementTree as ElementTree
from types import TracebackType
from typing import Any, Callable, Dict, List, Optional, Type, TypeVar

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import ClientError

HEADER = "x-nigh-transaction"
# Of a commit that is answered so it is not known what came: it is asked for again. A gateway's answer has a number only.
_UNKNOWN = frozenset(("TransactionUndecided", "InternalError", "500", "502", "503", "504"))
_ASKED_TIMES = 16
# Nothing of it took place, and it may the next time.
_BEGIN_AGAIN = frozenset(("TransactionConflict", "SlowDown"))
_PAUSE_S, _PAUSE_MAX_S = 0.01, 1.0

_entered: contextvars.ContextVar[Optional["Transaction"]] = contextvars.ContextVar("nigh-transaction", default=None)
_T = TypeVar("_T")


class Conflict(ClientError):
    """Others have changed what the transaction had read; nothing of it took place. Begin it again."""


class Transaction:
    """One transaction of a boto3 client (or of a resource's `meta.client`)."""

    def __init__(self, client: Any):
        self._client = client
        self._entered: Optional[contextvars.Token[Optional[Transaction]]] = None
        self.id = ""
        #: What it wrote: bucket, key, entity tag (none for a deletion) and version of each object; after the commit.
        self.written: List[Dict[str, Optional[str]]] = []

    def __enter__(self) -> "Transaction":
        if _entered.get() is not None:
            raise RuntimeError("a transaction is open here already; they do not nest")
        self.id = _text(self._send("POST", "", "BeginTransaction"), "TransactionId") or ""
        self._client.meta.events.register_first("before-call.s3", _mark, unique_id="nigh-transaction")
        self._entered = _entered.set(self)
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], _: Optional[TracebackType]
    ) -> None:
        if self._entered is not None:
            _entered.reset(self._entered)
            self._entered = None
        if kind is None:
            self._commit()
            return
        try:
            self._send("DELETE", self.id, "AbortTransaction")
        except Exception:
            # Its time runs out; what is told is what went wrong before.
            pass
        if isinstance(error, ClientError) and not isinstance(error, Conflict) and _is_conflict(error):
            raise Conflict(error.response, error.operation_name) from error

    def _commit(self) -> None:
        pause = _PAUSE_S
        for attempt in range(_ASKED_TIMES):
            try:
                document = self._send("POST", self.id, "CommitTransaction")
                break
            except ClientError as error:
                if error.response["Error"]["Code"] not in _UNKNOWN or attempt + 1 == _ASKED_TIMES:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE_MAX_S)
        names = {"Bucket": "bucket", "Key": "key", "ETag": "etag", "Version": "version"}
        objects = ElementTree.fromstring(document).iter("Object")
        self.written = [{name: one.findtext(tag) for tag, name in names.items()} for one in objects]

    def _send(self, method: str, name: str, operation: str) -> bytes:
        client = self._client
        request = AWSRequest(method=method, url=client.meta.endpoint_url + "/", params={"transaction": name}, data=b"")
        credentials = client._request_signer._credentials.get_frozen_credentials()
        S3SigV4Auth(credentials, "s3", client.meta.region_name).add_auth(request)
        answer = client._endpoint.http_session.send(request.prepare())
        if answer.status_code < 300:
            return bytes(answer.content)
        code, message = _text(answer.content, "Code") or str(answer.status_code), _text(answer.content, "Message")
        response = {
            "Error": {"Code": code, "Message": message or ""},
            "ResponseMetadata": {"HTTPStatusCode": answer.status_code, "HTTPHeaders": dict(answer.headers)},
        }
        refused = ClientError(response, operation)
        if _is_conflict(refused):
            raise Conflict(response, operation)
        raise refused


def run(client: Any, work: Callable[[], _T], attempts: int = 20) -> _T:
    """Calls `work` in a transaction of `client`, and again while others change what it reads, or a home is busy or moves:
    `attempts` times at most.

    What `work` does beside the client's calls it may do several times.
    """
    pause = _PAUSE_S
    for attempt in range(attempts):
        try:
            with Transaction(client):
                return work()
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") not in _BEGIN_AGAIN or attempt + 1 == attempts:
                raise
        time.sleep(random.uniform(0, pause))
        pause = min(2 * pause, _PAUSE_MAX_S)
    raise ValueError("a transaction is to be tried once at least")


def _mark(model: Any = None, params: Any = None, request_signer: Any = None, **_: Any) -> None:
    """Puts the calls of whoever has entered a transaction of this client into it."""
    transaction = _entered.get()
    if transaction is not None and transaction._client._request_signer is request_signer and model.name in _IN_ONE:
        params["headers"][HEADER] = transaction.id


_IN_ONE = frozenset(("GetObject", "HeadObject", "PutObject", "DeleteObject"))


def _is_conflict(error: ClientError) -> bool:
    return bool(error.response.get("Error", {}).get("Code") == "TransactionConflict")


def _text(document: bytes, tag: str) -> Optional[str]:
    try:
        return ElementTree.fromstring(document).findtext(tag)
    except ElementTree.ParseError:
        return None
