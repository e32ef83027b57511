"""Multiplies a matrix: FunctionBench's "matmul". Reads one .npy of two dimensions, writes one of float64.

`gram` is the transpose times the matrix itself; `power` multiplies a square matrix with itself `exponent` times.
"""

from io import BytesIO

import boto3
import numpy as np

OPERATIONS = ("gram", "power")

s3 = boto3.client("s3")


def handler(event, context):
    source, target = event["input"], event["output"]
    operation, exponent = event.get("operation", "gram"), int(event.get("exponent", 3))
    if operation not in OPERATIONS:
        raise ValueError(f"operation must be one of {', '.join(OPERATIONS)}, not {operation!r}")
    if not 2 <= exponent <= 64:
        raise ValueError(f"exponent must be between 2 and 64, not {exponent}")

    body = s3.get_object(Bucket=source["bucket"], Key=source["key"])["Body"]
    # Only plain numbers: an .npy with Python objects in it would run code.
    matrix = np.lib.format.read_array(BytesIO(body.read()), allow_pickle=False)
    if matrix.ndim != 2 or matrix.size == 0 or matrix.dtype.kind not in "iuf":
        raise ValueError(f"a matrix of numbers was expected, not {matrix.dtype} of shape {matrix.shape}")
    if operation == "power" and matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"only a square matrix has powers, not one of shape {matrix.shape}")

    matrix = matrix.astype(np.float64, copy=False)
    product = matrix.T @ matrix if operation == "gram" else np.linalg.matrix_power(matrix, exponent)
    npy = BytesIO()
    np.lib.format.write_array(npy, product, allow_pickle=False)
    s3.put_object(Bucket=target["bucket"], Key=target["key"], Body=npy.getvalue(), ContentType="application/x-npy")
    return {"rows": product.shape[0], "columns": product.shape[1], "bytes": npy.tell()}
