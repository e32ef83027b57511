"""The operations of README.md by s3fs with its default settings. Ends at the first wrong result."""

import os
import sys
import urllib.error
import urllib.request

import s3fs

BUCKET = "s3fs-checks"
ODD_KEYS = ["a b", "grün/日本/😀", "a//b", "/leading", "a+b", "100%", "a%20b"]
MIB = 1 << 20

fs = s3fs.S3FileSystem(use_listings_cache=False)


def at(key):
    return f"{BUCKET}/{key}"


def ok(operation):
    print(f"ok {operation}", flush=True)


def refused(kind, call, *arguments, **named):
    """The call ends with this kind of error."""
    try:
        call(*arguments, **named)
    except kind as error:
        return error
    sys.exit(f"FAILED: expected {kind.__name__}, but the call succeeded: {arguments} {named}")


def keys(prefix=""):
    """By the SDK's own paging; `find` would read `a//b` as a folder without a name."""
    pages = fs.call_s3("list_objects_v2", Bucket=BUCKET, Prefix=prefix)
    found = [entry["Key"] for entry in pages.get("Contents", [])]
    while pages["IsTruncated"]:
        pages = fs.call_s3(
            "list_objects_v2", Bucket=BUCKET, Prefix=prefix, ContinuationToken=pages["NextContinuationToken"]
        )
        found += [entry["Key"] for entry in pages["Contents"]]
    return found


def fetch(url, method="GET", data=None):
    request = urllib.request.Request(url, data=data, method=method, headers={"Content-Type": ""} if data else {})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def buckets():
    fs.mkdir(BUCKET)
    assert fs.exists(BUCKET) and fs.isdir(BUCKET)
    assert BUCKET in fs.ls("")


def objects():
    for key, body in [("bytes", bytes(range(256)) * 4), ("empty", b"")]:
        fs.pipe_file(at(key), body)
        info = fs.info(at(key))
        assert (info["size"], info["type"]) == (len(body), "file"), info
        assert fs.cat_file(at(key)) == body
    fs.rm_file(at("empty"))
    fs.rm_file(at("empty"))
    assert not fs.exists(at("empty"))
    refused(FileNotFoundError, fs.cat_file, at("empty"))


def ranges():
    fs.pipe_file(at("ranged"), b"0123456789")
    assert fs.cat_file(at("ranged"), start=2, end=5) == b"234"
    assert fs.cat_file(at("ranged"), start=-2) == b"89"
    with fs.open(at("ranged")) as file:
        file.seek(7)
        assert file.read() == b"789"


def read_conditions():
    """An open file reads under If-Match, so that two objects never mix."""
    fs.pipe_file(at("conditional"), b"hello")
    etag = fs.info(at("conditional"))["ETag"]
    with fs.open(at("conditional")) as file:
        assert file.read() == b"hello"
    stale = fs.open(at("conditional"))
    fs.pipe_file(at("conditional"), b"other")
    refused(s3fs.utils.FileExpired, stale.read)
    key = {"Bucket": BUCKET, "Key": "conditional"}
    fs.call_s3("get_object", **key, IfNoneMatch=etag)
    etag = fs.info(at("conditional"))["ETag"]
    error = refused(OSError, fs.call_s3, "get_object", **key, IfNoneMatch=etag)
    assert "(304)" in str(error), error


def write_conditions():
    fs.pipe_file(at("once"), b"first", mode="create")
    error = refused(OSError, fs.pipe_file, at("once"), b"second", mode="create")
    assert "If-None-Match" in str(error), error
    assert fs.cat_file(at("once")) == b"first"


def metadata():
    given = {"ContentType": "text/plain; charset=utf-8", "Metadata": {"colour": "green"}}
    fs.pipe_file(at("described"), b"hello", **given)
    assert fs.info(at("described"))["ContentType"] == given["ContentType"]
    assert fs.metadata(at("described"))["colour"] == "green"
    assert fs.getxattr(at("described"), "colour") == "green"


def copy():
    fs.cp_file(at("described"), at("copied"))
    assert fs.cat_file(at("copied")) == b"hello" and fs.metadata(at("copied"))["colour"] == "green"
    fs.cp_file(at("described"), at("changed"))
    fs.setxattr(at("changed"), colour="red")  # a copy onto itself, with other metadata
    assert fs.cat_file(at("changed")) == b"hello" and fs.metadata(at("changed"))["colour"] == "red"


def listing():
    for key in ["a", "b/1", "b/2", "c/1"]:
        fs.pipe_file(at(f"tree/{key}"), key.encode())
    assert fs.ls(at("tree")) == [at("tree/a"), at("tree/b"), at("tree/c")]
    assert fs.find(at("tree")) == [at(f"tree/{key}") for key in ["a", "b/1", "b/2", "c/1"]]
    assert fs.glob(at("tree/*/1")) == [at("tree/b/1"), at("tree/c/1")]


def pages():
    expected = [at(f"pages/{index:04}") for index in range(1001)]
    fs.pipe({path: b"" for path in expected})
    assert fs.find(at("pages")) == expected


def delete_many():
    fs.rm(at("pages"), recursive=True)
    assert keys("pages/") == []


def multipart():
    large = os.urandom(11 * MIB)
    with fs.open(at("parts"), "wb", block_size=5 * MIB) as file:
        file.write(large)
    assert "-" in fs.info(at("parts"))["ETag"] and fs.cat_file(at("parts")) == large
    body = b"a" * 5 * MIB + b"z"
    upload = fs.call_s3("create_multipart_upload", Bucket=BUCKET, Key="parts")["UploadId"]
    named = {"Bucket": BUCKET, "Key": "parts", "UploadId": upload}
    parts = [
        {"PartNumber": number, "ETag": fs.call_s3("upload_part", **named, PartNumber=number, Body=part)["ETag"]}
        for number, part in [(1, body[: 5 * MIB]), (2, b"z")]
    ]
    done = fs.call_s3("complete_multipart_upload", **named, MultipartUpload={"Parts": parts})
    assert done["ETag"].endswith('-2"') and fs.cat_file(at("parts")) == body


def aborted_multipart():
    with fs.open(at("aborted"), "wb", block_size=5 * MIB, autocommit=False) as file:
        file.write(b"a" * 11 * MIB)
    assert len(fs.list_multipart_uploads(BUCKET)) == 1
    file.discard()
    assert not fs.list_multipart_uploads(BUCKET)
    assert not fs.exists(at("aborted"))


def presigned():
    # botocore presigns with version 2 in us-east-1 unless it is told otherwise.
    v4 = s3fs.S3FileSystem(config_kwargs={"signature_version": "s3v4"})
    url = v4.url(at("ranged"), expires=3600)
    assert fetch(url) == (200, b"0123456789")
    assert fetch(url.replace("ranged", "once"))[0] == 403
    ok("presigned-get")
    assert fetch(v4.url(at("by url"), expires=3600, client_method="put_object"), "PUT", b"put by url")[0] == 200
    assert fs.cat_file(at("by url")) == b"put by url"
    ok("presigned-put")


def tagging():
    fs.pipe_file(at("tagged"), b"hello")
    given = {"a": "1", "grün": "x y"}
    fs.put_tags(at("tagged"), given)
    assert fs.get_tags(at("tagged")) == given
    fs.call_s3("delete_object_tagging", Bucket=BUCKET, Key="tagged")
    assert fs.get_tags(at("tagged")) == {}


def odd_keys():
    for key in ODD_KEYS:
        fs.pipe_file(at(key), key.encode())
    listed = keys()
    for key in ODD_KEYS:
        assert fs.cat_file(at(key)) == key.encode(), key
        assert listed.count(key) == 1, (key, listed)


def checksums():
    done = fs.call_s3("put_object", Bucket=BUCKET, Key="summed", Body=b"hello")
    assert done["ChecksumCRC32"] == "NhCmhg==", done
    head = fs.call_s3("head_object", Bucket=BUCKET, Key="summed", ChecksumMode="ENABLED")
    assert head["ChecksumCRC32"] == "NhCmhg==", head
    # s3fs makes an OSError of the code.
    refused(OSError, fs.pipe_file, at("summed"), b"hello", ChecksumCRC32="AAAAAA==")


def missing():
    refused(FileNotFoundError, fs.cat_file, at("none"))
    refused(FileNotFoundError, fs.info, at("none"))
    refused(FileNotFoundError, fs.cat_file, "no-such-bucket/none")
    refused(FileNotFoundError, fs.ls, "no-such-bucket")


def credentials():
    for key in [os.environ["AWS_ACCESS_KEY_ID"], "UNKNOWNKEY"]:
        wrong = s3fs.S3FileSystem(key=key, secret="wrong", skip_instance_cache=True)
        refused(PermissionError, wrong.info, at("once"))
        refused(PermissionError, wrong.cat_file, at("once"))


def bucket_delete():
    refused(OSError, fs.rmdir, BUCKET)
    fs.call_s3("delete_objects", Bucket=BUCKET, Delete={"Objects": [{"Key": key} for key in keys()]})
    fs.rmdir(BUCKET)
    assert not fs.exists(BUCKET)


CHECKS = {
    "buckets": buckets,
    "objects": objects,
    "range": ranges,
    "read-conditions": read_conditions,
    "write-conditions": write_conditions,
    "metadata": metadata,
    "copy": copy,
    "listing": listing,
    "pages": pages,
    "delete-many": delete_many,
    "multipart": multipart,
    "aborted-multipart": aborted_multipart,
    "presigned-put": presigned,
    "tagging": tagging,
    "odd-keys": odd_keys,
    "checksums": checksums,
    "missing": missing,
    "credentials": credentials,
    "bucket-delete": bucket_delete,
}

for operation, check in CHECKS.items():
    check()
    if check is not presigned:
        ok(operation)
