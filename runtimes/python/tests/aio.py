"""aiobotocore beside the hook, against a running node: its calls go over HTTP, are counted, and give what they give.

    AWS_ENDPOINT_URL_S3=... AWS_ACCESS_KEY_ID=... AWS_SECRET_ACCESS_KEY=... NIGH_FAST_PATH=... python -m tests.aio

The hook is installed for all sessions, as sandboxes do it. Prints `ok <case>` for each, and ends with 1 if one fails;
with 77 where there is no aiobotocore.
"""

import asyncio
import sys

try:
    import aiobotocore.session
except ImportError as error:
    print(error, file=sys.stderr)
    sys.exit(77)
import botocore.session

from nigh import hook

BUCKET = "aio"
DATA = bytes(range(256)) * 1024


def went():
    """Which ways calls went since the last question."""
    ways = hook.counters()
    hook._fast.clear()
    hook._http.clear()
    return ways


async def by_aiobotocore():
    failed = []

    def note(name, holds):
        print(f"ok {name}" if holds else f"FAILED {name}")
        if not holds:
            failed.append(name)

    def note_http(name, calls, holds):
        ways = went()
        note(name, holds and ways == {"fast": {}, "http": {"other-botocore": calls}})

    async with aiobotocore.session.get_session().create_client("s3") as s3:
        await s3.create_bucket(Bucket=BUCKET)
        for length in (0, 10, len(DATA)):
            put = await s3.put_object(Bucket=BUCKET, Key="k", Body=DATA[:length], Metadata={"a": "b"})
            note_http(f"put {length}", 1, put["ResponseMetadata"]["HTTPStatusCode"] == 200)
            head = await s3.head_object(Bucket=BUCKET, Key="k")
            note_http(f"head {length}", 1, (head["ContentLength"], head["ETag"]) == (length, put["ETag"]))
            got = await s3.get_object(Bucket=BUCKET, Key="k")
            async with got["Body"] as body:
                read = await body.read()
            note_http(f"get {length}", 1, (read, got["Metadata"]) == (DATA[:length], {"a": "b"}))
        many = await asyncio.gather(*(s3.get_object(Bucket=BUCKET, Key="k") for _ in range(8)))
        bodies = [await answer["Body"].read() for answer in many]
        note_http("eight gets at once", 8, bodies == [DATA] * 8)
        try:
            await s3.get_object(Bucket=BUCKET, Key="none")
            note("a key that is not there", False)
        except s3.exceptions.NoSuchKey:
            note_http("a key that is not there", 1, True)
    # What is botocore's own in the same process goes fast.
    s3 = botocore.session.get_session().create_client("s3")
    read = s3.get_object(Bucket=BUCKET, Key="k")["Body"].read()
    note("botocore beside it goes fast", read == DATA and went() == {"fast": {"GetObject": 1}, "http": {}})
    return failed


def main():
    hook.install()
    failed = asyncio.run(by_aiobotocore())
    print(f"{len(failed)} failed: {failed}" if failed else "all the same")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
