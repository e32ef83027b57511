"""Turns an image with ImageMagick: OFC's "wand_rotate". The canvas grows to hold the corners."""

import boto3
from wand.color import Color
from wand.image import Image

s3 = boto3.client("s3")


def handler(event, context):
    source, target = event["input"], event["output"]
    angle = float(event.get("angle", 30.0))
    if not -360 <= angle <= 360:
        raise ValueError(f"angle must be between -360 and 360 degrees, not {angle}")

    body = s3.get_object(Bucket=source["bucket"], Key=source["key"])["Body"]
    with Image(blob=body.read()) as image, Color("white") as corners:
        image.rotate(angle, background=corners)
        width, height, content_type = image.width, image.height, image.mimetype
        turned = image.make_blob()

    s3.put_object(Bucket=target["bucket"], Key=target["key"], Body=turned, ContentType=content_type)
    return {"width": width, "height": height, "bytes": len(turned)}
