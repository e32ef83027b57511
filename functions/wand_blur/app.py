"""Blurs an image with ImageMagick: OFC's "wand_blur". Writes the format it reads."""

import boto3
from wand.image import Image

s3 = boto3.client("s3")


def handler(event, context):
    source, target = event["input"], event["output"]
    sigma = float(event.get("sigma", 2.0))
    if not 0 < sigma <= 100:
        raise ValueError(f"sigma must be above 0 and at most 100 pixels, not {sigma}")

    body = s3.get_object(Bucket=source["bucket"], Key=source["key"])["Body"]
    with Image(blob=body.read()) as image:
        # Radius 0: ImageMagick takes the one that the deviation asks for.
        image.blur(radius=0, sigma=sigma)
        width, height, content_type = image.width, image.height, image.mimetype
        blurred = image.make_blob()

    s3.put_object(Bucket=target["bucket"], Key=target["key"], Body=blurred, ContentType=content_type)
    return {"width": width, "height": height, "bytes": len(blurred)}
