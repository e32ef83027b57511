"""Takes the noise out of an image with ImageMagick: OFC's "wand_denoise". Writes the format it reads.

OFC removes noise by wavelets, which only ImageMagick 7 can; its despeckling and a median do here what 6 has.
"""

import boto3
from wand.image import Image

METHODS = ("despeckle", "median")

s3 = boto3.client("s3")


def handler(event, context):
    source, target = event["input"], event["output"]
    method, size = event.get("method", "despeckle"), int(event.get("size", 3))
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, not {method!r}")
    if not 1 <= size <= 9:
        raise ValueError(f"size, the side of the median's window, must be between 1 and 9 pixels, not {size}")

    body = s3.get_object(Bucket=source["bucket"], Key=source["key"])["Body"]
    with Image(blob=body.read()) as image:
        if method == "despeckle":
            image.despeckle()
        else:
            image.statistic("median", width=size, height=size)
        width, height, content_type = image.width, image.height, image.mimetype
        clean = image.make_blob()

    s3.put_object(Bucket=target["bucket"], Key=target["key"], Body=clean, ContentType=content_type)
    return {"width": width, "height": height, "bytes": len(clean)}
