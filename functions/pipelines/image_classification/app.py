"""Says what the pictures of an application show (after IMAD, the detector of illegitimate applications in OFC's
evaluation): four stages.

`unpack` takes the pictures out of the archive, `features` looks at some of them, `classify` runs a small network on
what was found, `report` adds up what the application shows.
"""

import io
import json
import zipfile
from collections import Counter

import boto3
import numpy as np
from network import PATTERNS, SIDE, scores_of, spectrum
from PIL import Image

SUFFIXES = (".jpg", ".jpeg", ".png")
# Of a picture that is taken out.
PICTURE_BYTES_MAX = 64 << 20

s3 = boto3.client("s3")


def read(event, key):
    return s3.get_object(Bucket=event["bucket"], Key=key)["Body"].read()


def write(event, key, body, content_type):
    s3.put_object(Bucket=event["bucket"], Key=key, Body=body, ContentType=content_type)


def npy(array):
    written = io.BytesIO()
    np.lib.format.write_array(written, array, allow_pickle=False)
    return written.getvalue()


def unpack(event, context):
    """Each picture becomes an object; `batch` of them go on together."""
    batch, keys = int(event["batch"]), []
    if batch < 1:
        raise ValueError(f"batch must be at least 1, not {batch}")
    with zipfile.ZipFile(io.BytesIO(read(event, event["archive"]))) as archive:
        for entry in sorted(archive.infolist(), key=lambda entry: entry.filename):
            if not entry.filename.lower().endswith(SUFFIXES) or entry.file_size > PICTURE_BYTES_MAX:
                continue
            key = f"{event['scratch']}picture-{len(keys):05}"
            write(event, key, archive.read(entry), "application/octet-stream")
            keys.append(key)
    return {"batches": [keys[at : at + batch] for at in range(0, len(keys), batch)]}


def features(event, context):
    """The spectra of each picture's parts, and where each picture's begin."""
    found, begins = [], [0]
    for key in event["pictures"]:
        with Image.open(io.BytesIO(read(event, key))) as picture:
            grey = np.asarray(picture.convert("L"), np.float32) / 255
        height, width = (length // SIDE for length in grey.shape)
        tiles = grey[: height * SIDE, : width * SIDE].reshape(height, SIDE, width, SIDE).swapaxes(1, 2)
        found.append(spectrum(tiles.reshape(-1, SIDE, SIDE)))
        begins.append(begins[-1] + len(found[-1]))
    write(event, event["features"], npy(np.concatenate(found)), "application/x-npy")
    return {"features": event["features"], "begins": begins}


def classify(event, context):
    found = np.lib.format.read_array(io.BytesIO(read(event, event["features"])), allow_pickle=False)
    with np.load(io.BytesIO(read(event, event["model"])), allow_pickle=False) as stored:
        model = {name: stored[name] for name in ("weights", "bias", "readout")}
    each = scores_of(model, found)
    pictures = [each[begin:end].mean(axis=0) for begin, end in zip(event["begins"], event["begins"][1:])]
    write(event, event["scores"], npy(np.stack(pictures)), "application/x-npy")
    return {"scores": event["scores"]}


def report(event, context):
    parts = [np.lib.format.read_array(io.BytesIO(read(event, key)), allow_pickle=False) for key in event["scores"]]
    scores = np.concatenate(parts)
    shown = [PATTERNS[int(kind)] for kind in scores.argmax(axis=1)]
    summary = dict(sorted(Counter(shown).items()))
    body = {"summary": summary, "pictures": shown, "scores": np.round(scores.max(axis=1).astype(float), 3).tolist()}
    write(event, event["output"], json.dumps(body).encode(), "application/json")
    return {"summary": summary}
