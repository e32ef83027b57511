"""S3 as boto3 with its default settings uses it.

Needs AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and a server without the buckets that it makes.
Prints one line a check, `ok <what>` or `FAILED <what>: <why>`; exits with 1 if one failed. What stands before a colon are
operations of README.md.
"""

import concurrent.futures
import hashlib
import io
import os
import sys
import tempfile
import traceback
import urllib.error
import urllib.request

import boto3
import botocore.session
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError

MIB = 1 << 20
BUCKET = "boto3-checks"

s3 = boto3.client("s3")
failures = []
checks = []


def check(function):
    """Registers a check; its docstring is what it shows."""
    checks.append(function)
    return function


def refused(code, status, call, **arguments):
    """The call fails with this code and status."""
    try:
        call(**arguments)
    except ClientError as error:
        found = (error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"])
        assert found == (code, status), f"expected {(code, status)}, found {found}"
        return error.response
    raise AssertionError(f"expected {code}, but the call succeeded")


def put(key, body=b"hello", **arguments):
    return s3.put_object(Bucket=BUCKET, Key=key, Body=body, **arguments)


def read(key, **arguments):
    return s3.get_object(Bucket=BUCKET, Key=key, **arguments)["Body"].read()


def fetch(url, method="GET", data=None, headers=None):
    request = urllib.request.Request(url, data=data, method=method, headers=headers or {})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read(), answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read(), error.headers


@check
def bucket_create():
    """buckets: create_bucket, head_bucket, list_buckets, get_bucket_location"""
    made = s3.create_bucket(Bucket=BUCKET)
    assert made["Location"] == f"/{BUCKET}"
    assert s3.head_bucket(Bucket=BUCKET)["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert BUCKET in [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]]
    assert s3.get_bucket_location(Bucket=BUCKET)["LocationConstraint"] is None


@check
def bucket_location_constraint():
    """create_bucket with a location constraint; delete_bucket"""
    s3.create_bucket(Bucket="elsewhere", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    s3.delete_bucket(Bucket="elsewhere")
    refused("404", 404, s3.head_bucket, Bucket="elsewhere")


@check
def bucket_twice():
    """a bucket cannot be made twice"""
    refused("BucketAlreadyOwnedByYou", 409, s3.create_bucket, Bucket=BUCKET)


@check
def bucket_versioning():
    """a bucket never had versions"""
    assert "Status" not in s3.get_bucket_versioning(Bucket=BUCKET)


@check
def waiters():
    """waiters for buckets and objects"""
    s3.get_waiter("bucket_exists").wait(Bucket=BUCKET, WaiterConfig={"Delay": 1, "MaxAttempts": 2})
    put("waited")
    s3.get_waiter("object_exists").wait(Bucket=BUCKET, Key="waited", WaiterConfig={"Delay": 1, "MaxAttempts": 2})
    s3.delete_object(Bucket=BUCKET, Key="waited")
    s3.get_waiter("object_not_exists").wait(Bucket=BUCKET, Key="waited", WaiterConfig={"Delay": 1, "MaxAttempts": 2})


@check
def put_get():
    """objects: put_object and get_object of bytes, text, a file and nothing"""
    for name, body, expected in [
        ("bytes", b"\0\1\2" * 1000, b"\0\1\2" * 1000),
        ("text", "grün", "grün".encode()),
        ("file", io.BytesIO(b"from a file"), b"from a file"),
        ("empty", b"", b""),
    ]:
        done = put(name, body)
        assert done["ETag"] == f'"{hashlib.md5(expected).hexdigest()}"'
        got = s3.get_object(Bucket=BUCKET, Key=name)
        assert got["Body"].read() == expected
        assert (got["ContentLength"], got["ETag"], got["AcceptRanges"]) == (len(expected), done["ETag"], "bytes")
        assert got["LastModified"].tzinfo is not None
        assert got["ContentType"] == "binary/octet-stream"


@check
def default_checksum():
    """checksums: the one that boto3 adds by default is verified, kept and given back"""
    done = put("checked", b"hello")
    assert done["ChecksumCRC32"] == "NhCmhg=="
    assert s3.head_object(Bucket=BUCKET, Key="checked", ChecksumMode="ENABLED")["ChecksumCRC32"] == "NhCmhg=="
    assert s3.get_object(Bucket=BUCKET, Key="checked", ChecksumMode="ENABLED")["ChecksumType"] == "FULL_OBJECT"


@check
def other_checksums():
    """checksums: SHA1 and SHA256 on demand; a wrong one is refused"""
    for algorithm in ["SHA1", "SHA256"]:
        assert put("checked", ChecksumAlgorithm=algorithm)[f"Checksum{algorithm}"]
    refused("BadDigest", 400, put, key="checked", ChecksumSHA256="A" * 43 + "=")
    refused("BadDigest", 400, put, key="checked", ContentMD5="A" * 22 + "==")


@check
def no_checksum():
    """a client that sends and asks for no checksum works too"""
    plain = Config(request_checksum_calculation="when_required", response_checksum_validation="when_required")
    client = boto3.client("s3", config=plain)
    client.put_object(Bucket=BUCKET, Key="plain", Body=b"plain")
    assert client.get_object(Bucket=BUCKET, Key="plain")["Body"].read() == b"plain"


@check
def unsigned_payload():
    """a client that does not sign the payload works too"""
    client = boto3.client("s3", config=Config(s3={"payload_signing_enabled": False}))
    client.put_object(Bucket=BUCKET, Key="unsigned", Body=b"unsigned")
    assert read("unsigned") == b"unsigned"


@check
def odd_keys():
    """odd-keys: keys of any characters come back as they were, read and listed"""
    keys = ["a b", "a+b", "a%20b", "a//b", "ü/日本/😀", "&<>'\"", "q?x=1#y", "..", "a/../b", "*'();:@&=+$,", "tab\tkey", "k" * 1024]
    for key in keys:
        put(f"odd/{key}"[:1024], key.encode())
    for key in keys:
        assert read(f"odd/{key}"[:1024]) == key.encode(), key
    listed = {entry["Key"] for entry in s3.list_objects_v2(Bucket=BUCKET, Prefix="odd/")["Contents"]}
    assert listed == {f"odd/{key}"[:1024] for key in keys}
    listed = {entry["Key"] for entry in s3.list_objects(Bucket=BUCKET, Prefix="odd/")["Contents"]}
    assert listed == {f"odd/{key}"[:1024] for key in keys}
    bare = ["a b", "grün/日本/😀", "a//b", "/leading", "a+b", "100%", "a%20b"]
    for key in bare:
        put(key, key.encode())
    listed = [entry["Key"] for entry in s3.list_objects_v2(Bucket=BUCKET)["Contents"]]
    for key in bare:
        assert read(key) == key.encode() and listed.count(key) == 1, key


@check
def key_too_long():
    """a key of 1025 bytes is refused"""
    refused("KeyTooLongError", 400, put, key="k" * 1025)


@check
def metadata():
    """metadata: user metadata and system headers, with a key of other scripts"""
    given = {
        "ContentType": "text/plain; charset=utf-8",
        "CacheControl": "max-age=60",
        "ContentDisposition": 'attachment; filename="x.txt"',
        "ContentEncoding": "identity",
        "ContentLanguage": "de",
        "Expires": "Wed, 21 Oct 2065 07:28:00 GMT",
        "Metadata": {"colour": "green", "long-name": "v" * 200, "spaces": "a  b"},
    }
    put("μετά/данные", **given)
    for answer in [s3.head_object(Bucket=BUCKET, Key="μετά/данные"), s3.get_object(Bucket=BUCKET, Key="μετά/данные")]:
        for name, value in given.items():
            found = answer["ExpiresString"] if name == "Expires" else answer[name]
            assert found == value, (name, found)


@check
def metadata_too_large():
    """user metadata above 2 KiB is refused"""
    refused("MetadataTooLarge", 400, put, key="heavy", Metadata={"a": "v" * 2048})


@check
def ranges():
    """range: from-to, from, suffix, past the end"""
    put("ranged", b"0123456789")
    for header, expected in [("bytes=2-4", b"234"), ("bytes=7-", b"789"), ("bytes=-2", b"89"), ("bytes=8-100", b"89")]:
        got = s3.get_object(Bucket=BUCKET, Key="ranged", Range=header)
        assert got["Body"].read() == expected and got["ResponseMetadata"]["HTTPStatusCode"] == 206
        assert got["ContentRange"].endswith("/10")
    refused("InvalidRange", 416, read, key="ranged", Range="bytes=10-")


@check
def conditions_on_reads():
    """read-conditions: If-Match, If-None-Match, If-Modified-Since, If-Unmodified-Since on reads"""
    etag = put("conditional")["ETag"]
    past, future = "1970-01-02T00:00:00Z", "2100-01-01T00:00:00Z"
    for method in [s3.get_object, s3.head_object]:
        at = {"Bucket": BUCKET, "Key": "conditional"}
        method(**at, IfMatch=etag)
        method(**at, IfNoneMatch='"other"')
        method(**at, IfModifiedSince=past)
        method(**at, IfUnmodifiedSince=future)
        refused("304", 304, method, **at, IfNoneMatch=etag)
        refused("304", 304, method, **at, IfModifiedSince=future)
        failed = "PreconditionFailed" if method == s3.get_object else "412"
        refused(failed, 412, method, **at, IfMatch='"other"')
        refused(failed, 412, method, **at, IfUnmodifiedSince=past)


@check
def conditions_on_writes():
    """write-conditions: If-None-Match * and If-Match"""
    put("once", IfNoneMatch="*")
    refused("PreconditionFailed", 412, put, key="once", IfNoneMatch="*")
    etag = s3.head_object(Bucket=BUCKET, Key="once")["ETag"]
    refused("PreconditionFailed", 412, put, key="once", IfMatch='"other"')
    put("once", b"two", IfMatch=etag)
    assert read("once") == b"two"


@check
def overrides():
    """response headers overridden by the reader"""
    put("overridden")
    got = s3.get_object(Bucket=BUCKET, Key="overridden", ResponseContentType="a/b", ResponseCacheControl="no-store")
    assert (got["ContentType"], got["CacheControl"]) == ("a/b", "no-store")


@check
def missing():
    """missing: what is not there, key and bucket, read and head"""
    refused("NoSuchKey", 404, read, key="none")
    refused("404", 404, s3.head_object, Bucket=BUCKET, Key="none")
    refused("NoSuchBucket", 404, s3.get_object, Bucket="no-such-bucket", Key="none")
    refused("NoSuchBucket", 404, s3.put_object, Bucket="no-such-bucket", Key="none", Body=b"x")
    refused("NoSuchBucket", 404, s3.list_objects_v2, Bucket="no-such-bucket")
    try:
        read("none")
    except s3.exceptions.NoSuchKey as error:
        assert error.response["ResponseMetadata"]["RequestId"]


@check
def delete():
    """objects: delete_object, also of what is not there"""
    put("deleted")
    for _ in range(2):
        assert s3.delete_object(Bucket=BUCKET, Key="deleted")["ResponseMetadata"]["HTTPStatusCode"] == 204
    refused("NoSuchKey", 404, read, key="deleted")


@check
def delete_many():
    """delete-many: delete_objects of odd keys"""
    keys = ["many/a b", "many/ü", "many/<&>", "many/none"]
    for key in keys[:3]:
        put(key)
    done = s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": key} for key in keys]})
    assert {entry["Key"] for entry in done["Deleted"]} == set(keys) and "Errors" not in done
    assert s3.list_objects_v2(Bucket=BUCKET, Prefix="many/")["KeyCount"] == 0
    quiet = s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": "none"}], "Quiet": True})
    assert "Deleted" not in quiet


@check
def copy():
    """copy: kept and replaced metadata, conditions, itself"""
    put("from ü", ContentType="text/plain", Metadata={"a": "1"}, Tagging="t=1")
    source = {"Bucket": BUCKET, "Key": "from ü"}
    done = s3.copy_object(Bucket=BUCKET, Key="to", CopySource=source)
    assert done["CopyObjectResult"]["ETag"] == s3.head_object(Bucket=BUCKET, Key="to")["ETag"]
    head = s3.head_object(Bucket=BUCKET, Key="to")
    assert (head["ContentType"], head["Metadata"]) == ("text/plain", {"a": "1"})
    assert s3.get_object_tagging(Bucket=BUCKET, Key="to")["TagSet"] == [{"Key": "t", "Value": "1"}]
    s3.copy_object(Bucket=BUCKET, Key="to", CopySource=source, MetadataDirective="REPLACE", Metadata={"b": "2"})
    assert s3.head_object(Bucket=BUCKET, Key="to")["Metadata"] == {"b": "2"}
    s3.copy_object(Bucket=BUCKET, Key="to", CopySource={"Bucket": BUCKET, "Key": "to"}, MetadataDirective="REPLACE")
    itself = {"Bucket": BUCKET, "Key": "to", "CopySource": {"Bucket": BUCKET, "Key": "to"}}
    refused("InvalidRequest", 400, s3.copy_object, **itself)
    stale = {"Bucket": BUCKET, "Key": "to", "CopySource": source, "CopySourceIfMatch": '"other"'}
    refused("PreconditionFailed", 412, s3.copy_object, **stale)


@check
def tagging():
    """tagging: put, get, delete, with the object, too many"""
    put("tagged", Tagging="a=1&b=x%20y")
    tags = s3.get_object_tagging(Bucket=BUCKET, Key="tagged")["TagSet"]
    assert sorted((tag["Key"], tag["Value"]) for tag in tags) == [("a", "1"), ("b", "x y")]
    assert s3.get_object(Bucket=BUCKET, Key="tagged")["TagCount"] == 2
    s3.put_object_tagging(Bucket=BUCKET, Key="tagged", Tagging={"TagSet": [{"Key": "ü", "Value": "ö"}]})
    assert s3.get_object_tagging(Bucket=BUCKET, Key="tagged")["TagSet"] == [{"Key": "ü", "Value": "ö"}]
    s3.delete_object_tagging(Bucket=BUCKET, Key="tagged")
    assert s3.get_object_tagging(Bucket=BUCKET, Key="tagged")["TagSet"] == []
    many = {"TagSet": [{"Key": str(index), "Value": "v"} for index in range(11)]}
    try:
        s3.put_object_tagging(Bucket=BUCKET, Key="tagged", Tagging=many)
    except ClientError as error:
        assert error.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    else:
        raise AssertionError("eleven tags were taken")
    refused("NoSuchKey", 404, s3.get_object_tagging, Bucket=BUCKET, Key="none")


def make_pages():
    """2,500 objects for the listings."""
    s3.create_bucket(Bucket="pages")
    wide = boto3.client("s3", config=Config(max_pool_connections=16))
    keys = [f"p/{index % 5}/{index:05}" for index in range(2500)]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda key: wide.put_object(Bucket="pages", Key=key, Body=b""), keys))
    return sorted(keys)


@check
def pages():
    """pages: 2,500 keys come page by page, in order, by both versions of the listing"""
    keys = make_pages()
    first = s3.list_objects_v2(Bucket="pages")
    assert (first["KeyCount"], first["IsTruncated"], first["MaxKeys"]) == (1000, True, 1000)
    for operation, size in [("list_objects_v2", None), ("list_objects", None), ("list_objects_v2", 300), ("list_objects", 300)]:
        pages = s3.get_paginator(operation).paginate(Bucket="pages", PaginationConfig={"PageSize": size})
        assert [entry["Key"] for page in pages for entry in page.get("Contents", [])] == keys, (operation, size)


@check
def prefixes():
    """listing: prefix, delimiter, start-after, max-keys 0"""
    for operation in ["list_objects_v2", "list_objects"]:
        pages = s3.get_paginator(operation).paginate(Bucket="pages", Prefix="p/", Delimiter="/", PaginationConfig={"PageSize": 2})
        found = [entry["Prefix"] for page in pages for entry in page.get("CommonPrefixes", [])]
        assert found == [f"p/{index}/" for index in range(5)], (operation, found)
    after = s3.list_objects_v2(Bucket="pages", StartAfter="p/4/02494")
    assert [entry["Key"] for entry in after["Contents"]] == ["p/4/02499"]
    none = s3.list_objects_v2(Bucket="pages", MaxKeys=0)
    assert none["KeyCount"] == 0 and not none["IsTruncated"]
    owner = s3.list_objects_v2(Bucket="pages", MaxKeys=1, FetchOwner=True)["Contents"][0]["Owner"]
    assert owner["ID"]


@check
def empty_bucket():
    """bucket-delete, delete-many: resources empty a bucket with delete_objects, then delete it"""
    bucket = boto3.resource("s3").Bucket("pages")
    refused("BucketNotEmpty", 409, s3.delete_bucket, Bucket="pages")
    bucket.objects.all().delete()
    bucket.delete()
    refused("NoSuchBucket", 404, s3.list_objects_v2, Bucket="pages")


@check
def upload_download_file():
    """upload_file and download_file of 20 MiB, in parts, with threads"""
    data = os.urandom(20 * MIB + 17)
    with tempfile.TemporaryDirectory() as folder:
        source, target = os.path.join(folder, "source"), os.path.join(folder, "target")
        with open(source, "wb") as file:
            file.write(data)
        s3.upload_file(source, BUCKET, "large", ExtraArgs={"ContentType": "a/b", "Metadata": {"a": "1"}})
        head = s3.head_object(Bucket=BUCKET, Key="large")
        assert (head["ContentLength"], head["ContentType"], head["Metadata"]) == (len(data), "a/b", {"a": "1"})
        assert head["ETag"].endswith('-3"'), head["ETag"]
        s3.download_file(BUCKET, "large", target)
        with open(target, "rb") as file:
            assert file.read() == data
    parts = [data[at : at + 8 * MIB] for at in range(0, len(data), 8 * MIB)]
    digest = hashlib.md5(b"".join(hashlib.md5(part).digest() for part in parts)).hexdigest()
    assert head["ETag"] == f'"{digest}-3"'


@check
def upload_stream():
    """upload_fileobj of a stream that cannot be sought; managed copy in parts"""

    class Stream(io.RawIOBase):
        def __init__(self, data):
            self.data = io.BytesIO(data)

        def readable(self):
            return True

        def read(self, size=-1):
            return self.data.read(size)

    data = os.urandom(12 * MIB)
    s3.upload_fileobj(Stream(data), BUCKET, "streamed")
    config = TransferConfig(multipart_threshold=6 * MIB, multipart_chunksize=5 * MIB)
    s3.copy({"Bucket": BUCKET, "Key": "streamed"}, BUCKET, "copied", Config=config)
    assert read("copied") == data
    assert s3.head_object(Bucket=BUCKET, Key="copied")["ETag"].endswith('-3"')


@check
def multipart():
    """multipart: by hand, create, part, part copy, list parts, list uploads, complete"""
    put("source", b"s" * (5 * MIB))
    upload = s3.create_multipart_upload(Bucket=BUCKET, Key="multi", ContentType="a/b", Tagging="a=1")["UploadId"]
    at = {"Bucket": BUCKET, "Key": "multi", "UploadId": upload}
    first = s3.upload_part(**at, PartNumber=1, Body=b"a" * (5 * MIB))["ETag"]
    source = {"Bucket": BUCKET, "Key": "source"}
    copied = s3.upload_part_copy(**at, PartNumber=2, CopySource=source, CopySourceRange=f"bytes=0-{5 * MIB - 1}")
    second = copied["CopyPartResult"]["ETag"]
    third = s3.upload_part(**at, PartNumber=7, Body=b"z")["ETag"]
    listed = s3.list_parts(**at)["Parts"]
    assert [(part["PartNumber"], part["Size"]) for part in listed] == [(1, 5 * MIB), (2, 5 * MIB), (7, 1)]
    page = s3.list_parts(**at, MaxParts=2)
    assert page["IsTruncated"] and page["NextPartNumberMarker"] == 2
    uploads = s3.list_multipart_uploads(Bucket=BUCKET)["Uploads"]
    assert [(entry["Key"], entry["UploadId"]) for entry in uploads] == [("multi", upload)]
    named = [{"PartNumber": number, "ETag": etag} for number, etag in [(1, first), (2, second), (7, third)]]
    done = s3.complete_multipart_upload(**at, MultipartUpload={"Parts": named})
    assert done["ETag"].endswith('-3"') and done["Bucket"] == BUCKET and done["Key"] == "multi"
    assert read("multi") == b"a" * (5 * MIB) + b"s" * (5 * MIB) + b"z"
    last = s3.get_object(Bucket=BUCKET, Key="multi", PartNumber=3)
    assert (last["Body"].read(), last["PartsCount"]) == (b"z", 3)
    assert s3.get_object_tagging(Bucket=BUCKET, Key="multi")["TagSet"] == [{"Key": "a", "Value": "1"}]
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=BUCKET)


@check
def multipart_checksums():
    """multipart with each kind of checksum"""
    for algorithm, kind in [("CRC32", "COMPOSITE"), ("SHA256", "COMPOSITE")]:
        upload = s3.create_multipart_upload(Bucket=BUCKET, Key="multi", ChecksumAlgorithm=algorithm)
        assert upload["ChecksumAlgorithm"] == algorithm
        at = {"Bucket": BUCKET, "Key": "multi", "UploadId": upload["UploadId"]}
        parts = []
        for number, body in [(1, b"a" * (5 * MIB)), (2, b"b")]:
            part = s3.upload_part(**at, PartNumber=number, Body=body, ChecksumAlgorithm=algorithm)
            parts.append({"PartNumber": number, "ETag": part["ETag"], f"Checksum{algorithm}": part[f"Checksum{algorithm}"]})
        wrong = [dict(parts[0], **{f"Checksum{algorithm}": parts[1][f"Checksum{algorithm}"]}), parts[1]]
        refused("InvalidPart", 400, s3.complete_multipart_upload, **at, MultipartUpload={"Parts": wrong})
        done = s3.complete_multipart_upload(**at, MultipartUpload={"Parts": parts})
        assert done["ChecksumType"] == kind and done[f"Checksum{algorithm}"].endswith("-2")
        head = s3.head_object(Bucket=BUCKET, Key="multi", ChecksumMode="ENABLED")
        assert head[f"Checksum{algorithm}"] == done[f"Checksum{algorithm}"]
        assert read("multi") == b"a" * (5 * MIB) + b"b"


@check
def multipart_rules():
    """aborted-multipart: small parts, order, unknown parts and uploads, part numbers, abort"""
    upload = s3.create_multipart_upload(Bucket=BUCKET, Key="rules")["UploadId"]
    at = {"Bucket": BUCKET, "Key": "rules", "UploadId": upload}
    etags = {number: s3.upload_part(**at, PartNumber=number, Body=b"x")["ETag"] for number in [1, 2]}

    def complete(*parts):
        named = [{"PartNumber": number, "ETag": etag} for number, etag in parts]
        return {**at, "MultipartUpload": {"Parts": named}}

    finish = s3.complete_multipart_upload
    refused("EntityTooSmall", 400, finish, **complete((1, etags[1]), (2, etags[2])))
    refused("InvalidPartOrder", 400, finish, **complete((2, etags[2]), (1, etags[1])))
    refused("InvalidPart", 400, finish, **complete((3, etags[1])))
    for number in [0, 10001]:
        refused("InvalidArgument", 400, s3.upload_part, **at, PartNumber=number, Body=b"x")
    s3.abort_multipart_upload(**at)
    refused("NoSuchUpload", 404, s3.upload_part, **at, PartNumber=1, Body=b"x")
    refused("NoSuchUpload", 404, s3.list_parts, **at)
    refused("NoSuchKey", 404, read, key="rules")
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=BUCKET)


@check
def attributes():
    """get_object_attributes"""
    put("attributes", b"hello")
    asked = ["ETag", "ObjectSize", "StorageClass", "Checksum"]
    found = s3.get_object_attributes(Bucket=BUCKET, Key="attributes", ObjectAttributes=asked)
    assert (found["ObjectSize"], found["StorageClass"]) == (5, "STANDARD")
    assert found["ETag"].strip('"') == hashlib.md5(b"hello").hexdigest()
    assert found["Checksum"]["ChecksumCRC32"] == "NhCmhg=="


@check
def presigned():
    """presigned-get, presigned-put: get, head, put and delete; expired, changed and unsigned ones are refused"""
    at = {"Bucket": BUCKET, "Key": "signed"}
    # The default for URLs in us-east-1 is version 2 of the signature, which is refused.
    put("signed", b"hello")
    status, body, _ = fetch(s3.generate_presigned_url("get_object", Params=at))
    assert status == 400 and b"signature version 2" in body and b"signature_version=" in body, (status, body)
    client = boto3.client("s3", config=Config(signature_version="s3v4"))
    url = client.generate_presigned_url("get_object", Params={**at, "ResponseContentType": "a/b"})
    status, body, headers = fetch(url)
    assert (status, body, headers["Content-Type"]) == (200, b"hello", "a/b")
    status, body, _ = fetch(url, headers={"Range": "bytes=1-2"})
    assert (status, body) == (206, b"el")
    assert fetch(url, "DELETE")[0] == 403
    assert fetch(client.generate_presigned_url("head_object", Params=at), "HEAD")[0] == 200
    url = client.generate_presigned_url("put_object", Params={"Bucket": BUCKET, "Key": "by url ü"})
    assert fetch(url, "PUT", b"put by url", {"Content-Type": ""})[0] == 200 and read("by url ü") == b"put by url"
    assert fetch(url + "0", "PUT", b"x", {"Content-Type": ""})[0] in (400, 403)
    steal = {"Content-Type": "", "x-amz-copy-source": f"/{BUCKET}/checked"}
    assert fetch(url, "PUT", b"", steal)[0] == 403
    assert fetch(client.generate_presigned_url("delete_object", Params=at), "DELETE")[0] == 204
    status, _, _ = fetch(client.generate_presigned_url("get_object", Params=at, ExpiresIn=-1))
    assert status in (400, 403), status
    endpoint = s3.meta.endpoint_url
    status, body, _ = fetch(f"{endpoint}/{BUCKET}/by%20url%20%C3%BC")
    assert status == 403 and b"<Code>AccessDenied</Code>" in body


@check
def session_tokens():
    """a session token that is signed with a request or in a URL is taken, as functions send one"""
    put("signed", b"hello")
    key = boto3.Session().get_credentials()
    keys = {"aws_access_key_id": key.access_key, "aws_secret_access_key": key.secret_key, "aws_session_token": "a/b+c="}
    client = boto3.client("s3", config=Config(signature_version="s3v4"), **keys)
    at = {"Bucket": BUCKET, "Key": "signed"}
    assert client.get_object(**at)["Body"].read() == b"hello"
    client.put_object(**at, Body=b"by a token")
    url = client.generate_presigned_url("get_object", Params=at)
    assert "X-Amz-Security-Token=" in url and fetch(url)[:2] == (200, b"by a token")
    assert fetch(url.replace("a%2Fb", "a%2Fc"))[0] == 403
    s3.delete_object(**at)


@check
def wrong_credentials():
    """credentials: a wrong secret, a wrong key"""
    for arguments, code in [
        ({"aws_access_key_id": os.environ["AWS_ACCESS_KEY_ID"], "aws_secret_access_key": "wrong"}, "SignatureDoesNotMatch"),
        ({"aws_access_key_id": "WRONG", "aws_secret_access_key": "wrong"}, "InvalidAccessKeyId"),
    ]:
        refused(code, 403, boto3.client("s3", **arguments).list_buckets)


@check
def not_supported():
    """what is not supported answers NotImplemented"""
    quick = boto3.client("s3", config=Config(retries={"max_attempts": 1}))
    at = {"Bucket": BUCKET, "Key": "key"}
    for call, arguments in [
        (quick.put_object, {**at, "Body": b"x", "ACL": "public-read"}),
        (quick.put_object, {**at, "Body": b"x", "StorageClass": "GLACIER"}),
        (quick.put_object, {**at, "Body": b"x", "ServerSideEncryption": "AES256"}),
        (quick.put_object, {**at, "Body": b"x", "SSECustomerAlgorithm": "AES256", "SSECustomerKey": b"0" * 32}),
        (quick.get_object, {"Bucket": BUCKET, "Key": "checked", "VersionId": "1"}),
        (quick.get_bucket_policy, {"Bucket": BUCKET}),
        (quick.put_bucket_versioning, {"Bucket": BUCKET, "VersioningConfiguration": {"Status": "Enabled"}}),
        (quick.list_object_versions, {"Bucket": BUCKET}),
    ]:
        refused("NotImplemented", 501, call, **arguments)


@check
def at_once():
    """16 clients write and read at once"""

    def work(index):
        client = botocore.session.get_session().create_client("s3")
        for turn in range(5):
            body = f"{index} {turn}".encode() * 500
            client.put_object(Bucket=BUCKET, Key=f"at once/{index}", Body=body)
            assert client.get_object(Bucket=BUCKET, Key=f"at once/{index}")["Body"].read() == body

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(16)))


for function in checks:
    try:
        function()
        print(f"ok {function.__doc__}", flush=True)
    except Exception as error:  # every check is to run, whatever one meets
        failures.append(function)
        reason = "".join(traceback.format_exception_only(type(error), error)).strip()
        line = traceback.extract_tb(error.__traceback__)[-1]
        if line.filename != __file__:
            line = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == __file__][-1]
        print(f"FAILED {function.__doc__}: {reason} (line {line.lineno})", flush=True)

print(f"{len(checks) - len(failures)} of {len(checks)} checks passed")
sys.exit(1 if failures else 0)
