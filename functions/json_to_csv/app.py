"""Turns JSON records into a CSV table: a list of objects in, a header line and one row an object out.

A column for each name, in the order in which names appear first. An object inside an object becomes columns named
with a dot; a list stays JSON inside its cell.
"""

import csv
import json
from io import StringIO

import boto3

s3 = boto3.client("s3")


def flat(record: dict, prefix: str = "") -> dict:
    row = {}
    for name, value in record.items():
        if isinstance(value, dict):
            row |= flat(value, f"{prefix}{name}.")
        elif isinstance(value, list | bool):
            row[prefix + name] = json.dumps(value, ensure_ascii=False)
        else:
            row[prefix + name] = value
    return row


def handler(event, context):
    source, target = event["input"], event["output"]

    body = s3.get_object(Bucket=source["bucket"], Key=source["key"])["Body"]
    records = json.loads(body.read())
    if not (isinstance(records, list) and all(isinstance(record, dict) for record in records)):
        raise ValueError("a list of objects was expected, as in [{...}, {...}]")
    rows = [flat(record) for record in records]
    # A dictionary keeps the order in which names came.
    names = list(dict.fromkeys(name for row in rows for name in row))

    table = StringIO(newline="")
    writer = csv.DictWriter(table, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    text = table.getvalue().encode()
    s3.put_object(Bucket=target["bucket"], Key=target["key"], Body=text, ContentType="text/csv; charset=utf-8")
    return {"rows": len(rows), "columns": len(names), "bytes": len(text)}
