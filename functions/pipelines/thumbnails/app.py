"""Makes a thumbnail of a picture and keeps what is known of it (after ServerlessBench's image processing): five stages.

`extract_metadata` reads all that the picture says of itself, `transform_metadata` picks what is of interest, `register`
makes the entry of the log, `thumbnail` shrinks the picture, `store_metadata` keeps what is known.
"""

import io
import json
from fractions import Fraction

import boto3
from PIL import ExifTags, Image, ImageOps, ImageStat

# Pixels of a thumbnail's longer side.
SIDE = 250

s3 = boto3.client("s3")


def read(event, key):
    return s3.get_object(Bucket=event["bucket"], Key=key)["Body"].read()


def read_json(event, key):
    return json.loads(read(event, key))


def write(event, key, body, content_type):
    s3.put_object(Bucket=event["bucket"], Key=key, Body=body, ContentType=content_type)


def write_json(event, key, value):
    write(event, key, json.dumps(value).encode(), "application/json")


def text_of(value):
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def extract_metadata(event, context):
    body = read(event, event["image"])
    with Image.open(io.BytesIO(body)) as image:
        exif = image.getexif()
        tags = {ExifTags.TAGS.get(tag, str(tag)): text_of(value) for tag, value in exif.items()}
        place = exif.get_ifd(ExifTags.IFD.GPSInfo)
        tags.update({ExifTags.GPSTAGS.get(tag, str(tag)): text_of(value) for tag, value in place.items()})
        pixels = image.convert("RGB")
        statistics = ImageStat.Stat(pixels)
        metadata = {
            "format": image.get_format_mimetype(),
            "width": image.width,
            "height": image.height,
            "bytes": len(body),
            "exif": tags,
            "channels": {
                name: {"mean": round(mean, 3), "deviation": round(deviation, 3), "extremes": extremes}
                for name, mean, deviation, extremes in zip(
                    ("red", "green", "blue"), statistics.mean, statistics.stddev, statistics.extrema
                )
            },
            "histogram": pixels.histogram(),
        }
    write_json(event, event["metadata"], metadata)
    return {"metadata": event["metadata"]}


def degrees(text):
    """Degrees, minutes and seconds as `(49.0, 30.0, 0.0)` has them."""
    parts = [Fraction(part.strip()) for part in text.strip("()").split(",")]
    return float(sum(part / 60**at for at, part in enumerate(parts)))


def transform_metadata(event, context):
    metadata = read_json(event, event["metadata"])
    exif = metadata["exif"]
    summary = {
        "format": metadata["format"],
        "bytes": metadata["bytes"],
        "dimensions": {"width": metadata["width"], "height": metadata["height"]},
    }
    for name, tag in (("created", "DateTime"), ("make", "Make"), ("model", "Model")):
        if tag in exif:
            summary[name] = exif[tag]
    if {"GPSLatitude", "GPSLatitudeRef", "GPSLongitude", "GPSLongitudeRef"} <= exif.keys():
        summary["place"] = {
            "latitude": degrees(exif["GPSLatitude"]) * (-1 if exif["GPSLatitudeRef"] == "S" else 1),
            "longitude": degrees(exif["GPSLongitude"]) * (-1 if exif["GPSLongitudeRef"] == "W" else 1),
        }
    write_json(event, event["summary"], summary)
    return {"summary": event["summary"]}


def register(event, context):
    summary = read_json(event, event["summary"])
    entry = {"image": event["image"], "format": summary["format"], "bytes": summary["bytes"]}
    write_json(event, event["entry"], entry)
    return {"entry": event["entry"]}


def thumbnail(event, context):
    dimensions = read_json(event, event["summary"])["dimensions"]
    scale = min(1, SIDE / max(dimensions.values()))
    wanted = tuple(max(1, round(length * scale)) for length in (dimensions["width"], dimensions["height"]))
    with Image.open(io.BytesIO(read(event, event["image"]))) as image:
        # A JPEG is decoded at a reduced size where that is enough.
        image.draft("RGB", wanted)
        small = ImageOps.exif_transpose(image.convert("RGB").resize(wanted, Image.Resampling.BICUBIC))
    jpeg = io.BytesIO()
    small.save(jpeg, "JPEG", quality=85)
    write(event, event["thumbnail"], jpeg.getvalue(), "image/jpeg")
    return {"thumbnail": {"width": small.width, "height": small.height, "bytes": jpeg.tell()}}


def store_metadata(event, context):
    record = {
        **read_json(event, event["summary"]),
        "log": read_json(event, event["entry"]),
        "thumbnail": event["thumbnail"],
    }
    write_json(event, event["output"], record)
    return {"stored": record["dimensions"], "thumbnail": record["thumbnail"]}
