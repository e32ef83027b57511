"""Counts the words of a text: the map step of the MapReduce job in OFC. Writes JSON, the most frequent words first."""

import json
import re
from collections import Counter

import boto3

WORD = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)*")

s3 = boto3.client("s3")


def handler(event, context):
    source, target = event["input"], event["output"]
    top = int(event.get("top", 1000))
    if top < 1:
        raise ValueError(f"top must be at least 1, not {top}")

    body = s3.get_object(Bucket=source["bucket"], Key=source["key"])["Body"]
    counts, lines = Counter(), 0
    for line in body.iter_lines(chunk_size=1 << 20):
        lines += 1
        counts.update(WORD.findall(line.decode("utf-8", errors="replace").lower()))

    words = sum(counts.values())
    summary = {"lines": lines, "words": words, "distinct": len(counts), "top": counts.most_common(top)}
    s3.put_object(
        Bucket=target["bucket"],
        Key=target["key"],
        Body=json.dumps(summary, ensure_ascii=False).encode(),
        ContentType="application/json",
    )
    return {"lines": lines, "words": words, "distinct": len(counts)}
