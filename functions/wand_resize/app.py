"""Scales an image to a width with ImageMagick: OFC's "wand_resize". Keeps the shape and the format."""

import boto3
from wand.image import Image

s3 = boto3.client("s3")


def handler(event, context):
    source, target = event["input"], event["output"]
    width = int(event.get("width", 640))
    if not 1 <= width <= 8192:
        raise ValueError(f"width must be between 1 and 8192 pixels, not {width}")

    body = s3.get_object(Bucket=source["bucket"], Key=source["key"])["Body"]
    with Image(blob=body.read()) as image:
        if not image.width:
            raise ValueError("the image breaks off before its pixels")
        height = max(1, round(image.height * width / image.width))
        image.resize(width, height)
        content_type = image.mimetype
        scaled = image.make_blob()

    s3.put_object(Bucket=target["bucket"], Key=target["key"], Body=scaled, ContentType=content_type)
    return {"width": width, "height": height, "bytes": len(scaled)}
