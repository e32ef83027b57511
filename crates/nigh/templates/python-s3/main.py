"""The function: it counts the lines and words of each new text, and writes the counts to a folder beside it."""

import json
from urllib.parse import unquote_plus

import boto3

s3 = boto3.client("s3")


def handle(event, context):
    counts = []
    for record in event["Records"]:
        bucket = record["s3"]["bucket"]["name"]
        key = unquote_plus(record["s3"]["object"]["key"])
        text = s3.get_object(Bucket=bucket, Key=key)["Body"].read().decode()
        count = {"key": key, "lines": len(text.splitlines()), "words": len(text.split())}
        # In a folder of another name than the trigger's: the function must not run for its own results.
        s3.put_object(Bucket=bucket, Key=f"counts-of-{key}.json", Body=json.dumps(count).encode())
        print("counted", key)
        counts.append(count)
    return counts
