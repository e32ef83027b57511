"""Tones an image sepia with ImageMagick: OFC's "wand_sepia". Writes the format it reads."""

import boto3
from wand.image import Image

s3 = boto3.client("s3")


def handler(event, context):
    source, target = event["input"], event["output"]
    threshold = float(event.get("threshold", 0.8))
    if not 0 <= threshold <= 1:
        raise ValueError(f"threshold must be between 0 and 1, not {threshold}")

    body = s3.get_object(Bucket=source["bucket"], Key=source["key"])["Body"]
    with Image(blob=body.read()) as image:
        image.sepia_tone(threshold)
        width, height, content_type = image.width, image.height, image.mimetype
        toned = image.make_blob()

    s3.put_object(Bucket=target["bucket"], Key=target["key"], Body=toned, ContentType=content_type)
    return {"width": width, "height": height, "bytes": len(toned)}
