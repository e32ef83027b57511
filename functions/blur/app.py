"""Blurs an image: CASY's "Blur". Reads anything Pillow reads, writes PNG of the same size."""

from io import BytesIO

import boto3
from PIL import Image, ImageFilter

# The modes a Gaussian blur is defined on; palettes and bitmaps are turned into colours first.
BLURRABLE_MODES = {"L", "LA", "RGB", "RGBA"}

s3 = boto3.client("s3")


def handler(event, context):
    source, target = event["input"], event["output"]
    sigma = float(event.get("sigma", 2.0))
    if not 0 <= sigma <= 1000:
        raise ValueError(f"sigma must be between 0 and 1000 pixels, not {sigma}")

    body = s3.get_object(Bucket=source["bucket"], Key=source["key"])["Body"]
    with Image.open(BytesIO(body.read())) as image:
        if image.mode not in BLURRABLE_MODES:
            image = image.convert("RGBA" if image.has_transparency_data else "RGB")
        blurred = image.filter(ImageFilter.GaussianBlur(sigma))

    png = BytesIO()
    blurred.save(png, format="PNG")
    size = png.tell()
    png.seek(0)
    s3.put_object(Bucket=target["bucket"], Key=target["key"], Body=png, ContentType="image/png")
    return {"width": blurred.width, "height": blurred.height, "bytes": size}
