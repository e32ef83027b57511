"""Says whether reviews are kind or not (after Apta's sentiment analysis): four stages.

`read_csv` makes records of a table, `score` adds to each how it is meant, under the same key, `publish` picks those that
somebody should see at once, `write_db` files all.
"""

import csv
import io
import json
import re
import sqlite3

import boto3

WORD = re.compile(r"[a-z']+")
MEANT = {
    "good": 2, "great": 3, "excellent": 4, "love": 3, "loved": 3, "like": 1, "nice": 2, "fine": 1, "happy": 2,
    "perfect": 4, "fast": 1, "easy": 1, "sturdy": 2, "recommend": 2, "bad": -2, "poor": -2, "terrible": -4,
    "hate": -3, "hated": -3, "broken": -3, "slow": -1, "late": -1, "ugly": -2, "awful": -4, "useless": -3,
    "refund": -2, "noisy": -1, "cheap": -1, "disappointed": -3,
}  # fmt: skip
TURNS = {"not", "never", "no", "hardly"}
STRONGER = {"very": 1.5, "really": 1.5, "extremely": 2.0}

s3 = boto3.client("s3")


def read(event, name):
    return s3.get_object(Bucket=event["bucket"], Key=event["read"][name])["Body"].read()


def write(event, name, body):
    s3.put_object(
        Bucket=event["bucket"], Key=event["write"][name], Body=body, ContentType="application/json"
    )


def score_of(text):
    """How a text is meant, from -1 to 1: each word that means something, turned and strengthened by those before it."""
    words, total, met = WORD.findall(text.lower()), 0.0, 0
    for at, word in enumerate(words):
        meant = MEANT.get(word)
        if meant is None:
            continue
        before = words[max(0, at - 2) : at]
        for one in before:
            meant *= STRONGER.get(one, 1.0)
        if TURNS.intersection(before):
            meant *= -0.5
        total, met = total + meant, met + 1
    return max(-1.0, min(1.0, total / (4 * met))) if met else 0.0


def read_csv(event, context):
    rows = list(csv.DictReader(io.StringIO(read(event, "table").decode())))
    write(event, "reviews", json.dumps(rows).encode())
    return {"reviews": len(rows)}


def score(event, context):
    rows = json.loads(read(event, "reviews"))
    for row in rows:
        row["score"] = round(score_of(row["text"]), 3)
    write(event, "reviews", json.dumps(rows).encode())
    return {"reviews": len(rows), "mean": sum(row["score"] for row in rows) / len(rows)}


def publish(event, context):
    rows = json.loads(read(event, "reviews"))
    worst = sorted(rows, key=lambda row: row["score"])[:5]
    return {"urgent": [row["id"] for row in worst if row["score"] < 0]}


def write_db(event, context):
    rows = json.loads(read(event, "reviews"))
    with sqlite3.connect(":memory:") as db:
        db.execute("create table review (id text primary key, product text, text text, score real)")
        values = [(row["id"], row["product"], row["text"], row["score"]) for row in rows]
        db.executemany("insert into review values (?, ?, ?, ?)", values)
        means = db.execute("select product, avg(score) from review group by product order by product").fetchall()
    return {"products": len(means), "filed": len(rows)}
