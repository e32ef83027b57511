"""Makes a thumbnail: OFC's image thumbnails. Reads anything Pillow reads, writes JPEG that fits a square."""

from io import BytesIO

import boto3
from PIL import Image, ImageOps

s3 = boto3.client("s3")


def handler(event, context):
    source, target = event["input"], event["output"]
    side = int(event.get("side", 128))
    if not 1 <= side <= 4096:
        raise ValueError(f"side must be between 1 and 4096 pixels, not {side}")

    body = s3.get_object(Bucket=source["bucket"], Key=source["key"])["Body"]
    with Image.open(BytesIO(body.read())) as image:
        # A JPEG is decoded at a reduced size where that is enough: most of the work is never done.
        image.draft("RGB", (side, side))
        small = ImageOps.exif_transpose(image).convert("RGB")
        small.thumbnail((side, side))

    jpeg = BytesIO()
    small.save(jpeg, format="JPEG", quality=85)
    size = jpeg.tell()
    jpeg.seek(0)
    s3.put_object(Bucket=target["bucket"], Key=target["key"], Body=jpeg, ContentType="image/jpeg")
    return {"width": small.width, "height": small.height, "bytes": size}
