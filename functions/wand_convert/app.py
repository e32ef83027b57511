"""Writes an image in another format with ImageMagick: OFC's "sharp_convert", by the other library."""

import boto3
from wand.color import Color
from wand.image import Image

CONTENT_TYPES = {
    "bmp": "image/bmp",
    "gif": "image/gif",
    "jpeg": "image/jpeg",
    "png": "image/png",
    "tiff": "image/tiff",
    "webp": "image/webp",
}
# What shines through is painted white first: these formats have no transparency.
OPAQUE = ("bmp", "jpeg")

s3 = boto3.client("s3")


def handler(event, context):
    source, target = event["input"], event["output"]
    form = event.get("format", "png")
    if form not in CONTENT_TYPES:
        raise ValueError(f"format must be one of {', '.join(CONTENT_TYPES)}, not {form!r}")

    body = s3.get_object(Bucket=source["bucket"], Key=source["key"])["Body"]
    with Image(blob=body.read()) as image:
        if form in OPAQUE and image.alpha_channel:
            with Color("white") as paper:
                image.background_color = paper
            image.alpha_channel = "remove"
        width, height = image.size
        converted = image.make_blob(form)

    s3.put_object(Bucket=target["bucket"], Key=target["key"], Body=converted, ContentType=CONTENT_TYPES[form])
    return {"width": width, "height": height, "format": form, "bytes": len(converted)}
