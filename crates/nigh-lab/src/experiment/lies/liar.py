"""Functions that lie about what they need: each lie is a function of its event, run again and again by one tenant.

Each takes what it can get and answers if it lives. Where a limit stops it that is its own affair: what counts is what
another tenant notices (see lies.rs).
"""

import gzip
import hashlib
import json
import mmap
import os
import random
import socket
import struct
import threading
import time
import zlib

import boto3

s3 = boto3.client("s3")
MIB = 1 << 20
kept = []


def booked():
    return int(os.environ["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"]) * MIB


def touched(size):
    """Memory of `size` bytes of which every page is in use."""
    area = mmap.mmap(-1, max(size, mmap.PAGESIZE))
    for at in range(0, size, mmap.PAGESIZE):
        area[at] = 1
    return area


def random_memory(event):
    """Needs anything between nothing and nearly all, whatever it is asked."""
    area = touched(int(booked() * random.uniform(0.02, 0.85)))
    return len(area)


def leak(event):
    """Keeps 16 MiB more after each invocation."""
    kept.append(touched(16 * MIB))
    return len(kept)


def small_then_burst(event):
    """Asks for little until it is believed, then for nearly all, by four threads at once."""
    if event["round"] % 30 != 29:
        return len(touched(4 * MIB))
    share = int(booked() * 0.8) // 4
    threads = [threading.Thread(target=touched, args=(share,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return share * 4


def burst_by_system_calls(event):
    """Has the kernel fill new memory, where a page that cannot be had is an error and not a wait."""
    parts = []
    with open("/dev/zero", "rb", buffering=0) as zeros:
        for _ in range(int(booked() * 0.7) // (8 * MIB)):
            part = bytearray(8 * MIB)
            if zeros.readinto(part) != len(part):
                raise OSError("a short read of /dev/zero")
            parts.append(part)
    return len(parts)


def more_than_booked(event):
    """Needs twice what it booked."""
    return len(touched(2 * booked()))


def fork_bomb(event):
    """Forks until it may not; each child computes."""
    children = []
    try:
        for _ in range(2000):
            child = os.fork()
            if child == 0:
                end = time.monotonic() + 2
                while time.monotonic() < end:
                    hashlib.sha256(b"x" * 4096).digest()
                os._exit(0)
            children.append(child)
    except OSError:
        pass
    for child in children:
        os.kill(child, 9)
        os.waitpid(child, 0)
    return len(children)


def full_tmpfs(event):
    """Fills what lies in memory and looks like a disk."""
    written = 0
    for folder in ("/tmp", "/dev/shm"):
        try:
            with open(f"{folder}/fill", "wb", buffering=0) as file:
                while written < 2 * booked():
                    written += file.write(b"\0" * MIB)
        except OSError:
            pass
    for folder in ("/tmp", "/dev/shm"):
        if os.path.exists(f"{folder}/fill"):
            os.unlink(f"{folder}/fill")
    return written


def page_cache(event):
    """Reads every file that it can see, to have the kernel keep them for it."""
    read = 0
    for folder, _, files in os.walk(os.path.dirname(os.__file__)):
        for name in files:
            try:
                with open(os.path.join(folder, name), "rb") as file:
                    read += len(file.read())
            except OSError:
                pass
        if read > 256 * MIB:
            break
    return read


def kernel_memory(event):
    """Fills pipes and sockets: memory that no process maps."""
    held, filled = [], 0
    try:
        while len(held) < 400:
            pair = os.pipe()
            held.append(pair)
            os.set_blocking(pair[1], False)
            filled += os.write(pair[1], b"\0" * 65536)
            ends = socket.socketpair()
            held.append(ends)
            ends[1].setblocking(False)
            filled += ends[1].send(b"\0" * 65536)
    except OSError:
        pass
    for one, other in held:
        if isinstance(one, int):
            os.close(one)
            os.close(other)
        else:
            one.close()
            other.close()
    return filled


def cache_flood(event):
    """Writes and reads objects as fast as it can, to have all of the cache."""
    for at in range(4):
        key = f"flood/{event['round'] % 16}-{at}"
        s3.put_object(Bucket=event["bucket"], Key=key, Body=os.urandom(4 * MIB))
        s3.get_object(Bucket=event["bucket"], Key=key)["Body"].read()
    return 4


def held_objects(event):
    """Holds on to everything that it reads."""
    key = f"held/{event['round'] % 8}"
    s3.put_object(Bucket=event["bucket"], Key=key, Body=os.urandom(4 * MIB))
    kept.append(s3.get_object(Bucket=event["bucket"], Key=key)["Body"].read())
    return len(kept)


def lying_headers(event):
    """Stores objects whose headers claim the impossible, and bombs."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 0x7FFFFFFF, 0x7FFFFFFF, 16, 6, 0, 0, 0)
    claims = {
        "image.png": b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IEND", b""),
        "sound.wav": b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\1\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x20\0"
        + b"data\xff\xff\xff\xff",
        "film.mp4": b"\xff\xff\xff\xffftypisom" + b"\0\0\0\1moov\xff\xff\xff\xff\xff\xff\xff\xff" * 64,
        "bomb.gz": gzip.compress(bytes(16 * MIB)),
        "table.npy": b"\x93NUMPY\1\0v\0{'descr': '<f8', 'fortran_order': False, 'shape': (999999999999, 99999999)}",
        "noise.zip": b"PK\5\6" + b"\xff" * 18,
    }
    for name, body in claims.items():
        s3.put_object(Bucket=event["bucket"], Key=f"claims/{event['round'] % 8}-{name}", Body=body)
    return len(claims)


def strange_arguments(event):
    """Is called with what no model was made for: see `arguments` in lies.rs."""
    return len(json.dumps(event))


def log_flood(event):
    """Prints sixteen megabytes."""
    for _ in range(16):
        print("x" * MIB)
    return 16


LIES = [
    random_memory,
    leak,
    small_then_burst,
    burst_by_system_calls,
    more_than_booked,
    fork_bomb,
    full_tmpfs,
    page_cache,
    kernel_memory,
    cache_flood,
    held_objects,
    lying_headers,
    strange_arguments,
    log_flood,
]
BY_NAME = {lie.__name__: lie for lie in LIES}


def handler(event, context):
    return BY_NAME[event["lie"]](event)


def honest(event, context):
    """The other tenant: reads its input, computes, writes what anybody can check."""
    body = s3.get_object(Bucket=event["bucket"], Key=event["input"])["Body"].read()
    digest = hashlib.sha256(body)
    for _ in range(event["turns"]):
        digest.update(body)
    text = digest.hexdigest()
    s3.put_object(Bucket=event["bucket"], Key=event["output"], Body=text.encode())
    return {"digest": text, "bytes": len(body), "again": s3.get_object(Bucket=event["bucket"], Key=event["output"])["Body"].read().decode()}


if __name__ == "__main__":
    print(json.dumps([{"lie": lie.__name__, "what": lie.__doc__.splitlines()[0]} for lie in LIES]))
