"""Tones an image sepia: OFC's "wand_sepia". Reads anything Pillow reads, writes PNG of the same size."""

from io import BytesIO

import boto3
from PIL import Image

# One row per output channel: its share of red, green and blue, and an offset. The tone every photo editor uses.
SEPIA = (
    0.393, 0.769, 0.189, 0,
    0.349, 0.686, 0.168, 0,
    0.272, 0.534, 0.131, 0,
)  # fmt: skip

s3 = boto3.client("s3")


def handler(event, context):
    source, target = event["input"], event["output"]

    body = s3.get_object(Bucket=source["bucket"], Key=source["key"])["Body"]
    with Image.open(BytesIO(body.read())) as image:
        toned = image.convert("RGB").convert("RGB", SEPIA)

    png = BytesIO()
    toned.save(png, format="PNG")
    size = png.tell()
    png.seek(0)
    s3.put_object(Bucket=target["bucket"], Key=target["key"], Body=png, ContentType="image/png")
    return {"width": toned.width, "height": toned.height, "bytes": size}
