"""Says which pattern a photograph shows (after Apta's image prediction): three stages.

`resize` decodes and shrinks it, `predict` runs a small network on it and on its parts, `render` draws the answer.
"""

import io
import json

import boto3
import numpy as np
from network import PATTERNS, SIDE, scores
from PIL import Image

WIDTH, HEIGHT = 730, 550

s3 = boto3.client("s3")


def read(event, name):
    return s3.get_object(Bucket=event["bucket"], Key=event["read"][name])["Body"].read()


def write(event, name, body, content_type):
    s3.put_object(Bucket=event["bucket"], Key=event["write"][name], Body=body, ContentType=content_type)


def resize(event, context):
    with Image.open(io.BytesIO(read(event, "photo"))) as photo:
        # JPEG can be decoded smaller, which is faster.
        photo.draft("RGB", (WIDTH, HEIGHT))
        small = photo.convert("RGB").resize((WIDTH, HEIGHT), Image.Resampling.BILINEAR)
    npy = io.BytesIO()
    np.lib.format.write_array(npy, np.asarray(small), allow_pickle=False)
    write(event, "small", npy.getvalue(), "application/x-npy")
    return {"bytes": npy.tell()}


def predict(event, context):
    small = np.lib.format.read_array(io.BytesIO(read(event, "small")), allow_pickle=False)
    with np.load(io.BytesIO(read(event, "model")), allow_pickle=False) as stored:
        model = {name: stored[name] for name in ("weights", "bias", "readout")}
    grey = small.astype(np.float32).mean(axis=2) / 255
    corners = [(y, x) for y in range(0, HEIGHT - SIDE, SIDE // 2) for x in range(0, WIDTH - SIDE, SIDE // 2)]
    tiles = np.stack([grey[y : y + SIDE, x : x + SIDE] for y, x in corners])
    found = scores(model, tiles)
    parts = [
        {"at": list(corner), "scores": [round(float(one), 4) for one in row]} for corner, row in zip(corners, found)
    ]
    mean = found.mean(axis=0)
    answer = {"pattern": PATTERNS[int(mean.argmax())], "score": round(float(mean.max()), 4)}
    write(event, "prediction", json.dumps({**answer, "parts": parts}).encode(), "application/json")
    return answer


def render(event, context):
    prediction = json.loads(read(event, "prediction"))
    drawn = f'<svg xmlns="http://www.w3.org/2000/svg"><text y="9">{prediction["pattern"]}</text></svg>'
    write(event, "drawing", drawn.encode(), "image/svg+xml")
    return {"pattern": prediction["pattern"]}
