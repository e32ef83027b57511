"""Transactions by the helper for boto3, against a running door.

Environment and output as of `boto3_s3.py`. Needs `runtimes/python` in PYTHONPATH.
"""

import sys
import threading
import traceback

import boto3
from botocore.exceptions import ClientError

from nigh.transaction import Conflict, Transaction, run

BUCKET = "boto3-transactions"
THREADS, ROUNDS = 4, 8

s3 = boto3.client("s3")
failures = []


def read(key, client=s3):
    return client.get_object(Bucket=BUCKET, Key=key)["Body"].read()


def put(key, body, client=s3, **arguments):
    return client.put_object(Bucket=BUCKET, Key=key, Body=body, **arguments)


def committed_together():
    """commit: what is written is seen by nobody before, and whole after"""
    put("gone", b"x")
    other = boto3.client("s3")
    with Transaction(s3) as transaction:
        put("a", b"1")
        put("b", b"2" * 100_000)
        s3.delete_object(Bucket=BUCKET, Key="gone")
        assert read("a") == b"1"
        assert read("gone", other) == b"x"
        try:
            read("a", other)
            raise AssertionError("it is seen before its commit")
        except ClientError as error:
            assert error.response["Error"]["Code"] == "NoSuchKey", error
    assert (read("a", other), read("b", other)) == (b"1", b"2" * 100_000)
    etags = {one["key"]: one["etag"] for one in transaction.written}
    assert etags["a"] == s3.head_object(Bucket=BUCKET, Key="a")["ETag"], etags
    assert etags["gone"] is None


def given_up():
    """abort: a block that raises writes nothing"""
    try:
        with Transaction(s3):
            put("never", b"1")
            raise KeyError("mine")
    except KeyError:
        pass
    try:
        read("never")
        raise AssertionError("it was written")
    except ClientError as error:
        assert error.response["Error"]["Code"] == "NoSuchKey", error


def refused():
    """conflict: 409 TransactionConflict names what has changed"""
    put("c", b"0")
    try:
        with Transaction(s3):
            read("c")
            put("d", b"1")
            boto3.client("s3").put_object(Bucket=BUCKET, Key="c", Body=b"theirs")
        raise AssertionError("it was committed")
    except Conflict as error:
        assert error.response["ResponseMetadata"]["HTTPStatusCode"] == 409, error
        assert f"{BUCKET}/c" in error.response["Error"]["Message"], error


def conditions():
    """conditions: If-None-Match holds at the commit"""
    try:
        with Transaction(s3):
            put("new", b"mine", IfNoneMatch="*")
            boto3.client("s3").put_object(Bucket=BUCKET, Key="new", Body=b"theirs")
        raise AssertionError("it was committed")
    except Conflict:
        assert read("new") == b"theirs"


def not_in_one():
    """refused: what cannot be in a transaction is not passed over"""
    s3.meta.events.register("before-call.s3.ListObjectsV2", name_it, unique_id="name-it")
    try:
        s3.list_objects_v2(Bucket=BUCKET)
        raise AssertionError("it was passed over")
    except ClientError as error:
        assert error.response["Error"]["Code"] == "InvalidRequest", error
    finally:
        s3.meta.events.unregister("before-call.s3.ListObjectsV2", name_it, unique_id="name-it")


def name_it(params, **_):
    params["headers"]["x-nigh-transaction"] = "0-" + "0" * 32


def increments():
    """increments: two counters moved by many keep their sum"""
    put("x", b"100")
    put("y", b"100")
    errors = []

    def mover(seed):
        client = boto3.session.Session().client("s3")

        def move():
            x, y = int(read("x", client)), int(read("y", client))
            by = seed % 3 + 1
            put("x", str(x - by).encode(), client)
            put("y", str(y + by).encode(), client)

        try:
            for _ in range(ROUNDS):
                run(client, move, attempts=200)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=mover, args=(seed,)) for seed in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors
    moved = ROUNDS * sum(seed % 3 + 1 for seed in range(THREADS))
    assert (int(read("x")), int(read("y"))) == (100 - moved, 100 + moved), (read("x"), read("y"))


s3.create_bucket(Bucket=BUCKET)
for check in (committed_together, given_up, refused, conditions, not_in_one, increments):
    try:
        check()
        print("ok", check.__doc__)
    except Exception as error:
        failures.append(check)
        traceback.print_exc()
        print("FAILED", check.__doc__, repr(error))
sys.exit(bool(failures))
