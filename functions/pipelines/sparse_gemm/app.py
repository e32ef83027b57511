"""Multiplies two sparse matrices as a map and a reduction (after Apta's sparse GEMM): six stages of four functions.

A matrix is a list of its entries that are not zero. `split` halves the sum over what is between the factors, `mapper`
makes all products of a half, `shuffle` sorts them by the half of the result that they are of, `reducer` adds them up.
"""

import io

import boto3
import numpy as np

ENTRY = np.dtype([("row", "<u2"), ("column", "<u2"), ("value", "<f8")])

s3 = boto3.client("s3")


def read(event, name):
    body = s3.get_object(Bucket=event["bucket"], Key=event["read"][name])["Body"].read()
    return np.lib.format.read_array(io.BytesIO(body), allow_pickle=False)


def write(event, name, array):
    npy = io.BytesIO()
    np.lib.format.write_array(npy, array, allow_pickle=False)
    s3.put_object(
        Bucket=event["bucket"], Key=event["write"][name], Body=npy.getvalue(), ContentType="application/x-npy"
    )
    return npy.tell()


def split(event, context):
    left, right = read(event, "left"), read(event, "right")
    middle = (int(left["column"].max()) + 1) // 2
    sizes = []
    for at, half in enumerate((lambda index: index < middle, lambda index: index >= middle)):
        sizes.append(write(event, f"left-{at}", left[half(left["column"])]))
        sizes.append(write(event, f"right-{at}", right[half(right["row"])]))
    return {"bytes": sizes}


def mapper(event, context):
    left, right = (read(event, name) for name in event["read"])
    right = np.sort(right, order="row")
    begins = np.searchsorted(right["row"], left["column"], side="left")
    ends = np.searchsorted(right["row"], left["column"], side="right")
    counts = ends - begins
    # For each entry of the left, all of the right's row that it meets.
    of_left = np.repeat(np.arange(len(left)), counts)
    of_right = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts) + np.repeat(begins, counts)
    products = np.empty(len(of_left), ENTRY)
    products["row"] = left["row"][of_left]
    products["column"] = right["column"][of_right]
    products["value"] = left["value"][of_left] * right["value"][of_right]
    return {"bytes": write(event, next(iter(event["write"])), products)}


def shuffle(event, context):
    products = np.concatenate([read(event, name) for name in event["read"]])
    middle = (int(products["row"].max()) + 1) // 2
    upper = products["row"] < middle
    return {"bytes": [write(event, "upper", products[upper]), write(event, "lower", products[~upper])]}


def reducer(event, context):
    products = read(event, next(iter(event["read"])))
    columns = int(products["column"].max()) + 1
    places = products["row"].astype(np.int64) * columns + products["column"]
    sums = np.bincount(places, weights=products["value"])
    filled = np.flatnonzero(sums)
    result = np.empty(len(filled), ENTRY)
    result["row"], result["column"], result["value"] = filled // columns, filled % columns, sums[filled]
    return {"entries": len(result), "bytes": write(event, next(iter(event["write"])), result)}
