"""Turns a CSV table into JSON records: UTF-8 with a header line in, a list of one object a row out."""

import csv
import json
import re
from io import StringIO

import boto3

# What JSON calls a number; a code such as 007 stays text.
NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
MISSING = {"", "NA"}

s3 = boto3.client("s3")


def value(cell: str) -> float | int | str | None:
    if cell in MISSING:
        return None
    if (number := NUMBER.fullmatch(cell)) is None:
        return cell
    return float(cell) if any(number.groups()) else int(cell)


def handler(event, context):
    source, target = event["input"], event["output"]

    body = s3.get_object(Bucket=source["bucket"], Key=source["key"])["Body"]
    reader = csv.reader(StringIO(body.read().decode("utf-8"), newline=""), strict=True)
    names = next(reader, None)
    if not names:
        raise ValueError("the table is empty: a header line was expected")
    if len(set(names)) != len(names):
        raise ValueError(f"two columns have one name: {', '.join(names)}")
    records = []
    for row in reader:
        if len(row) != len(names):
            raise ValueError(f"line {reader.line_num} has {len(row)} fields, the header {len(names)}")
        records.append({name: value(cell) for name, cell in zip(names, row, strict=True)})

    text = json.dumps(records, ensure_ascii=False, allow_nan=False).encode()
    s3.put_object(Bucket=target["bucket"], Key=target["key"], Body=text, ContentType="application/json")
    return {"rows": len(records), "columns": len(names), "bytes": len(text)}
