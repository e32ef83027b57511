"""What a call costs its caller, by each way, against a running node.

    AWS_ENDPOINT_URL_S3=... AWS_ACCESS_KEY_ID=... AWS_SECRET_ACCESS_KEY=... NIGH_FAST_PATH=... python -m tests.cost

One row of JSON a way, operation and size: `{path, op, bytes, rounds, p50_us, p99_us, cpu_us}`. The ways take turns,
a run of calls each, so that what else the machine does meets all alike. `cpu_us` is the median of the caller's thread
alone.
"""

import json
import time

import boto3

from nigh import Client, hook

BUCKET = "cost"
# Each way makes so many runs of calls, in turn with the others.
TURNS = 5
SIZES = {1 << 10: 1000, 128 << 10: 500, 1 << 20: 200, 10 << 20: 20}

http = boto3.session.Session().client("s3")
fast = boto3.session.Session().client("s3")
hook.install(fast)
client = Client()


def ways(key, body):
    place = {"Bucket": BUCKET, "Key": key}
    return {
        ("boto3 over HTTP", "get"): lambda: http.get_object(**place)["Body"].read(),
        ("boto3 by the hook", "get"): lambda: fast.get_object(**place)["Body"].read(),
        ("boto3 by the hook", "view"): lambda: fast.get_object(**place)["Body"].view()[0],
        ("nigh.Client", "get"): lambda: client.get_bytes(BUCKET, key),
        ("nigh.Client", "view"): lambda: client.get(BUCKET, key)[0],
        ("boto3 over HTTP", "put"): lambda: http.put_object(**place, Body=body),
        ("boto3 by the hook", "put"): lambda: fast.put_object(**place, Body=body),
        ("nigh.Client", "put"): lambda: client.put(BUCKET, key, body),
    }


def main():
    http.create_bucket(Bucket=BUCKET)
    for size, rounds in SIZES.items():
        body = bytes(size)
        calls = ways(f"{size}", body)
        http.put_object(Bucket=BUCKET, Key=f"{size}", Body=body)
        waited = {way: [] for way in calls}
        used = {way: [] for way in calls}
        # What changes the object comes after what reads it: a read after a write may be a miss.
        for operations in (("get", "view"), ("put",)):
            for way in [way for way in calls if way[1] in operations] * TURNS:
                for _ in range(rounds // TURNS):
                    began, cpu = time.perf_counter_ns(), time.thread_time_ns()
                    calls[way]()
                    used[way].append(time.thread_time_ns() - cpu)
                    waited[way].append(time.perf_counter_ns() - began)
        for way in calls:
            spans = sorted(waited[way])
            row = {"path": way[0], "op": way[1], "bytes": size, "rounds": rounds, "p50_us": spans[rounds // 2] / 1000}
            row.update(p99_us=spans[rounds * 99 // 100] / 1000, cpu_us=sorted(used[way])[rounds // 2] / 1000)
            print(json.dumps(row), flush=True)
    print(json.dumps({"calls": hook.counters()}))


if __name__ == "__main__":
    main()
