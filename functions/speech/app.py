"""Writes down what is said: CASY's "Speech Recognition". Reads any recording ffmpeg reads, writes JSON."""

import json
import subprocess
import tempfile

import boto3
import imageio_ffmpeg
from pocketsphinx import Decoder, Segmenter

FFMPEG = imageio_ffmpeg.get_ffmpeg_exe()
# What the bundled US English model was trained on: 16 kHz, one channel, 16 bit.
RATE = 16_000

s3 = boto3.client("s3")
decoder = Decoder(samprate=RATE, loglevel="ERROR")


def transcribe(recording) -> list[dict]:
    """One entry for each stretch of speech; silence between them is skipped, so memory does not grow with length."""
    command = [
        FFMPEG, "-hide_banner", "-loglevel", "error", "-nostdin", "-i", recording.name,
        "-f", "s16le", "-ac", "1", "-ar", str(RATE), "-",
    ]  # fmt: skip
    spoken = []
    with (
        tempfile.TemporaryFile() as complaints,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=complaints) as ffmpeg,
    ):
        for stretch in Segmenter(sample_rate=RATE).segment(ffmpeg.stdout):
            decoder.start_utt()
            decoder.process_raw(stretch.pcm, full_utt=True)
            decoder.end_utt()
            if (hypothesis := decoder.hyp()) is not None and hypothesis.hypstr:
                times = {"start_s": round(stretch.start_time, 2), "end_s": round(stretch.end_time, 2)}
                spoken.append({**times, "text": hypothesis.hypstr})
        if ffmpeg.wait() != 0:
            complaints.seek(0)
            message = complaints.read().decode(errors="replace").strip()
            raise RuntimeError(f"ffmpeg ended with {ffmpeg.returncode}: {message[-1000:]}")
    return spoken


def handler(event, context):
    source, target = event["input"], event["output"]

    with tempfile.NamedTemporaryFile() as recording:
        body = s3.get_object(Bucket=source["bucket"], Key=source["key"])["Body"]
        for chunk in body.iter_chunks(1 << 20):
            recording.write(chunk)
        recording.flush()
        spoken = transcribe(recording)

    text = " ".join(stretch["text"] for stretch in spoken)
    s3.put_object(
        Bucket=target["bucket"],
        Key=target["key"],
        Body=json.dumps({"text": text, "stretches": spoken}).encode(),
        ContentType="application/json",
    )
    return {"words": len(text.split()), "stretches": len(spoken), "text": text[:200]}
