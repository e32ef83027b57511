"""Sharpens an image with ImageMagick: a function as OFC's "wand_" ones. Writes the format it reads."""

import boto3
from wand.image import Image

s3 = boto3.client("s3")


def handler(event, context):
    source, target = event["input"], event["output"]
    sigma = float(event.get("sigma", 2.0))
    if not 0 < sigma <= 20:
        raise ValueError(f"sigma must be above 0 and at most 20 pixels, not {sigma}")

    body = s3.get_object(Bucket=source["bucket"], Key=source["key"])["Body"]
    with Image(blob=body.read()) as image:
        # Adaptive: strong at edges, weak in plain areas, so that noise is not sharpened with the rest.
        image.adaptive_sharpen(radius=0, sigma=sigma)
        width, height, content_type = image.width, image.height, image.mimetype
        sharpened = image.make_blob()

    s3.put_object(Bucket=target["bucket"], Key=target["key"], Body=sharpened, ContentType=content_type)
    return {"width": width, "height": height, "bytes": len(sharpened)}
