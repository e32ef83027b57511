"""Takes what names a patient out of clinical notes (after Apta's PHI workflow): four stages.

`identify` marks every word of the notes, `deidentify` puts pseudonyms in the place of what identifies a person,
`anonymize` gives the notes without it, `analytics` counts what is left.
"""

import hashlib
import json
import re
from collections import Counter

import boto3

WORD = re.compile(r"\S+")
# The first kind that a word is of, in this order.
KINDS = (
    ("EMAIL", re.compile(r"[\w.+-]+@[\w.-]+\.\w+")),
    ("DATE", re.compile(r"\d{4}-\d{2}-\d{2}")),
    ("PHONE", re.compile(r"\d{3}-\d{4}")),
    ("RECORD", re.compile(r"MRN\d{6,}")),
    ("AGE", re.compile(r"\d{1,3}-year-old")),
)
TITLES = {"Dr.", "Mr.", "Mrs.", "Ms."}

s3 = boto3.client("s3")


def read(event, name):
    return s3.get_object(Bucket=event["bucket"], Key=event["read"][name])["Body"].read()


def write(event, name, body, content_type):
    s3.put_object(Bucket=event["bucket"], Key=event["write"][name], Body=body, ContentType=content_type)


def kind_of(word, after_title):
    if after_title:
        return "NAME"
    return next((kind for kind, pattern in KINDS if pattern.fullmatch(word.rstrip(".,;"))), None)


def identify(event, context):
    text = read(event, "notes").decode()
    words, after_title = [], False
    for match in WORD.finditer(text):
        word = match.group()
        words.append({"at": match.start(), "word": word, "kind": kind_of(word, after_title)})
        after_title = word in TITLES
    write(event, "words", json.dumps(words).encode(), "application/json")
    return {"words": len(words), "identifying": sum(word["kind"] is not None for word in words)}


def deidentify(event, context):
    words = json.loads(read(event, "words"))
    kept = []
    for word in words:
        text = word["word"]
        if word["kind"]:
            text = f"{word['kind']}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
        kept.append([word["at"], text])
    write(event, "pseudonyms", json.dumps(kept).encode(), "application/json")
    return {"words": len(kept)}


def anonymize(event, context):
    words = json.loads(read(event, "words"))
    text = " ".join(f"[{word['kind']}]" if word["kind"] else word["word"] for word in words)
    write(event, "anonymous", text.encode(), "text/plain")
    return {"bytes": len(text.encode())}


def analytics(event, context):
    words = [word.strip(".,;").lower() for word in read(event, "anonymous").decode().split()]
    pairs = Counter(zip(words, words[1:]))
    summary = {
        "words": Counter(words).most_common(),
        "pairs": [[*pair, count] for pair, count in pairs.most_common(600)],
    }
    body = json.dumps(summary).encode()
    write(event, "summary", body, "application/json")
    return {"distinct": len(summary["words"])}
