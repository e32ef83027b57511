"""Sums up each column of a CSV table: OFC's kind of data analytics. Reads UTF-8 with a header line, writes JSON."""

import csv
import json
import math
from collections import Counter
from contextlib import suppress

import boto3

MISSING = {"", "NA"}
# A column with more different values than this is not counted value by value: memory stays bounded.
DISTINCT_MAX = 10_000

s3 = boto3.client("s3")


class Column:
    """What is kept of one column while its rows go by."""

    def __init__(self):
        self.missing, self.numbers, self.mean, self.squares = 0, 0, 0.0, 0.0
        self.low, self.high = math.inf, -math.inf
        self.values: Counter | None = Counter()

    def add(self, cell: str) -> None:
        if cell in MISSING:
            self.missing += 1
            return
        if self.values is not None:
            self.values[cell] += 1
            if len(self.values) > DISTINCT_MAX:
                self.values = None
        with suppress(ValueError):
            if math.isfinite(number := float(cell)):
                # Welford's recurrence: no sum of large squares to lose digits in.
                self.numbers += 1
                before = number - self.mean
                self.mean += before / self.numbers
                self.squares += before * (number - self.mean)
                self.low, self.high = min(self.low, number), max(self.high, number)

    def summary(self) -> dict:
        found = {"missing": self.missing, "numbers": self.numbers}
        if self.numbers:
            deviation = math.sqrt(self.squares / self.numbers)
            found |= {"mean": self.mean, "deviation": deviation, "min": self.low, "max": self.high}
        if self.values is not None:
            found |= {"distinct": len(self.values), "top": self.values.most_common(3)}
        return found


def handler(event, context):
    source, target = event["input"], event["output"]

    body = s3.get_object(Bucket=source["bucket"], Key=source["key"])["Body"]
    lines = (line.decode("utf-8") for line in body.iter_lines(chunk_size=1 << 20, keepends=True))
    reader = csv.reader(lines, strict=True)
    names = next(reader, None)
    if not names:
        raise ValueError("the table is empty: a header line was expected")
    if len(set(names)) != len(names):
        raise ValueError(f"two columns have one name: {', '.join(names)}")
    columns, rows = [Column() for _ in names], 0
    for row in reader:
        if len(row) != len(names):
            raise ValueError(f"line {reader.line_num} has {len(row)} fields, the header {len(names)}")
        rows += 1
        for column, cell in zip(columns, row, strict=True):
            column.add(cell)

    summary = {"rows": rows, "columns": {name: column.summary() for name, column in zip(names, columns, strict=True)}}
    s3.put_object(
        Bucket=target["bucket"],
        Key=target["key"],
        Body=json.dumps(summary, ensure_ascii=False).encode(),
        ContentType="application/json",
    )
    return {"rows": rows, "columns": len(names)}
