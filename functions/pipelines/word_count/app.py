"""Counts the words of a text by MapReduce (after the word count in OFC's evaluation): three stages.

`split` cuts the text into parts at the ends of lines, `count` counts the words of one part, `merge` adds the counts up.
"""

import json
import re
from collections import Counter

import boto3

WORD = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)*")

s3 = boto3.client("s3")


def read(event, key):
    return s3.get_object(Bucket=event["bucket"], Key=key)["Body"].read()


def write(event, key, body, content_type="application/json"):
    s3.put_object(Bucket=event["bucket"], Key=key, Body=body, ContentType=content_type)


def split(event, context):
    """Parts of at most `part_bytes`, but for lines that are longer."""
    text, most = read(event, event["text"]), int(event["part_bytes"])
    if most < 1:
        raise ValueError(f"part_bytes must be at least 1, not {most}")
    parts, begin = [], 0
    while begin < len(text):
        end = begin + most
        if end < len(text):
            cut = text.rfind(b"\n", begin, end) + 1 or text.find(b"\n", end) + 1
            end = cut or len(text)
        key = f"{event['scratch']}part-{len(parts):04}"
        write(event, key, text[begin:end], "text/plain")
        parts.append(key)
        begin = end
    return {"parts": parts}


def count(event, context):
    words = Counter(WORD.findall(read(event, event["part"]).decode("utf-8", errors="replace").lower()))
    write(event, event["counts"], json.dumps(words, ensure_ascii=False).encode())
    return {"counts": event["counts"]}


def merge(event, context):
    """Writes all words, the most frequent first; those that are as frequent by the alphabet."""
    words = Counter()
    for key in event["counts"]:
        words.update(json.loads(read(event, key)))
    ranked = sorted(words.items(), key=lambda word: (-word[1], word[0]))
    write(event, event["output"], json.dumps(ranked, ensure_ascii=False).encode())
    return {"words": words.total(), "distinct": len(words)}
