"""Adds echo and reverberation to a recording: CASY's "Effect". Reads and writes 16-bit PCM WAV of the same shape."""

import wave
from io import BytesIO

import boto3
import numpy as np

# Early reflections that make a room: how much later each arrives, and how loud. Delays that share no factor do not
# ring.
REVERB_TAPS = ((0.0297, 0.35), (0.0371, 0.30), (0.0411, 0.26), (0.0437, 0.22), (0.0713, 0.15), (0.0907, 0.10))

s3 = boto3.client("s3")


def add_echo_and_reverb(samples: np.ndarray, rate: int, delay_s: float, decay: float) -> np.ndarray:
    """`samples` is (frames, channels) of int16; so is the answer, as loud as the loudest input at most."""
    dry = samples.astype(np.float32)
    wet = dry.copy()
    for lag_s, gain in ((delay_s, decay), (2 * delay_s, decay * decay), *REVERB_TAPS):
        lag = round(lag_s * rate)
        if 0 < lag < len(dry):
            wet[lag:] += gain * dry[:-lag]
    loudest = np.abs(wet).max(initial=0.0)
    if loudest > np.iinfo(np.int16).max:
        wet *= np.iinfo(np.int16).max / loudest
    return wet.astype("<i2")


def handler(event, context):
    source, target = event["input"], event["output"]
    delay_s, decay = float(event.get("delay_s", 0.25)), float(event.get("decay", 0.5))
    if not (0 < delay_s <= 10 and 0 <= decay < 1):
        raise ValueError(f"delay_s must be in (0, 10] and decay in [0, 1), not {delay_s} and {decay}")

    body = s3.get_object(Bucket=source["bucket"], Key=source["key"])["Body"]
    with wave.open(BytesIO(body.read())) as recording:
        channels, width, rate = recording.getnchannels(), recording.getsampwidth(), recording.getframerate()
        if width != 2:
            raise ValueError(f"only 16-bit PCM WAV is understood, not {8 * width}-bit")
        samples = np.frombuffer(recording.readframes(recording.getnframes()), dtype="<i2").reshape(-1, channels)

    treated = add_echo_and_reverb(samples, rate, delay_s, decay)
    wav = BytesIO()
    with wave.open(wav, "wb") as recording:
        recording.setnchannels(channels)
        recording.setsampwidth(2)
        recording.setframerate(rate)
        recording.writeframes(treated.tobytes())
    size = wav.tell()
    wav.seek(0)
    s3.put_object(Bucket=target["bucket"], Key=target["key"], Body=wav, ContentType="audio/wav")
    return {"seconds": round(len(treated) / rate, 3), "channels": channels, "rate": rate, "bytes": size}
