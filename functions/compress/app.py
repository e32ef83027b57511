"""Compresses an object: SeBS' "compression". Reads any bytes, writes gzip, bzip2 or xz."""

import bz2
import lzma
import zlib
from io import BytesIO

import boto3

# Each with its compressor for a level; 31 is zlib's word for a gzip header around the largest window.
FORMATS = {
    "gzip": (lambda level: zlib.compressobj(level, wbits=31), "application/gzip"),
    "bz2": (bz2.BZ2Compressor, "application/x-bzip2"),
    "xz": (lambda level: lzma.LZMACompressor(preset=level), "application/x-xz"),
}

s3 = boto3.client("s3")


def handler(event, context):
    source, target = event["input"], event["output"]
    form, level = event.get("format", "gzip"), int(event.get("level", 6))
    if form not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}, not {form!r}")
    if not 1 <= level <= 9:
        raise ValueError(f"level must be between 1 and 9, not {level}")

    make, content_type = FORMATS[form]
    compressor, small, read = make(level), BytesIO(), 0
    for chunk in s3.get_object(Bucket=source["bucket"], Key=source["key"])["Body"].iter_chunks(1 << 20):
        read += len(chunk)
        small.write(compressor.compress(chunk))
    small.write(compressor.flush())
    size = small.tell()
    small.seek(0)
    s3.put_object(Bucket=target["bucket"], Key=target["key"], Body=small, ContentType=content_type)
    return {"format": form, "bytes": size, "input_bytes": read}
