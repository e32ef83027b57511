"""Makes a thumbnail with ImageMagick: OFC's image thumbnails. Fits a square, keeps the format, drops the metadata."""

import boto3
from wand.image import Image

s3 = boto3.client("s3")


def handler(event, context):
    source, target = event["input"], event["output"]
    side = int(event.get("side", 128))
    if not 1 <= side <= 4096:
        raise ValueError(f"side must be between 1 and 4096 pixels, not {side}")

    body = s3.get_object(Bucket=source["bucket"], Key=source["key"])["Body"]
    with Image(blob=body.read()) as image:
        # A camera's turn is in the metadata, which a thumbnail drops.
        image.auto_orient()
        scale = min(1, side / max(image.size))
        width, height = (max(1, round(length * scale)) for length in image.size)
        image.thumbnail(width, height)
        image.strip()
        content_type = image.mimetype
        small = image.make_blob()

    s3.put_object(Bucket=target["bucket"], Key=target["key"], Body=small, ContentType=content_type)
    return {"width": width, "height": height, "bytes": len(small)}
