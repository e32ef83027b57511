"""Shows the edges of an image with ImageMagick: OFC's "wand_edge". Writes grey in the format it reads."""

import boto3
from wand.image import Image

s3 = boto3.client("s3")


def handler(event, context):
    source, target = event["input"], event["output"]
    radius = float(event.get("radius", 2.0))
    # The kernel has (2 radius + 1) squared cells: time grows with the square.
    if not 0 <= radius <= 10:
        raise ValueError(f"radius must be between 0 and 10 pixels, not {radius}")

    body = s3.get_object(Bucket=source["bucket"], Key=source["key"])["Body"]
    with Image(blob=body.read()) as image:
        image.transform_colorspace("gray")
        image.edge(radius=radius)
        width, height, content_type = image.width, image.height, image.mimetype
        edges = image.make_blob()

    s3.put_object(Bucket=target["bucket"], Key=target["key"], Body=edges, ContentType=content_type)
    return {"width": width, "height": height, "bytes": len(edges)}
