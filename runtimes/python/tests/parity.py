"""Every call twice, over HTTP and by the hook, against a running node: the results must be the same.

    AWS_ENDPOINT_URL_S3=... AWS_ACCESS_KEY_ID=... AWS_SECRET_ACCESS_KEY=... NIGH_FAST_PATH=... python -m tests.parity

Compared deeply: parsed dicts, exceptions with their class and text, bytes, and what bodies do when they
are read in pieces or closed early. Prints `ok <case>` for each, and says for each which way it went; ends with 1 if any
differs, or if one that must go by the fast path did not.
"""

import hashlib
import io
import multiprocessing
import os
import sys
import tempfile
import threading
import traceback

import boto3
import botocore.exceptions
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.response import StreamingBody

from nigh import hook, native

BUCKET = "parity"
CONFIG = Config(retries={"total_max_attempts": 2})
# These differ between any two requests.
OF_ONE_REQUEST = {"RequestId", "HostId", "date", "x-amz-request-id", "x-amz-id-2"}
# These belong to a connection, and to the document that an error is over HTTP.
OF_CONNECTION = {"connection", "transfer-encoding"}
OF_DOCUMENT = {"content-type", "content-length"}
OF_ONE_WRITE = {"LastModified", "last-modified"}
PAST, FUTURE = "Mon, 01 Jan 2001 00:00:00 GMT", "Fri, 01 Jan 2038 00:00:00 GMT"
KIB, MIB = 1 << 10, 1 << 20

http = boto3.session.Session().client("s3", config=CONFIG)
fast = boto3.session.Session().client("s3", config=CONFIG)
hook.install(fast)
failed = []


def data(length):
    return bytes(range(251)) * (length // 251) + bytes(range(length % 251))


def plain(value, writes=False):
    """`value` without what differs between any two requests, and bodies read."""
    if isinstance(value, dict):
        volatile = OF_ONE_REQUEST | (OF_ONE_WRITE if writes else set())
        kept = {key: one for key, one in value.items() if key not in OF_CONNECTION}
        return {key: "*" if key in volatile else plain(one, writes) for key, one in kept.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one, writes) for one in value]
    if isinstance(value, StreamingBody):
        return ["body", value.read()]
    if isinstance(value, botocore.exceptions.ClientError):
        headers = value.response["ResponseMetadata"]["HTTPHeaders"]
        for name in OF_DOCUMENT:
            headers.pop(name, None)
        return [type(value).__name__, str(value), value.operation_name, plain(value.response, writes)]
    if isinstance(value, Exception):
        return [type(value).__name__, str(value)]
    return value


def outcome(call, client, writes):
    try:
        return plain(call(client), writes)
    except Exception as error:
        return ["raised", *plain(error, writes)]


def shown(value):
    text = repr(value)
    return text if len(text) < 3000 else f"{text[:3000]}... ({len(text)} characters)"


def same(name, call, way="fast", writes=False, calls=None):
    """Does `call` with both clients and compares. `way`: `fast`, or the reason why it must go over HTTP. `calls`: the
    operations that went fast must be these, and as many."""
    expected = outcome(call, http, writes)
    before = hook.counters()
    got = outcome(call, fast, writes)
    after = hook.counters()
    went = [reason for reason, count in after["http"].items() if count != before["http"].get(reason, 0)]
    if after["fast"] != before["fast"]:
        went.append("fast")
    if expected != got:
        failed.append(name)
        print(f"DIFFERS {name}\n  http: {shown(expected)}\n  hook: {shown(got)}")
    elif way is not None and went != [way]:
        failed.append(name)
        print(f"WENT {name}: {went}, not {way}")
    elif calls is not None and calls != (did := {
        operation: count - before["fast"].get(operation, 0)
        for operation, count in after["fast"].items()
        if count != before["fast"].get(operation, 0)
    }):
        failed.append(name)
        print(f"DID {name}: {did}, not {calls}")
    else:
        print(f"ok {name}: {' '.join(went)}")
    return expected


def objects():
    """What is read: by name."""
    http.create_bucket(Bucket=BUCKET)
    lengths = {"empty": 0, "one": 1, "small": KIB, "inline": 64 * KIB - 1, "segment": 64 * KIB, "large": MIB + 7}
    for name, length in lengths.items():
        http.put_object(Bucket=BUCKET, Key=name, Body=data(length))
    told = {
        **{"ContentType": "text/plain; charset=utf-8", "CacheControl": "no-store", "ContentDisposition": "inline"},
        **{"ContentEncoding": "identity", "ContentLanguage": "de, en", "Tagging": "a=b&c=d"},
        **{"Metadata": {"a": "1", "b-c": "with, commas; and = signs", "Upper": "Case"}},
    }
    http.put_object(Bucket=BUCKET, Key="told", Body=b"x\ny\r\nz", ChecksumAlgorithm="SHA256", **told)
    http.put_object(Bucket=BUCKET, Key="expires", Body=b"1", Expires="Fri, 01 Jan 2038 00:00:00 GMT")
    for key in ("a b", "grün/日本/😀", "a//b", "/leading", "a+b", "100%", "a%20b", "a/../b", "q?x=1&y#z", "tail/"):
        http.put_object(Bucket=BUCKET, Key=key, Body=key.encode())
    upload = {"Bucket": BUCKET, "Key": "parts"}
    upload["UploadId"] = http.create_multipart_upload(**upload)["UploadId"]
    bodies = {1: data(5 * MIB), 2: b"the second"}
    parts = [
        {"PartNumber": number, "ETag": http.upload_part(**upload, PartNumber=number, Body=body)["ETag"]}
        for number, body in bodies.items()
    ]
    http.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
    http.put_object(Bucket=BUCKET, Key="huge", Body=data(11 * MIB))
    return [*lengths, "told", "expires"]


def reads(names):
    for name in names:
        same(f"get {name}", lambda s3, name=name: s3.get_object(Bucket=BUCKET, Key=name))
        same(f"head {name}", lambda s3, name=name: s3.head_object(Bucket=BUCKET, Key=name))
        for mode in ("get_object", "head_object"):
            options = {"Bucket": BUCKET, "Key": name, "ChecksumMode": "ENABLED"}
            same(f"{mode} {name} with its checksum", lambda s3, m=mode, o=options: getattr(s3, m)(**o))
    for key in ("a b", "grün/日本/😀", "a//b", "/leading", "a+b", "100%", "a%20b", "a/../b", "q?x=1&y#z", "tail/"):
        same(f"get {key!r}", lambda s3, key=key: s3.get_object(Bucket=BUCKET, Key=key))
        same(f"head {key!r}", lambda s3, key=key: s3.head_object(Bucket=BUCKET, Key=key))
    for name in ("huge",):
        same(f"get {name}", lambda s3, name=name: s3.get_object(Bucket=BUCKET, Key=name), "use-http")
    ranges = ["0-0", "5-9", "5-", "-3", "0-99999999", "1023-", "70000-70010", "99999999-", "9-5", "-0", "x", "0-1,3-4"]
    for one in ranges:
        for name in ("empty", "small", "large"):
            options = {"Bucket": BUCKET, "Key": name, "Range": f"bytes={one}"}
            same(f"range {one} of {name}", lambda s3, o=options: s3.get_object(**o), None)
            same(f"head of range {one} of {name}", lambda s3, o=options: s3.head_object(**o), None)
    same("a range goes fast", lambda s3: s3.get_object(Bucket=BUCKET, Key="large", Range="bytes=100-70099"))
    for number in (1, 2, 3):
        for key in ("parts", "small"):
            options = {"Bucket": BUCKET, "Key": key, "PartNumber": number}
            same(f"part {number} of {key}", lambda s3, o=options: s3.get_object(**o), None)
            same(f"head of part {number} of {key}", lambda s3, o=options: s3.head_object(**o), None)
    conditions(http.head_object(Bucket=BUCKET, Key="small")["ETag"])
    for operation in ("get_object", "head_object"):
        same(f"{operation} no key", lambda s3, o=operation: getattr(s3, o)(Bucket=BUCKET, Key="none"))
        same(f"{operation} no bucket", lambda s3, o=operation: getattr(s3, o)(Bucket="not-there-at-all", Key="none"))
        same(f"{operation} long key", lambda s3, o=operation: getattr(s3, o)(Bucket=BUCKET, Key="k" * 1025), None)
    for name, options in {
        "other headers": {"ResponseContentType": "x/y", "ResponseCacheControl": "none"},
        "the null version": {"VersionId": "null"},
        "customer's key": {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": "k" * 32},
    }.items():
        same(f"get with {name}", lambda s3, o=options: s3.get_object(Bucket=BUCKET, Key="small", **o), "parameter")


def conditions(etag):
    wrong = '"00000000000000000000000000000000"'
    for name, options in {
        "match": {"IfMatch": etag},
        "match of a list": {"IfMatch": f"{wrong}, {etag}"},
        "match of any": {"IfMatch": "*"},
        "no match": {"IfMatch": wrong},
        "none match": {"IfNoneMatch": wrong},
        "a match where none may": {"IfNoneMatch": etag},
        "any where none may": {"IfNoneMatch": "*"},
        "modified": {"IfModifiedSince": PAST},
        "not modified": {"IfModifiedSince": FUTURE},
        "unmodified": {"IfUnmodifiedSince": FUTURE},
        "not unmodified": {"IfUnmodifiedSince": PAST},
        "both": {"IfMatch": etag, "IfUnmodifiedSince": PAST},
        "a range of a match": {"IfMatch": etag, "Range": "bytes=0-3"},
        "a range of no match": {"IfMatch": wrong, "Range": "bytes=0-3"},
    }.items():
        same(f"get if {name}", lambda s3, o=options: s3.get_object(Bucket=BUCKET, Key="small", **o))
        same(f"head if {name}", lambda s3, o=options: s3.head_object(Bucket=BUCKET, Key="small", **o))
    missing = {"Bucket": BUCKET, "Key": "none", "IfMatch": "*"}
    same("get if there is something", lambda s3: s3.get_object(**missing))


def bodies():
    def closed_early(body, *, first, amount):
        got = [body.read(first)]
        body.close()
        try:
            got.append(body.read(amount))
        except Exception as error:
            got.append([type(error).__name__, type(error).__mro__[1].__name__])
        return got

    def into(body):
        buffer, read = bytearray(999), []
        while count := body.readinto(buffer):
            read.append((count, bytes(buffer[:count])))
        return read, body.tell()

    def in_a_with(body):
        with body as opened:
            return type(opened).__mro__[-5].__name__, opened.read(7), opened.read(), opened.read(1), opened.tell()

    ways = {
        "read": lambda body: (body.read(), body.read(), body.read(5), body.tell()),
        "read in pieces": lambda body: (body.read(0), body.read(3), body.tell(), body.read(10**9), body.read(1)),
        "read to a negative number": lambda body: (body.read(-1), body.tell()),
        "chunks": lambda body: list(body.iter_chunks(1000)),
        "iterated": list,
        "next": lambda body: (next(body, None), body.next() if body.tell() < 1024 else None),
        "lines": lambda body: (list(body.iter_lines()),),
        "lines with ends": lambda body: list(body.iter_lines(chunk_size=3, keepends=True)),
        "readlines": lambda body: body.readlines(),
        "readable": lambda body: (body.readable(), body.closed, body.seekable(), body.writable()),
        "into": into,
        "with": in_a_with,
        "a time-out": lambda body: (body.set_socket_timeout(5), body.read()),
        "closed, all": lambda body: closed_early(body, first=1, amount=None),
        "closed, some": lambda body: closed_early(body, first=1, amount=10),
        "closed, nothing": lambda body: closed_early(body, first=1, amount=0),
        "closed at the end": lambda body: closed_early(body, first=None, amount=None),
    }
    for key in ("empty", "small", "segment", "told"):
        for name, way in ways.items():
            if name == "next" and key == "empty":
                continue
            same(
                f"body of {key}: {name}",
                lambda s3, k=key, w=way: w(s3.get_object(Bucket=BUCKET, Key=k)["Body"]),
            )
    view = fast.get_object(Bucket=BUCKET, Key="large")["Body"].view()
    owner = "mmap" if native.module is None else "Mapping"
    note("a view is the bytes, without a copy", bytes(view) == data(MIB + 7) and type(view.obj).__name__ == owner)


def puts():
    key = "put"

    def put(s3, **options):
        answer = s3.put_object(Bucket=BUCKET, Key=key, **{"Body": b"body", **options})
        stored = http.get_object(Bucket=BUCKET, Key=key, ChecksumMode="ENABLED")
        return answer, stored, http.get_object_tagging(Bucket=BUCKET, Key=key)["TagSet"]

    def file(length):
        opened = tempfile.TemporaryFile()
        opened.write(data(length))
        opened.seek(0)
        return opened

    for length in (0, 1, KIB, 64 * KIB - 1, 64 * KIB, MIB - 1):
        for kind, made in {
            "bytes": data,
            "bytearray": lambda length: bytearray(data(length)),
            "BytesIO": lambda length: io.BytesIO(data(length)),
            "a file": file,
        }.items():
            same(f"put {length} as {kind}", lambda s3, m=made, n=length: put(s3, Body=m(n)), writes=True)
    same("put text", lambda s3: put(s3, Body="grün"), writes=True)
    same("put nothing", lambda s3: s3.put_object(Bucket=BUCKET, Key=key), writes=True)
    for name, options in {
        "metadata": {"Metadata": {"a": "1", "Upper": "x, y"}, "ContentType": "a/b", "CacheControl": "no-store"},
        "all headers": {"ContentDisposition": "inline", "ContentEncoding": "gzip", "ContentLanguage": "de"},
        "tags": {"Tagging": "a=b&c=d%20e"},
        "an expiry": {"Expires": FUTURE},
        "CRC32": {"ChecksumAlgorithm": "CRC32"},
        "SHA-1": {"ChecksumAlgorithm": "SHA1"},
        "SHA-256": {"ChecksumAlgorithm": "SHA256"},
        "its own checksum": {"ChecksumCRC32": "26gLsg=="},
        "its MD5": {"ContentMD5": "hBotaJrYa9FhFEdFPCLG/A=="},
        "a match": {"IfMatch": "*"},
        "a length": {"ContentLength": 4},
    }.items():
        way = None if name in ("a match", "its own checksum", "its MD5") else "fast"
        same(f"put with {name}", lambda s3, o=options: put(s3, **o), way, writes=True)
        large = {**options, "Body": data(100 * KIB)}
        if name not in ("its own checksum", "its MD5", "a length"):
            same(f"put a large one with {name}", lambda s3, o=large: put(s3, **o), way, writes=True)
    for name, options in {
        "if nothing is there": {"IfNoneMatch": "*"},
        "if another is there": {"IfMatch": '"00000000000000000000000000000000"'},
        "with a wrong checksum": {"ChecksumCRC32": "AAAAAA=="},
        "with a wrong MD5": {"ContentMD5": "AAAAAAAAAAAAAAAAAAAAAA=="},
        "with too much metadata": {"Metadata": {"a": "x" * 3000}},
        "with a storage class": {"StorageClass": "STANDARD"},
        "with an access list": {"ACL": "private"},
    }.items():
        same(f"put {name}", lambda s3, o=options: put(s3, **o), None, writes=True)
        same(f"put a large one {name}", lambda s3, o={**options, "Body": data(MIB - 1)}: put(s3, **o), None, writes=True)
    # From 1 MiB on the entity tag is another one than over HTTP, and no MD5.
    etag = fast.put_object(Bucket=BUCKET, Key="composite", Body=data(MIB))["ETag"]
    note("the entity tag of a large put is composite", etag == f'"{hashlib.sha256(data(MIB)).hexdigest()[:32]}-1"')
    composite = {"Bucket": BUCKET, "Key": "composite", "IfMatch": etag}
    found = same("get what has a composite entity tag", lambda s3: s3.get_object(**composite))
    note("and it is read with that tag", found["ETag"] == etag)
    same("put without a bucket", lambda s3: s3.put_object(Bucket="not-there-at-all", Key="k", Body=b"1"))
    same("put under a long key", lambda s3: s3.put_object(Bucket=BUCKET, Key="k" * 1025, Body=b"1"), None)
    calm = Config(request_checksum_calculation="when_required", response_checksum_validation="when_required")
    pair = [boto3.session.Session().client("s3", config=calm) for _ in range(2)]
    hook.install(pair[1])
    same("put without a checksum", lambda s3: put(pair[s3 is fast]), writes=True)
    same("get without one", lambda s3: pair[s3 is fast].get_object(Bucket=BUCKET, Key="large"))
    taken = {"Bucket": BUCKET, "Key": "first"}

    def once(s3):
        http.delete_object(**taken)
        answers = [s3.put_object(**taken, Body=b"1", IfNoneMatch="*")]
        try:
            s3.put_object(**taken, Body=b"2", IfNoneMatch="*")
        except botocore.exceptions.ClientError as error:
            answers.append(error)
        return answers, http.get_object(**taken)

    same("of two puts if nothing is there the first is done", once, writes=True)


def transfers():
    # In threads, and in parts where it is large.
    config = TransferConfig(multipart_chunksize=8 * MIB)
    with tempfile.TemporaryDirectory() as folder:
        source, target = os.path.join(folder, "source"), os.path.join(folder, "target")
        for length in (10, 100 * KIB, 9 * MIB):
            # Of a large one: an upload in parts, which are HTTP's, and two ranges a download.
            parts = length > 8 * MIB
            with open(source, "wb") as file:
                file.write(data(length))

            def uploaded(s3):
                seen = []
                s3.upload_file(source, BUCKET, "moved", Config=config, Callback=seen.append)
                return sum(seen)

            def downloaded(s3):
                seen = []
                s3.download_file(BUCKET, "moved", target, Config=config, Callback=seen.append)
                with open(target, "rb") as file:
                    return sum(seen), file.read() == data(length)

            def passed_on(s3):
                into = io.BytesIO()
                s3.download_fileobj(BUCKET, "moved", into)
                s3.upload_fileobj(io.BytesIO(into.getvalue()), BUCKET, "moved again")
                return into.getvalue() == data(length)

            puts, gets = {} if parts else {"PutObject": 1}, {"HeadObject": 1, "GetObject": 2 if parts else 1}
            # Parts of an upload are not looked at: they go no way that is counted.
            same(f"upload_file of {length}", uploaded, None if parts else "fast", calls=puts)
            same(f"download_file of {length}", downloaded, calls=gets)
            same(f"download_fileobj and upload_fileobj of {length}", passed_on, calls={**gets, **puts})
    resources = {client: boto3.session.Session().resource("s3", config=CONFIG) for client in (http, fast)}
    hook.install(resources[fast])

    def by_resource(s3):
        item = resources[s3].Object(BUCKET, "by resource")
        put = item.put(Body=b"resource", Metadata={"a": "b"})
        return put, item.content_length, item.metadata, item.get(), resources[s3].Bucket(BUCKET).Object("none").key

    same("a resource", by_resource, writes=True, calls={"PutObject": 1, "HeadObject": 1, "GetObject": 1})


def together():
    """Threads and children by the hook; what each writes the other way reads."""
    wrong = []

    def work(number):
        for round in range(10):
            body = data(number * 20_000 + round)
            fast.put_object(Bucket=BUCKET, Key=f"thread-{number}", Body=body)
            reader = http if round % 2 else fast
            if reader.get_object(Bucket=BUCKET, Key=f"thread-{number}")["Body"].read() != body:
                wrong.append((number, round))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    note("threads read what they wrote, either way", not wrong)
    with multiprocessing.get_context("fork").Pool(3) as pool:
        note("children read by the hook after fork", all(pool.map(_in_child, range(6))))
    note("and the parent still does", fast.get_object(Bucket=BUCKET, Key="large")["Body"].read() == data(MIB + 7))


def _in_child(_):
    before = hook.counters()["fast"].get("GetObject", 0)
    right = fast.get_object(Bucket=BUCKET, Key="large")["Body"].read() == data(MIB + 7)
    return right and hook.counters()["fast"]["GetObject"] == before + 1


def note(name, holds):
    print(f"ok {name}" if holds else f"FAILED {name}")
    if not holds:
        failed.append(name)


def main():
    names = objects()
    for part in (lambda: reads(names), bodies, puts, transfers, together):
        try:
            part()
        except Exception:
            failed.append("a part broke off")
            traceback.print_exc(file=sys.stdout)
    print("client:", "Python" if native.module is None else "native")
    print("by way:", hook.counters())
    print(f"{len(failed)} of these differ: {failed}" if failed else "all the same")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
